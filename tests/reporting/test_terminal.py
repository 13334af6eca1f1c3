"""What a terminal of eighty columns shows."""

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

import rewardlab
from rewardlab.cli import main
from rewardlab.core.run import Run
from rewardlab.evaluation.summary import load_summary
from rewardlab.reporting.findings_text import findings
from rewardlab.reporting.report import write_report
from rewardlab.reporting.terminal_summary import print_summary
from tests.conftest import IN_PROCESS

CONTROLS = ("constant", "random", "length", "motion", "end-motion", "change", "oracle")  # their order, everywhere


@pytest.mark.slow
def test_the_summary_fits_eighty_columns_and_names_what_failed(tiny_data: Path, tmp_path: Path) -> None:
    run = rewardlab.stress(
        "noisy-oracle:0.5",
        tiny_data,
        perturbations=("jpeg", "typo_keyboard"),
        accuracy_threshold=0.3,
        execution=IN_PROCESS,
        out=tmp_path / "run",
    )
    console = Console(width=80, record=True, file=(tmp_path / "out").open("w"))
    print_summary(load_summary(run), console, every=True)
    console.file.close()
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    for words in ("noisy-oracle:0.5", "oracle", "Certified", "6/6", "5/5"):
        assert words in text, words
    heads = [line.split() for line in text.splitlines() if line.lstrip().startswith("model ")]
    assert heads[1] == heads[2] == ["model", "visual", "semantic"]  # every table of categories names them
    rows = [line.split()[0] for line in text.splitlines() if line.split()[:1] and line.split()[0] in CONTROLS]
    assert rows[: 3 * len(CONTROLS)] == [*CONTROLS] * 3
    page = write_report([run], tmp_path / "page.html").read_text()
    legend = [page.index(f">{name}<") for name in CONTROLS]
    assert legend == sorted(legend)


def said_by_stress(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[str]:
    assert main(["stress", *map(str, arguments), "--engine", "local"]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_run_ends_with_one_table_its_page_and_the_next_command(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / "run"
    lines = said_by_stress(capsys, "noisy-oracle:0.5", tiny_data, "--perturbations", "jpeg,typo_keyboard", "--out", out)
    heads = [line.split() for line in lines if line.split()[:1] == ["model"]]
    assert heads == [["model", "clean", "visual", "semantic"]]
    rows = lines[lines.index(next(line for line in lines if "───" in line)) + 1 :]
    assert rows[0].split()[0] == "noisy-oracle:0.5" and "(best baseline)" in rows[1] and not rows[2].strip()
    assert lines[-2] == f"report: {out / 'report.html'}"
    assert lines[-1] == f"next: rewardlab view {tmp_path}  (compare runs)"
    assert max(map(len, lines[:-2])) <= 80


@pytest.mark.slow
def test_two_models_are_told_apart_by_the_change_under_which_only_one_breaks(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = ["tests.reporting.test_terminal:LevelFive", "tests.reporting.test_terminal:AfraidOfTheDark"]
    changes = ["--perturbations", "low_light,jpeg", "--severities", "4"]
    lines = said_by_stress(capsys, *models, tiny_data, *changes, "--out", tmp_path / "run")
    said = " ".join(" ".join(lines).split())
    assert "Under low_light at severity 4, the error of AfraidOfTheDark goes from " in said
    page = (tmp_path / "run" / "report.html").read_text()
    assert "AfraidOfTheDark: 5.0 → 1.0</b>, true level 5; <b>LevelFive: 5.0 → 5.0</b>" in page
    assert re.search(r"that of LevelFive from (\d\.\d\d) to \1 \(\d clips\)", said)


def test_data_without_labels_shows_what_is_kept_and_how_to_label_it(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    rows = [json.loads(line) for line in (tiny_data / "metadata.jsonl").read_text().splitlines()]
    kept = [{"file_name": str(tiny_data / row["file_name"]), "task": row["task"]} for row in rows]
    for row in kept:
        name = Path(row["file_name"])
        (bare / name.name).write_bytes(name.read_bytes())
        row["file_name"] = name.name
    (bare / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    lines = said_by_stress(capsys, "length", bare, "--perturbations", "jpeg", "--out", tmp_path / "run")
    text = " ".join(lines)
    assert "No clip has a label, so accuracy is unknown. Share of expectations kept" in text
    assert not any(line.split()[:2] == ["length", "-"] for line in lines)
    assert lines[-1] == f"next: rewardlab data verify {bare}  (label the clips on a local page)"


class LevelFive:
    """A model that no picture changes."""

    def score(self, episodes: list[rewardlab.Episode]) -> list[rewardlab.Score]:
        return [rewardlab.Score(5) for _ in episodes]


class AfraidOfTheDark:
    """A model that gives the level 5 to bright clips and 1 to dark ones."""

    def score(self, episodes: list[rewardlab.Episode]) -> list[rewardlab.Score]:
        return [rewardlab.Score(5 if e.frames.mean() > 40 else 1) for e in episodes]


class ScorerWithALongName:
    """A model of one's own, named like what people serve."""

    def score(self, episodes: list[rewardlab.Episode]) -> list[rewardlab.Score]:
        return [rewardlab.Score(5) for _ in episodes]


@pytest.mark.parametrize("command", ["stress", "bench"])
def test_long_model_strings_leave_room_for_the_numbers(
    command: str, tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = [
        "tests.reporting.test_terminal:ScorerWithALongName",
        "ensemble:constant:2,constant:3,random,length?by=median",
    ]
    some = ["--perturbations", "jpeg", "--severities", "1"] if command == "stress" else []
    arguments = [command, *long, str(tiny_data), *some, "--engine", "local", "--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    said = capsys.readouterr().out.partition("report:")[0]
    assert max(map(len, said.splitlines())) <= 80
    assert "ScorerWithALon" in said and "ensemble of 4" in said
    assert "…" not in said  # no number is cut off


@pytest.mark.slow
def test_a_severity_at_which_a_constant_is_certified_too_is_marked(tiny_data: Path, tmp_path: Path) -> None:
    for least, said in (("0.1", True), ("0.9", False)):
        arguments = ["stress", "oracle", str(tiny_data), "--perturbations", "jpeg", "--severities", "1"]
        assert (
            main([*arguments, "--engine", "local", "--accuracy-threshold", least, "--out", str(tmp_path / least)]) == 0
        )
        sentences = findings(load_summary(Run(tmp_path / least)), "oracle")
        assert any("(as is a constant)" in sentence for sentence in sentences) == said


def test_compare_says_who_is_better_in_words(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rewardlab.stress(
        "oracle", tiny_data, perturbations=("jpeg",), severities=(2,), execution=IN_PROCESS, out=tmp_path / "run"
    )
    assert main(["compare", str(run.folder), f"{run.folder}::length", "--n-resamples", "500"]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[0].startswith("oracle is better than length in ") or "no difference can be claimed" in lines[0]
    assert lines[1:3] == ["A: oracle", "B: length"] and lines[3].split()[:4] == ["on", "metric", "A", "B"]
    assert "visual" in said and "MAE" in said and max(map(len, lines)) <= 80
    assert main(["compare", str(run.folder), f"{run.folder}::nobody"]) == 2
    assert "nobody" in capsys.readouterr().err


def test_compare_writes_a_file_by_its_ending(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rewardlab.stress(
        "oracle", tiny_data, perturbations=("jpeg",), severities=(2,), execution=IN_PROCESS, out=tmp_path / "run"
    )
    models = ["compare", str(run.folder), f"{run.folder}::length", "--n-resamples", "200", "--out"]
    for name in ("both.json", "both.md"):
        assert main([*models, str(tmp_path / name)]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"comparison: {tmp_path / name}"
    found = json.loads((tmp_path / "both.json").read_text())
    assert (found["a"], found["b"]) == ("oracle", "length")
    assert {"clean", "visual", "overall"} == {test["group"] for test in found["tests"]}
    text = (tmp_path / "both.md").read_text()
    assert text.startswith(f"**{found['verdict']}**") and text.count("\n| ") == 1 + len(found["tests"])
    assert main([*models, str(tmp_path / "both.txt")]) == 2
    assert "ends in .md or .json" in capsys.readouterr().err
    assert main([*models, str(tmp_path / "none" / "both.md")]) == 2
    assert "name a file in a folder that exists" in capsys.readouterr().err


def test_compare_asks_which_model_is_meant(tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["stress", "length", "constant:5", str(tiny_data), "--perturbations", "jpeg", "--severities", "1"]
    assert main([*arguments, "--engine", "local", "--out", str(tmp_path / "run")]) == 0
    assert main(["compare", str(tmp_path / "run"), str(tmp_path / "run")]) == 2
    assert "evaluated 2 models; say which one" in capsys.readouterr().err
