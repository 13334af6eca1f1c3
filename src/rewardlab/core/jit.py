"""Loops over numbers compiled to machine code."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from types import FunctionType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])


@dataclass(eq=False)  # not frozen: it takes over the name and docstring of the function
class _Compiled:
    """A function that becomes machine code when it is first called, so that who never calls it never loads numba."""

    function: FunctionType

    def __call__(self, *arguments: Any) -> Any:
        return self.machine_code(*arguments)

    @cached_property
    def machine_code(self) -> Callable[..., Any]:
        """Return the function as numba compiles it, with the machine code of the compiled functions it calls."""
        from numba import njit

        names, code, own = self.function.__globals__, self.function.__code__, self.function
        ready = {name: names[name].machine_code for name in code.co_names if isinstance(names.get(name), _Compiled)}
        function = FunctionType(code, {**names, **ready}, own.__name__, own.__defaults__)
        try:
            return cast(Callable[..., Any], njit(cache=True, nogil=True)(function))
        except RuntimeError:  # nowhere to keep it, as in a container without a home: compile anew in every process
            return cast(Callable[..., Any], njit(nogil=True)(function))


def compiled(function: F) -> F:
    """Compile on first use and keep the machine code on disk; outputs are passed in, as numpy allocates them faster."""
    return cast(F, update_wrapper(_Compiled(cast(FunctionType, function)), function))
