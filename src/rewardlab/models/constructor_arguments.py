"""Arguments of code outside the package, written as options: each is read as the signature says."""

import inspect
import typing
from collections.abc import Callable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any

from rewardlab.core.catalog_lookup import did_you_mean
from rewardlab.core.errors import PlanError
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
