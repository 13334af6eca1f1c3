"""JSON files that carry the SHA-256 of their own content: a flipped bit is seen when they are read.

A checksum tells damage, not forgery: whoever changes a file on purpose can write the checksum that fits.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from rewardlab.core.bounded_json import read_json

SEAL = "sha256"
TRIALS_DIGEST = "trials_sha256"  # in what was computed from trials: which ones they were


def json_digest(content: object) -> str:
    """Return the SHA-256 of JSON content, whatever the order of its keys and the space between them."""
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content as JSON holds it, with its checksum."""
    plain = json.loads(json.dumps(content, allow_nan=False))
    return {**plain, SEAL: json_digest(plain)}


def without_checksums(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content alone, for whoever reads a file by himself; nothing is verified."""
    return {key: value for key, value in content.items() if key not in (SEAL, TRIALS_DIGEST)}


def read_sealed_json(path: Path) -> tuple[dict[str, Any], bool]:
    """Return the object in a JSON file without its checksum, and whether it carried one; a ValueError says what is off.

    Files that earlier versions wrote carry none.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"it must hold a JSON object, got {type(content).__name__}")
    seal = content.pop(SEAL, None)
    if seal is not None and seal != json_digest(content):
        raise ValueError("its content does not have the checksum that it carries, so it was damaged or edited")
    return content, seal is not None
