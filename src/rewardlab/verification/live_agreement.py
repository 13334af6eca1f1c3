"""How far the annotators agree so far: kappa of each two of them, and Krippendorff's alpha of all."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from rewardlab.metrics.annotator_agreement import cohen_kappa, krippendorff_alpha
from rewardlab.verification.verdicts import FLAGGED, REJECTED, Verdict

Labels = NDArray[np.float64]  # rows of the dataset x annotators; nan where nobody said


@dataclass(frozen=True)
class PairAgreement:
    """Two annotators: rows that both judged, the share judged alike, and kappa; None where it is not defined."""

    first: str
    second: str
    rows: int
    alike: float | None
    kappa: float | None
    weighted_kappa: float | None  # of levels, by the square of their distance


@dataclass(frozen=True)
class Agreement:
    """All annotators: rows that two or more judged, and alpha of outcomes and of levels."""

    rows: int
    alpha: float | None  # of outcomes: a level or a rejection
    alpha_of_levels: float | None  # ordinal
    pairs: tuple[PairAgreement, ...]


def live_agreement(verdicts: Iterable[Mapping[str, Verdict]]) -> Agreement:
    """Return the agreement over rows, each with its verdicts by annotator; flags are no labels and do not count."""
    rows = [{name: v.outcome for name, v in row.items() if v.outcome != FLAGGED} for row in verdicts]
    shared = [row for row in rows if len(row) > 1]
    names = sorted({name for row in shared for name in row})
    outcomes = np.array([[row.get(name, np.nan) for name in names] for row in shared]).reshape(len(shared), len(names))
    levels = np.where(outcomes == REJECTED, np.nan, outcomes)
    alpha, of_levels = krippendorff_alpha(outcomes), krippendorff_alpha(levels, "ordinal")
    pairs = [_pair(names[i], names[j], outcomes[:, [i, j]]) for i, j in combinations(range(len(names)), 2)]
    return Agreement(len(shared), _known(alpha), _known(of_levels), tuple(pair for pair in pairs if pair.rows))


def _pair(first: str, second: str, outcomes: Labels) -> PairAgreement:
    both = outcomes[~np.isnan(outcomes).any(axis=1)]
    levels = np.where(both == REJECTED, np.nan, both)
    alike = float((both[:, 0] == both[:, 1]).mean()) if len(both) else None
    kappa, weighted = cohen_kappa(both[:, 0], both[:, 1]), cohen_kappa(levels[:, 0], levels[:, 1], "quadratic")
    return PairAgreement(first, second, len(both), alike, _known(kappa), _known(weighted))


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
