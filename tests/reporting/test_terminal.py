"""What a terminal of eighty columns shows."""

from pathlib import Path

import pytest
from rich.console import Console

import rewardlab
from rewardlab.analysis.run_summary import load_summary
from rewardlab.cli import main
from rewardlab.core.run import Run
from rewardlab.reporting.findings_text import findings
from rewardlab.reporting.terminal_summary import print_summary


def test_the_summary_fits_eighty_columns_and_names_what_failed(tiny_data: Path, tmp_path: Path) -> None:
    run = rewardlab.stress("noisy-oracle:0.5", tiny_data, perturbations=("jpeg", "typo_keyboard"), out=tmp_path / "run")
    console = Console(width=80, record=True, file=(tmp_path / "out").open("w"))
    print_summary(load_summary(run), console)
    console.file.close()
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    for words in ("noisy-oracle:0.5", "oracle", "certified", "6/6", "5/5", "visual", "semantic"):
        assert words in text, words


def test_a_level_that_constant_reaches_is_called_no_test(tiny_data: Path, tmp_path: Path) -> None:
    for least, said in (("0.1", True), ("0.9", False)):
        arguments = ["stress", "oracle", str(tiny_data), "--perturbations", "jpeg", "--severities", "1"]
        assert main([*arguments, "--reliable-at", least, "--out", str(tmp_path / least)]) == 0
        sentences = findings(load_summary(Run(tmp_path / least)), "oracle")
        assert any("no test here: constant" in sentence for sentence in sentences) == said


def test_compare_says_who_is_better_in_words(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rewardlab.stress("oracle", tiny_data, perturbations=("jpeg",), severities=(2,), out=tmp_path / "run")
    assert main(["compare", str(run.folder), f"{run.folder}::clock", "--draws", "500"]) == 0
    said = capsys.readouterr().out
    assert "oracle" in said and "clock" in said and "visual change" in said and "MAE" in said
    assert main(["compare", str(run.folder), f"{run.folder}::nobody"]) == 2
    assert "nobody" in capsys.readouterr().err


def test_compare_asks_which_model_is_meant(tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["stress", "clock", "constant:5", str(tiny_data), "--perturbations", "jpeg", "--severities", "1"]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0
    assert main(["compare", str(tmp_path / "run"), str(tmp_path / "run")]) == 2
    assert "judged 2 models; say which one" in capsys.readouterr().err
