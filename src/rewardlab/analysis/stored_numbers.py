"""Stored results held against those computed from the trials: only the computed ones are shown, a forgery is said."""

import math
from typing import Any

from rewardlab.core.errors import RunError
from rewardlab.core.run import Run
from rewardlab.core.version import __version__

_RELATIVE, _ABSOLUTE = 1e-6, 1e-9  # another processor adds up in another order


def refuse_other_numbers(run: Run, name: str, stored: object, computed: object) -> None:
    """Raise a RunError where this version stored something else than it computes; another one may compute otherwise."""
    if run.record.version == __version__ and not _same(stored, computed):
        raise RunError(
            f"{run.folder / name} does not say what the trials say, so it was edited or belongs to another run; "
            "remove it and run the same command again: it is made anew"
        )


def _same(stored: Any, computed: Any) -> bool:
    if isinstance(stored, float) and isinstance(computed, float):
        return math.isclose(stored, computed, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    if isinstance(stored, dict) and isinstance(computed, dict):
        return stored.keys() == computed.keys() and all(_same(stored[key], computed[key]) for key in stored)
    if isinstance(stored, list) and isinstance(computed, list):
        return len(stored) == len(computed) and all(map(_same, stored, computed))
    return bool(stored == computed)
