"""Names from outside in tables, on pages and on the terminal: shown as they are, never run, never obeyed."""

import csv
import io
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import rewardlab
from rewardlab.cli import COMMANDS, main
from rewardlab.core.records import record_to_json
from rewardlab.core.storage import csv_text
from rewardlab.core.summary import Summary
from rewardlab.core.terminal import one_line, printable
from rewardlab.evaluation.summary import load_summary
from rewardlab.reporting.report import robustness_card
from rewardlab.reporting.terminal_summary import print_summary
from tests.conftest import IN_PROCESS, moving_square, write_rows
from tests.models.loopback import chat_server
from tests.terminal import in_terminal

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202egpj\u2066\rrewardlab: all is well\x7f[red]b[/red][link=http://x]"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+cmd|' /C calc'!A0", "-2+3+cmd", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "=", "-a", "--", "+e+x"],
)
def test_a_formula_is_defused_and_stays_in_its_cell(text: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_text([["model", text, 1]]), newline=""))
    assert text == "--" or row[1] == "'" + text.replace("\r", " ")
    assert row[::2] == ["model", "1"]


@pytest.mark.parametrize(
    "value", [-0.5, -3, 1e-9, "-0.5", "-1e-05", "+0.25", "-", "- / .941 / .943 ±.006", "", None, "a=b"]
)
def test_numbers_stay_numbers(value: object) -> None:
    (row,) = csv.reader(io.StringIO(csv_text([[value, "x"]])))
    assert row == ["" if value is None else str(value), "x"]


def test_every_csv_of_the_package_goes_through_the_same_function() -> None:
    source = Path(rewardlab.__file__).parent
    writers = [
        path.name for path in source.rglob("*.py") if re.search(r"csv\.(Dict)?[wW]riter", path.read_text("utf-8"))
    ]
    assert writers == ["storage.py"]


@pytest.fixture(scope="module")
def evil_summary(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, rewardlab.Run]:
    out = tmp_path_factory.mktemp("run") / "run"
    run = rewardlab.stress("length", tiny_data, perturbations=("jpeg",), severities=(1,), execution=IN_PROCESS, out=out)
    text = json.dumps(record_to_json(load_summary(run)))
    name = json.dumps(EVIL + "|\n<img src=x onerror=alert(1)>`x`](http://y)")[1:-1]
    return Summary.from_json(json.loads(text.replace('"length"', f'"{name}"'))), run


def test_a_summary_with_hostile_names_is_shown_as_it_is(evil_summary: tuple[Summary, rewardlab.Run]) -> None:
    from rewardlab.core.terminal import terminal_console

    stream = io.StringIO()
    console = terminal_console()
    console.file, console.width = stream, 2_000
    for every in (False, True):
        print_summary(evil_summary[0], console, every=every)
    assert "[red]b[/red]" in stream.getvalue() and not STEERING.search(stream.getvalue())
    plain = io.StringIO()
    for every in (False, True):  # any other console, too, is not steered by names
        print_summary(evil_summary[0], Console(file=plain, width=2_000), every=every)
    assert not STEERING.search(plain.getvalue())


def test_a_card_with_hostile_names_stays_a_card(evil_summary: tuple[Summary, rewardlab.Run]) -> None:
    summary, run = evil_summary
    command = "rewardlab stress\n```\n<script>alert(1)</script>"
    card = robustness_card(summary, [replace(run.record, command=command)])
    assert r"\<img" in card and not re.search(r"(?<!\\)<img", card) and not re.search(r"(?<!\\)\]\(", card)
    tables = re.findall(r"(?:^\|.*\n)+", card, re.MULTILINE)
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1, table
    assert tables
    assert "````\nrewardlab stress\n```\n<script>" in card


@pytest.fixture(scope="module")
def evil_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from rewardlab.core.video_encoding import encode

    folder = tmp_path_factory.mktemp("evil")
    name = "s\x1b[31m\x9b5n/v\x1b]0;owned\x07\u202e.mp4"
    (folder / name).parent.mkdir()
    for video in (name, "plain.mp4"):
        encode(moving_square("x"), folder / video, fps=10)
    rows = [{"file_name": video, "task": f"open {EVIL}", "reward": 3} for video in (name, "plain.mp4")]
    write_rows(folder, [*rows, {"file_name": f"{EVIL}.mp4", "task": "t", "reward": 9}, EVIL, f'{{"{EVIL}": 1}}'])
    return folder


def evil_commands(data: str, out: Path, url: str) -> dict[str, list[str]]:
    model = f"openai:judge@{url}?retries=0"
    few = ["--perturbations", "polite_filler", "--severities", "1", "--out"]
    return {
        "score": ["score", model, *map(str, Path(data).glob("s*/*.mp4")), EVIL],
        "data check": ["data", "check", data],
        "stress": ["stress", model, data, "--skip-invalid", "--engine", "local", *few, str(out / "stress")],
        "attack": ["attack", model, data, "--engine", "local", *few[:2], "--out", str(out / "attack")],
        "bench": ["bench", model, data, "--engine", "local", "--out", str(out / "bench")],
        "fit calibration": ["fit", "calibration", EVIL, data],
        "data perturb": ["data", "perturb", data, "--skip-invalid", *few, str(out / "perturb")],
        "report": ["report", EVIL],
        "compare": ["compare", EVIL, f"{EVIL}::{EVIL}"],
        "leaderboard": ["leaderboard", EVIL],
        "view": ["view", EVIL],
        "collect": ["collect", EVIL, "--out", str(out / "collect")],
        "train pocket": ["train", "pocket", EVIL],
        "train vlm": ["train", "vlm", EVIL, data, "--out", str(out / "trained")],
        "train assemble": ["train", "assemble", "--vision", EVIL, "--language", EVIL, "--out", str(out / "vlm")],
        "train objective": ["train", "objective", EVIL, "--out", str(out / "objective")],
        "fit guard": ["fit", "guard", EVIL, data],
        "serve": ["serve", EVIL],
        "relabel": ["relabel", data, "--model", EVIL],
        "data verify": ["data", "verify", data, "--verdicts", str(out / "v.sqlite"), "--export", str(out / "verified")],
        "data report": ["data", "report", data, "--out", str(out / "data.html")],
        "data rank": [
            *("data", "rank", data, "--model", model, "--skip-invalid", "--engine", "local"),
            *("--run", str(out / "rank"), "--out", str(out / "rank.csv")),
        ],
        "data augment": [
            *("data", "augment", data, "--stage", "rewrite", "--text", model),
            *("--skip-invalid", "--out", str(out / "augmented")),
        ],
        "study rl": ["study", "rl", EVIL, "--out", str(out / "rl")],
        "study rl-page": ["study", "rl-page", EVIL, "--out", str(out / "rl.html")],
        "data convert": ["data", "convert", EVIL, str(out / "converted")],
        "runs list": ["runs", "list", EVIL],
        "runs sql": ["runs", "sql", EVIL, EVIL],
        "runs join": ["runs", "join", EVIL, "--out", str(out / "all.csv")],
        "runs prune": ["runs", "prune", EVIL, "--where", f"name={EVIL}"],
        "runs merge": ["runs", "merge", EVIL, EVIL, "--out", str(out / "merged")],
        "runs export": ["runs", "export", EVIL],
        "runs publish": ["runs", "publish", EVIL, "--trained-on", EVIL, "--out", str(out / "published")],
        "study montecarlo": ["study", "montecarlo", "--fit", EVIL],
        "study perturbation": ["study", "perturbation", EVIL, str(out / "study")],
        "study objectives": ["study", "objectives", EVIL],
        "data init": ["data", "init", EVIL],
        "list": ["list", EVIL],
        "show": ["show", EVIL],
        "completion": ["completion", EVIL],
    }


@pytest.mark.parametrize("command", [*COMMANDS, "no command", "no model"])
def test_nothing_from_outside_steers_the_terminal(
    command: str, evil_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(lambda call: call.refuse(401, EVIL)) as server:
        known = evil_commands(str(evil_data), tmp_path, server.url)
        other = {"no command": [EVIL], "no model": ["stress", EVIL, str(evil_data)]}
        try:
            code: object = main((known | other)[command])
        except SystemExit as end:  # argparse has shown the usage
            code = end.code
    output = "".join(capsys.readouterr())
    assert code in (0, 1, 2, 3, 4) and "Traceback" not in output
    assert output and not STEERING.search(output)
    assert command != "stress" or "answered 401" in output  # what the server said came as far as the terminal


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_a_model_says_does_not_steer_the_terminal_either(
    form: list[str], evil_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(lambda call: call.say(f"{EVIL}\nANSWER: 3")) as server:
        command = evil_commands(str(evil_data), evil_data, server.url)["score"]
        assert main([*command, *form]) == 0
    output = "".join(capsys.readouterr())
    assert "ANSWER: 3" in output and not STEERING.search(output)


def test_on_a_terminal_the_styling_is_ours_alone() -> None:
    script = """
import sys
from rewardlab.core.terminal import safe_markup, safe_streams, terminal_console
with safe_streams():
    terminal_console().print("[bold]" + safe_markup(EVIL) + "[/bold]")
    terminal_console(stderr=True).print(EVIL, markup=False)
    print(EVIL, file=sys.stderr)
    print(EVIL, flush=True)
"""
    shown = _in_terminal(f"EVIL = {EVIL!r}\n{script}")
    assert shown.startswith(b"\x1b[1m")  # ours is bold
    text = re.sub("\x1b\\[[0-9;]*m|\r\n", "", shown.decode())
    assert not STEERING.search(text) and text.count(r"\x1b]0;owned") == 4


def _in_terminal(script: str) -> bytes:
    """Return what a script writes to a terminal."""
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "300"}
    environment.pop("NO_COLOR", None)
    return in_terminal([sys.executable, "-c", script], environment)[1]


def test_printable_keeps_text_of_every_language_and_spells_out_the_rest() -> None:
    for text in ("naïve", "打开抽屉", "فتح الدرج", "🙂", "a\tb\nc", "√±τ"):
        assert printable(text) == text
    assert printable("\x1b[0m\u202e\udcff") == r"\x1b[0m\u202e\xff"
    assert one_line("a\nb\r\nc") == r"a\nb\x0d\nc"
