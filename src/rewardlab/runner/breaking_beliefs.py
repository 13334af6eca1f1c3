"""What an attack believes about where a change breaks a verdict: probabilities over its severities, learned as it goes.

The belief about one episode is that of a probabilistic bisection (Horstein, 1963): a change breaks from some severity
on, or never, but an answer may go against that. The prior of the next episodes is what was found on those before.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rewardlab.analysis.breaking_points import MOST

Floats = NDArray[np.float64]

_BREAKS_ABOVE, _BREAKS_BELOW = 0.9, 0.02  # chance of a wrong verdict from the breaking point on, and before it
_NEVER = 0.6  # chance that a change of which nothing is known breaks at no severity
_PRIOR_WEIGHT, _POOL_WEIGHT = 10.0, 2.0  # in episodes: of knowing nothing, and of what is known of all changes together
_BINS = 16  # of the range of severities, in which ladders of different length are compared


@dataclass(eq=False)
class Belief:
    """Where one change breaks one episode: a probability for each place of its ladder, the last for none of them."""

    probs: Floats
    asked: bool = False

    def chances(self) -> Floats:
        """Return for each place of the ladder the chance that the verdict breaks there."""
        reached: Floats = _BREAKS_BELOW + (_BREAKS_ABOVE - _BREAKS_BELOW) * self.probs[:-1].cumsum()
        return reached

    def update(self, place: int, *, broke: bool) -> None:
        """Learn from one answer."""
        chance = np.where(np.arange(len(self.probs)) <= place, _BREAKS_ABOVE, _BREAKS_BELOW)
        posterior = self.probs * (chance if broke else 1 - chance)
        self.probs, self.asked = posterior / posterior.sum(), True


@dataclass(eq=False)
class LearnedPriors:
    """What the episodes so far say of each change, and of all changes together where little is known of one."""

    counts: dict[str, Floats] = field(default_factory=dict)  # in episodes: by change, for each bin and for never

    def belief(self, name: str, ladder: tuple[float, ...]) -> Belief:
        """Return what is believed of a change before the first answer."""
        own = self.counts.get(name, np.zeros(_BINS + 1))
        pool = sum(self.counts.values(), _PRIOR_WEIGHT * _nothing_known())
        mixed = own + _POOL_WEIGHT * pool / pool.sum()
        return Belief(_on_ladder(mixed / mixed.sum(), ladder))

    def learn(self, name: str, ladder: tuple[float, ...], belief: Belief) -> None:
        """Add what the answers about an episode say of a change, if it was asked about."""
        if belief.asked:
            self.counts.setdefault(name, np.zeros(_BINS + 1))[:] += _in_bins(belief.probs, ladder)


def _nothing_known() -> Floats:
    return np.append(np.full(_BINS, (1 - _NEVER) / _BINS), _NEVER)


def _in_bins(probs: Floats, ladder: tuple[float, ...]) -> Floats:
    bins = np.ceil(np.array(ladder) / MOST * _BINS).astype(np.int64) - 1
    return np.append(np.bincount(bins, weights=probs[:-1], minlength=_BINS), probs[-1])


def _on_ladder(binned: Floats, ladder: tuple[float, ...]) -> Floats:
    """Spread bins over a ladder; what lies between two of its places breaks first at the higher one."""
    reached = np.interp(ladder, np.linspace(0, MOST, _BINS + 1), np.append(0.0, binned[:-1].cumsum()))
    return np.append(np.diff(reached, prepend=0.0), 1 - reached[-1])
