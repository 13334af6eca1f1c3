"""Models and VLM backends outside the package, named as `package.module:name?argument=value`."""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from rewardlab.core.catalog_lookup import load_object
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.seeding import digest
from rewardlab.models.constructor_arguments import Argument, read_arguments
from rewardlab.models.model_string import Pairs

Made = TypeVar("Made")


@dataclass(frozen=True)
class ExternalCode:
    """Something outside the package, and the arguments that make a model of it; the code itself stays where it is."""

    path: str  # package.module:name
    code: str  # hash of its file
    arguments: Mapping[str, Argument]

    @property
    def identity(self) -> str:
        """Return what identifies it: the path, the code and the arguments; a file among these by its size and time."""
        return digest(self.path, self.code, *(part for item in self.arguments.items() for part in _identity(*item)))


def is_module(name: str) -> bool:
    """Tell whether a name means code outside: a dotted path, a module installed or in the current folder."""
    try:
        return "." in name or bool(find_spec(name) or PathFinder.find_spec(name, [str(Path.cwd())]))
    except ValueError:  # such as __main__, or no name at all
        return False


def name_external(path: str, pairs: Pairs, accepts: Callable[[object], bool]) -> ExternalCode:
    """Import what stands at `path` and read its arguments; an object that is accepted as it is takes none."""
    found, code = load_object(path)
    if not accepts(found) and callable(found):
        return ExternalCode(path, code, read_arguments(path, found, pairs))
    if pairs:
        raise PlanError(
            f"{path} is an object, made already, and takes no arguments, got {pairs[0][0]!r}; "
            "name a class, or a function that makes one"
        )
    return ExternalCode(path, code, {})


def make_external(external: ExternalCode, accepts: Callable[[object], TypeGuard[Made]], offers: str) -> Made:
    """Return the object at the path where it is accepted, else what it makes when called with the arguments."""
    found, _ = load_object(external.path)
    if accepts(found):
        return found
    made = found(**external.arguments) if callable(found) else found
    if not accepts(made):
        raise ModelError(f"{external.path} must be or make an object with {offers}, got {type(made).__name__}")
    return made


def pickled(name: str, thing: object) -> bytes:
    """Return a model, or a part of it, as it is sent to a worker; what cannot be sent is told with the remedy."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(thing))
    except (TypeError, pickle.PicklingError, AttributeError, ValueError, OSError, RuntimeError) as error:
        raise ModelError(
            f"{name} cannot be sent to the process that asks it: {_culprit(thing)}{' '.join(str(error).split())}; "
            f"put it in a file and name it, 'package.module:{name}', then it is made in that process, "
            "or make what cannot be sent in the first call of score"
        ) from error


def _culprit(thing: object) -> str:
    """Return the name of the attribute that cannot be pickled, of those given by name."""
    if not isinstance(thing, dict):
        return ""
    return next((f"its {name} ({type(value).__name__}): " for name, value in thing.items() if not _travels(value)), "")


def _travels(value: Any) -> bool:
    import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:  # whatever its own code raises
        return False
    return True


def _identity(name: str, value: Argument) -> tuple[str | int, ...]:
    if isinstance(value, Path) and value.is_file():
        facts = value.stat()
        return name, str(value), facts.st_size, facts.st_mtime_ns
    return name, str(value)
