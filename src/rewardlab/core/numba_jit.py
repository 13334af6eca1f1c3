"""Loops over numbers compiled to machine code."""

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile on first use and keep the machine code on disk; outputs are passed in, as numpy allocates them faster."""
    try:
        return cast(F, njit(cache=True, nogil=True)(function))
    except RuntimeError:  # nowhere to keep it, as in a container without a home: compile anew in every process
        return cast(F, njit(nogil=True)(function))
