"""Write docs/reference/api.md from the docstrings and signatures of the public names.

python docs/make_api_page.py
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType

import rewardlab

_MODULES = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])")  # before the name of a class
_FORWARD = re.compile(r"(: |-> )'([^']+)'")  # an annotation in quotes
_FRAMES = "numpy.ndarray[tuple[Any, ...], numpy.dtype[numpy.uint8]]"
PAGE = Path(__file__).parent / "reference" / "api.md"
HEAD = """# Python API

Written by `python docs/make_api_page.py`; do not edit. The verbs are those of the command line with the same settings:
`rewardlab.stress("clock", "sample", severities=4)` is `rewardlab stress clock sample --severities 4`. Models and
datasets are named by strings or paths; a model may also be an object with `score`, and several may be given as a list.
"""
# What people write their own parts with, below the front door.
TOOLKIT = {
    "rewardlab.perturbations.contract": ("Spec", "on_frames", "on_order", "on_instruction", "on_episode"),
    "rewardlab.metrics.contract": ("Display", "metric", "mean_metric", "where_known", "mean_or_nan"),
    "rewardlab.models.vlm": ("VisionLanguageModel", "Prompt", "Completion", "AnswerFormat", "Video", "Image"),
    "rewardlab.data.contract": ("Reader", "Contents", "Problem"),
    "rewardlab.testing": ("check_perturbation", "check_model", "check_dataset"),
}


def api_page() -> str:
    """Return the page: verbs, then classes, then what own parts are written with."""
    public = {name: getattr(rewardlab, name) for name in rewardlab.__all__ if name != "__version__"}
    verbs = {name: value for name, value in public.items() if inspect.isfunction(value)}
    classes = {name: value for name, value in public.items() if inspect.isclass(value)}
    parts = [HEAD, "## Verbs"]
    parts += [line for name, verb in verbs.items() for line in function_lines(f"rewardlab.{name}", verb)]
    parts.append("## Classes")
    parts += [line for name, kind in classes.items() for line in class_lines(f"rewardlab.{name}", kind)]
    parts += ["## Your own perturbation, metric, VLM backend, reader, and checks for them"]
    for module, names in TOOLKIT.items():
        for name in names:
            found = getattr(import_module(module), name)
            parts += (class_lines if inspect.isclass(found) else function_lines)(f"{module}.{name}", found)
    return "\n".join(parts).rstrip() + "\n"


def function_lines(name: str, function: FunctionType) -> list[str]:
    """Return heading, signature and docstring of a function; long signatures are a list of settings below."""
    text, _, settings = (inspect.getdoc(function) or "").partition("\n\nSettings:\n")
    shown = inspect.signature(function)
    if settings:
        first = [p for p in shown.parameters.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        shown = shown.replace(parameters=first)
    rows = [line.strip().partition(": ") for line in settings.splitlines()]
    table = ["", "| setting | meaning (default) |", "|---|---|", *(f"| `{k}` | {_cell(v)} |" for k, _, v in rows)]
    more = ", ..." if settings else ""
    call = _call(str(shown), more)
    return ["", f"### {name}", "", f"```python\n{name}{call}\n```", "", text, *(table if settings else [])]


def _call(shown: str, more: str) -> str:
    arguments, arrow, result = shown.rpartition(" -> ")
    call = f"{(arguments or result).removesuffix(')')}{more}){arrow}{result if arrow else ''}"
    return _MODULES.sub("", _FORWARD.sub(r"\1\2", call)).replace(_FRAMES, "Frames")


def class_lines(name: str, kind: type) -> list[str]:
    """Return heading and docstring of a class, its fields, and its public methods and properties."""
    lines = ["", f"### {name}", "", inspect.getdoc(kind) or ""]
    if dataclasses.is_dataclass(kind):
        types = {f.name: f.type if isinstance(f.type, str) else _type(f.type) for f in dataclasses.fields(kind)}
        lines += ["", "Fields: " + ", ".join(f"`{name}: {kind}`" for name, kind in types.items())]
    members = list(_members(kind))
    return [*lines, *(["", "| member | what it gives |", "|---|---|", *members] if members else [])]


def _members(kind: type) -> Iterator[str]:
    for name, value in vars(kind).items():
        text = _cell(inspect.getdoc(value) or "")
        if name.startswith("_") or not text:
            continue
        if isinstance(value, FunctionType):
            shown = _call(str(inspect.signature(value)).replace("(self, ", "(").replace("(self)", "()"), "")
            yield f"| `{name}{shown}` | {text} |"
        elif isinstance(value, property | cached_property):
            yield f"| `{name}` | {text} |"


def _type(annotation: object) -> str:
    plain = isinstance(annotation, type) and not hasattr(annotation, "__args__")
    return annotation.__name__ if plain and isinstance(annotation, type) else str(annotation)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(api_page())
