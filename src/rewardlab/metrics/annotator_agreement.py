"""How far annotators agree beyond chance: Cohen's kappa, plain and weighted, and Krippendorff's alpha.

A label is a number; nan is a label that nobody gave. A coefficient is nan where nothing can be measured: no unit that
two people labelled, or one label only, so that chance alone would agree as well.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rewardlab.metrics.clustered_bootstrap import Numbers

Weights = Literal["none", "linear", "quadratic"]
Scale = Literal["nominal", "ordinal", "interval"]


def cohen_kappa(first: ArrayLike, second: ArrayLike, weights: Weights = "none") -> float:
    """Return the agreement of two annotators beyond chance; weighted, a disagreement counts by its distance."""
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    both = ~np.isnan(a) & ~np.isnan(b)
    labels, codes = np.unique(np.concatenate([a[both], b[both]]), return_inverse=True)
    table = np.zeros((len(labels), len(labels)))
    np.add.at(table, tuple(codes.reshape(2, -1)), 1)
    chance = np.outer(table.sum(axis=1), table.sum(axis=0))
    steps = np.abs(labels[:, None] - labels[None])
    apart = {"none": (steps > 0).astype(np.float64), "linear": steps, "quadratic": steps**2}[weights]
    expected = (apart * chance).sum() / table.sum() if both.any() else 0.0
    return float(1 - (apart * table).sum() / expected) if expected else float("nan")


def krippendorff_alpha(labels: ArrayLike, scale: Scale = "nominal") -> float:
    """Return Krippendorff's alpha of units (rows) labelled by any number of annotators (columns)."""
    table = np.asarray(labels, np.float64)
    values = np.unique(table[~np.isnan(table)])
    counts = (table[:, :, None] == values).sum(axis=1).astype(np.float64)  # how often each unit was given each value
    pairable = counts[counts.sum(axis=1) > 1]
    if not len(pairable):
        return float("nan")
    sizes = pairable.sum(axis=1)
    coincidences = np.einsum("uc,uk,u->ck", pairable, pairable, 1 / (sizes - 1))
    coincidences -= np.diag((pairable / (sizes - 1)[:, None]).sum(axis=0))
    totals = coincidences.sum(axis=1)
    apart = _squared_differences(values, totals, scale)
    expected = (apart * np.outer(totals, totals)).sum() / (totals.sum() - 1)
    return float(1 - (apart * coincidences).sum() / expected) if expected else float("nan")


def _squared_differences(values: Numbers, totals: Numbers, scale: Scale) -> Numbers:
    """Return the squared difference of each two values, as the scale has it (Krippendorff 2011)."""
    if scale == "nominal":
        return 1 - np.eye(len(values))
    if scale == "interval":
        return (values[:, None] - values[None]) ** 2
    middles = np.cumsum(totals) - totals / 2  # so many labels lie below the middle of a rank
    return (middles[:, None] - middles[None]) ** 2
