"""Text on its way to a terminal: nothing in it steers the terminal, and a terminal without UTF-8 gets ASCII."""

import codecs
import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

# C0 and C1 controls but tab and newline, line separators, marks that reorder what is shown, halves of surrogate pairs
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_IN_ASCII = {
    "±": "+/-",
    "≠": "!=",
    "≤": "<=",
    "≥": ">=",
    "×": "x",
    "→": "->",
    "τ": "tau",
    "…": "...",
    "–": "-",
    "—": "-",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "━": "-",
    **dict(zip("▁▂▃▄▅▆▇█", "_.-:=+*#")),  # of a sparkline
}


def printable(text: str) -> str:
    """Return the text with every character that could steer a terminal, or reorder what it shows, spelled out."""
    return _STEERING.sub(lambda found: _spelled(found.group()), text)


def one_line(text: object) -> str:
    """Return what is to be said as one printable line: a newline from outside cannot begin a line of its own."""
    return printable(str(text)).replace("\n", r"\n").replace("\t", " ")


def in_encoding(text: str, encoding: str | None) -> str:
    """Return the text in characters that the encoding has: others in ASCII, or spelled out."""
    if encoding is None or encoding.lower().startswith("utf"):
        return text
    return text.encode(encoding, "rewardlab.ascii").decode(encoding)


class TerminalStream(io.TextIOBase):
    """Writes to a stream what may be shown on it; `styled` text has been made printable, and styled, before."""

    def __init__(self, stream: TextIO, *, styled: bool = False) -> None:
        self.stream = stream
        self._styled = styled

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Return the encoding of the stream behind."""
        return self.stream.encoding or "utf-8"

    def write(self, text: str) -> int:
        """Write the text with nothing in it that steers the terminal."""
        self.stream.write(in_encoding(text if self._styled else printable(text), self.stream.encoding))
        return len(text)

    def flush(self) -> None:
        """Flush the stream behind."""
        self.stream.flush()

    def close(self) -> None:
        """Leave the stream behind alone, which others may have closed by the time this one is cleared away."""

    def isatty(self) -> bool:
        """Tell whether the stream behind is a terminal."""
        return self.stream.isatty()

    def fileno(self) -> int:
        """Return the file descriptor of the stream behind."""
        return self.stream.fileno()


@contextmanager
def safe_streams() -> Iterator[None]:
    """Let nothing that steers a terminal reach stdout or stderr, whoever prints it."""
    with redirect_stdout(TerminalStream(sys.stdout)), redirect_stderr(TerminalStream(sys.stderr)):
        yield


def stream_behind(stream: TextIO) -> TextIO:
    """Return the stream itself, for what steers a terminal on purpose, such as a line that renews itself."""
    return stream.stream if isinstance(stream, TerminalStream) else stream


def _spelled(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name that is no UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_IN_ASCII.get(letter) or ascii(letter)[1:-1] for letter in missing), error.end


codecs.register_error("rewardlab.ascii", _ascii)
