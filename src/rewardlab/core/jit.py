"""Loops over numbers compiled to machine code where numba is installed (extra `fast`), and in NumPy where it is not.

Both give the same bits, so that the identity of what they make does not tell them apart, and a process may begin with
one and go on with the other: loading numba takes about a second, which a short run does not get back.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from types import FunctionType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])
_NUMPY_FIRST = 1.0  # seconds that a process spends in NumPy before it loads numba


class _Spent:
    """The seconds that this process has spent in NumPy, where numba could have been used."""

    seconds = 0.0


@dataclass(eq=False)  # not frozen: it takes over the name and docstring of the function
class Compiled:
    """A function that becomes machine code once calls are many, so that who calls it rarely never loads numba."""

    function: FunctionType
    in_numpy: Callable[..., Any] | None

    def __call__(self, *arguments: Any) -> Any:
        if self.in_numpy is None or _Spent.seconds > _NUMPY_FIRST or "numba" in sys.modules:
            return self.chosen(*arguments)
        start = time.perf_counter()
        result = self.in_numpy(*arguments)
        _Spent.seconds += time.perf_counter() - start
        return result

    @cached_property
    def chosen(self) -> Callable[..., Any]:
        """Return the machine code, or the function in NumPy where numba cannot be imported."""
        try:
            return self.machine_code
        except ImportError:  # not installed, or not made for this NumPy
            if self.in_numpy is None:
                raise
            return self.in_numpy

    @cached_property
    def machine_code(self) -> Callable[..., Any]:
        """Return the function as numba compiles it, with the machine code of the compiled functions it calls."""
        from numba import njit

        names, code, own = self.function.__globals__, self.function.__code__, self.function
        ready = {name: names[name].machine_code for name in code.co_names if isinstance(names.get(name), Compiled)}
        function = FunctionType(code, {**names, **ready}, own.__name__, own.__defaults__)
        try:
            return cast(Callable[..., Any], njit(cache=True, nogil=True)(function))
        except RuntimeError:  # nowhere to keep it, as in a container without a home: compile anew in every process
            return cast(Callable[..., Any], njit(nogil=True)(function))


def compiled(in_numpy: Callable[..., Any] | None) -> Callable[[F], F]:
    """Compile on first use and keep the machine code on disk; outputs are passed in, as numpy allocates them faster.

    `in_numpy` gives the same bits where numba is not installed; None for what only compiled functions call.
    """

    def decorate(function: F) -> F:
        return cast(F, update_wrapper(Compiled(cast(FunctionType, function), in_numpy), function))

    return decorate
