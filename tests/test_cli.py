"""The command line as a user meets it, some of it in real processes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import pytest

import rewardlab
from rewardlab.cli import COMMANDS, main
from rewardlab.data import open_dataset
from rewardlab.perturbations import PERTURBATIONS
from tests.command_here import run_here
from tests.conftest import IN_PROCESS, write_rows
from tests.narrowing import known


def rewardlab_command(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rewardlab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=os.environ | {"COLUMNS": "120"})


def test_stress_prints_the_summary_and_the_report_and_names_the_run_itself(tiny_data: Path, tmp_path: Path) -> None:
    few = ("--perturbations", "polite_filler", "--engine", "local")
    done = rewardlab_command("stress", "length", str(tiny_data), *few, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "length" in done.stdout and "oracle" in done.stdout and "semantic" in done.stdout
    page = tmp_path / done.stdout.strip().splitlines()[-1].removeprefix("report: ")
    assert page.exists() and page.parent.parent.name == "runs"
    assert "rewardlab stress length" in page.read_text()


def test_report_writes_the_page_again(tiny_data: Path, tmp_path: Path) -> None:
    few: dict[str, Any] = {"perturbations": ("typo_keyboard",), "severities": (1,), "execution": IN_PROCESS}
    run = rewardlab.stress("length", tiny_data, out=tmp_path / "run", **few)
    (run.folder / "report.html").unlink()
    assert run_here("report", str(run.folder)).returncode == 0
    assert (run.folder / "report.html").exists()


def test_check_lists_problems_with_their_lines_and_fails(tmp_path: Path) -> None:
    write_rows(tmp_path, [{"file_name": "gone.mp4", "task": "t", "reward": 5}, "oops"])
    done = run_here("data", "check", str(tmp_path))
    assert done.returncode == 4
    assert "line 1: " in done.stdout and "line 2: not JSON" in done.stdout
    assert run_here("data", "check", "sample").returncode == 0


def test_perturb_writes_copies_that_are_a_dataset_and_goes_on_where_it_stopped(tiny_data: Path, tmp_path: Path) -> None:
    arguments = (
        "data",
        "perturb",
        str(tiny_data),
        "--perturbations",
        "hold_last,polite_filler,truncate_end",
        "--severities",
        "2",
        "--out",
    )
    first = run_here(*arguments, str(tmp_path / "copies"), "--limit", "2")
    assert first.returncode == 0, first.stderr
    second = run_here(*arguments, str(tmp_path / "copies"))
    assert len(first.stdout.splitlines()) == 6
    assert len(second.stdout.splitlines()) == 18 - 6
    contents = open_dataset(str(tmp_path / "copies"))
    assert not contents.problems
    copies = {episode.id: episode for episode in contents.episodes}
    assert len(copies["arm/a.hold_last.2.mp4"].clip) == 14 + 4
    assert copies["arm/a.polite_filler.2.mp4"].instruction.endswith("put the red cup on the plate")
    assert copies["arm/a.truncate_end.2.mp4"].label.level is None


def test_perturb_draws_a_contact_sheet(tiny_data: Path, tmp_path: Path) -> None:
    done = run_here(
        "data", "perturb", str(tiny_data), "--perturbations", "gaussian_noise", "--sheet", "--out", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    sheet = known(cv2.imread(str(tmp_path / "gaussian_noise.png")))
    assert sheet.shape[0] > 5 * 48  # five severities, one below the other
    assert sheet.std() > 20


@pytest.mark.parametrize("catalog", ["perturbations", "models", "metrics", "datasets", "readers"])
def test_list_shows_every_entry(catalog: str, capsys: pytest.CaptureFixture[str]) -> None:
    from rewardlab.reporting.catalog import catalogs

    assert main(["list", catalog]) == 0
    printed = capsys.readouterr().out
    assert all(name[:12] in printed for name in catalogs()[catalog])


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_show_tells_the_parameter_at_every_severity(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", name]) == 0
    printed = capsys.readouterr().out
    assert all(f"severity {severity}" in printed for severity in (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stress", "lenght", "sample"], "did you mean length"),
        (["stress", "length", "sample", "--perturbations", "gaussian_nois"], "did you mean gaussian_noise"),
        (["stress", "length", "sample", "--severities", "9"], "severities must be among"),
        (["stress", "length", "sample", "--frames", "every"], "frames must be uniform:N"),
        (["report", "no/such/run"], "is not a run folder"),
        (["show", "nothing-like-this"], "no entry of a catalog"),
        (["list", "things"], "no catalog is called 'things'"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_dataset_that_is_not_there_is_one_sentence_and_exit_code_4(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stress", "length", "no/such/folder"]) == 4
    assert "no dataset at 'no/such/folder'" in capsys.readouterr().err


def test_version_and_help_name_every_command() -> None:
    assert rewardlab_command("--version").stdout == f"rewardlab {rewardlab.__version__}\n"
    text = rewardlab_command("--help").stdout
    assert all(word in text for name in COMMANDS for word in name.split())
    for family in {name.split()[0] for name in COMMANDS if " " in name}:
        text = rewardlab_command(family, "--help").stdout
        assert all(name in text for name in COMMANDS if name.startswith(f"{family} "))
