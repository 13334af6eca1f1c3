"""What a part of an assembled model is: its name and licence, for the model card."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewardlab.core.bounded_json import read_json
from rewardlab.core.errors import PlanError
from rewardlab.core.terminal_text import one_line

NOT_STATED = "not stated"
_LICENCE = re.compile(r"^license:\s*['\"]?([\w.+-]{1,60})", re.MULTILINE)
_MAX_NAME = 100  # letters of a name or a licence
_README_BYTES = 1 << 16  # the licence stands at its beginning


@dataclass(frozen=True)
class Upstream:
    """Where a part comes from."""

    name: str
    licence: str
    kind: str  # its model type in transformers


def model_type(folder: Path) -> str:
    """Return the type of a checkpoint folder of transformers; PlanError where it is none."""
    try:
        return str(read_json(folder / "config.json")["model_type"])
    except OSError:
        raise PlanError(f"{folder} is no checkpoint folder of transformers: it holds no config.json") from None
    except (ValueError, KeyError, TypeError):
        raise PlanError(f"{folder / 'config.json'} names no model_type; is it a transformers checkpoint?") from None


def folder_upstream(folder: Path) -> Upstream:
    """Return what a checkpoint folder says about itself, the licence from the head of its README."""
    readme = folder / "README.md"
    text = readme.read_bytes()[:_README_BYTES].decode(errors="replace") if readme.is_file() else ""
    found = _LICENCE.search(text)
    return Upstream(_shown(folder.resolve().name), found[1] if found else NOT_STATED, model_type(folder))


def gguf_upstream(path: Path, kind: str) -> Upstream:
    """Return what a GGUF file says about itself."""
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    name, licence = (_text(fields.get(f"general.{key}")) for key in ("name", "license"))
    return Upstream(_shown(f"{path.stem} ({name})" if name else path.stem), licence or NOT_STATED, kind)


def _text(field: Any) -> str:
    return _shown(str(field.contents())) if field is not None else ""


def _shown(text: str) -> str:
    """Return a stranger's text as it may stand in a cell of a table."""
    return one_line(text)[:_MAX_NAME].replace("|", "/")
