"""Every number in the tables and findings of README.md and results is computed again from the committed files.

A block of Markdown (a table, a list, a paragraph) is followed by a mark that no reader of the page sees:

    | `pocket` | 0.31 [0.24, 0.39] |

    <!-- numbers: csv("pocket/measured.csv", "value low high", model="pocket", what="MAE, mean over tasks") -->

The mark lists, in the order of reading, what the numbers of the block are, as Python expressions:

- `csv(file, columns, **where)`, `json(file)` and `text(file)` read a file below results/, with arithmetic around;
- `printed(script, part, *rows)` runs a script of results/ that reads committed files, and takes the numbers that it
  prints under a heading: of the rows that begin so, or of all;
- `below(value)` is for "p < .05";
- a text such as "50" is a whole number that is no result: a size, a severity, a version, a name;
- `measured(command, count)` are numbers whose trials are not committed; the command must stand on the same page.
  Without a count, all that are left. CEILING limits how many there are.

Findings are the first paragraph of a page, what stands under one of the headings in FINDINGS, and every list or
paragraph that begins in bold. Numbers in headings, the first column and first row of a table, code, links and other
prose need no mark.
"""

import ast
import builtins
import csv as csv_files
import functools
import itertools
import json as json_files
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
CEILING = {  # numbers of a page that nobody can compute again from a clone: never more than these
    "results/attack/README.md": 129,
    "results/augment/README.md": 103,
    "results/pocket/README.md": 208,
    "results/reliability/README.md": 10,
    "results/speed/README.md": 292,
    "results/stages/README.md": 276,
    "results/worlds/README.md": 289,
}
PAGES = [ROOT / "README.md", *sorted(RESULTS.glob("*/README.md"))]
FINDINGS = {"what was found with it", "what can be said", "what cannot be said", "what came out"}
NUMBER = re.compile(r"(?<![\w.\-/])([+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[+-]?\.\d+)(?![\w-])(\s?%)?")
BRACKETS = re.compile(r"(%\s*[\[(])([+-]?[\d.]+)((?:,| to)\s+[+-]?[\d.]+)([\])])")  # 61 % [49, 79]: all are percent
NO_NUMBER = re.compile(r"`[^`]*`|\]\([^)]*\)|\b95 ?% (?:bootstrap )?intervals?|<br>")


@dataclass(frozen=True)
class Below:
    """A bound that a number keeps: shown as "p < .05"."""

    value: float


@dataclass(frozen=True)
class Measured:
    """Numbers that cannot be computed from the clone, and the command that measured them."""

    command: str
    count: int | None = None


@dataclass(frozen=True)
class Block:
    """Lines of a page that belong together, the heading above them, and their mark."""

    lines: tuple[str, ...]
    heading: str
    lead: bool
    mark: str

    @property
    def numbers(self) -> list[tuple[str, str]]:
        """Return the numbers that need a mark, each with its percent sign."""
        table, lines = self.lines[0].startswith("|"), self.lines
        if table:
            lines = tuple(row.strip().strip("|").partition("|")[2] for row in lines[2:])
        elif not (self.lead or self.heading in FINDINGS or self.lines[0].startswith(("- **", "**"))):
            return []
        text = "\n".join(lines if table else [re.sub(r"^\d+\. ", "", line) for line in lines])
        text = re.sub(r"\*\*", "", NO_NUMBER.sub(" ", text)).replace("−", "-")
        return NUMBER.findall(BRACKETS.sub(r"\1\2%\3%\4", text))


def csv(file: str, columns: str, **where: Any) -> list[float]:
    """Return columns of one row; where a condition has several values, of one row for each, the last one fastest."""
    with (RESULTS / file).open(encoding="utf-8", newline="") as handle:
        rows = list(csv_files.DictReader(handle))
    choices = [value if isinstance(value, list) else [value] for value in where.values()]
    found = list[float]()
    for wanted in itertools.product(*choices):
        each = [row for row in rows if all(row[c] == str(v) for c, v in zip(where, wanted, strict=True))]
        assert len(each) == 1, f"{file}: {len(each)} rows with {dict(zip(where, wanted, strict=True))}, expected one"
        found += [float(each[0][column]) for column in columns.split(" ")]
    return found


def json(file: str) -> Any:
    """Return the content of a JSON file."""
    return parsed(RESULTS / file)


def text(file: str) -> str:
    """Return the text of a file, to count in it."""
    return (RESULTS / file).read_text(encoding="utf-8")


@functools.cache
def parsed(path: Path) -> Any:
    """Return the content of a JSON file, read once."""
    return json_files.loads(path.read_text(encoding="utf-8"))


@functools.cache
def output(script: str) -> list[str]:
    """Return the lines that a script prints; it is given as a command line below results/."""
    name, *arguments = script.split()
    code = f"import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path({name!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code, name, *arguments], cwd=RESULTS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def printed(script: str, part: str = "", *rows: str) -> list[float]:
    """Return the numbers that a script prints under a heading, in the rows that begin so, without names."""
    lines = [line.strip("| ") for line in output(script)]
    if part:
        start = next(i for i, line in enumerate(lines) if line == part or line.startswith(f"{part} ("))
        lines = lines[start + 2 :]
        lines = lines[: lines.index("")] if "" in lines else lines
    table = [line for line in lines if not set(line) <= set("-|")]
    chosen = [next(line for line in table if line.startswith(row)) for row in rows] if rows else table[1:]
    cells = [BRACKETS.sub(r"\1\2%\3%\4", NO_NUMBER.sub(" ", line.partition("|")[2] or line)) for line in chosen]
    found = [NUMBER.findall(line) for line in cells]
    return [float(number.replace(",", "")) / (100 if sign else 1) for each in found for number, sign in each]


def expected(mark: str) -> Iterator[Any]:
    """Return what the expressions of a mark give, one after the other."""
    names = {each.__name__: each for each in (csv, json, text, printed, percent)}
    for part in ast.parse(f"[{mark}\n]", mode="eval").body.elts:  # type: ignore[attr-defined]
        computed = any(isinstance(node, ast.Call) for node in ast.walk(part))
        assert computed or isinstance(getattr(part, "value", None), str), (
            f"{ast.unparse(part)} is computed from no file"
        )
    return flat(eval(f"[{mark}\n]", {**vars(builtins), **names, "below": Below, "measured": Measured}))


def percent(values: Any) -> list[float]:
    """Return shares in percent, for where the page has the sign only once."""
    return [100 * value for value in flat(values)]


def flat(values: Any) -> Iterator[Any]:
    """Return the values in lists of lists."""
    many = isinstance(values, Iterable) and not isinstance(values, str)
    yield from (itertools.chain.from_iterable(map(flat, values)) if many else [values])


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page with their marks; code is left out."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found, heading, leads = list[Block](), "", 0
    for part in re.split(r"\n\s*\n", text):
        lines = tuple(line for line in part.strip("\n").split("\n") if line.strip())
        if not lines or lines[0].startswith(("    ", "![")):
            continue
        if lines[0].startswith("<!-- numbers:"):
            assert found and not found[-1].mark, f"a mark without a block: {lines[0]}"
            mark = part.strip().removeprefix("<!-- numbers:").removesuffix("-->")
            found[-1] = Block(found[-1].lines, found[-1].heading, found[-1].lead, mark)
        elif lines[0].startswith("#"):
            heading, leads = lines[0].lstrip("# ").lower(), leads + 1
        else:
            lead = leads == 1 and not any(block.lead for block in found)
            found.append(Block(lines, heading, lead, ""))
    return found


def problems(text: str) -> tuple[list[str], int]:
    """Return what is wrong with the numbers of a page, and how many are taken as measured."""
    wrong, taken = list[str](), 0
    for block in blocks(text):
        shown, name = block.numbers, block.lines[0][:70]
        if not shown or not block.mark:
            wrong += [f"{name}: {shown} without a mark"] if shown else []
            continue
        rest = list(shown)
        for value in expected(block.mark):
            if isinstance(value, Measured):
                count = len(rest) if value.count is None else value.count
                there = any(f"{start}{value.command}" in text for start in ("    ", "`"))
                wrong += [] if there else [f"{name}: {value.command!r} is not on the page"]
                taken, rest = taken + count, rest[count:]
            elif not rest:
                wrong.append(f"{name}: {value} is not shown")
            else:
                number, percent = rest.pop(0)
                wrong += (
                    []
                    if agrees(number, percent=bool(percent), value=value)
                    else [f"{name}: {number} is shown for {value}"]
                )
        wrong += [f"{name}: {rest} without a mark"] if rest else []
    return wrong, taken


def agrees(shown: str, *, percent: bool, value: Any) -> bool:
    """Whether a number is shown as it is, to the last digit shown."""
    if isinstance(value, str):
        return shown == value and "." not in shown and not percent
    number = float(shown.replace(",", ""))
    if isinstance(value, Below):
        return bool(value.value < number)
    last = 10.0 ** -len(shown.partition(".")[2])
    return bool(abs(number - value * (100 if percent else 1)) <= last * 0.5 + 1e-6)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_number_is_that_of_its_file(page: Path) -> None:
    wrong, taken = problems(page.read_text(encoding="utf-8"))
    assert not wrong, "\n".join(wrong)
    assert taken <= CEILING.get(str(page.relative_to(ROOT)), 0), f"{taken} numbers nobody can compute again"


PAGE = """# Errors

The error of `pocket` is {lead}.

<!-- numbers: csv("pocket/measured.csv", "value", model="pocket", what="MAE, mean over tasks") -->

    rewardlab stress pocket sample

| | MAE | share |
|---|---|---|
| pocket 2 | {mae} [0.24, 0.39] | {share} of 50 |

<!-- numbers: csv("pocket/measured.csv", "value low high", model="pocket", what="MAE, mean over tasks"),
measured("{command}", 1), "50" -->

## What can be said

{finding}

## Other

Here 7 and 0.5 are free.
"""
RIGHT = {"lead": "0.31", "mae": "0.31", "share": "9 %", "command": "rewardlab stress pocket", "finding": "It holds."}


def test_a_page_with_right_numbers_has_no_problem() -> None:
    assert problems(PAGE.format(**RIGHT)) == ([], 1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"lead": "0.32"}, "0.32 is shown for 0.31"),
        ({"mae": "0.310 and 0.31"}, "0.31 is shown for 0.2375"),
        ({"mae": "much"}, "is not shown"),
        ({"command": "rewardlab bench"}, "'rewardlab bench' is not on the page"),
        ({"finding": "- 3 of 4 hold."}, "without a mark"),
        ({"finding": '- 0.7 hold.\n\n<!-- numbers: "0.7" -->'}, "0.7 is shown for 0.7"),
    ],
)
def test_a_wrong_number_an_unmarked_one_and_an_unknown_command_are_found(change: dict[str, str], problem: str) -> None:
    wrong, _ = problems(PAGE.format(**(RIGHT | change)))
    assert any(problem in each for each in wrong), wrong


def test_a_text_stands_for_whole_numbers_alone_and_a_percent_sign_counts() -> None:
    assert agrees("50", percent=False, value="50") and not agrees("0.31", percent=False, value="0.31")
    assert agrees("61", percent=True, value=0.6082) and not agrees("61", percent=False, value=0.6082)
    assert agrees("0.01", percent=False, value=Below(0.0055)) and not agrees("0.01", percent=False, value=Below(0.02))
    assert Block(("The share is 51 % [43, 61].",), "", lead=True, mark="").numbers == [
        ("51", " %"),
        ("43", "%"),
        ("61", "%"),
    ]


def test_a_number_written_into_a_mark_is_refused() -> None:
    for mark in ("0.31", "-3", "[0.1, 0.2]", "7 * 2"):
        with pytest.raises(AssertionError, match="is computed from no file"):
            list(expected(mark))
