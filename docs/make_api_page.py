"""Write docs/reference/api.md from the docstrings and signatures of the public names.

python docs/make_api_page.py
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import rewardlab

PAGE = Path(__file__).parent / "reference" / "api.md"
HEAD = """# Python API

Written by `python docs/make_api_page.py`; do not edit. The verbs are those of the command line with the same settings:
`rewardlab.stress("length", "sample", severities=4)` is `rewardlab stress length sample --severities 4`. Models and
datasets are named by strings or paths; a model may also be an object with `score`, and several may be given as a list.
In signatures, `Place` is a string or a Path, `AnyModel` a model string or object, `AnyRun` a Run or its folder, `Clip`
an episode, frames (T, H, W, 3) or a video file, `Answer` a Score or a Failure.
"""
# What people write their own parts with, below the front door.
TOOLKIT = {
    "rewardlab.perturbations.contract": ("Perturbation", "on_frames", "on_order", "on_instruction", "on_episode"),
    "rewardlab.metrics.contract": ("Display", "metric", "mean_metric", "where_known", "mean_or_nan"),
    "rewardlab.models.vlm": ("VisionLanguageModel", "Prompt", "Completion", "AnswerFormat", "Video", "Image"),
    "rewardlab.data.contract": ("Reader", "Contents", "Problem"),
    "rewardlab.testing": ("check_perturbation", "check_model", "check_dataset"),
}


def api_page() -> str:
    """Return the page: verbs, then classes, then what own parts are written with."""
    public = {name: getattr(rewardlab, name) for name in rewardlab.__all__ if name != "__version__"}
    parts = [HEAD]
    for title, wanted in (("## Verbs", inspect.isfunction), ("## Classes", inspect.isclass)):
        parts += [*([""] if len(parts) > 1 else []), title]
        parts += [line for name, thing in public.items() if wanted(thing) for line in entry(f"rewardlab.{name}", thing)]
    parts += ["", "## Your own perturbation, metric, VLM backend, reader, and checks for them"]
    for module, names in TOOLKIT.items():
        parts += [line for name in names for line in entry(f"{module}.{name}", getattr(import_module(module), name))]
    return "\n".join(parts).rstrip() + "\n"


def entry(name: str, thing: Any) -> list[str]:
    """Return heading, signature or fields, docstring, and settings or members of one public name."""
    node: Any = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    text, _, settings = (inspect.getdoc(thing) or "").partition("\n\nSettings:\n")
    lines = ["", f"### {name}", ""]
    if isinstance(node, ast.ClassDef):
        return [*lines, text, *_fields(node), *_table("member", "what it gives", _members(node))]
    lines += [f"```python\n{name}{_call(node)}\n```", "", text]
    rows = [line.strip().partition(": ") for line in settings.splitlines()]
    return [*lines, *_table("setting", "meaning (default)", [(key, meaning) for key, _, meaning in rows])]


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


def _table(first: str, second: str, rows: Any) -> list[str]:
    lines = [f"| `{key.replace('|', chr(92) + '|')}` | {_cell(value)} |" for key, value in rows]
    return ["", f"| {first} | {second} |", "|---|---|", *lines] if lines else []


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(api_page())
