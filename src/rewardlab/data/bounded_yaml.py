"""YAML from strangers: plain values only, no alias that could stand for a thousand others; needs the package pyyaml."""

from pathlib import Path
from typing import Any

from rewardlab.core.errors import DataError
from rewardlab.core.limits import JSON_DEPTH, ROW_BYTES
from rewardlab.data.dataset_files import open_regular, require_inside


def read_yaml(folder: Path, path: Path) -> dict[str, Any]:
    """Return the mapping that a YAML file below the folder holds; DataError says what is wrong with it."""
    try:
        import yaml
    except ImportError:
        raise DataError(f"{path} needs the package pyyaml: pip install 'rewardlab[roboarena]'") from None
    require_inside(folder, path)
    try:
        text = _read_text(path)
        _require_plain(path, yaml.parse(text, yaml.SafeLoader))
        found = yaml.safe_load(text)
    except FileNotFoundError:
        raise DataError(f"{path}: the file does not exist; copy the dataset again") from None
    except (yaml.YAMLError, ValueError, OSError, RecursionError) as error:
        what = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: not YAML that can be used ({what}); copy the file again") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: expected a mapping, got {type(found).__name__}; copy the file again")
    return {str(key): value for key, value in found.items()}


def _read_text(path: Path) -> str:
    with open_regular(path) as file:
        data = file.read(ROW_BYTES.value + 1)
    if len(data) > ROW_BYTES.value:
        raise ValueError(f"more than {ROW_BYTES.value:,} bytes, {ROW_BYTES.describe()}")
    return data.decode()


def _require_plain(path: Path, events: Any) -> None:
    """Raise DataError for aliases and for nesting without end, before anything is built."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind in ("SequenceStartEvent", "MappingStartEvent")
        depth -= kind in ("SequenceEndEvent", "MappingEndEvent")
        if kind == "AliasEvent":
            raise DataError(f"{path}: line {event.start_mark.line + 1} has an alias; write the values out")
        if depth > JSON_DEPTH.value:
            raise DataError(f"{path}: too many values inside each other, {JSON_DEPTH.describe()}")
