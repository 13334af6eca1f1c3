"""Write docs/reference/api.md from the docstrings and signatures of the public names.

python docs/make_api_page.py
"""

import ast
import inspect
import re
import textwrap
import typing
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import rewardlab
from rewardlab.cli import GROUPS
from rewardlab.core.settings import setting_text, settings_of

PAGE = Path(__file__).parent / "reference" / "api.md"
HEAD = """# Python API

Written by `python docs/make_api_page.py`; do not edit.

Every command is a function with the same settings:

| command line | Python |
|---|---|
| `rewardlab data check sample` | `rewardlab.data_check("sample")` |
| `rewardlab stress length sample --severities 4` | `rewardlab.stress("length", "sample", severities=4)` |
| `rewardlab stress length DATA --workers 2` | `rewardlab.stress("length", DATA, execution=Execution(workers=2))` |

Models and datasets are named by strings or paths; a model may also be an object with `score`. Where a sequence is
taken, one value will do. Settings that several functions share are [groups](#groups-of-settings).
"""
# What `connect` returns, and what people write their own parts with, below the front door.
TOOLKIT = {
    "A live session on a reward server": {"rewardlab.models.session": ("LiveSession",)},
    "Groups of settings": {"rewardlab.core.settings": ("Execution", "Scoring", "Budget", "Sharding")},
    "Your own perturbation, metric, VLM backend, reader, and checks for them": {
        "rewardlab.perturbations.contract": ("Perturbation", "on_frames", "on_order", "on_instruction", "on_episode"),
        "rewardlab.metrics.contract": ("Display", "metric", "mean_metric", "where_known", "mean_or_nan"),
        "rewardlab.models.vlm": ("VisionLanguageModel", "Prompt", "Completion", "AnswerFormat", "Video", "Image"),
        "rewardlab.data.contract": ("Reader", "Contents", "Problem"),
        "rewardlab.testing": ("check_perturbation", "check_model", "check_dataset"),
    },
}


def api_page() -> str:
    """Return the page: commands in the groups of the help, then nouns, then what own parts are written with."""
    public = {name: getattr(rewardlab, name) for name in rewardlab.__all__ if name != "__version__"}
    parts = [HEAD]
    for title, commands in GROUPS.items():
        names = [re.sub("[ -]", "_", command) for command in commands]
        found = {name: public.pop(name) for name in names if name in public}
        parts += _section(title, {f"rewardlab.{name}": thing for name, thing in found.items()})
    parts += _section("Models, datasets and results", {f"rewardlab.{name}": thing for name, thing in public.items()})
    for title, modules in TOOLKIT.items():
        named = [(module, name) for module, names in modules.items() for name in names]
        parts += _section(title, {f"{module}.{name}": getattr(import_module(module), name) for module, name in named})
    return "\n".join(parts).rstrip() + "\n"


def _section(title: str, things: dict[str, Any]) -> list[str]:
    lines = [line for name, thing in things.items() for line in entry(name, thing)]
    return [f"## {title}", *lines, ""] if lines else []


def entry(name: str, thing: Any) -> list[str]:
    """Return heading, signature or fields, docstring, and settings or members of one public name."""
    text = (inspect.getdoc(thing) or "").partition("\n\nExamples:\n")[0]
    lines = ["", f"### {name}", ""]
    if _has_help(thing):
        call = [f"```python\n{name}{_short_call(thing)}\n```", ""] if inspect.isfunction(thing) else []
        return [*lines, *call, text, *_settings(thing)]
    node: Any = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    if isinstance(node, ast.ClassDef):
        return [*lines, text, *_fields(node), *_table(("member", "what it gives"), _members(node))]
    return [*lines, f"```python\n{name}{_call(node)}\n```", "", text]


def _has_help(thing: Any) -> bool:
    kinds = [each.annotation for each in inspect.signature(thing).parameters.values()]
    return bool(kinds) and typing.get_origin(kinds[0]) is typing.Annotated


def _short_call(function: Any) -> str:
    """Return the arguments before the `*`, and the result; what follows is in the table."""
    shape = inspect.signature(function)
    first = [name for name, each in shape.parameters.items() if each.kind is not inspect.Parameter.KEYWORD_ONLY]
    more = ["*", "..."] if len(first) < len(shape.parameters) else []
    return f"({', '.join([*first, *more])}) -> {_kind(shape.return_annotation)}"


def _settings(thing: Any) -> list[str]:
    """Return the table of all settings; a group is one row."""
    told = {setting.name: setting for setting in settings_of(thing)}
    rows = []
    for name, parameter in inspect.signature(thing).parameters.items():
        default, kind = parameter.default, _kind(parameter.annotation)
        if name in told:
            off = "with False: " if default is True else ""
            shown = "" if default in (inspect.Parameter.empty, None, (), "") else setting_text(default)
            rows.append((name, f"`{kind}`", shown, off + told[name].help.text))
        else:
            rows.append((name, f"`{kind}`", "", "a group of settings" if is_dataclass(parameter.annotation) else ""))
    return _table(("setting", "type", "default", "meaning"), rows)


def _kind(annotation: Any) -> str:
    """Return a type as people write it: without Help, and without the modules of its names."""
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)


def _call(node: ast.FunctionDef) -> str:
    """Return arguments and result as the source has them; `...` stands for the settings listed below."""
    more = ", ..." if node.args.kwarg else ""
    node.args.kwarg = None
    node.args.args = [argument for argument in node.args.args if argument.arg != "self"]
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(node.args)}{more}){result}".replace("(, ", "(")


def _fields(node: ast.ClassDef) -> list[str]:
    kinds = [part for part in node.body if isinstance(part, ast.AnnAssign)]
    shown = [f"`{ast.unparse(part.target)}: {ast.unparse(part.annotation)}`" for part in kinds]
    return ["", "Fields: " + ", ".join(shown)] if shown else []


def _members(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            is_property = any("property" in ast.unparse(decorator) for decorator in part.decorator_list)
            yield part.name + ("" if is_property else _call(part)), ast.get_docstring(part) or ""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [f"| `{_cell(name)}` | {' | '.join(map(_cell, cells))} |" for name, *cells in rows]
    return ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines] if lines else []


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(api_page())
