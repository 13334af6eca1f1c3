"""Questions of many rows to teachers at once: a cache on disk, and workers for local teachers and videos.

Teachers behind a server are queried by the command itself, so that one process counts the cost before it is spent.
Teachers without a server run on the workers.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from rewardlab.augmentation.questions import MAX_TOKENS, TOGETHER, Queries, Question, Role, TeacherAnswer
from rewardlab.augmentation.teachers import NamedTeacher, Teacher
from rewardlab.core.episode import Episode
from rewardlab.core.errors import RunError, StopRun
from rewardlab.core.limits import ANSWER_CHARACTERS
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Execution
from rewardlab.core.storage import append_to_journal, read_journal, writable
from rewardlab.core.terminal import one_line
from rewardlab.core.trial import Failure
from rewardlab.data.duplicates import HashedVideo, Video
from rewardlab.data.video import write_video
from rewardlab.evaluation.engines.ordered_map import ItemWorkers
from rewardlab.models.contract import Budget

CALLS = "calls.jsonl"
_MAX_FAILURES = 20  # of a teacher that has never answered; then the run stops
_HAS_ANSWERED = -sys.maxsize  # failures of a teacher that has answered, now or in the cache: they never stop the run
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
        try:
            entries = list(read_journal(self.path, ("key", "answer")))
        except OSError as error:
            advice = "fix the permission or name another --cache-dir"
            raise RunError(f"cannot read {self.path}: {error.strerror}; {advice}") from error
        pairs, most = [(entry["key"], entry["answer"]) for entry in entries], ANSWER_CHARACTERS.value
        sound = [pair for pair in pairs if all(isinstance(part, str) for part in pair) and len(pair[1]) <= most]
        self._answers: dict[str, str] = dict(sound)

    def find(self, teacher: NamedTeacher, question: Question) -> str | None:
        """Return the answer of this teacher to this question, None where there is none yet."""
        return self._answers.get(_key(teacher, question))

    def keep(self, teacher: NamedTeacher, question: Question, answer: str) -> None:
        """Append an answer to the file; once this returns, a crash does not lose it."""
        key = _key(teacher, question)
        about = {"teacher": teacher.name, "prompt_hash": question.prompt_hash, "kind": question.kind}
        with writable(self.path):
            append_to_journal(self.path, {"key": key, **about, "answer": answer})
        self._answers[key] = answer

    def __len__(self) -> int:
        return len(self._answers)


def _key(teacher: NamedTeacher, question: Question) -> str:
    return digest(teacher.identity, question.prompt_hash, MAX_TOKENS[question.kind])


@dataclass
class BuiltTeachers:
    """The teachers of one process, each built on first use."""

    named: Mapping[Role, NamedTeacher]
    budget: Budget = field(default_factory=Budget)
    built: dict[str, Teacher] = field(default_factory=dict)

    def find(self, role: Role) -> Teacher:
        """Return the teacher of a role."""
        named = self.named[role]
        if named.name not in self.built:
            self.built[named.name] = named.build(self.budget)
        return self.built[named.name]


@dataclass(frozen=True, eq=False)
class Task:
    """Items that a worker handles in one call, with one result each; tasks of the same `home` go to the same worker."""

    work: Callable[[BuiltTeachers, Sequence[Any]], Sequence[Any]]
    items: tuple[Any, ...]
    home: int


def _ask(role: Role, teachers: BuiltTeachers, questions: Sequence[Question]) -> Sequence[str | Failure]:
    return list(teachers.find(role).answer(questions))


def _write(_teachers: BuiltTeachers, videos: Sequence[tuple[Episode, Path]]) -> list[None]:
    for episode, target in videos:
        write_video(episode, target)
    return [None] * len(videos)


def _hash(work: Callable[[Video], HashedVideo], _teachers: BuiltTeachers, videos: Sequence[Video]) -> list[HashedVideo]:
    return [work(video) for video in videos]


def _do(teachers: BuiltTeachers, task: Task) -> Sequence[Any]:
    return task.work(teachers, task.items)


@dataclass(frozen=True)
class Crashed:
    """An item that crashed its worker a second time, when it was alone."""

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

    def answers(self, role: Role, groups: Mapping[int, Sequence[Question]]) -> Iterator[Replies]:
        """Yield the questions of each group with their answers, as they come; the key of a group is its home."""
        yield from self._settled([Task(partial(_ask, role), tuple(some), home) for home, some in groups.items()])

    def write_videos(self, videos: Sequence[tuple[Episode, Path]]) -> dict[Path, str]:
        """Write every video; return those that crashed their worker, with the reason."""
        crashed: dict[Path, str] = {}
        tasks = [Task(_write, (video,), place) for place, video in enumerate(videos)]
        for (((_, target), end),) in self._settled(tasks):
            if isinstance(end, Crashed):
                crashed[target] = end.reason
            elif not target.exists():
                raise RunError(f"{target} was written by a worker and is missing here; all machines must share --out")
        return crashed

    def hash_videos(self, work: Callable[[Video], HashedVideo], videos: Sequence[Video]) -> Iterator[HashedVideo]:
        """Yield the hashes of every video, as they come; a video that crashed its worker has none."""
        tasks = [Task(partial(_hash, work), (video,), place) for place, video in enumerate(videos)]
        for pairs in self._settled(tasks):
            yield from ((video[0], None) if isinstance(found, Crashed) else found for video, found in pairs)

    def _settled(self, tasks: Sequence[Task]) -> Iterator[list[tuple[Any, Any]]]:
        """Yield the items of each task with their results; what crashed a worker is retried once, each item alone."""
        retries: list[Task] = []
        for task, found in zip(tasks, self._workers.map(tasks, _crashed), strict=True):
            if isinstance(found, Crashed):
                retries += [replace(task, items=(item,)) for item in task.items]
            else:
                yield list(zip(task.items, found, strict=True))
        for task, found in zip(retries, self._workers.map(retries, _crashed), strict=True):
            yield list(zip(task.items, [found] if isinstance(found, Crashed) else found, strict=True))


def _crashed(_task: Task, why: str) -> Crashed:
    return Crashed(f"{why}, a second time when it was alone")


class BatchedTeacher:
    """Sends questions to teachers, builds each on first use, and counts queries and answers from the cache."""

    def __init__(
        self, teachers: Mapping[Role, NamedTeacher], budget: Budget, cache: CallCache, workers: FactoryWorkers
    ) -> None:
        self.teachers, self.cache = teachers, cache
        self.queried: Counter[str] = Counter()  # by kind of question
        self.cached: Counter[str] = Counter()
        self._built, self._workers = BuiltTeachers(teachers, budget), workers
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
            teacher = self.teachers[question.role]
            if self.cache.find(teacher, question) is None:
                unknown.setdefault(question.role, {}).setdefault(question.prompt_hash, (place, question))
            else:
                self.cached[question.kind] += 1
                self._failures[teacher.name] = _HAS_ANSWERED
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
        for replies in self._query_server(role, sent) if named.server else self._query_workers(role, sent):
            failed |= self._keep(named, replies)
        return failed

    def _query_server(self, role: Role, sent: Sequence[tuple[int, Question]]) -> Iterator[Replies]:
        """Yield the answers of a teacher behind a server, queried by this process in batches."""
        waiting = (question for _, question in sent)
        while some := list(islice(waiting, _SERVER_BATCH)):
            yield list(zip(some, self._built.find(role).answer(some), strict=True))

    def _query_workers(self, role: Role, sent: Sequence[tuple[int, Question]]) -> Iterator[Replies]:
        """Yield the answers of a teacher on workers; neighbours go together, and always to the same worker."""
        groups: dict[int, list[Question]] = {}
        for place, question in sent:
            groups.setdefault(place // _WORKER_BATCH, []).append(question)
        yield from self._workers.answers(role, groups)

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
        if len(replies) > len(failed):
            self._failures[named.name] = _HAS_ANSWERED
        self._failures[named.name] += len(failed)
        if (count := self._failures[named.name]) >= _MAX_FAILURES:
            why = next(iter(failed.values()))
            raise StopRun(one_line(f"{named.name} failed {count} times and never answered: {why}"))
        return failed

    def _found(self, question: Question, failed: Mapping[str, str]) -> TeacherAnswer:
        teacher = self.teachers[question.role]
        text = self.cache.find(teacher, question)
        why = "" if text is not None else failed.get(question.prompt_hash, "no answer")
        return TeacherAnswer(text or "", teacher.name, question.prompt_hash, why)
