"""Interviews: many episodes ask their teachers at once, each question answered from the cache where it can be.

Teachers behind a server are asked here, so that one process counts what they cost; the others on the workers.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from rewardlab.augmentation.call_cache import CallCache
from rewardlab.augmentation.factory_workers import Died, FactoryWorkers, QuestionGroup, Replies
from rewardlab.augmentation.teacher_questions import TOGETHER, Interview, Question, Role, TeacherAnswer
from rewardlab.augmentation.teachers import NamedTeacher, Teacher
from rewardlab.core.errors import StopRun
from rewardlab.core.limits import ANSWER_CHARACTERS
from rewardlab.core.terminal_text import one_line
from rewardlab.models.contract import Budget

Made = TypeVar("Made")
_MOST_FAILURES = 20  # of a teacher that never answered before the run ends
_TO_A_SERVER = 32  # questions handed to it at once, whose frames are all in memory
_TO_A_WORKER = 8  # interviews whose questions go to one worker together


class Interviewer:
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
