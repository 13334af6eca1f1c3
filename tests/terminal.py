"""A real terminal for tests: the command's three streams are a pseudo-terminal, as where a person sits."""

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence


def in_terminal(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bytes]:
    """Run a command in a terminal; return its exit code and every byte that it wrote there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(environment))
    os.close(theirs)
    shown = b""
    while piece := _read(ours):
        shown += piece
    os.close(ours)
    return process.wait(), shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the last writer is gone
        return b""
