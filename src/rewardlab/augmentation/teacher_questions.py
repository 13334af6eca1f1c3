"""Questions to teachers and their answers, and asking until an answer can be used or attempts are spent."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from rewardlab.augmentation.teacher_prompts import again
from rewardlab.core.episode import Episode
from rewardlab.core.seeding import digest

Kind = Literal["rewrite", "analysis", "plan", "command", "validate", "clip"]
Role = Literal["vision", "text"]
Made = TypeVar("Made")

# Interviews that go on at once: the same on every engine, for which of them asks a question first follows from it.
TOGETHER = 256
MAX_TOKENS = {"rewrite": 128, "analysis": 1024, "plan": 2048, "command": 64, "validate": 512, "clip": 0}


@dataclass(frozen=True, eq=False)
class Question:
    """One question to a teacher: its words, the clip it is about where the teacher is to see it, and the attempt.

    `episode`, `task` and `score` say what the words say, for a teacher that reads no prompts; `shown` tells whether the
    frames are part of the question.
    """

    kind: Kind
    role: Role
    text: str
    episode: Episode
    task: str
    score: int = 0
    attempt: int = 1
    shown: bool = False

    @cached_property
    def prompt_hash(self) -> str:
        """Identify the words and the frames, whatever the files are called."""
        clip = self.episode.clip
        frames = (clip.source.digest, clip.order.tobytes(), clip.positions.tobytes()) if self.shown else ()
        return digest(self.kind, self.text, *frames)


@dataclass(frozen=True)
class TeacherAnswer:
    """What a teacher wrote; `failed` says why it wrote nothing."""

    text: str
    teacher: str
    prompt_hash: str
    failed: str = ""


@dataclass(frozen=True)
class Attempt:
    """One entry of a row's history: what was asked of whom, what came, and why it was refused, if it was."""

    kind: Kind
    teacher: str
    prompt_hash: str
    attempt: int
    answer: str
    rejected: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the entry as a row of metadata holds it."""
        return asdict(self)


@dataclass(frozen=True)
class Asked:
    """How asking ended: the text that was kept, None where none was, and every attempt in order."""

    text: str | None
    history: tuple[Attempt, ...]

    @property
    def reason(self) -> str:
        """Return why the last attempt was refused."""
        return self.history[-1].rejected if self.history else ""


Interview = Generator[Question, TeacherAnswer, Made]  # asks questions one after the other, and returns what it made


def ask_until(question: Question, refusal: Callable[[str], str], attempts: int) -> Interview[Asked]:
    """Ask until an answer is not refused, so many times at most; each time the teacher is told what was wrong."""
    history: list[Attempt] = []
    for number in range(1, attempts + 1):
        answer, attempt = yield from ask_once(with_history(question, history, number), refusal)
        history.append(attempt)
        if not attempt.rejected:
            return Asked(answer, tuple(history))
    return Asked(None, tuple(history))


def ask_once(question: Question, refusal: Callable[[str], str]) -> Interview[tuple[str, Attempt]]:
    """Ask one question and return the answer without blanks around it, and how it was judged."""
    answer = yield question
    text = answer.text.strip()
    rejected = f"the teacher did not answer: {answer.failed}" if answer.failed else refusal(text)
    return text, Attempt(question.kind, answer.teacher, answer.prompt_hash, question.attempt, text, rejected)


def with_history(question: Question, history: Sequence[Attempt], number: int) -> Question:
    """Return the question as its next attempt is worded: with what was wrong about the last answer to it."""
    last = next((each for each in reversed(history) if each.kind == question.kind), None)
    if last is None:
        return question
    return replace(question, text=again(question.text, last.rejected, last.answer), attempt=number)
