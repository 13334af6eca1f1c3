"""Many episodes ask at once: cache on disk, budget in one process, local teachers and videos on workers.

Teachers behind a server are asked here, so that one process counts what they cost; the others on the workers.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

from rewardlab.augmentation.questions import MAX_TOKENS, TOGETHER, Interview, Question, Role, TeacherAnswer
from rewardlab.augmentation.teachers import NamedTeacher, Teacher
from rewardlab.core.episode import Episode
from rewardlab.core.errors import RunError, StopRun
from rewardlab.core.limits import ANSWER_CHARACTERS
from rewardlab.core.old_settings import EngineSettings
from rewardlab.core.records import parse_json
from rewardlab.core.seeding import digest
from rewardlab.core.storage import writable
from rewardlab.core.terminal import one_line
from rewardlab.core.trial import Failure
from rewardlab.data.duplicates import HashedVideo, Video
from rewardlab.data.video import write_video
from rewardlab.evaluation.engines.ordered_map import ItemWorkers
from rewardlab.models.contract import Budget

CALLS = "calls.jsonl"


class CallCache:
    """Answers of teachers by what was asked of whom."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / CALLS
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self.path.touch()
        self._answers = _read(self.path)

    def find(self, teacher: NamedTeacher, question: Question) -> str | None:
        """Return the answer to this question, None where this teacher was never asked it."""
        return self._answers.get(_key(teacher, question))

    def keep(self, teacher: NamedTeacher, question: Question, answer: str) -> None:
        """Write an answer down; when this returns it survives any crash."""
        key = _key(teacher, question)
        about = {"teacher": teacher.name, "prompt_hash": question.prompt_hash, "kind": question.kind}
        line = json.dumps({"key": key, **about, "answer": answer})
        with writable(self.path), self.path.open("ab") as file:
            file.write(b"\n" + line.encode())  # a newline first: a torn line before this one ends here
            file.flush()
            os.fsync(file.fileno())
        self._answers[key] = answer

    def __len__(self) -> int:
        return len(self._answers)


def _key(teacher: NamedTeacher, question: Question) -> str:
    return digest(teacher.identity, question.prompt_hash, MAX_TOKENS[question.kind])


def _read(path: Path) -> dict[str, str]:
    known: dict[str, str] = {}
    try:
        with path.open("rb") as file:
            for line in file:
                entry = _entry(line)
                if entry is not None:
                    known[entry[0]] = entry[1]
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}; fix the permission or name another --calls") from error
    return known


def _entry(line: bytes) -> tuple[str, str] | None:
    try:
        entry = parse_json(line)
        key, answer = entry["key"], entry["answer"]
    except (ValueError, LookupError, TypeError):
        return None
    sound = isinstance(key, str) and isinstance(answer, str) and len(answer) <= ANSWER_CHARACTERS.value
    return (key, answer) if sound else None


# What workers of an engine do for the factory: answers of teachers that cost nothing, videos, and their hashes.
#
# Teachers behind a server are asked by the command itself: what they cost is counted in one place, before it is spent.


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
        weights = any(teacher.exclusive for teacher in here.values())
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


Made = TypeVar("Made")
_MOST_FAILURES = 20  # of a teacher that never answered before the run ends
_TO_A_SERVER = 32  # questions handed to it at once, whose frames are all in memory
_TO_A_WORKER = 8  # interviews whose questions go to one worker together


class BatchedTeacher:
    """Asks teachers, builds each when it is first needed, and counts what was asked and what the cache knew."""

    def __init__(
        self, teachers: Mapping[Role, NamedTeacher], budget: Budget, cache: CallCache, workers: FactoryWorkers
    ) -> None:
        self.teachers, self.cache = teachers, cache
        self.asked: Counter[str] = Counter()  # by kind of question
        self.known: Counter[str] = Counter()
        self._budget, self._workers = budget, workers
        self._built: dict[str, Teacher] = {}
        self._silent: Counter[str] = Counter()  # failures of teachers that have not answered yet
        self._deadly: dict[tuple[str, str], str] = {}  # by teacher and episode: what workers died with

    def conduct(self, interviews: Iterable[Interview[Made]]) -> Iterator[Made]:
        """Yield what each interview made, in order; up to TOGETHER of them ask at the same time."""
        waiting = iter(interviews)
        while some := list(islice(waiting, TOGETHER)):
            yield from self._together(some)

    def _together(self, interviews: Sequence[Interview[Made]]) -> list[Made]:
        made: dict[int, Made] = {}
        answers: dict[int, TeacherAnswer | None] = dict.fromkeys(range(len(interviews)))
        while answers:
            questions: dict[int, Question] = {}
            for place, answer in answers.items():
                try:
                    questions[place] = next(interviews[place]) if answer is None else interviews[place].send(answer)
                except StopIteration as end:
                    made[place] = end.value
            answers = self._answer(questions)
        return [made[place] for place in range(len(interviews))]

    def _answer(self, questions: Mapping[int, Question]) -> dict[int, TeacherAnswer | None]:
        """Return the answer to each question; what the cache does not know is asked, the same question once."""
        unknown: dict[Role, dict[str, tuple[int, Question]]] = {}
        for place, question in questions.items():
            if self.cache.find(self.teachers[question.role], question) is None:
                unknown.setdefault(question.role, {}).setdefault(question.prompt_hash, (place, question))
            else:
                self.known[question.kind] += 1
        failed = {key: why for role, asked in unknown.items() for key, why in self._ask(role, asked).items()}
        return {place: self._found(question, failed) for place, question in questions.items()}

    def _ask(self, role: Role, questions: Mapping[str, tuple[int, Question]]) -> dict[str, str]:
        """Ask a teacher and keep what it answers; return why it failed, by the hash of the prompt."""
        named, failed, asked = self.teachers[role], dict[str, str](), list[tuple[int, Question]]()
        for key, (place, question) in questions.items():
            why = self._deadly.get((named.name, question.episode.id))
            if why is None:
                asked.append((place, question))
            else:
                failed[key] = why
        for replies in self._ask_here(named, asked) if named.server else self._ask_workers(role, asked):
            failed |= self._keep(named, replies)
        return failed

    def _ask_here(self, named: NamedTeacher, asked: Sequence[tuple[int, Question]]) -> Iterator[Replies]:
        """Yield what a teacher says that is asked by this process, some questions at a time."""
        if named.name not in self._built:
            self._built[named.name] = named.build(self._budget)
        for start in range(0, len(asked), _TO_A_SERVER):
            some = [question for _, question in asked[start : start + _TO_A_SERVER]]
            yield list(zip(some, self._built[named.name].answer(some), strict=True))

    def _ask_workers(self, role: Role, asked: Sequence[tuple[int, Question]]) -> Iterator[Replies]:
        """Yield what a teacher says that workers ask; neighbours go together, and always to the same worker."""
        groups: dict[int, list[Question]] = {}
        for place, question in asked:
            groups.setdefault(place // _TO_A_WORKER, []).append(question)
        yield from self._workers.answers([QuestionGroup(role, tuple(some), home) for home, some in groups.items()])

    def _keep(self, named: NamedTeacher, replies: Replies) -> dict[str, str]:
        """Keep answers, and return why the others failed; an episode that killed its worker is not shown again."""
        failed: dict[str, str] = {}
        self.asked.update(question.kind for question, _ in replies)
        for question, reply in replies:
            if isinstance(reply, str):
                self.cache.keep(named, question, reply[: ANSWER_CHARACTERS.value])
            else:
                failed[question.prompt_hash] = reply.reason
            if isinstance(reply, Died):
                self._deadly[named.name, question.episode.id] = reply.reason
        self._count(named.name, failed, answered=len(replies) - len(failed))
        return failed

    def _count(self, name: str, failed: Mapping[str, str], *, answered: int) -> None:
        """End the run where a teacher has failed so often and never answered."""
        if answered:
            self._silent[name] = -sys.maxsize
        self._silent[name] += len(failed)
        if self._silent[name] >= _MOST_FAILURES:
            why = next(iter(failed.values()))
            raise StopRun(one_line(f"{name} failed {self._silent[name]} times and never answered: {why}"))

    def _found(self, question: Question, failed: Mapping[str, str]) -> TeacherAnswer:
        teacher = self.teachers[question.role]
        text = self.cache.find(teacher, question)
        why = "" if text is not None else failed.get(question.prompt_hash, "no answer")
        return TeacherAnswer(text or "", teacher.name, question.prompt_hash, why)
