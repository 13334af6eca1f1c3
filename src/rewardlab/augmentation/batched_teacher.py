"""Questions of many rows to teachers at once: a cache on disk, and workers for local teachers and videos.

Teachers behind a server are queried by the command itself, so that one process counts the cost before it is spent.
Teachers without a server run on the workers.
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

from rewardlab.augmentation.questions import MAX_TOKENS, TOGETHER, Queries, Question, Role, TeacherAnswer
from rewardlab.augmentation.teachers import NamedTeacher, Teacher
from rewardlab.core.episode import Episode
from rewardlab.core.errors import RunError, StopRun
from rewardlab.core.limits import ANSWER_CHARACTERS
from rewardlab.core.records import parse_json
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Execution
from rewardlab.core.storage import writable
from rewardlab.core.terminal import one_line
from rewardlab.core.trial import Failure
from rewardlab.data.duplicates import HashedVideo, Video
from rewardlab.data.video import write_video
from rewardlab.evaluation.engines.ordered_map import ItemWorkers
from rewardlab.models.contract import Budget

CALLS = "calls.jsonl"
_MAX_FAILURES = 20  # of a teacher that has never answered; then the run stops
_SERVER_BATCH = 32  # questions; all their frames are in memory at once
_WORKER_BATCH = 8  # neighbouring rows whose questions go to one worker together
Made = TypeVar("Made")


class CallCache:
    """All answers of teachers on disk, by teacher and question."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / CALLS
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self.path.touch()
        self._answers = _read(self.path)

    def find(self, teacher: NamedTeacher, question: Question) -> str | None:
        """Return the answer of this teacher to this question, None where there is none yet."""
        return self._answers.get(_key(teacher, question))

    def keep(self, teacher: NamedTeacher, question: Question, answer: str) -> None:
        """Append an answer to the file; once this returns, a crash does not lose it."""
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
        raise RunError(
            f"cannot read {path}: {error.strerror}; fix the permission or name another --cache-dir"
        ) from error
    return known


def _entry(line: bytes) -> tuple[str, str] | None:
    try:
        entry = parse_json(line)
        key, answer = entry["key"], entry["answer"]
    except (ValueError, LookupError, TypeError):
        return None
    sound = isinstance(key, str) and isinstance(answer, str) and len(answer) <= ANSWER_CHARACTERS.value
    return (key, answer) if sound else None


@dataclass
class BuiltTeachers:
    """The teachers of one worker, each built on first use."""

    named: Mapping[Role, NamedTeacher]
    built: dict[str, Teacher] = field(default_factory=dict)

    def find(self, role: Role) -> Teacher:
        """Return the teacher of a role."""
        named = self.named[role]
        if named.name not in self.built:
            self.built[named.name] = named.build(Budget())
        return self.built[named.name]


class Task(Protocol):
    """A unit of work for a worker; tasks with the same `home` go to the same worker."""

    @property
    def home(self) -> int:
        """Return the number that groups tasks."""

    def do(self, teachers: BuiltTeachers) -> Any:
        """Do the work, in a worker."""

    def parts(self) -> "Sequence[Task]":
        """Return what is retried one by one after the worker crashed."""


@dataclass(frozen=True, eq=False)
class QuestionGroup:
    """Questions that go to a teacher as one batch."""

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
    """A clip to write as a video file."""

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
    """A video to hash, for the search for near copies."""

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
class Crashed:
    """A task that crashed its worker a second time, when it was alone."""

    reason: str


Replies = Sequence[tuple[Question, str | Failure | Crashed]]


class FactoryWorkers:
    """The workers of one augmentation; they start with the first task."""

    def __init__(self, teachers: Mapping[Role, NamedTeacher], execution: Execution) -> None:
        here = {role: teacher for role, teacher in teachers.items() if not teacher.server}
        weights = any(teacher.exclusive for teacher in here.values())
        one_copy = weights and not execution.gpus  # of the weights, unless GPUs are shared
        count = 1 if one_copy else execution.workers
        self._workers = ItemWorkers[Task, Any](
            partial(_do, BuiltTeachers(here)), count, execution, home=lambda task: task.home
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
            each = [replies] * len(group.questions) if isinstance(replies, Crashed) else replies
            yield list(zip(group.questions, each, strict=True))

    def write_videos(self, videos: Sequence[tuple[Episode, Path]]) -> dict[Path, str]:
        """Write every video; return those that crashed their worker, with the reason."""
        crashed: dict[Path, str] = {}
        tasks = [VideoToWrite(episode, target, place) for place, (episode, target) in enumerate(videos)]
        for task, end in self._settled(tasks):
            if isinstance(end, Crashed):
                crashed[task.target] = end.reason
            elif not task.target.exists():
                raise RunError(
                    f"{task.target} was written by a worker and is missing here; all machines must share --out"
                )
        return crashed

    def hash_videos(self, work: Callable[[Video], HashedVideo], videos: Sequence[Video]) -> Iterator[HashedVideo]:
        """Yield the hashes of every video, as they come; a video that crashed its worker has none."""
        tasks = [VideoToHash(work, video, place) for place, video in enumerate(videos)]
        for task, found in self._settled(tasks):
            yield (task.video[0], None) if isinstance(found, Crashed) else found

    def _settled(self, tasks: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield each task with its result; what crashed a worker is retried once, each part alone."""
        retries: list[Task] = []
        for task, found in zip(tasks, self._workers.map(tasks, _crashed), strict=True):
            if isinstance(found, Crashed):
                retries += task.parts()
            else:
                yield task, found
        yield from zip(retries, self._workers.map(retries, _crashed), strict=True)


def _do(teachers: BuiltTeachers, task: Task) -> Any:
    return task.do(teachers)


def _crashed(task: Task, why: str) -> Crashed:
    return Crashed(f"{why}, a second time when it was alone")


class BatchedTeacher:
    """Sends questions to teachers, builds each on first use, and counts queries and answers from the cache."""

    def __init__(
        self, teachers: Mapping[Role, NamedTeacher], budget: Budget, cache: CallCache, workers: FactoryWorkers
    ) -> None:
        self.teachers, self.cache = teachers, cache
        self.queried: Counter[str] = Counter()  # by kind of question
        self.cached: Counter[str] = Counter()
        self._budget, self._workers = budget, workers
        self._built: dict[str, Teacher] = {}
        self._failures: Counter[str] = Counter()  # of teachers that have not answered yet
        self._crashes: dict[tuple[str, str], str] = {}  # by teacher and episode: why workers crashed

    def query_teachers(self, queries: Iterable[Queries[Made]]) -> Iterator[Made]:
        """Run generators of questions and yield what each made, in order; TOGETHER of them advance in step."""
        waiting = iter(queries)
        while some := list(islice(waiting, TOGETHER)):
            yield from self._in_step(some)

    def _in_step(self, queries: Sequence[Queries[Made]]) -> list[Made]:
        made: dict[int, Made] = {}
        answers: dict[int, TeacherAnswer | None] = dict.fromkeys(range(len(queries)))
        while answers:
            questions: dict[int, Question] = {}
            for place, answer in answers.items():
                try:
                    questions[place] = next(queries[place]) if answer is None else queries[place].send(answer)
                except StopIteration as end:
                    made[place] = end.value
            answers = self._answer(questions)
        return [made[place] for place in range(len(queries))]

    def _answer(self, questions: Mapping[int, Question]) -> dict[int, TeacherAnswer | None]:
        """Return the answer to each question; a question that is not in the cache goes to its teacher, once."""
        unknown: dict[Role, dict[str, tuple[int, Question]]] = {}
        for place, question in questions.items():
            if self.cache.find(self.teachers[question.role], question) is None:
                unknown.setdefault(question.role, {}).setdefault(question.prompt_hash, (place, question))
            else:
                self.cached[question.kind] += 1
        failed = {key: why for role, new in unknown.items() for key, why in self._query(role, new).items()}
        return {place: self._found(question, failed) for place, question in questions.items()}

    def _query(self, role: Role, questions: Mapping[str, tuple[int, Question]]) -> dict[str, str]:
        """Query a teacher and keep its answers; return the reasons of failures by prompt hash."""
        named, failed, sent = self.teachers[role], dict[str, str](), list[tuple[int, Question]]()
        for key, (place, question) in questions.items():
            why = self._crashes.get((named.name, question.episode.id))
            if why is None:
                sent.append((place, question))
            else:
                failed[key] = why
        for replies in self._query_server(named, sent) if named.server else self._query_workers(role, sent):
            failed |= self._keep(named, replies)
        return failed

    def _query_server(self, named: NamedTeacher, sent: Sequence[tuple[int, Question]]) -> Iterator[Replies]:
        """Yield the answers of a teacher behind a server, queried by this process in batches."""
        if named.name not in self._built:
            self._built[named.name] = named.build(self._budget)
        for start in range(0, len(sent), _SERVER_BATCH):
            some = [question for _, question in sent[start : start + _SERVER_BATCH]]
            yield list(zip(some, self._built[named.name].answer(some), strict=True))

    def _query_workers(self, role: Role, sent: Sequence[tuple[int, Question]]) -> Iterator[Replies]:
        """Yield the answers of a teacher on workers; neighbours go together, and always to the same worker."""
        groups: dict[int, list[Question]] = {}
        for place, question in sent:
            groups.setdefault(place // _WORKER_BATCH, []).append(question)
        yield from self._workers.answers([QuestionGroup(role, tuple(some), home) for home, some in groups.items()])

    def _keep(self, named: NamedTeacher, replies: Replies) -> dict[str, str]:
        """Keep the answers and return why the others failed; an episode that crashed its worker is not shown again."""
        failed: dict[str, str] = {}
        self.queried.update(question.kind for question, _ in replies)
        for question, reply in replies:
            if isinstance(reply, str):
                self.cache.keep(named, question, reply[: ANSWER_CHARACTERS.value])
            else:
                failed[question.prompt_hash] = reply.reason
            if isinstance(reply, Crashed):
                self._crashes[named.name, question.episode.id] = reply.reason
        self._count(named.name, failed, answered=len(replies) - len(failed))
        return failed

    def _count(self, name: str, failed: Mapping[str, str], *, answered: int) -> None:
        """Stop the run after so many failures of a teacher that has never answered."""
        if answered:
            self._failures[name] = -sys.maxsize
        self._failures[name] += len(failed)
        if self._failures[name] >= _MAX_FAILURES:
            why = next(iter(failed.values()))
            raise StopRun(one_line(f"{name} failed {self._failures[name]} times and never answered: {why}"))

    def _found(self, question: Question, failed: Mapping[str, str]) -> TeacherAnswer:
        teacher = self.teachers[question.role]
        text = self.cache.find(teacher, question)
        why = "" if text is not None else failed.get(question.prompt_hash, "no answer")
        return TeacherAnswer(text or "", teacher.name, question.prompt_hash, why)
