"""Options read from a signature, code from outside (`package.module:name`), and what identifies a model: its content.

A class or function states the options of a model in its signature, `Annotated[type, Help("...")]`; one that is also
marked `SPEED` changes how soon and at what price answers come, not what they are, and is no part of the identity.
"""

import copyreg
import inspect
import math
import pickle
import sys
import sysconfig
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.machinery import PathFinder
from importlib.util import find_spec
from inspect import Parameter
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Annotated, Any, Literal, TypeGuard, TypeVar

import numpy as np

from rewardlab.core.catalog import did_you_mean, load_object
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help
from rewardlab.models.model_string import FORM, Pairs, option_text

Argument = str | int | float | bool | Path
Made = TypeVar("Made")

SPEED = "speed"  # in Annotated: the option is about speed, price or place
_KINDS = (str, bool, int, float, Path)


@dataclass(frozen=True)
class Option:
    """One option of a model, as a signature states it."""

    name: str
    kind: Any  # str, bool, int, float or Path
    choices: tuple[str, ...]
    default: Any  # Parameter.empty where the option must be given
    help: str
    speed: bool


def options_of(maker: Callable[..., object]) -> dict[str, Option]:
    """Return the options that a class or function takes by name."""
    return {
        name: _option(name, parameter)
        for name, parameter in _parameters(maker).items()
        if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    }


def read_arguments(
    path: str, maker: Callable[..., object], pairs: Pairs, also: Collection[str] = ()
) -> dict[str, Argument]:
    """Return the keyword arguments for a class or function; one that it does not take, or lacks, is said.

    `also` are options that the caller reads itself, for the list of what is known.
    """
    options = options_of(maker)
    rest = next((one for one in _parameters(maker).values() if one.kind is Parameter.VAR_KEYWORD), None)
    values: dict[str, Argument] = {}
    for name, text in pairs:
        if name in values:
            raise PlanError(f"option {name} of {path} is given twice; {FORM}")
        if name not in options and rest is None:
            known = [*also, *options]
            hint = f"{did_you_mean(name, known)}it takes {', '.join(known) or 'none'}"
            raise PlanError(f"{path} takes no option {name!r}; {hint}; {FORM}")
        values[name] = _read(path, options[name] if name in options else _option(name, rest), text)
    missing = [name for name, one in options.items() if one.default is Parameter.empty and name not in values]
    if missing:
        example = "&".join(f"{name}=..." for name in missing)
        raise PlanError(f"{path} needs {' and '.join(missing)}; write {path}?{example}")
    return values


def all_settings(maker: Callable[..., object], given: Mapping[str, object]) -> dict[str, object]:
    """Return every option with its value, given or default; those about speed are left out."""
    options = options_of(maker)
    values = {name: option.default for name, option in options.items()} | dict(given)
    return {name: value for name, value in values.items() if name not in options or not options[name].speed}


def shown_options(maker: Callable[..., object], given: Mapping[str, object]) -> Pairs:
    """Return the options that stand in the name of a model, in one order: neither defaults nor those about speed."""
    options = options_of(maker)
    named = [name for name in options if name in given] + sorted(name for name in given if name not in options)
    return tuple(
        (name, option_text(given[name]))
        for name in named
        if name not in options or not (options[name].speed or given[name] == options[name].default)
    )


def at_least_one(key: str, value: int) -> None:
    """Check, in a `__post_init__`, an option that counts something there must be one of."""
    if value < 1:
        raise PlanError(f"option {key} must be at least 1, got {value}")


def _parameters(maker: Callable[..., object]) -> Mapping[str, Parameter]:
    """Return the parameters; those of code that does not tell them take anything."""
    try:
        return inspect.signature(maker, eval_str=True).parameters
    except NameError:  # an annotation that is imported for type checkers only: it stays text
        return inspect.signature(maker).parameters
    except (ValueError, TypeError):
        return {"arguments": Parameter("arguments", Parameter.VAR_KEYWORD)}


def _option(name: str, parameter: Parameter | None) -> Option:
    assert parameter is not None
    hint, extra = parameter.annotation, list[Any]()
    if typing.get_origin(hint) is Annotated:
        hint, *extra = typing.get_args(hint)
    told = next((each.text for each in extra if isinstance(each, Help)), "")
    choices = typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
    return Option(
        name, _kind(hint, parameter.default), choices, parameter.default, told, any(each is SPEED for each in extra)
    )


def _kind(hint: Any, default: Any) -> Any:
    """Return the type that the annotation says, else that of the default; text where it is none of the known ones."""
    if hint is Parameter.empty:
        return next((kind for kind in (bool, int, float, Path) if isinstance(default, kind)), str)
    if isinstance(hint, str):  # it could not be resolved
        return next((kind for kind in _KINDS if kind.__name__ in hint.replace("|", " ").split()), str)
    parts = typing.get_args(hint) or (hint,)  # such as int | None
    return next((kind for kind in _KINDS if kind in parts), str)


def _read(path: str, option: Option, text: str) -> Argument:
    try:
        value = _value(option.kind, text)
    except (ValueError, OverflowError):
        kinds = {bool: "yes or no", int: "a whole number", float: "a number"}
        raise PlanError(f"{path}: option {option.name} must be {kinds[option.kind]}, got {text!r}") from None
    if option.choices and value not in option.choices:
        words = f"{', '.join(option.choices[:-1])} or {option.choices[-1]}"
        raise PlanError(f"{path}: option {option.name} must be {words}, got {text!r}")
    return value


def _value(kind: Any, text: str) -> Argument:
    if kind is bool:
        if text.lower() not in ("yes", "true", "1", "on", "no", "false", "0", "off"):
            raise ValueError(text)
        return text.lower() in ("yes", "true", "1", "on")
    value: Argument = kind(text)
    if isinstance(value, int | float) and not math.isfinite(value):
        raise ValueError(text)
    return value


# Identity: what a model is, and never where it lies, when it was written, or how its string was spelled.


def identity(kind: str, settings: Mapping[str, object], *content: str) -> str:
    """Return what identifies a model: its kind, every setting, and the content of its weights or its code."""
    return digest(kind, content_digest(dict(settings)), *content)


def path_digest(path: Path) -> str:
    """Return what identifies the content of a file, or of a folder with the names of its files; else the path."""
    if path.is_file():
        facts = path.stat()
        return _file_digest(path.resolve(), facts.st_size, facts.st_mtime_ns)
    if path.is_dir():
        files = sorted(each.relative_to(path) for each in path.rglob("*") if each.is_file())
        return digest(*(part for file in files for part in (file.as_posix(), path_digest(path / file))))
    return digest("nothing at", str(path))


@cache
def _file_digest(path: Path, size: int, changed: int) -> str:
    """Return the hash of a file; within one process a file is read again only after it was written to."""
    hasher = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest()


def content_digest(thing: object, inside: tuple[int, ...] = ()) -> str:
    """Return what identifies a value by its content, the same in every process; `inside` are the ids of its holders."""
    if thing is None or type(thing) in (str, bytes, bool, int, float):
        return digest(thing)  # type: ignore[arg-type]
    if id(thing) in inside:
        return digest("holder", inside[::-1].index(id(thing)))
    return digest(*_parts(thing, (*inside, id(thing))))


def _parts(thing: object, inside: tuple[int, ...]) -> Iterator[str | bytes]:
    if isinstance(thing, Path):
        return iter([path_digest(thing)])
    if isinstance(thing, ModuleType):
        return iter([thing.__name__])
    if isinstance(thing, type):
        return _class_parts(thing, inside)
    if isinstance(thing, FunctionType):
        return _function_parts(thing, inside)
    if isinstance(thing, MethodType):
        return iter([content_digest(part, inside) for part in (thing.__func__, thing.__self__)])
    if type(thing) in (list, tuple, set, frozenset, dict):
        return _collection_parts(thing, inside)
    return _array_parts(thing) or _object_parts(thing, inside)


def _collection_parts(thing: Any, inside: tuple[int, ...]) -> Iterator[str]:
    ordered = type(thing) in (list, tuple)
    parts = [content_digest(part, inside) for part in (thing.items() if type(thing) is dict else thing)]
    return iter([type(thing).__name__, *(parts if ordered else sorted(parts))])


def _array_parts(thing: Any) -> Iterator[str | bytes] | None:
    if isinstance(thing, np.ndarray) and thing.dtype != object:
        return iter(["array", thing.dtype.str, str(thing.shape), thing.tobytes()])
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(thing, torch.Tensor):
        return None
    plain = thing.detach().cpu().contiguous()
    content = plain.flatten().view(torch.uint8).numpy().tobytes()
    return iter(["tensor", str(plain.dtype), str(tuple(plain.shape)), content])


def _object_parts(thing: object, inside: tuple[int, ...]) -> Iterator[str]:
    """Yield the class and the state of any other object, as pickle would take them apart."""
    yield content_digest(type(thing), inside)
    try:
        reduced = thing.__reduce_ex__(4)
    except Exception:  # it can be sent to no process, which is said where it is sent
        return
    for part in (reduced,) if isinstance(reduced, str) else reduced:
        if part is not copyreg.__newobj__:  # type: ignore[attr-defined]
            yield content_digest(list(part) if isinstance(part, Iterator) else part, inside)


def _class_parts(kind: type, inside: tuple[int, ...]) -> Iterator[str]:
    """Yield the code of a class with that of its bases; what is installed goes by its name."""
    if _is_installed(kind.__module__):
        yield f"{kind.__module__}.{kind.__qualname__}"
        return
    yield kind.__qualname__
    functions = [each for each in vars(kind).values() if isinstance(each, FunctionType)]
    source = _source(kind)
    yield source
    for function in functions:
        yield from _closure_parts(function, inside) if source else _function_parts(function, inside)
    yield from (content_digest(base, inside) for base in kind.__bases__)


def _function_parts(function: FunctionType, inside: tuple[int, ...]) -> Iterator[str]:
    if _is_installed(function.__module__):
        yield f"{function.__module__}.{function.__qualname__}"
        return
    yield _source(function) or _code_digest(function.__code__)
    yield content_digest((function.__defaults__, function.__kwdefaults__), inside)
    yield from _closure_parts(function, inside)


def _closure_parts(function: FunctionType, inside: tuple[int, ...]) -> Iterator[str]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            held = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        yield from (name, content_digest(held, inside))


def _source(thing: type | FunctionType) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):  # made by exec, or typed at a prompt
        return ""


def _code_digest(code: CodeType) -> str:
    constants = (_code_digest(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts)
    return digest(code.co_code, *code.co_names, *constants)


@cache
def _is_installed(module: str | None) -> bool:
    """Tell whether a module is part of Python or of an installed package, which go by their names."""
    if not module or module == "__main__":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module.partition(".")[0] in sys.stdlib_module_names
    places = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(Path(file).resolve().is_relative_to(place) for place in places)


# Code from outside: `package.module:name`, imported, made of its arguments, and pickled.


@dataclass(frozen=True)
class ExternalCode:
    """Something outside the package, and the arguments that make a model of it; the code itself stays where it is."""

    path: str  # package.module:name
    identity: str  # the code and every argument, a file among these by its content
    arguments: Mapping[str, Argument]
    shown: Pairs  # the arguments in its name


def is_module(name: str) -> bool:
    """Tell whether a name means code outside: a dotted path, a module installed or in the current folder."""
    try:
        return "." in name or bool(find_spec(name) or PathFinder.find_spec(name, [str(Path.cwd())]))
    except ValueError:  # such as __main__, or no name at all
        return False


def name_external(
    path: str, pairs: Pairs, accepts: Callable[[object], bool], also: Collection[str] = ()
) -> ExternalCode:
    """Import what stands at `path` and read its arguments; an object that is accepted as it is takes none."""
    found, code = load_object(path)
    name = path.partition(":")[2]
    if not accepts(found) and callable(found):
        given = read_arguments(path, found, pairs, also)
        return ExternalCode(path, identity(name, all_settings(found, given), code), given, shown_options(found, given))
    if pairs:
        raise PlanError(
            f"{path} is an object, made already, and takes no options, got {pairs[0][0]!r}; "
            "name a class, or a function that makes one"
        )
    return ExternalCode(path, identity(name, {}, code), {}, ())


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
