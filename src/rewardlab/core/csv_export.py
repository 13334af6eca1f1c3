"""CSV files that a spreadsheet shows and does not run."""

import csv
import re
from collections.abc import Iterable, Sequence
from io import StringIO

_FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # what a cell of a spreadsheet begins a formula with
_NUMBERS = re.compile(r"[-+][-+\d.,%/± eE]*")  # a dash, a number, or a few of them with their intervals


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV; text that a spreadsheet would take for a formula gets an apostrophe in front."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ")  # csv does not quote it, and some readers end the row there
    return f"'{text}" if _FORMULA.match(value) and not _NUMBERS.fullmatch(value) else text
