"""Systems other than a Linux terminal with UTF-8: ASCII where there is no more, one sentence where it must end."""

import ast
import io
import os
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from pathlib import Path
from typing import TypeGuard

import pytest
from rich.box import SIMPLE_HEAD
from rich.progress_bar import ProgressBar
from rich.table import Table

import rewardlab
from rewardlab.core.terminal import TerminalStream, in_encoding, terminal_console
from rewardlab.core.video_encoding import encode
from rewardlab.evaluation.summary import load_summary
from tests.conftest import IN_PROCESS, moving_square, write_rows

ROOT = Path(__file__).parent.parent
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "120"}
ENCODED = {"PYTHONIOENCODING": "ascii:strict", "COLUMNS": "120"}


def run_python(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, *words], capture_output=True, env=os.environ | environment)


def run_command(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return run_python("-m", "rewardlab", *words, **environment)


@pytest.fixture(scope="module")
def run(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a dataset whose names are in no alphabet of ASCII."""
    folder = tmp_path_factory.mktemp("plain")
    done = run_command(*("bench", "length", str(tiny_data), "--workers", "1", "--out", str(folder / "run")), **PLAIN)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.isascii() and b"MAE (strict)" in done.stdout and b"---" not in done.stdout[:20]
    return folder / "run"


@pytest.mark.slow
def test_a_run_made_without_utf8_is_the_same_run(run: Path, tiny_data: Path, tmp_path: Path) -> None:
    other = rewardlab.bench("length", tiny_data, execution=IN_PROCESS, out=tmp_path / "run")
    assert load_summary(rewardlab.Run(run)) == load_summary(other)
    assert (run / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


COMMANDS = {
    "list": (["list", "perturbations"], 0, b"gaussian_noise"),
    "show": (["show", "gaussian_noise"], 0, b"severity 4"),
    "compare": (["compare", "RUN", "RUN::oracle", "--n-resamples", "100"], 0, b"MAE"),
    "report": (["report", "RUN"], 0, b"report: "),
    "check": (["data", "check", "DATA"], None, rb"na\xefve"),
    "a mistake": (["show", "τ±…"], 2, b"no entry of a catalog"),
    "help": (["stress", "--help"], 0, b"--perturbations"),
}


@pytest.mark.parametrize("environment", [PLAIN, pytest.param(ENCODED, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [c if c == "list" else pytest.param(c, marks=pytest.mark.slow) for c in COMMANDS])
def test_a_terminal_without_utf8_gets_ascii(name: str, environment: dict[str, str], run: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "data", [{"file_name": "naïve.mp4", "task": "öffne die Tür", "reward": 3}])
    places = {"RUN": str(run), "RUN::oracle": f"{run}::oracle", "DATA": str(data)}
    words, code, shown = COMMANDS[name]
    done = run_command(*(places.get(word, word) for word in words), **environment)
    said = done.stdout + done.stderr
    assert done.returncode in ((2, 4) if code is None else (code,)), said.decode()
    assert said.isascii() and shown in said and b"Traceback" not in said and b"Unicode" not in said


def test_a_name_that_the_system_cannot_write_is_one_sentence(tmp_path: Path) -> None:
    encode(moving_square("x"), tmp_path / "v.mp4", fps=10)
    data = write_rows(tmp_path, [{"file_name": "v.mp4", "task": "open the door", "reward": 3}])
    out = os.fsencode(tmp_path) + b"/na\xc3\xafve"
    few = ("--perturbations", "polite_filler", "--severities", "1", "--engine", "local", "--no-controls")
    words: list[str | bytes] = [sys.executable, "-m", "rewardlab", "stress", "length", str(data), *few, "--out", out]
    done = subprocess.run(words, capture_output=True, env=os.environ | PLAIN)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert done.returncode in (0, 2) and (done.stdout + done.stderr).isascii()


def test_a_stream_that_is_cleared_away_after_the_one_behind_it_says_nothing() -> None:
    behind = io.StringIO()
    stream = TerminalStream(behind)
    print("\x1b[31mred", file=stream)
    assert behind.getvalue() == "\\x1b[31mred\n"
    behind.close()
    stream.close()  # as Python does for a stream nobody holds any more


def test_characters_that_an_encoding_has_stay_as_they_are() -> None:
    assert in_encoding("±τ… naïve 打", "latin-1") == "±tau... naïve \\u6253"
    assert in_encoding("±τ… naïve 打", "ascii") == "+/-tau... na\\xefve \\u6253"
    assert in_encoding("±τ… naïve 打", "utf-8") == in_encoding("±τ… naïve 打", None) == "±τ… naïve 打"


WITHOUT_LOCKS = "import sys; sys.modules['fcntl'] = None; from rewardlab.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["--version"], ["list", "models"], ["show", "jpeg"], ["data", "check", "sample"], ["report", "RUN"]]
)
def test_without_file_locks_what_writes_no_run_works(words: list[str], run: Path) -> None:
    done = run_python("-c", WITHOUT_LOCKS, *(str(run) if word == "RUN" else word for word in words))
    assert done.returncode == 0, done.stderr.decode()


def test_without_file_locks_a_run_ends_in_one_sentence(tiny_data: Path, tmp_path: Path) -> None:
    done = run_python("-c", WITHOUT_LOCKS, "stress", "length", str(tiny_data), "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "rewardlab: runs are written on Linux and macOS, whose file locks they need; use WSL on Windows\n"
    )


def test_the_package_says_where_it_runs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == ">=3.11"
    stated = {line.rpartition(" :: ")[2] for line in project["classifiers"]}
    assert {"3.11", "3.12", "3.13", "Linux"} <= stated and "MacOS" not in stated  # where no test has run
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "Python 3.11 to 3.13 on Linux, x86-64 and aarch64; macOS is untested" in readme


def test_text_files_are_opened_in_utf8() -> None:
    source = Path(rewardlab.__file__).parent
    careless = []
    for path in source.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if _opens_text(call) and not any(keyword.arg == "encoding" for keyword in call.keywords):
                careless.append(f"{path.relative_to(source)}:{call.lineno}")
    assert [place for place in careless if not place.startswith("core/run.py")] == []  # that one writes ASCII only


def _opens_text(node: ast.AST) -> TypeGuard[ast.Call]:
    """Tell whether this calls read_text or write_text, or opens a file to write text."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    modes = [word.value for word in node.args if isinstance(word, ast.Constant)]
    return node.func.attr in ("read_text", "write_text") or (
        node.func.attr == "open" and modes in (["w"], ["a"]) and len(node.args) == 1
    )


def test_tables_and_marks_become_ascii() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    with redirect_stdout(stream):
        console = terminal_console()
        table = Table("model", "τ", title="0.5 ±0.1", box=SIMPLE_HEAD)
        table.add_row("naïve", "≥ 0.3")
        console.print(table)
        console.print(ProgressBar(total=10, completed=3, width=20))
    stream.flush()
    shown = stream.buffer.getvalue().decode("ascii")
    assert "0.5 +/-0.1" in shown and "tau" in shown and "na\\xefve" in shown and ">= 0.3" in shown and "----" in shown


def test_arrays_are_stored_with_arguments_that_the_oldest_numpy_has() -> None:
    """NumPy 2.0 stores `allow_pickle` of savez as one more array; later releases take it as an option."""
    given = [
        f"{path.name}:{call.lineno}"
        for path in (ROOT / "src").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr.startswith("savez")
        if any(word.arg == "allow_pickle" for word in call.keywords)
    ]
    assert given == []
