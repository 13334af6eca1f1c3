"""Which trials show a wrong reward best: failures called a success, and successes that were missed."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.trial import TrialTable
from rewardlab.metrics.eligibility import answered
from rewardlab.metrics.error_and_accuracy import rounded

MOST = 12  # shown of each model, and described
WrongReward = Literal["false success", "missed success"]
COLUMNS = ("id", "model", "episode", "status", "expectation", "level", "truth_level", "truth_success", "severity")


def wrong_rewards(trials: TrialTable, model: str, most: int = MOST) -> dict[str, WrongReward]:
    """Return the ids of a model's worst false and missed successes by turns, one per episode; unchanged clips first."""
    used = trials.where(trials.matches("model", model) & answered(trials, "success"))
    called, truth = rounded(used.number("level")) == 5, used.number("truth_success") == 1
    false, missed = (_worst_first(used, mask) for mask in (called & ~truth, ~called & truth))
    found: dict[str, WrongReward] = {}
    for place in range(max(len(false), len(missed))):
        found |= dict.fromkeys(false[place : place + 1], "false success")
        found |= dict.fromkeys(missed[place : place + 1], "missed success")
    return dict(list(found.items())[:most])


def _worst_first(trials: TrialTable, mask: NDArray[np.bool_]) -> list[str]:
    """Return the id of the worst trial of each episode: unchanged before changed, then by error."""
    wrong = trials.where(mask)
    error = np.nan_to_num(np.abs(wrong.number("level") - wrong.number("truth_level")), nan=1.0)
    ids, episodes = wrong.text("id").astype(str), wrong.text("episode")
    order = np.lexsort((ids, -error, wrong.number("severity")))
    found: dict[str, str] = {}
    for row in order.tolist():
        found.setdefault(str(episodes[row]), str(ids[row]))
    return list(found.values())
