"""Why models failed: reasons that differ only in numbers and quoted words are one, counted and shown by an example."""

import re
from collections import Counter
from dataclasses import dataclass

from rewardlab.core.trial import TrialTable

_PARTICULARS = re.compile(r"'[^']*'|\"[^\"]*\"|\d+(\.\d+)?")


@dataclass(frozen=True)
class FailureReason:
    """A reason why a model failed, as it was given first, and how many of its cells failed so."""

    model: str
    reason: str
    cells: int


def reason_kind(reason: str) -> str:
    """Return what a reason has in common with others of its kind: no numbers, no quotations."""
    return _PARTICULARS.sub("_", reason)


def failure_reasons(trials: TrialTable) -> list[FailureReason]:
    """Return the reasons of every model, the most frequent first."""
    failed = trials.where(trials.matches("status", "failed"))
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for model, reason in zip(failed.text("model"), failed.text("reason")):
        key = str(model), reason_kind(str(reason))
        counts[key] += 1
        examples.setdefault(key, str(reason))
    return [FailureReason(key[0], examples[key], cells) for key, cells in counts.most_common()]
