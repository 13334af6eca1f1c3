"""Settings of a command: a frozen dataclass whose fields carry their own help."""

from dataclasses import MISSING, field
from typing import Any


def setting(help_text: str, default: Any = MISSING, *, positional: bool = False) -> Any:
    """Return a dataclass field with its help; the command line, the saved record and the reference read it."""
    return field(default=default, metadata={"help": help_text, "positional": positional})
