"""What workers of an engine do for the factory: answers of teachers that cost nothing, videos, and their hashes.

Teachers behind a server are asked by the command itself: what they cost is counted in one place, before it is spent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from rewardlab.augmentation.teacher_questions import Question, Role
from rewardlab.augmentation.teachers import NamedTeacher, Teacher
from rewardlab.core.episode import Episode
from rewardlab.core.errors import RunError
from rewardlab.core.trial import Failure
from rewardlab.data.duplicates import HashedVideo, Video
from rewardlab.data.writers.video_copy import write_video
from rewardlab.models.contract import Budget
from rewardlab.runner.dispatch import ItemWorkers
from rewardlab.runner.engines.contract import EngineSettings


@dataclass
class BuiltTeachers:
    """The teachers of one worker, each built when it is first asked."""

    named: Mapping[Role, NamedTeacher]
    built: dict[str, Teacher] = field(default_factory=dict)

    def find(self, role: Role) -> Teacher:
        """Return the teacher of a role."""
        named = self.named[role]
        if named.name not in self.built:
            self.built[named.name] = named.build(Budget())
        return self.built[named.name]


class Task(Protocol):
    """Something that a worker does; tasks of one `home` meet the same worker."""

    @property
    def home(self) -> int:
        """Return which tasks it belongs with."""

    def do(self, teachers: BuiltTeachers) -> Any:
        """Do it, in a worker."""

    def parts(self) -> "Sequence[Task]":
        """Return what is tried alone where a worker died of it."""


@dataclass(frozen=True, eq=False)
class QuestionGroup:
    """Questions that a teacher is asked together."""

    role: Role
    questions: tuple[Question, ...]
    home: int

    def do(self, teachers: BuiltTeachers) -> Sequence[str | Failure]:
        """Return the teacher's answers."""
        return list(teachers.find(self.role).answer(self.questions))

    def parts(self) -> "Sequence[QuestionGroup]":
        """Return each question alone."""
        return [replace(self, questions=(question,)) for question in self.questions]


@dataclass(frozen=True, eq=False)
class VideoToWrite:
    """A clip that becomes a file."""

    episode: Episode
    target: Path
    home: int

    def do(self, teachers: BuiltTeachers) -> None:
        """Decode and encode the clip."""
        write_video(self.episode, self.target)

    def parts(self) -> "Sequence[VideoToWrite]":
        """Return the task itself."""
        return [self]


@dataclass(frozen=True, eq=False)
class VideoToHash:
    """A video that is looked at for near copies."""

    work: Callable[[Video], HashedVideo]
    video: Video
    home: int

    def do(self, teachers: BuiltTeachers) -> HashedVideo:
        """Return the hashes of the video."""
        return self.work(self.video)

    def parts(self) -> "Sequence[VideoToHash]":
        """Return the task itself."""
        return [self]


@dataclass(frozen=True)
class Died:
    """A task killed its worker, alone, for the second time."""

    reason: str


Replies = Sequence[tuple[Question, str | Failure | Died]]


class FactoryWorkers:
    """The workers of one augmentation; they start when there is something for them to do."""

    def __init__(self, teachers: Mapping[Role, NamedTeacher], workers: int, settings: EngineSettings) -> None:
        here = {role: teacher for role, teacher in teachers.items() if not teacher.server}
        weights = any(teacher.backend is not None for teacher in here.values())
        count = 1 if weights and not settings.gpus else workers  # weights are there once, unless each has its share
        self._workers = ItemWorkers[Task, Any](
            partial(_do, BuiltTeachers(here)), count, settings, home=lambda task: task.home
        )

    def __enter__(self) -> "FactoryWorkers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.__exit__(kind, error, trace)

    def answers(self, groups: Sequence[QuestionGroup]) -> Iterator[Replies]:
        """Yield the questions of each group with their answers, as they come."""
        for group, replies in self._settled(groups):
            each = [replies] * len(group.questions) if isinstance(replies, Died) else replies
            yield list(zip(group.questions, each, strict=True))

    def write_videos(self, videos: Sequence[tuple[Episode, Path]]) -> dict[Path, str]:
        """Write every video, and return those that killed their worker, and how."""
        died: dict[Path, str] = {}
        tasks = [VideoToWrite(episode, target, place) for place, (episode, target) in enumerate(videos)]
        for task, end in self._settled(tasks):
            if isinstance(end, Died):
                died[task.target] = end.reason
            elif not task.target.exists():
                raise RunError(f"{task.target} was written by a worker and is not here; all machines must share --out")
        return died

    def hash_videos(self, work: Callable[[Video], HashedVideo], videos: Sequence[Video]) -> Iterator[HashedVideo]:
        """Yield the hashes of every video, as they come; one that killed its worker has none."""
        tasks = [VideoToHash(work, video, place) for place, video in enumerate(videos)]
        for task, found in self._settled(tasks):
            yield (task.video[0], None) if isinstance(found, Died) else found

    def _settled(self, tasks: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield each task with what came of it; what killed a worker is tried once more, each part alone."""
        again: list[Task] = []
        for task, found in zip(tasks, self._workers.map(tasks, _died), strict=True):
            if isinstance(found, Died):
                again += task.parts()
            else:
                yield task, found
        yield from zip(again, self._workers.map(again, _died), strict=True)


def _do(teachers: BuiltTeachers, task: Task) -> Any:
    return task.do(teachers)


def _died(task: Task, why: str) -> Died:
    return Died(f"{why}, a second time when it was alone")
