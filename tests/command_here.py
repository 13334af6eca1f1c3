"""A command run in the process of the tests: for what it says and how it ends no second interpreter is started."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass

from rewardlab.cli import main

# A shell that starts the tests in the background has them ignore SIGINT, and children inherit that.
HEARS_CTRL_C = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from rewardlab.cli import main; sys.exit(main())"
)


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def run_here(*words: str, columns: int = 80) -> Done:
    """Run `rewardlab WORDS` here, with a width for what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with _columns(columns), redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    return Done(code, out.getvalue(), err.getvalue())


@contextmanager
def _columns(width: int) -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(width)
    try:
        yield
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
