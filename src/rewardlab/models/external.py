"""Code from outside: arguments read from a signature, `package.module:name` imported, made and pickled."""

import inspect
import pickle
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.util import find_spec
from inspect import Parameter
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from rewardlab.core.catalog import did_you_mean, load_object
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.seeding import digest
from rewardlab.models.model_string import Pairs, read_value

Argument = str | int | float | bool | Path

_KINDS = (str, bool, int, float, Path)


def read_arguments(path: str, maker: Callable[..., object], pairs: Pairs) -> dict[str, Argument]:
    """Return the keyword arguments for a class or function; one that it does not take, or lacks, is said."""
    parameters = _parameters(maker)
    values: dict[str, Argument] = {}
    for name, text in pairs:
        if name in values:
            raise PlanError(f"argument {name} of {path} is given twice; write arguments as ?key=value&key=value")
        values[name] = _read(path, name, text, _parameter(path, name, parameters))
    missing = [name for name, one in parameters.items() if _is_required(one) and name not in values]
    if missing:
        example = "&".join(f"{name}=..." for name in missing)
        raise PlanError(f"{path} needs {' and '.join(missing)}; write {path}?{example}")
    return values


def _parameters(maker: Callable[..., object]) -> Mapping[str, Parameter]:
    """Return the parameters; those of code that does not tell them take anything."""
    try:
        return inspect.signature(maker, eval_str=True).parameters
    except NameError:  # an annotation that is imported for type checkers only: it stays text
        return inspect.signature(maker).parameters
    except (ValueError, TypeError):
        return {"arguments": Parameter("arguments", Parameter.VAR_KEYWORD)}


def _parameter(path: str, name: str, parameters: Mapping[str, Parameter]) -> Parameter:
    named = {key: one for key, one in parameters.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    if name in named:
        return named[name]
    rest = next((one for one in parameters.values() if one.kind is one.VAR_KEYWORD), None)
    if rest is None:
        hint = f"{did_you_mean(name, named)}it takes {', '.join(named) or 'none'}"
        raise PlanError(f"{path} takes no argument {name!r}; {hint}")
    return rest


def _is_required(parameter: Parameter) -> bool:
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variadic


def _read(path: str, name: str, text: str, parameter: Parameter) -> Argument:
    kind = _kind(parameter)
    if kind is Path:
        return Path(text)
    try:
        return read_value(name, text, kind)
    except PlanError as error:
        raise PlanError(f"{path}: {str(error).replace('option', 'argument', 1)}") from None


def _kind(parameter: Parameter) -> Any:
    """Return the type that the annotation says, else that of the default; text where it is none of the known ones."""
    hint = parameter.annotation
    if hint is parameter.empty:
        return next((kind for kind in (bool, int, float, Path) if isinstance(parameter.default, kind)), str)
    if isinstance(hint, str):  # it could not be resolved
        return next((kind for kind in _KINDS if kind.__name__ in hint.replace("|", " ").split()), str)
    parts = typing.get_args(hint) or (hint,)  # such as int | None
    return next((kind for kind in _KINDS if kind in parts), str)


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
