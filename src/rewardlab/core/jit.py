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

        function = _calling_machine_code(self.function)
        try:
            return cast(Callable[..., Any], njit(cache=True, nogil=True)(function))
        except RuntimeError:  # nowhere to keep it, as in a container without a home: compile anew in every process
            return cast(Callable[..., Any], njit(nogil=True)(function))


def compiled(function: F) -> F:
    """Compile on first use and keep the machine code on disk; outputs are passed in, as numpy allocates them faster."""
    return cast(F, update_wrapper(_Compiled(cast(FunctionType, function)), function))


def _calling_machine_code(function: FunctionType) -> FunctionType:
    called = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    ready = {name: value.machine_code for name, value in called.items() if isinstance(value, _Compiled)}
    return FunctionType(function.__code__, {**function.__globals__, **ready}, function.__name__, function.__defaults__)
