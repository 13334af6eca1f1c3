"""Answers and values of which a test knows the kind: asserted at run time, known to the type checker from there on."""

from collections.abc import Iterable
from typing import TypeVar

from rewardlab.core.trial import Answer, Failure, Score

T = TypeVar("T")
Wanted = TypeVar("Wanted")


def known(value: T | None) -> T:
    """Return a value that must be there."""
    assert value is not None
    return value


def of_type(kind: type[Wanted], value: object) -> Wanted:
    """Return a value that must be of this type."""
    assert isinstance(value, kind), value
    return value


def as_score(answer: Answer) -> Score:
    """Return an answer that must be a score."""
    return of_type(Score, answer)


def as_failure(answer: Answer) -> Failure:
    """Return an answer that must be a failure."""
    return of_type(Failure, answer)


def as_scores(answers: Iterable[Answer]) -> list[Score]:
    """Return answers that must all be scores."""
    return [as_score(answer) for answer in answers]
