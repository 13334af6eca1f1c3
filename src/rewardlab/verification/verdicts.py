"""Verdicts of people on rows: what each says, and what several say together."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from rewardlab.core.episode import LEVELS

Decision = Literal["accept", "reject", "correct", "flag"]
DECISIONS: tuple[Decision, ...] = get_args(Decision)
REJECTED, FLAGGED = 0, -1  # outcomes beside the levels 1 to 5


@dataclass(frozen=True)
class Verdict:
    """What one person says of one row; `level` is the one that the row deserves, None where it deserves none."""

    item: str
    annotator: str
    decision: Decision
    level: int | None
    note: str = ""
    rationale_seen: bool = False
    seconds: float = 0.0
    id: int = 0  # in the file of verdicts; 0 until it is there
    made_at: str = ""

    @property
    def outcome(self) -> int:
        """Return the level, or that the row is rejected or flagged."""
        if self.decision == "flag":
            return FLAGGED
        return REJECTED if self.level is None else self.level


def is_sound(verdict: Verdict) -> bool:
    """Tell whether a verdict from a file is one: whoever wrote it may have meant harm."""
    if not isinstance(verdict.annotator, str) or not isinstance(verdict.note, str) or verdict.decision not in DECISIONS:
        return False
    leveled = verdict.decision in ("accept", "correct")
    return verdict.level in LEVELS if leveled else verdict.level is None


def majority(verdicts: Iterable[Verdict]) -> int | None:
    """Return the outcome that more than half of them have; None where there is none."""
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    if not outcomes:
        return None
    outcome, count = outcomes.most_common(1)[0]
    return outcome if 2 * count > outcomes.total() else None


def is_disputed(verdicts: Iterable[Verdict]) -> bool:
    """Tell whether another person should look: nobody has a majority, or one alone has flagged the row."""
    given = list(verdicts)
    return bool(given) and (majority(given) is None or (len(given) == 1 and given[0].outcome == FLAGGED))
