"""How far a model can be pushed: numbers of a whole severity curve."""

import math
from collections.abc import Sequence


def reliability_threshold(curve: Sequence[float], least: float) -> float:
    """Return the last severity up to which the curve never falls below `least`; -1 if it does at 0, nan if unknown.

    `curve` holds one value per severity from 0 on. A missing value ends what can be claimed.
    """
    if not curve or math.isnan(curve[0]):
        return math.nan
    reliable = -1
    for value in curve:
        if math.isnan(value) or value < least:
            break
        reliable += 1
    return float(reliable)
