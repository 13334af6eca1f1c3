"""Models and VLM backends outside the package, named as `package.module:name`."""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TypeGuard, TypeVar

from rewardlab.core.errors import ModelError

Made = TypeVar("Made")


def is_module(name: str) -> bool:
    """Tell whether a name means code outside: a dotted path, a module installed or in the current folder."""
    try:
        return "." in name or bool(find_spec(name) or PathFinder.find_spec(name, [str(Path.cwd())]))
    except ValueError:  # such as __main__, or no name at all
        return False


def make_external(path: str, found: object, accepts: Callable[[object], TypeGuard[Made]], offers: str) -> Made:
    """Return the object found at `path` where it is accepted, else what it makes when called without arguments."""
    if accepts(found):
        return found
    made = found() if callable(found) else found
    if not accepts(made):
        raise ModelError(f"{path} must be or make an object with {offers}, got {type(made).__name__}")
    return made
