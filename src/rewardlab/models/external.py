"""Code from outside: `package.module:name`, imported, made of its arguments, and pickled; functions as models."""

import inspect
import pickle
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeGuard, TypeVar

from rewardlab.core.catalog import load_object
from rewardlab.core.episode import Episode
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.models.contract import (
    Argument,
    Pairs,
    all_settings,
    identity,
    parameters_of,
    read_arguments,
    shown_options,
)

Made = TypeVar("Made")


@dataclass(frozen=True)
class ExternalCode(Generic[Made]):
    """Something outside the package that makes a model; the code itself stays where it is."""

    identity: str  # the code and every argument, a file among these by its content
    shown: Pairs  # the arguments in its name
    make: Callable[[], Made]


@dataclass(frozen=True)
class FunctionModel:
    """A RewardModel made of a function of one episode, or of a list if its first parameter is called `episodes`."""

    function: Callable[..., Any]

    def score(self, episodes: Sequence[Episode]) -> list[Any]:
        """Return what the function returns: one answer per episode."""
        if next(iter(parameters_of(self.function)), "") == "episodes":
            return list(self.function(list(episodes)))
        return [self.function(episode) for episode in episodes]


def maker_of(thing: Any) -> Any:
    """Return what makes a model of options: of a function of `episode` or `episodes`, the other parameters are those.

    Anything else is returned as it is.
    """
    if not inspect.isroutine(thing):
        return thing
    parameters = list(parameters_of(thing).values())
    if not parameters or parameters[0].name not in ("episode", "episodes"):
        return thing
    make: Any = lambda **given: FunctionModel(partial(thing, **given) if given else thing)
    make.__signature__ = inspect.Signature(parameters[1:])
    return make


def is_module(name: str) -> bool:
    """Tell whether a name means code outside: a dotted path, a module installed or in the current folder."""
    try:
        return "." in name or bool(find_spec(name) or PathFinder.find_spec(name, [str(Path.cwd())]))
    except ValueError:  # such as __main__, or no name at all
        return False


def name_external(
    path: str, pairs: Pairs, accepts: Callable[[object], TypeGuard[Made]], offers: str, also: Collection[str] = ()
) -> ExternalCode[Made]:
    """Import what stands at `path` and read its arguments; an object that is accepted as it is takes none.

    `make` returns that object, else what it makes when called with the arguments.
    """
    loaded, code = load_object(path)
    found = maker_of(loaded)
    given, settings, shown = dict[str, Argument](), dict[str, object](), Pairs()
    if not accepts(found) and callable(found):
        given = read_arguments(path, found, pairs, also)
        settings, shown = all_settings(found, given), shown_options(found, given)
    elif pairs:
        raise PlanError(
            f"{path} is an object, made already, and takes no options, got {pairs[0][0]!r}; "
            "name a class, or a function that makes one"
        )

    def make() -> Made:
        found = maker_of(load_object(path)[0])
        made = found if accepts(found) or not callable(found) else found(**given)
        if not accepts(made):
            raise ModelError(f"{path} must be or make an object with {offers}, got {type(made).__name__}")
        return made

    return ExternalCode(identity(path.partition(":")[2], settings, code), shown, make)


def pickled(name: str, thing: object) -> bytes:
    """Return a model, or a part of it, as it is sent to a worker; what cannot be sent is told with the remedy."""
    import cloudpickle

    def travels(value: object) -> bool:
        try:
            cloudpickle.dumps(value)
        except Exception:  # whatever its own code raises
            return False
        return True

    try:
        return bytes(cloudpickle.dumps(thing))
    except (TypeError, pickle.PicklingError, AttributeError, ValueError, OSError, RuntimeError) as error:
        held = thing.items() if isinstance(thing, dict) else ()
        culprit = next((f"its {key} ({type(value).__name__}): " for key, value in held if not travels(value)), "")
        raise ModelError(
            f"{name} cannot be sent to the process that asks it: {culprit}{' '.join(str(error).split())}; "
            f"put it in a file and name it, 'package.module:{name}', then it is made in that process, "
            "or make what cannot be sent in the first call of score"
        ) from error
