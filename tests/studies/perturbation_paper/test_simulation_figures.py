"""The figures of a simulated study show the numbers of its tables."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure

from rewardlab.models.simulated import Competence
from rewardlab.studies.perturbation_paper.equation import Condition, StudyConfig
from rewardlab.studies.perturbation_paper.fit_and_power import MOST, SampleSize
from rewardlab.studies.perturbation_paper.paper import STATED_ACCURACY
from rewardlab.studies.perturbation_paper.reproduction import reproductions
from rewardlab.studies.perturbation_paper.simulation_figures import draw_sample_sizes, study_figures
from rewardlab.studies.perturbation_paper.simulation_results import SimulationResults, averaged, run_study


@pytest.fixture(scope="module")
def results() -> SimulationResults:
    return run_study(StudyConfig(episodes=60), seed=0)


@pytest.fixture(scope="module")
def figures(results: SimulationResults) -> dict[str, Figure]:
    return study_figures(results, "rewardlab study montecarlo --episodes 60")


def curve(axes: Axes, label: str) -> list[float]:
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return list(map(float, np.asarray(line.get_ydata())))


def diamonds(axes: Axes) -> list[tuple[float, float]]:
    marked = [line for line in axes.lines if line.get_marker() == "D"]
    return [(float(x), float(y)) for line in marked for x, y in np.asarray(line.get_xydata())]


def points(container: ErrorbarContainer) -> list[float]:
    data = container.lines[0]
    assert data is not None
    return list(map(float, np.asarray(data.get_ydata())))


def bars(axes: Axes) -> list[list[float]]:
    return [[bar.get_height() for bar in part] for part in axes.containers if isinstance(part, BarContainer)]


def interval_ends(container: ErrorbarContainer) -> Sequence[tuple[float, float]]:
    (segments,) = container.lines[2]
    return [(float(segment[0][1]), float(segment[1][1])) for segment in segments.get_segments()]


def sampled(axes: Axes) -> list[ErrorbarContainer]:
    return [part for part in axes.containers if isinstance(part, ErrorbarContainer)]


def test_figure_1_has_a_panel_per_category_with_closed_form_samples_and_stated_numbers(
    results: SimulationResults, figures: dict[str, Figure]
) -> None:
    study, panels = results.study, figures["figure1"].axes
    assert [axes.get_title() for axes in panels] == list(study.categories)
    assert panels[0].get_ylabel() == "accuracy" and {axes.get_xlabel() for axes in panels} == {"severity"}
    for axes, category in zip(panels, study.categories, strict=True):
        for model, drawn in zip(study.models, sampled(axes), strict=True):
            found = [results.find(model, category, severity) for severity in study.severities]
            assert curve(axes, model) == [outcome.expected["accuracy"] for outcome in found]
            assert points(drawn) == [outcome.sampled["accuracy"].value for outcome in found]
            ends = [outcome.sampled["accuracy"].interval for outcome in found]
            assert np.allclose(interval_ends(drawn), ends)
        assert diamonds(axes) == [(4, STATED_ACCURACY[model][category]) for model in study.models]


def test_figure_2_is_the_mean_over_categories(results: SimulationResults, figures: dict[str, Figure]) -> None:
    (axes,) = figures["figure2"].axes
    worst = [results.find("general", category, 4) for category in results.study.categories]
    assert curve(axes, "general")[-1] == pytest.approx(np.mean([o.expected["tau"] for o in worst]))
    assert points(sampled(axes)[0])[-1] == averaged([o.sampled["tau"] for o in worst]).value
    assert diamonds(axes) == [(0, 0.97), (4, 0.82)]
    assert axes.get_ylabel() == "Kendall's tau-b"


def test_figure_3_shows_what_each_task_loses(results: SimulationResults, figures: dict[str, Figure]) -> None:
    (axes,) = figures["figure3"].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == list(results.study.tasks)
    lost = dict(zip(results.study.models, bars(axes), strict=True))
    found = [o for o in results.tasks if (o.condition.model, o.condition.task) == ("tuned", "assembly")]
    exact = results.clean_accuracy("tuned") - np.mean([o.expected["accuracy"] for o in found])
    assert lost["tuned"][-1] == pytest.approx(exact)
    drawn = points(sampled(axes)[1])[-1]
    assert drawn == pytest.approx(
        results.clean_accuracy("tuned") - np.mean([o.sampled["accuracy"].value for o in found])
    )


def test_every_stated_number_has_its_line_and_those_that_cannot_be_are_red(
    results: SimulationResults, figures: dict[str, Figure]
) -> None:
    (axes,) = figures["stated"].axes
    found = reproductions(results)
    assert diamonds(axes) == [(c.stated.value, row) for row, c in enumerate(found)]
    red = [label.get_text() for label in axes.get_yticklabels() if label.get_color() == "#c0392b"]
    assert len(red) == sum(not c.met for c in found) == 2
    assert [text.get_text() for text in axes.texts] == [
        f"{abs(c.distance):.1f} standard errors" for c in found if not c.met
    ]


def test_the_vote_is_drawn_from_independent_to_equal_members(
    results: SimulationResults, figures: dict[str, Figure]
) -> None:
    (axes,) = figures["vote"].axes
    votes = {vote.condition.category: vote for vote in results.votes if vote.condition.severity == 4}
    for (category, vote), drawn in zip(votes.items(), sampled(axes), strict=True):
        assert curve(axes, category)[0] == pytest.approx(vote.expected)
        assert points(drawn) == [vote.sampled["accuracy"].value]
    assert diamonds(axes) == [(1, value) for value in STATED_ACCURACY["ensemble"].values()]


def test_sample_sizes_are_on_a_logarithmic_axis_and_an_endless_one_is_said() -> None:
    size = SampleSize(Condition("general", "visual", 4), 0.81, False, 120, by_formula=118.0, false_rate=0.05)
    endless = replace(size, condition=Condition("general", "domain", 4), accuracy=0.9, episodes=None)
    (axes,) = draw_sample_sizes([size, endless], 0.9, "rewardlab study montecarlo --power").axes
    assert axes.get_xscale() == "log" and axes.get_xlabel() == "episodes"
    assert [text.get_text() for text in axes.texts] == ["120", f"over {MOST:,}"]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "general visual (0.810)",
        "general domain (0.900)",
    ]


def test_models_of_ones_own_are_not_held_against_the_paper() -> None:
    study = StudyConfig(models={"mine": Competence(0.8, {"visual": 0.05})}, categories=("visual",), episodes=20)
    figures = study_figures(run_study(study, seed=0), "rewardlab study montecarlo --fit mine.csv")
    assert set(figures) == {"figure1", "figure2", "figure3"}
    assert not any(diamonds(axes) for figure in figures.values() for axes in figure.axes)
    for figure in figures.values():
        assert "rewardlab study montecarlo --fit mine.csv" in figure.texts[-1].get_text()
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        assert "mine" in labels and "stated in the paper" not in labels
