"""Like is compared with like: clean answers and constants on the very same cells, and data that is too little."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from rewardlab.core.run import start_run
from rewardlab.core.summary import Summary
from rewardlab.core.trial import Trial
from rewardlab.evaluation.findings import contrast
from rewardlab.evaluation.summary import summarise
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.robustness import certified_threshold, clusters_to_certify
from rewardlab.reporting.findings_text import certified_text, data_sentences
from rewardlab.reporting.run_page import model_views
from rewardlab.reporting.severity_curves import curve_figures, curve_metrics, severity_curves
from rewardlab.reporting.terminal_summary import print_summary
from tests.handmade_runs import record_of
from tests.metrics.handmade_trials import trial


def cells(model: str, number: int, say: dict[str, float]) -> list[Trial]:
    """One episode, a success where its number is even: clean, jpeg (episodes 0 to 3 only), and a swapped task."""
    own = {"model": model, "episode": f"e{number}", "video": f"v{number}", "task": f"t{number}", "severity": 1}
    truth = 5 if number % 2 == 0 else 1
    jpeg = trial(say["jpeg"], truth, perturbation="jpeg", category="visual", **own)
    swap = trial(say["swap"], 1, perturbation="task_swap", category="semantic", expectation="relabel", **own)
    cut = trial(3.0, None, perturbation="truncate_end", category="temporal", expectation="lower", **own)
    clean = trial(say["clean"], truth, perturbation="clean", category="clean", **own | {"severity": 0})
    dropped = replace(jpeg, status="dropped", level=None, reason="no meaning")
    return [clean, jpeg if number < 4 else dropped, swap, cut]


def summary_of(tmp_path: Path, episodes: int, accuracy_threshold: float = 0.7) -> Summary:
    """A model that always says 3, and one that is right of the first four episodes when clean, and of jpeg never."""
    trials: list[Trial] = []
    for number in range(episodes):
        truth = 5.0 if number % 2 == 0 else 1.0
        trials += cells("always-3", number, {"clean": 3, "jpeg": 3, "swap": 3})
        trials += cells("judge", number, {"clean": truth if number < 4 else 6 - truth, "jpeg": 6 - truth, "swap": 1})
        trials += cells("oracle", number, {"clean": truth, "jpeg": truth, "swap": 1})
    ordered = [replace(t, id=f"{place:06d}") for place, t in enumerate(trials)]
    record = record_of(ordered, evaluated=["always-3", "judge"])
    run = start_run(tmp_path / "run", record | {"plan": record["plan"] | {"accuracy_threshold": accuracy_threshold}})
    run.append(ordered)
    return summarise(run, draws=200)


def test_a_point_and_its_clean_reference_are_over_the_same_episodes(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, 8)
    assert summary.clean("judge", "success_accuracy").value == 0.5  # over all eight episodes
    held = summary.paired_reference_of("judge", "visual", 1, "success_accuracy")
    assert (held.clean, held.trials) == (1.0, 4)  # over the four that are not dropped
    figures = {
        metric: dict((c, drawing) for c, drawing, _ in drawings) for metric, _, drawings in curve_figures(summary)
    }
    assert "the episodes of severity 1 when clean: 1.000" in figures["success_accuracy"]["visual"]


def test_clean_and_changed_are_compared_over_the_trials_that_have_both(tmp_path: Path) -> None:
    """`shy` fails on the clean episodes that are successes, and changes one answer of the others."""
    trials: list[Trial] = []
    for number in range(8):
        steady = cells("steady", number, {"clean": 1, "jpeg": 1, "swap": 1})
        clean, *changed = cells("shy", number, {"clean": 1, "jpeg": 5 if number == 3 else 1, "swap": 1})
        shy = [replace(clean, status="failed", level=None, reason="too bright") if number % 2 == 0 else clean]
        trials += [*steady, *shy, *changed]
    ordered = [replace(t, id=f"{place:06d}") for place, t in enumerate(trials)]
    run = start_run(tmp_path / "run", record_of(ordered, evaluated=["shy", "steady"]))
    run.append(ordered)
    summary = summarise(run, draws=200)
    held = summary.paired_reference_of("shy", "jpeg", 1, "macro_mae")
    assert (held.clean, held.changed, held.paired, held.trials) == (0.0, 2.0, 2, 4)  # not 3.0 over all four
    found = contrast(summary)
    assert found is not None and found.errors == {"steady": (2.0, 2.0), "shy": (0.0, 2.0)} and found.episodes == 2
    lines = {line.name: line for c in severity_curves(summary) for line in c.lines if c.metric == "success_accuracy"}
    assert np.isnan(lines["shy"].clean[1]), "the line is over four trials, of which two have a clean answer"
    heat = dict(dict(model_views(summary)[0].heat)["success_accuracy"])
    assert heat["visual"][1].reference == "clean 1.00 to 0.50 on 2 pairs"
    assert any("shy" in line and "4/8" in line for line in printed(summary, every=False).splitlines())


def test_an_accuracy_that_any_constant_reaches_is_not_green(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, 8)
    assert summary.measurement("always-3", "semantic", 1, "success_accuracy").value == 1.0
    assert summary.measurement("always-3", "semantic", 1, "expectation_kept").value == 0.0
    held = summary.paired_reference_of("always-3", "semantic", 1, "success_accuracy")
    assert (held.blind, held.relabelled) == (1.0, 8)
    heat = dict(dict(model_views(summary)[0].heat)["success_accuracy"])
    assert heat["semantic"][1].good is None and "constant 1.00" in heat["semantic"][1].reference
    assert heat["visual"][1].good is not None and "constant" not in heat["visual"][1].reference
    assert curve_metrics(summary)[0].name == "expectation_kept"


def test_what_has_no_value_says_why_and_severities_that_were_not_asked_are_not_shown(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, 8)
    panels = {
        (metric, c): (drawing, empty) for metric, _, all_of in curve_figures(summary) for c, drawing, empty in all_of
    }
    drawing, empty = panels["success_accuracy", "temporal"]
    assert drawing == "" and empty == "No value: no trial here has a true success or failure after the change."
    assert all(drawing or empty for drawing, empty in panels.values())
    heat = dict(dict(model_views(summary)[0].heat)["success_accuracy"])
    assert summary.severities == (0, 1) and len(heat["visual"]) == 2


def test_too_few_tasks_are_said_once_with_how_many_it_takes_and_blame_no_model(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, 8)
    none, few = data_sentences(summary)
    assert "under temporal" in none
    assert "visual has 4 tasks in 4 episodes (9 tasks, about 9 episodes, are enough)" in few and "8 tasks in 8" in few
    text = printed(summary)
    assert text.count("Too few episodes") == 1 and "is not certified" not in text


@pytest.mark.parametrize(
    ("accuracy_threshold", "semantic", "visual"),
    [
        (0.7, "1, above 0 as is a constant", "too few tasks"),
        (0.3, "1, as is a constant", "1, as is a constant"),
        (0.9, *["too few tasks"] * 2),
    ],
)
def test_a_certified_cell_is_marked_where_a_constant_is_certified_too(
    tmp_path: Path, accuracy_threshold: float, semantic: str, visual: str
) -> None:
    summary = summary_of(tmp_path, 12, accuracy_threshold)
    assert [certified_text(summary, "oracle", c) for c in summary.categories] == [visual, semantic, "no labels"]
    mark = semantic.partition(" ")[2]
    assert (" ".join(mark.split()) in " ".join(printed(summary).split())) == (accuracy_threshold < 0.9)


def printed(summary: Summary, *, every: bool = True) -> str:
    console = Console(width=80, record=True, file=StringIO())
    print_summary(summary, console, every=every)
    return console.export_text()


@pytest.mark.parametrize("least", [0.5, 0.7, 0.9])
def test_so_many_clusters_certify_a_model_without_a_mistake_and_one_less_does_not(least: float) -> None:
    needed = clusters_to_certify(least)
    assert needed is not None and clusters_to_certify(1.0) is None
    for clusters, certified in ((needed, 0), (needed - 1, -1)):
        right = np.ones((1, clusters))
        assert certified_threshold(right, right, draw_clusters(clusters, 200, 0), least).certified == certified
