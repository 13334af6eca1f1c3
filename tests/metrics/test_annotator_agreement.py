"""Agreement of annotators, held against published examples, tables worked out by hand, and scikit-learn."""

import math

import numpy as np
import pytest

from rewardlab.metrics.annotator_agreement import Scale, Weights, cohen_kappa, krippendorff_alpha

GAP = math.nan
# Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), example C: four observers, twelve units.
OBSERVERS = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, GAP, GAP, GAP],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, GAP, 3],
        [GAP, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, GAP],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, GAP],
    ]
).T


@pytest.mark.parametrize(("scale", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_is_that_of_the_published_example_with_missing_labels(scale: Scale, published: float) -> None:
    assert krippendorff_alpha(OBSERVERS, scale) == pytest.approx(published, abs=5e-4)


def test_kappa_of_the_textbook_table() -> None:
    """Grant proposals: 20 yes by both, 15 no by both, 5 and 10 apart: 0.7 agree, 0.5 by chance, kappa 0.4."""
    first = [1] * 20 + [1] * 5 + [0] * 10 + [0] * 15
    second = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)


def test_weighted_kappa_worked_out_by_hand() -> None:
    """Six clips: three agree, two are one level apart, one is two apart.

    Linear: seen 4/6; of chance, pairs of first {1, 1, 2, 2, 3, 3} and second {1, 2, 2, 3, 3, 3} are 32/36 apart.
    Quadratic: seen 6/6; of chance 48/36.
    """
    first, second = [1, 1, 2, 2, 3, 3], [1, 3, 2, 3, 2, 3]
    pairs = [(a, b) for a in first for b in second]
    assert sum(abs(a - b) for a, b in pairs) == 32 and sum((a - b) ** 2 for a, b in pairs) == 48
    assert cohen_kappa(first, second, "linear") == pytest.approx(1 - (4 / 6) / (32 / 36))
    assert cohen_kappa(first, second, "quadratic") == pytest.approx(1 - (6 / 6) / (48 / 36))


@pytest.mark.parametrize("weights", ["none", "linear", "quadratic"])
def test_kappa_is_that_of_scikit_learn(weights: Weights) -> None:
    from sklearn.metrics import cohen_kappa_score

    rng = np.random.default_rng(7)
    first = rng.integers(1, 6, 300)
    second = np.where(rng.random(300) < 0.6, first, rng.integers(1, 6, 300))
    theirs = cohen_kappa_score(first, second, weights=None if weights == "none" else weights)
    assert cohen_kappa(first, second, weights) == pytest.approx(theirs)


def test_labels_that_only_one_gave_do_not_count() -> None:
    assert cohen_kappa([1, 1, 2, 2, GAP, 5], [1, 2, 2, 2, 3, GAP]) == cohen_kappa([1, 1, 2, 2], [1, 2, 2, 2])
    alone = np.vstack([OBSERVERS, [5, GAP, GAP, GAP]])
    assert krippendorff_alpha(alone, "ordinal") == krippendorff_alpha(OBSERVERS, "ordinal")


def test_what_cannot_be_measured_is_nan_and_not_zero() -> None:
    assert math.isnan(cohen_kappa([], [])) and math.isnan(cohen_kappa([3, 3], [3, 3]))
    assert math.isnan(krippendorff_alpha(np.empty((0, 2)))) and math.isnan(krippendorff_alpha([[1, GAP], [GAP, 2]]))
    assert math.isnan(krippendorff_alpha([[4, 4], [4, 4]]))


def test_perfect_agreement_is_one_and_systematic_disagreement_is_below_zero() -> None:
    assert cohen_kappa([1, 2, 3], [1, 2, 3]) == 1 and krippendorff_alpha([[1, 1], [2, 2]]) == 1
    assert cohen_kappa([1, 2, 1, 2], [2, 1, 2, 1]) < 0 and krippendorff_alpha([[1, 2], [2, 1], [1, 2]]) < 0
