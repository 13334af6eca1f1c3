"""The command line as a user meets it, some of it in real processes."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from glob import glob
from pathlib import Path
from typing import Any

import cv2
import pytest

import rewardlab
from rewardlab.cli import COMMANDS, main
from rewardlab.core.settings import arguments_of, command_parser
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
    assert "length" in done.stdout and "(best baseline)" in done.stdout and "semantic" in done.stdout
    page = tmp_path / done.stdout.strip().splitlines()[-2].removeprefix("report: ")
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


def test_show_explains_the_model_where_a_layout_has_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "robometer"]) == 0
    assert "dialect" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["rubric", "causes", "abstain", "gvl", "topreward"])
def test_show_says_that_a_protocol_takes_the_options_of_its_backend(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", name]) == 0
    assert "those of the backend" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stress", "lenght", "sample"], "did you mean length"),
        (["stress", "length", "sample", "--perturbations", "gaussian_nois"], "did you mean gaussian_noise"),
        (["stress", "length", "sample", "--perturbations", "visul"], "did you mean visual"),
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


def examples() -> list[tuple[str, str]]:
    """Return every line of examples that a command's help ends with, beside the command."""
    found = []
    for name, command in COMMANDS.items():
        epilog = command_parser(name, command.load(), command.settings).epilog or ""
        found += [(name, line.strip()) for line in epilog.splitlines()[1:]]
    return found


def words_of(example: str) -> list[str]:
    """Return the words after `rewardlab`, without what the shell does around them."""
    inner = re.sub(r'^(?:\w+=\S+ |eval "\$\()?rewardlab |\)"$| > \S+$', "", example)
    return [name for word in shlex.split(inner) for name in sorted(glob(word)) or [word]]


UNRUN = (  # beginnings of the examples that a test does not run: they need an extra, a server, the internet or minutes
    "score openai:",
    "stress ",
    "view ",
    "bench ",
    "attack ",
    "data rank ",
    "data augment ",
    "data verify ",
    "data perturb ",
    "collect ",
    "train ",
    "fit ",
    "serve ",
    "relabel ",
    "study ",
    "runs sql ",
    "runs export ",
    "runs publish runs/judge ",
)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_ends_with_examples_of_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*name.split(), "--help"])
    shown = capsys.readouterr().out.rpartition("\n\nexamples:\n")[2].splitlines()
    lines = [line for command, line in examples() if command == name]
    assert [line.strip() for line in shown] == lines and len(lines) >= 2
    assert f"rewardlab {name}" in lines[0]


@pytest.mark.parametrize(("_", "line"), examples())
def test_every_example_is_parsed(_: str, line: str) -> None:
    words = words_of(line)
    name = next(" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS)
    command = COMMANDS[name]
    given = command_parser(name, command.load(), command.settings).parse_args(words[len(name.split()) :])
    arguments_of(command.load(), vars(given))


@pytest.fixture(scope="module")
def example_folder(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with the videos, datasets and runs that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    runs = folder / "runs"
    few: dict[str, Any] = {"perturbations": "polite_filler", "severities": 1, "execution": IN_PROCESS}
    for name, model in (("both", ("pocket", "constant")), ("before", "length"), ("after", "constant")):
        rewardlab.stress(model, tiny_data, out=runs / name, **few)
    for part in (1, 2):
        shard = rewardlab.Sharding(f"{part}/2")
        rewardlab.stress("length", tiny_data, out=runs / f"shard-{part}", sharding=shard, **few)
    shutil.copytree(runs / "before", runs / "gpt")
    shutil.copytree(runs / "after", runs / "pocket")
    rewardlab.runs_publish(runs / "gpt", out=folder / "submissions" / "gpt")
    shutil.copytree(tiny_data, folder / "my-data")
    rewardlab.data_convert(tiny_data, folder / "demos", to="lerobot")
    (folder / "my_videos").mkdir()
    for name in ("rollout.mp4", "my_videos/first.mp4", "my_videos/second.mp4"):
        shutil.copy(tiny_data / "arm/a.mp4", folder / name)
    return folder


@pytest.mark.slow
def test_the_examples_that_take_seconds_run(example_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(example_folder)
    run = [line for _, line in examples() if not " ".join(words_of(line)).startswith(UNRUN)]
    assert len(run) > 20
    for line in sorted(run, key=lambda line: "prune" in line):  # last: a shard that waits for its merge is open too
        done = run_here(*words_of(line))
        expected = 4 if line == "rewardlab data check my_videos" else 0  # its rows are still to be filled in
        assert done.returncode == expected, f"{line}\n{done.stdout}{done.stderr}"
