import csv
import io
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from rewardlab.core.run import Run
from rewardlab.evaluation.summary import load_summary, summarise
from rewardlab.reporting.run_page import render_page
from rewardlab.studies.perturbation_paper.commands import MonteCarloOutput, print_montecarlo, study_montecarlo
from rewardlab.studies.perturbation_paper.simulation_results import write_run


def printed(made: MonteCarloOutput) -> str:
    text = io.StringIO()
    print_montecarlo(made, Console(file=text, width=200))
    return text.getvalue()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[MonteCarloOutput, Run]:
    made = study_montecarlo(out=tmp_path_factory.mktemp("mc") / "run", episodes=12, severities=(0, 4))
    assert made.run is not None
    return made, made.run


@pytest.mark.slow
def test_every_table_and_figure_of_the_paper_is_written(tmp_path: Path) -> None:
    made = study_montecarlo(out=tmp_path, trials=False)
    names = {path.name for path in tmp_path.iterdir()}
    assert {f"{table.name}.csv" for table in made.tables} | {"conditions.csv", "tables.txt"} <= names
    figures = ("figure1", "figure2", "figure3", "stated", "vote")
    assert {f"{name}{suffix}" for name in figures for suffix in (".svg", ".png")} <= names
    for path in tmp_path.glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert "rewardlab study montecarlo --no-trials" in path.read_text()
    assert len(list(csv.DictReader((tmp_path / "conditions.csv").read_text().splitlines()))) == 120
    text = printed(made)
    assert "no rising map from competence" in text and "95% intervals hold the closed form" in text
    assert (tmp_path / "tables.txt").read_text().startswith("rewardlab study montecarlo --no-trials")


@pytest.mark.slow
def test_the_same_plan_gives_the_same_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        study_montecarlo(out=tmp_path / name, episodes=30, trials=False)
    for path in (tmp_path / "a").glob("*.csv"):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.slow
def test_a_run_holds_every_episode_and_has_a_report(small: tuple[MonteCarloOutput, Run]) -> None:
    _, run = small
    trials = run.trials()
    assert len(trials) == 12 * 4 * 2 * 4  # episodes, categories, severities, three models and the vote
    page = render_page([run], [load_summary(run)])
    assert "ensemble vote" in page and "the simulated study" in page


@pytest.mark.slow
def test_the_predictions_of_a_run_are_those_that_were_measured(small: tuple[MonteCarloOutput, Run]) -> None:
    made, run = small
    assert made.results is not None
    rows = [t for t in run.trials().rows() if (t.model, t.category, t.severity) == ("tuned", "domain", 4)]
    values, truth = np.array([t.progress for t in rows]), np.array(rows[0].truth_progress)
    found = made.results.find("tuned", "domain", 4).sampled
    assert found["accuracy"].value == pytest.approx(((values > 0.5) == (truth > 0.5)).mean())
    assert found["mae"].value == pytest.approx(np.abs(values - truth).mean())


@pytest.mark.slow
def test_success_accuracy_of_a_run_is_the_accuracy_of_the_study(tmp_path: Path) -> None:
    made = study_montecarlo(out=tmp_path, episodes=400, severities=(4,), trials=False)
    assert made.results is not None
    results = replace(made.results, outcomes=(made.results.find("general", "visual", 4),), votes=())
    run = write_run(results, tmp_path / "run", {}, "rewardlab study montecarlo")
    value = summarise(run).measurement("general", "visual", 4, "success_accuracy").value
    assert value is not None
    exact = results.outcomes[0].given["accuracy"]
    assert abs(value - exact) < 4 * np.sqrt(exact * (1 - exact) / 400)


@pytest.mark.slow
def test_large_studies_keep_no_trials(tmp_path: Path) -> None:
    made = study_montecarlo(out=tmp_path, episodes=5001, severities=0)
    assert made.run is None
    assert not (tmp_path / "trials").exists()


def test_a_fitted_study_is_extrapolated_and_not_held_against_the_paper(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("model,category,severity,accuracy\nmine,clean,0,0.96\nmine,visual,2,0.90\n")
    made = study_montecarlo(out=tmp_path / "out", fit=table, severities=(0, 2, 8), episodes=50)
    names = [table.name for table in made.tables]
    assert names[0] == "fit" and "stated" not in names and "claims" not in names and "vote" not in names
    assert "mine" in printed(made) and "sev. 8" in printed(made)
    assert not (tmp_path / "out" / "stated.svg").exists()


def test_planning_a_study_prints_the_episodes_it_needs(tmp_path: Path) -> None:
    made = study_montecarlo(out=tmp_path, power=True, accuracy_threshold=0.9)
    assert [table.name for table in made.tables] == ["power"]
    assert "Episodes needed to certify an accuracy of 0.9" in printed(made)
    assert ElementTree.parse(tmp_path / "power.svg").getroot() is not None
