"""Interviews: many episodes ask their teachers at once, each question answered from the cache where it can be."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from rewardlab.augmentation.call_cache import CallCache
from rewardlab.augmentation.teacher_questions import TOGETHER, Interview, Question, Role, TeacherAnswer
from rewardlab.augmentation.teachers import NamedTeacher, Teacher
from rewardlab.core.errors import StopRun
from rewardlab.core.limits import ANSWER_CHARACTERS
from rewardlab.core.terminal_text import one_line
from rewardlab.core.trial import Failure
from rewardlab.models.contract import Budget

Made = TypeVar("Made")
_MOST_FAILURES = 20  # of a teacher that never answered before the run ends


class Interviewer:
    """Asks teachers, builds each when it is first needed, and counts what was asked and what the cache knew."""

    def __init__(self, teachers: Mapping[Role, NamedTeacher], budget: Budget, cache: CallCache) -> None:
        self.teachers, self.cache = teachers, cache
        self.asked: Counter[str] = Counter()  # by kind of question
        self.known: Counter[str] = Counter()
        self._budget = budget
        self._built: dict[str, Teacher] = {}
        self._silent: Counter[str] = Counter()  # failures of teachers that have not answered yet

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
            answers = dict(zip(questions, self._answer(list(questions.values()))))
        return [made[place] for place in range(len(interviews))]

    def _answer(self, questions: Sequence[Question]) -> list[TeacherAnswer | None]:
        """Return the answer to each question; what the cache does not know is asked, the same question once."""
        unknown: dict[Role, dict[str, Question]] = {}
        for question in questions:
            if self.cache.find(self.teachers[question.role], question) is None:
                unknown.setdefault(question.role, {}).setdefault(question.prompt_hash, question)
            else:
                self.known[question.kind] += 1
        failed = {key: why for role, asked in unknown.items() for key, why in self._ask(role, asked).items()}
        return [self._found(question, failed) for question in questions]

    def _ask(self, role: Role, questions: Mapping[str, Question]) -> dict[str, str]:
        """Ask a teacher and keep what it answers; return why it failed, by the hash of the prompt."""
        named, failed = self.teachers[role], dict[str, str]()
        if named.name not in self._built:
            self._built[named.name] = named.build(self._budget)
        self.asked.update(question.kind for question in questions.values())
        replies = self._built[named.name].answer(list(questions.values()))
        for (key, question), reply in zip(questions.items(), replies, strict=True):
            if isinstance(reply, Failure):
                failed[key] = reply.reason
            else:
                self.cache.keep(named, question, reply[: ANSWER_CHARACTERS.value])
        self._count(named.name, failed, answered=len(questions) - len(failed))
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
