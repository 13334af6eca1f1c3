"""Settings from a function's signature: flags, help, command line, run record and reference page come from it.

A command is one typed function. Parameters before the `*` are positional arguments, keywords after it are flags,
and a parameter that is a dataclass is a group whose fields are flags too:

    def stress(models: Models, data: Data, *, limit: Limit = None, execution: Execution = Execution()) -> Run:

`Annotated[type, Help("...")]` describes a setting. Its value is converted to the annotated type: of a union, to the
first type that is supported; `Sequence` and `tuple` take several values, `Literal` lists the choices.
"""

import argparse
import functools
import inspect
import json
import math
import re
import reprlib
import shlex
import textwrap
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from rewardlab.core.catalog import did_you_mean, find
from rewardlab.core.errors import PlanError

_MOST_PLAN_BYTES = 64 * 1024
_KINDS: dict[Any, tuple[str, str]] = {  # metavar in the help, and what a value must be
    bool: ("", "true or false"),
    int: ("N", "a whole number"),
    float: ("X", "a number"),
    str: ("TEXT", "text"),
    Path: ("PATH", "a path"),
}


@dataclass(frozen=True)
class Help:
    """The help of a setting; `metavar` names its value, and with `more` only --help-all lists it.

    Several values of a flag are separated by commas; with `commas=False` the flag is repeated instead.
    """

    text: str
    metavar: str = ""
    short: str = ""
    commas: bool = True
    more: bool = False

    def __repr__(self) -> str:
        return repr(self.text)  # as help() prints it in a signature


@dataclass(frozen=True)
class Setting:
    """One setting of a command, as its signature states it."""

    name: str
    kind: Any
    help: Help
    default: Any = MISSING
    many: bool = False
    positional: bool = False
    choices: tuple[str, ...] = ()
    group: str = ""  # the parameter that holds it, where that is a group

    @property
    def flag(self) -> str:
        """Return the flag on the command line; that of a boolean with default True turns it off."""
        off = "no-" if self.default is True else ""
        return f"--{off}{self.name.replace('_', '-')}"

    @property
    def metavar(self) -> str:
        """Return the name of the value in the help."""
        return self.help.metavar or (self.name.upper() if self.positional else _KINDS[self.kind][0])

    @property
    def shown_default(self) -> str:
        """Return the default as it is written on the command line; empty if it is not shown."""
        hidden = self.positional or self.kind is bool or self.default in (MISSING, None, (), "")
        return "" if hidden else setting_text(self.default)


def setting_text(value: object) -> str:
    """Return a value as it is written on the command line: several with commas between them."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def settings_of(function: Callable[..., Any]) -> tuple[Setting, ...]:
    """Return the settings of a function, those of its groups in their place; parameters without Help are ignored."""
    found: list[Setting] = []
    for name, parameter in inspect.signature(function).parameters.items():
        default = MISSING if parameter.default is inspect.Parameter.empty else parameter.default
        if is_dataclass(parameter.annotation):
            for entry in fields(parameter.annotation):
                found.append(_setting(entry.name, entry.type, getattr(default, entry.name), group=name))
        elif typing.get_origin(parameter.annotation) is Annotated:
            positional = parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            found.append(_setting(name, parameter.annotation, default, positional=positional))
    return tuple(found)


def _setting(name: str, hint: Any, default: Any, *, positional: bool = False, group: str = "") -> Setting:
    hint, *extra = typing.get_args(hint)
    *_, text = (each for each in extra if isinstance(each, Help))  # the last one overrides that of an alias
    kind, many, choices = _read_hint(hint)
    return Setting(name, kind, text, default, many, positional, choices, group)


def _read_hint(hint: Any) -> tuple[Any, bool, tuple[str, ...]]:
    """Return the type of one value, whether there may be several, and the choices; ValueError for other types."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    for part in parts:
        if typing.get_origin(part) in (tuple, Sequence, Iterable):
            kind, _, choices = _read_hint(typing.get_args(part)[0])
            return kind, True, choices
    for part in parts:
        if typing.get_origin(part) is Literal:
            return str, False, typing.get_args(part)
        if part in _KINDS:
            return part, False, ()
    raise ValueError(f"a setting cannot have the type {hint}")


@functools.cache
def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a public function that refuses an argument of another type than its signature has, by name; PlanError."""
    kinds = {name: each.annotation for name, each in inspect.signature(function).parameters.items()}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check_types(function.__name__, kinds, dict(zip(kinds, args, strict=False)) | kwargs)
        return function(*args, **kwargs)

    call.__module__ = "rewardlab"  # where pickle finds it
    return call


def check_types(owner: str, kinds: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Raise a PlanError that names the first value that is not of its type."""
    for name in [each for each in kinds if each in values]:
        kind = _plain(kinds[name])
        if not _fits(kind, values[name]):
            raise PlanError(f"{name} of {owner} must be {_kind_text(kind)}, got {reprlib.repr(values[name])}")


def _plain(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def _fits(kind: Any, value: Any) -> bool:
    """Whether a value is of a type. Any collection is a list, but what can be read only once is none."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(part, value) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin in (tuple, Sequence):
        many = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | Iterator)
        return many and all(_fits(parts[0], part) for part in value)
    if kind in (int, float):
        return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    return isinstance(value, _class_of(kind))


def _class_of(kind: Any) -> Any:
    """Return the class of a type without its parameters, also of an alias, as `NDArray` is from NumPy 2.5 on."""
    owner: Any = typing.get_origin(kind) or kind
    return _class_of(owner.__value__) if hasattr(owner, "__value__") else owner


def _kind_text(kind: Any) -> str:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(dict.fromkeys(map(_kind_text, parts)))
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin in (tuple, Sequence):
        return "a list"
    return _KINDS[kind][1] if kind in _KINDS else "None" if kind is types.NoneType else _class_of(kind).__name__


def arguments_of(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a function from a flat mapping of settings; groups become dataclasses."""
    arguments, groups = dict[str, Any](), dict[str, dict[str, Any]]()
    for setting in settings_of(function):
        if setting.name in values:
            (groups.setdefault(setting.group, {}) if setting.group else arguments)[setting.name] = values[setting.name]
    parameters = inspect.signature(function).parameters
    return arguments | {name: parameters[name].annotation(**given) for name, given in groups.items()}


def read_toml(path: Path, advice: str = "") -> dict[str, Any]:
    """Return the tables of a plan file; PlanError if it is not there, not TOML, or larger than any plan."""
    try:
        with path.open("rb") as handle:
            text = handle.read(_MOST_PLAN_BYTES + 1)
        if len(text) > _MOST_PLAN_BYTES:
            raise PlanError(f"{path} is larger than {_MOST_PLAN_BYTES:,} bytes: no plan of rewardlab")
        return tomllib.loads(text.decode(), parse_float=_finite)
    except FileNotFoundError:
        raise PlanError(f"there is no plan file {path}" + (f"; {advice}" if advice else "")) from None
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(f"{path} is not a TOML file: {error}") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def read_plan(path: Path, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the settings that a TOML file gives to a function; PlanError if one is unknown or of another type."""
    written = read_toml(path)
    known = {setting.name: setting for setting in settings_of(function)}
    return {name: _plan_value(path, find(known, name, "setting"), value) for name, value in written.items()}


def _plan_value(path: Path, setting: Setting, value: Any) -> Any:
    kinds: Any = {float: (int, float), Path: str}.get(setting.kind, setting.kind)
    fits: Callable[[Any], bool] = lambda part: isinstance(part, kinds) and isinstance(part, bool) == (kinds is bool)
    if isinstance(value, list) and all(map(fits, value)) and (setting.many or setting.kind is str):
        return tuple(value) if setting.many else ",".join(value)
    if setting.many or not fits(value):
        expected = "a list" if setting.many else _KINDS[setting.kind][1]
        raise PlanError(f"{path}: {setting.name} must be {expected}, got {value!r}")
    if setting.kind is Path and "\0" in value:
        raise PlanError(f"{path}: {setting.name} must be a path, got {value!r}")
    return setting.kind(value)


def all_arguments(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every argument of a call, defaults included; the settings of a group may be given flat."""
    parameters = inspect.signature(function).parameters
    flat = {setting.name: None for setting in settings_of(function)}
    for name in given:
        find({**parameters, **flat}, name, "setting")
    whole = {name: value for name, value in given.items() if name in parameters}
    bound = inspect.signature(function).bind(**(arguments_of(function, given) | whole))
    bound.apply_defaults()
    return dict(bound.arguments)


def recorded(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a function was called with, flat and as JSON values; `arguments` may be `locals()`."""
    found = dict[str, Any]()
    for setting in settings_of(function):
        holder = arguments[setting.group] if setting.group else None
        value = arguments[setting.name] if holder is None else getattr(holder, setting.name)
        found[setting.name] = several(value) if setting.many and value is not None else value
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def as_command(name: str, function: Callable[..., Any], values: Mapping[str, Any]) -> str:
    """Return the command line with these recorded settings; those at their default are left out."""
    words = ["rewardlab", *name.split()]
    for setting in settings_of(function):
        value = values[setting.name]
        if setting.positional:
            words += map(str, value) if setting.many else [] if value is None else [str(value)]
        elif json.dumps(value, default=str) != json.dumps(setting.default, default=str):
            words += [setting.flag] if setting.kind is bool else [setting.flag, setting_text(value)]
    return shlex.join(words)


class CommandParser(argparse.ArgumentParser):
    """A parser that raises PlanError with one sentence, without the usage of every flag."""

    settings: tuple[Setting, ...] = ()

    def error(self, message: str) -> NoReturn:
        """Raise a PlanError with the message of argparse reworded."""
        problem = self._sentence(message)
        raise PlanError(f"{problem}{'' if problem.endswith('?') else ';'} `{self.prog} --help` lists its options")

    def _sentence(self, message: str) -> str:
        kind, _, rest = message.partition(": ")
        if kind == "the following arguments are required":
            return f"{rest.replace(', ', ' and ')} must be given: {self.prog} {_usage(self.settings)}"
        if kind == "unrecognized arguments":
            written = next(iter(rest.split()), "").partition("=")[0]
            flags = [setting.flag for setting in self.settings if not setting.positional]
            near = did_you_mean(written, flags) if written.startswith("-") else ""
            return f"{self.prog} takes no {written!r}; {near}".rstrip("; ")
        name = kind.removeprefix("argument ")
        return f"{name} needs a value" if rest == "expected one argument" else re.sub(r"^argument ", "", message)


def command_parser(name: str, documented: Callable[..., Any], settings: Sequence[Setting]) -> CommandParser:
    """Return the parser of one command: its settings, and the docstring of the function that documents it."""
    summary, _, examples = inspect.cleandoc(documented.__doc__ or "").partition("Examples:\n")
    parser = CommandParser(
        f"rewardlab {name}",
        usage=f"rewardlab {name} {_usage(settings)}",
        description="\n\n".join(textwrap.fill(part, 80) for part in summary.strip().split("\n\n")),
        epilog=examples and f"examples:\n{textwrap.indent(inspect.cleandoc(examples), '  ')}",
        allow_abbrev=False,
        add_help=False,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=80),
    )
    parser.settings = tuple(settings)
    parser.add_argument("-h", "--help", action=_ShowHelp, nargs=0, help="show this help and exit")
    if any(setting.help.more for setting in settings):
        parser.add_argument("--help-all", action=_ShowHelp, nargs=0, help="show every option and exit")
    for setting in settings:
        _add_argument(parser, setting)
    return parser


def _usage(settings: Sequence[Setting]) -> str:
    words = [setting.metavar + "..." * setting.many for setting in settings if setting.positional]
    required = [f"{s.flag} {s.metavar}" for s in settings if not s.positional and s.default is MISSING]
    return " ".join([*words, *required, "[options]"])


class _ShowHelp(argparse.Action):
    """Print the help and exit: of every option, or without those marked `more`."""

    def __call__(self, parser: Any, _namespace: Any, _values: Any, option_string: str | None = None) -> None:
        rare = {setting.name for setting in parser.settings if setting.help.more}
        for action in parser._actions:
            if option_string != "--help-all" and action.dest in rare:
                action.help = argparse.SUPPRESS
        parser.print_help()
        parser.exit()


def _add_argument(parser: argparse.ArgumentParser, setting: Setting) -> None:
    shown = f" (default: {setting.shown_default})" if setting.shown_default else ""
    default = None if setting.default is MISSING else setting.default
    options: dict[str, Any] = {"default": default, "help": setting.help.text.replace("%", "%%") + shown}
    if setting.positional:
        nargs = "+" if setting.many else None if setting.default is MISSING else "?"
        parser.add_argument(setting.name, type=_converter(setting), metavar=setting.metavar, nargs=nargs, **options)
        return
    flags = [*filter(None, [setting.help.short]), setting.flag]
    if setting.kind is bool:
        action = "store_false" if default else "store_true"
        parser.add_argument(*flags, dest=setting.name, action=action, **options)
        return
    metavar = "{" + ",".join(setting.choices) + "}" if setting.choices and not setting.many else setting.metavar
    again = setting.many and not setting.help.commas
    options |= {"metavar": f"{metavar},..." if setting.many and not again else metavar}
    options |= {"type": _converter(setting), "required": setting.default is MISSING}
    parser.add_argument(*flags, dest=setting.name, action=_AppendValues if again else "store", **options)


def _converter(setting: Setting) -> Callable[[str], Any]:
    """Return the function that converts an argument: to one value, or to a tuple for a flag that takes several."""

    def read(text: str) -> Any:
        try:
            value = setting.kind(text)
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"expected {_KINDS[setting.kind][1]}, got {text!r}") from None
        if setting.kind is float and not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"expected a number, got {text!r}")
        if setting.choices and value not in setting.choices:
            near = did_you_mean(text, setting.choices)
            expected = f"expected one of {', '.join(setting.choices)}, got {text!r}; {near}"
            raise argparse.ArgumentTypeError(expected.rstrip("; "))
        return value

    def read_several(text: str) -> tuple[Any, ...]:
        parts = text.split(",") if setting.help.commas else [text]
        return tuple(read(part.strip()) for part in parts if part.strip())

    return read_several if setting.many and not setting.positional else read


class _AppendValues(argparse.Action):
    """Append the values of a repeated flag; the first replaces the default."""

    def __call__(self, _parser: Any, namespace: Any, values: Any, _option_string: str | None = None) -> None:
        before = () if vars(namespace)[self.dest] is self.default else vars(namespace)[self.dest]
        setattr(namespace, self.dest, (*before, *values))


# Settings of several commands. A command takes a group only if it uses every setting in it.

Data = Annotated[str | Path, Help("dataset folder, file, hub id, or a shipped name such as sample")]
FramePolicyText = Annotated[str, Help("frames shown to the model: uniform:N, fps:X or all", metavar="POLICY")]
Seed = Annotated[int, Help("random seed", more=True)]
Limit = Annotated[int | None, Help("use only N episodes, spread over tasks and levels")]
SkipInvalid = Annotated[bool, Help("skip rows and videos with problems instead of stopping")]
Demonstrations = Annotated[bool, Help("treat episodes without an outcome as successful demonstrations")]
Names = Annotated[
    str | Sequence[str], Help("short names of the models in tables and pages, in order", metavar="NAME", more=True)
]
Perturbations = Annotated[
    str | Sequence[str],
    Help(
        "names, categories (visual, semantic, temporal, domain), quick (two of each), all, none; "
        "midway:NAME starts at the middle frame",
        "NAME",
    ),
]
Severities = Annotated[int | Sequence[int], Help("severities to apply, 1 to 4; clean episodes are always scored")]
Repeats = Annotated[int, Help("score each trial K times per model, to measure the noise floor of differences", "K")]
RunFolder = Annotated[Path | str | None, Help("run folder; default: a name made from the plan, in runs/")]


def _check_fields(group: Any) -> None:
    check_types(type(group).__name__, {entry.name: entry.type for entry in fields(group)}, vars(group))


@dataclass(frozen=True)
class Execution:
    """Where work runs, and on how many workers."""

    workers: Annotated[int, Help("parallel processes; 0 uses one per core")] = 0
    engine: Annotated[
        Literal["processes", "local", "ray"],
        Help("where work runs; local runs in this process, for debugging; ray needs the extra `ray`", more=True),
    ] = "processes"
    address: Annotated[
        str | None,
        Help("Ray cluster to join: auto or HOST:PORT; default: RAY_ADDRESS, else a new local one", more=True),
    ] = None
    gpus: Annotated[float, Help("share of a GPU for each worker on a Ray cluster, such as 1 or 0.5", more=True)] = 0.0
    quiet: Annotated[bool, Help("do not print the size of the run and its progress", short="-q")] = False

    def __post_init__(self) -> None:
        _check_fields(self)
        if self.workers < 0:
            raise PlanError(f"workers must be 0 or more, got {self.workers}")
        if self.engine != "ray" and (self.address or self.gpus):
            raise PlanError(f"address and gpus are for --engine ray, but the engine is {self.engine!r}")
        if not 0 <= self.gpus < math.inf:
            raise PlanError(f"gpus must be 0 or more, got {self.gpus}")


@dataclass(frozen=True)
class Scoring:
    """How models are run: batches, time limits, and what happens after failures."""

    batch_size: Annotated[int, Help("episodes given to a model at once", more=True)] = 8
    timeout: Annotated[float, Help("seconds a model may take for one batch", more=True)] = 120.0
    load_timeout: Annotated[
        float | None,
        Help("seconds the models may take to load, or a server to start (default: 900, and 1 for a server)", more=True),
    ] = None
    max_restarts: Annotated[int, Help("stop when worker processes crashed more than N times", more=True)] = 100
    max_failures: Annotated[
        int, Help("stop if a model fails its first N trials for one reason; 0 never stops", more=True)
    ] = 20
    retry_failures: Annotated[bool, Help("score failed trials of an earlier attempt again", more=True)] = False
    fail_fast: Annotated[bool, Help("stop at the first failed trial, and exit with 3", more=True)] = False

    def __post_init__(self) -> None:
        _check_fields(self)
        if self.batch_size < 1:
            raise PlanError(f"batch-size must be at least 1, got {self.batch_size}")
        if self.max_restarts < 0 or self.max_failures < 0:
            given = f"{self.max_restarts} and {self.max_failures}"
            raise PlanError(f"max-restarts and max-failures must be 0 or more, got {given}")
        timeouts = [seconds for seconds in (self.timeout, self.load_timeout) if seconds is not None]
        if not all(0 < seconds < math.inf for seconds in timeouts):
            raise PlanError(f"timeout and load-timeout must be seconds above 0, got {timeouts}")


@dataclass(frozen=True)
class Budget:
    """What may be spent on models that cost money."""

    max_requests: Annotated[int | None, Help("stop before more than N requests to paid models", more=True)] = None
    max_cost: Annotated[float | None, Help("stop before paid models have cost more than X", more=True)] = None

    def __post_init__(self) -> None:
        _check_fields(self)
        if (self.max_requests or 0) < 0 or not 0 <= (self.max_cost or 0) < math.inf:
            raise PlanError("max-requests and max-cost must be 0 or more; leave out what has no limit")


@dataclass(frozen=True)
class Sharding:
    """Which shard of the episodes this process scores."""

    shard: Annotated[
        str, Help("score only part I of N of the episodes; `runs merge` joins the parts", metavar="I/N", more=True)
    ] = ""

    def __post_init__(self) -> None:
        _check_fields(self)


def several(value: object) -> tuple[Any, ...]:
    """Return one value or several as a tuple; a text is one value."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
