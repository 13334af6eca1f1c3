"""The interface of reward models, anything with `score(episodes)`; model strings, their options, and identity.

A model is one string, `NAME:ARGUMENT?key=value&key=value+CALIBRATION`. A class or function states the options in its
signature, `Annotated[type, Help("...")]`; one that is also marked `SPEED` affects only speed, cost or where a model
runs, not its scores, and is not part of the identity; of one marked `LATER`, the default is not.
"""

import copyreg
import inspect
import math
import re
import sys
import sysconfig
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from inspect import Parameter
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Annotated, Any, Literal, Protocol, runtime_checkable
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import numpy as np

from rewardlab.core.catalog import did_you_mean, quoted
from rewardlab.core.episode import Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Failure

CALIBRATION = "calibration.json"  # file in the folder that a model string names after +
GUARD = "guard.json"  # or this
OPTION_SYNTAX = "write options as ?key=value&key=value"
CONNECT_SECONDS = 1.0  # that a server may take until it accepts the first connection
LATER = "later"  # in Annotated: the option came after its model; its default is no part of the identity of older runs
SPEED = "speed"  # in Annotated: the option affects speed, cost or where the model runs, not its scores

Pairs = tuple[tuple[str, str], ...]  # options as written: key and decoded value
Argument = str | int | float | bool | Path

_SECRET = re.compile(r"key|token|secret|password|^sig", re.IGNORECASE)  # URL parameters that look like credentials
_KINDS = (str, bool, int, float, Path)
_BOOLEANS = {"yes": True, "true": True, "1": True, "on": True, "no": False, "false": False, "0": False, "off": False}
_LONGEST = 4096  # characters of a model string


@dataclass(frozen=True)
class ModelString:
    """The parts of a model string; `text` is all of it but the calibrations and guards."""

    text: str
    name: str
    argument: str = ""
    options: Pairs = ()
    calibrations: tuple[tuple[str, Path], ...] = ()  # and guards: the model string up to each, and its file


@runtime_checkable
class RewardModel(Protocol):
    """Scores episodes from their instruction, frames and times.

    Wherever users give a model, its answers may also be numbers, the levels, and it may be a function: of one
    `episode`, or of a list where its first parameter is called `episodes`.
    """

    def score(self, episodes: Sequence[Episode]) -> Sequence[Answer]:
        """Return one Score or Failure per episode, in order."""


# Which asking of the same question this is, 0 the first time; what keeps answers by their question tells them apart.
ASKING: ContextVar[int] = ContextVar("asking", default=0)


def question_key(key: str) -> str:
    """Return the key of a question as it is asked now: the key itself the first time, another one each time after."""
    return f"{key} asked again {ASKING.get()}" if ASKING.get() else key


class Describer(Protocol):
    """Describes clips in words, without their instruction."""

    def describe(self, episodes: Sequence[Episode]) -> Sequence[str | Failure]:
        """Return one description or Failure per episode."""


ComparisonProbs = tuple[float, float, float]  # that the first clip is better, the second, and that neither is


class Comparer(Protocol):
    """Compares two clips of one instruction, as they are shown one after the other."""

    def compare(self, pairs: Sequence[tuple[Episode, Episode]]) -> Sequence[ComparisonProbs | Failure]:
        """Return the probabilities of each answer, or a Failure, per pair."""


@dataclass(frozen=True)
class Budget:
    """What a run may spend on models that cost money and on waiting for a server, and the folder of paid requests."""

    max_requests: int | None = None
    max_cost: float | None = None  # in the currency of the model's prices
    folder: Path | None = None
    connect_seconds: float = CONNECT_SECONDS


@dataclass(frozen=True)
class NamedModel:
    """A model that can be built anywhere: its name, what identifies it, and how to make it.

    A composite has its `members`, and `combine` makes it from them, so that a process builds each member once.
    A model with third-party code is `isolated`: a run scores it in a process of its own.
    """

    name: str  # canonical model string, without options marked SPEED
    fingerprint: str  # its settings, the content of its weights or code, and the version of its behaviour
    sees_truth: bool  # controls only: every other model gets the episode without truth and provenance
    make: Callable[[Budget], RewardModel] | None
    exclusive: bool = False  # too big for a copy per worker, or it tracks spending: loaded in one process only
    members: tuple["NamedModel", ...] = ()
    combine: Callable[[Sequence[RewardModel], Budget], RewardModel] | None = None
    caveat: str = ""  # one sentence on the limits of its results, shown with them
    trained_tasks: tuple[str, ...] = ()  # tasks it was trained on, where that is known
    trained_on: tuple[str, ...] = ()  # public datasets and simulators it was trained on, where that is known
    isolated: bool = False
    prompt: Callable[[str], str] = lambda _: ""  # from instruction to prompt; empty for models without one
    spec: str = ""  # the string by which the user named it; the name where there was none
    server: str = ""  # the address that requests go to, of a server which may charge for them
    describe: Callable[[Budget], Describer] | None = None  # builds its Describer, if it has one
    compare: Callable[[Budget], Comparer] | None = None  # builds its Comparer, if it can compare clips
    deterministic: bool = False  # the same clip gets the same answer, so that it need not be asked again
    abstains: bool = False  # it may answer that the clip does not show what is asked

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", self.spec or self.name)

    def __repr__(self) -> str:
        return f"NamedModel({self.name!r}, fingerprint {self.fingerprint[:8]}; build() loads it)"

    def refuse_truth(self, place: str) -> None:
        """Raise a PlanError where the model reads the true label, which this place does not have."""
        if self.sees_truth:
            raise PlanError(f"{self.name} reads the true label, which {place} does not have; choose another model")

    def build(self, budget: Budget | None = None) -> RewardModel:
        """Return the model, ready to score; this may load weights."""
        if self.combine is not None:
            return self.combine([member.build(budget) for member in self.members], budget or Budget())
        assert self.make is not None
        return self.make(budget or Budget())


AnyModel = str | RewardModel | NamedModel | Callable[..., Any]  # whatever a user may give as a model


@dataclass(frozen=True)
class ModelEntry:
    """A catalog entry: what the model is, and how to resolve its model strings.

    `version` is the version of its behaviour: raise it by one whenever the same settings and weights give other
    scores. Runs of the old behaviour are then runs of another model; tests/models/test_identity.py pins the scores.
    """

    summary: str
    name: Callable[[ModelString], NamedModel]  # checks the string and loads nothing
    options: tuple[Callable[..., object], ...] = ()  # the signatures with its options, for `rewardlab show`
    sees_truth: bool = False
    version: int = 1
    over: Literal["", "backend", "model"] = ""  # what its argument names, where it asks another model in its own way


# Model strings.


def parse_model_string(text: str) -> ModelString:
    """Return the parts of a model string; options follow the last `?`, and `%26` in them is a literal `&`."""
    if len(text) > _LONGEST:
        raise PlanError(f"a model string has at most {_LONGEST:,} characters, got {len(text):,}: {quoted(text)}")
    base, calibrations = text, list[tuple[str, Path]]()
    while (found := _calibration(base)) is not None:
        calibrations.insert(0, (base, found[1]))
        base = found[0]
    before, mark, options = base.rpartition("?")
    name, _, argument = (before if mark else base).partition(":")
    pairs = [word.partition("=") for word in options.split("&")] if mark else []
    wrong = next((key for key, equals, _ in pairs if not equals), None)
    if wrong is not None:
        raise PlanError(f"expected key=value, got {wrong!r}; {OPTION_SYNTAX}")
    read = tuple((key, unquote(value)) for key, _, value in pairs)
    return ModelString(base, name, argument, read, tuple(calibrations))


def _calibration(text: str) -> tuple[str, Path] | None:
    """Return the model and the file of MODEL+PATH; None if no + is followed by a calibration or a guard."""
    for place in (place for place, sign in enumerate(text) if sign == "+"):
        with suppress(OSError):  # such as a name too long for any file
            path = Path(text[place + 1 :])
            for name in (CALIBRATION, GUARD):
                if (path / name).is_file():
                    return text[:place], path / name
            if path.suffix == ".json" and path.is_file():
                return text[:place], path
    return None


def canonical_name(string: ModelString, options: Pairs) -> str:
    """Return `NAME:ARGUMENT` with these options instead of those in the string."""
    text = f"{string.name}:{string.argument}" if string.argument else string.name
    return string.text if "?" in text and not options else with_options(text, options)


def with_options(text: str, options: Pairs) -> str:
    """Return `NAME:ARGUMENT` followed by these options."""
    words = [f"{key}={value.replace('%', '%25').replace('&', '%26').replace('?', '%3F')}" for key, value in options]
    return f"{text}?{'&'.join(words)}" if words else text


def option_text(value: object) -> str:
    """Return the canonical text of an option's value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def leave_to_members(string: ModelString, own: Collection[str]) -> ModelString:
    """Return the string of a composite; if it has a comma and options other than its `own`, all go to the members."""
    if "," not in string.text.rpartition("?")[2] or all(key in own for key, _ in string.options):
        return string
    return replace(string, argument=string.text.partition(":")[2], options=())


def read_url(text: str, example: str) -> SplitResult:
    """Return the parts of an HTTP address; PlanError if it holds a password or key: run files store it."""
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or "@" in parts.netloc:
        raise PlanError(f"expected {example}, with an address of http or https and no name or password in it")
    secret = next((name for name, _ in parse_qsl(parts.query) if _SECRET.search(name)), None)
    if secret is not None:
        raise PlanError(f"the address holds {secret}=..., and run files store the address; put keys in the environment")
    return parts


# Options, as a signature states them.


@dataclass(frozen=True)
class Option:
    """One option of a model, as a signature states it."""

    name: str
    kind: Any  # str, bool, int, float or Path
    choices: tuple[str, ...]
    default: Any  # Parameter.empty where the option must be given
    help: str
    speed: bool
    later: bool


def options_of(maker: Callable[..., object]) -> dict[str, Option]:
    """Return the options that a class or function takes by name."""
    return {
        name: _option(name, parameter)
        for name, parameter in parameters_of(maker).items()
        if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    }


def read_arguments(
    path: str, maker: Callable[..., object], pairs: Pairs, also: Collection[str] = ()
) -> dict[str, Argument]:
    """Return the keyword arguments for a class or function; PlanError if one is unknown or missing.

    `also` are options that the caller reads itself; errors list them as known.
    """
    options = options_of(maker)
    rest = next((one for one in parameters_of(maker).values() if one.kind is Parameter.VAR_KEYWORD), None)
    values: dict[str, Argument] = {}
    for name, text in pairs:
        if name in values:
            raise PlanError(f"option {name} of {path} is given twice; {OPTION_SYNTAX}")
        option = options.get(name) or (_option(name, rest) if rest else None)
        if option is None:
            known = [*also, *options]
            hint = f"{did_you_mean(name, known)}it takes {', '.join(known) or 'none'}"
            raise PlanError(f"{path} takes no option {quoted(name)}; {hint}; {OPTION_SYNTAX}")
        values[name] = _read(path, option, text)
    missing = [name for name, one in options.items() if one.default is Parameter.empty and name not in values]
    if missing:
        example = "&".join(f"{name}=..." for name in missing)
        itself = "" if isinstance(maker, type) else ", or, if it scores itself, let it take one `episode`"
        raise PlanError(f"{path} needs {' and '.join(missing)}; write {path}?{example}{itself}")
    return values


def all_settings(maker: Callable[..., object], given: Mapping[str, object]) -> dict[str, object]:
    """Return every option with its value, given or default, but not those about speed, nor a later one's default."""
    options = options_of(maker)
    values = {name: option.default for name, option in options.items()} | dict(given)

    def counts(name: str, value: object) -> bool:
        option = options.get(name)
        return option is None or not (option.speed or (option.later and value == option.default))

    return {name: value for name, value in values.items() if counts(name, value)}


def shown_options(maker: Callable[..., object], given: Mapping[str, object]) -> Pairs:
    """Return the options of a canonical model name, in a fixed order, without defaults and those about speed."""
    options = options_of(maker)
    named = [name for name in options if name in given] + sorted(name for name in given if name not in options)
    return tuple(
        (name, option_text(given[name]))
        for name in named
        if name not in options or not (options[name].speed or given[name] == options[name].default)
    )


def at_least_one(key: str, value: int) -> None:
    """Raise PlanError if an option is below 1; for a `__post_init__`."""
    if value < 1:
        raise PlanError(f"option {key} must be at least 1, got {value}")


def parameters_of(maker: Callable[..., object]) -> Mapping[str, Parameter]:
    """Return the parameters; any keyword is accepted if the signature is not known."""
    try:
        return inspect.signature(maker, eval_str=True).parameters
    except NameError:  # an annotation that is imported for type checkers only: it stays text
        return inspect.signature(maker).parameters
    except (ValueError, TypeError):
        return {"arguments": Parameter("arguments", Parameter.VAR_KEYWORD)}


def _option(name: str, parameter: Parameter) -> Option:
    hint, extra = parameter.annotation, list[Any]()
    if typing.get_origin(hint) is Annotated:
        hint, *extra = typing.get_args(hint)
    help_text = next((each.text for each in extra if isinstance(each, Help)), "")
    choices = typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
    marks = {each for each in extra if isinstance(each, str)}
    kind = _kind(hint, parameter.default)
    return Option(name, kind, choices, parameter.default, help_text, SPEED in marks, LATER in marks)


def _kind(hint: Any, default: Any) -> Any:
    """Return the annotated type, else that of the default; `str` if it is not supported."""
    if hint is Parameter.empty:
        return next((kind for kind in (bool, int, float, Path) if isinstance(default, kind)), str)
    if isinstance(hint, str):  # it could not be resolved
        return next((kind for kind in _KINDS if kind.__name__ in hint.replace("|", " ").split()), str)
    parts = typing.get_args(hint) or (hint,)  # such as int | None
    return next((kind for kind in _KINDS if kind in parts), str)


def _read(path: str, option: Option, text: str) -> Argument:
    try:
        value: Argument = _BOOLEANS[text.lower()] if option.kind is bool else option.kind(text)
        finite = not isinstance(value, int | float) or math.isfinite(value)
    except (KeyError, ValueError, OverflowError):
        finite = False
    if not finite:
        kinds = {bool: "yes or no", int: "a whole number", float: "a number"}
        raise PlanError(f"{path}: option {option.name} must be {kinds[option.kind]}, got {text!r}")
    if option.choices and value not in option.choices:
        words = f"{', '.join(option.choices[:-1])} or {option.choices[-1]}"
        raise PlanError(f"{path}: option {option.name} must be {words}, got {text!r}")
    return value


# Identity: a digest of settings and content, whatever the path, the date of files, or the spelling of the string.


def identity(kind: str, settings: Mapping[str, object], *content: str) -> str:
    """Return the digest of a model: its kind, every setting, and the content of its weights or its code."""
    return digest(kind, content_digest(dict(settings)), *content)


def path_digest(path: Path) -> str:
    """Return the digest of a file, or of a folder with the names of its files; of the path if there is neither."""
    if path.is_file():
        facts = path.stat()
        return _file_digest(path.resolve(), facts.st_size, facts.st_mtime_ns)
    if path.is_dir():
        files = sorted(each.relative_to(path) for each in path.rglob("*") if each.is_file())
        return digest(*(part for file in files for part in (file.as_posix(), path_digest(path / file))))
    return digest("nothing at", str(path))


@cache
def _file_digest(path: Path, _size: int, _changed: int) -> str:
    """Return the hash of a file; within one process a file is read again only after it was written to."""
    hasher = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest()


def content_digest(thing: object, inside: tuple[int, ...] = ()) -> str:
    """Return the digest of a value's content, the same in every process; `inside` are the ids of enclosing objects."""
    if thing is None or type(thing) in (str, bytes, bool, int, float):
        return digest(thing)  # type: ignore[arg-type]
    if id(thing) in inside:
        return digest("holder", inside[::-1].index(id(thing)))
    return digest(*_parts(thing, (*inside, id(thing))))


def _parts(thing: Any, inside: tuple[int, ...]) -> Iterator[str | bytes]:
    torch: Any = sys.modules.get("torch")
    if isinstance(thing, Path):
        yield path_digest(thing)
    elif isinstance(thing, ModuleType):
        yield thing.__name__
    elif isinstance(thing, type):
        yield from _class_parts(thing, inside)
    elif isinstance(thing, FunctionType):
        yield from _function_parts(thing, inside)
    elif isinstance(thing, MethodType):
        yield from (content_digest(part, inside) for part in (thing.__func__, thing.__self__))
    elif type(thing) in (list, tuple, set, frozenset, dict):
        yield type(thing).__name__
        parts = [content_digest(part, inside) for part in (thing.items() if type(thing) is dict else thing)]
        yield from parts if type(thing) in (list, tuple) else sorted(parts)
    elif isinstance(thing, np.ndarray) and thing.dtype != object:
        yield from ("array", thing.dtype.str, str(thing.shape), thing.tobytes())
    elif torch is not None and isinstance(thing, torch.Tensor):
        plain = thing.detach().cpu().contiguous()
        content = plain.flatten().view(torch.uint8).numpy().tobytes()
        yield from ("tensor", str(plain.dtype), str(tuple(plain.shape)), content)
    else:
        yield from _object_parts(thing, inside)


def _object_parts(thing: object, inside: tuple[int, ...]) -> Iterator[str]:
    """Yield the class and the state of any other object, as pickle reduces them."""
    yield content_digest(type(thing), inside)
    try:
        reduced = thing.__reduce_ex__(4)
    except Exception:  # it cannot be pickled, which raises an error when it is sent to a worker
        return
    for part in (reduced,) if isinstance(reduced, str) else reduced:
        if part is not copyreg.__newobj__:  # type: ignore[attr-defined]
            yield content_digest(list(part) if isinstance(part, Iterator) else part, inside)


def _class_parts(kind: type, inside: tuple[int, ...]) -> Iterator[str]:
    """Yield the code of a class with that of its bases; installed code is identified by its name."""
    if _is_installed(kind.__module__):
        yield f"{kind.__module__}.{kind.__qualname__}"
        return
    source = _source(kind)
    yield from (kind.__qualname__, source)
    for function in vars(kind).values():
        if isinstance(function, FunctionType):
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
    """Tell whether a module is part of Python or of an installed package, identified by name."""
    if not module or module == "__main__":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module.partition(".")[0] in sys.stdlib_module_names
    places = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(Path(file).resolve().is_relative_to(place) for place in places)
