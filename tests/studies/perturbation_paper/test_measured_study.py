"""The measured study: its numbers by hand, what is missing said, and claims decided by their intervals alone."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy.stats import kendalltau

import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run, start_run
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Trial
from rewardlab.evaluation.summary import load_summary
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.paired_differences import condition_means, less
from rewardlab.studies.perturbation_paper.claims import Claim, Question, paper_claims
from rewardlab.studies.perturbation_paper.commands import study_montecarlo, study_perturbation, write_tables
from rewardlab.studies.perturbation_paper.measured import at, open_study
from rewardlab.studies.perturbation_paper.measured_figures import measured_figures
from rewardlab.studies.perturbation_paper.paper import GROUPS, group_of, roles_of
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS
from rewardlab.worlds.metaworld.tasks import unseen_tasks
from tests.conftest import IN_PROCESS
from tests.handmade_runs import record_of
from tests.metrics.handmade_trials import trial

pytestmark = pytest.mark.slow  # the files are made from one run, which takes longest
ENSEMBLE, SHORT = "ensemble:pocket-plain,pocket,pocket-alt", "ensemble of 3"
SKILL = {"pocket-plain": 0.7, "pocket": 0.85, "pocket-alt": 0.8, ENSEMBLE: 0.95, "constant": 0.0}
DIGITS = 1e-3  # tables have four
CATEGORIES = ("visual", "semantic", "temporal", "domain")
TASKS = ("pick-place", "push", "peg-insert-side", "assembly", "door-open", "hammer", "my own task")
EPISODES = 14


def made_cell(model: str, number: int, category: str, severity: int) -> Trial:
    """Return a cell of a model that is the likelier right the more skilled it is; two kinds of cells are missing."""
    rng = rng_for(0, model, number, category, severity)
    truth = 5 if number % 2 else 2
    right = rng.random() < SKILL[model] - 0.05 * severity
    said = 1 if model == "constant" else truth if right else 7 - truth
    clean = category == "clean"
    cell = trial(
        float(said),
        truth,
        id=f"{model} {number} {category} {severity}",
        model=model,
        episode=str(number),
        video=str(number),
        task=TASKS[number % len(TASKS)],
        perturbation="clean" if clean else f"random:{category}",
        category=category,
        drawn=None if clean else f"{category}-{number % 2}",
        severity=severity,
        seconds=0.5 if model == "pocket" else 0.0,
        probabilities=None if model == "constant" else (0.2,) * 5,
        progress=None if model == "constant" else tuple(rng.random(6).tolist()),
        truth_progress=tuple(np.linspace(0, 1, 6).tolist()),
    )
    if (model, category, severity) == ("pocket-alt", "semantic", 4):
        return replace(cell, status="dropped", level=None, progress=None, probabilities=None, expectation="undefined")
    if (model, category, severity, number % 3) == ("pocket", "temporal", 4, 0):
        return replace(cell, status="failed", level=None, progress=None, probabilities=None)
    return cell


def made_run(folder: Path, models: tuple[str, ...] = tuple(SKILL), severities: tuple[int, ...] = (1, 2, 3, 4)) -> Run:
    conditions = [("clean", 0), *((c, s) for c in CATEGORIES for s in severities)]
    trials = [made_cell(m, n, c, s) for m in models for n in range(EPISODES) for c, s in conditions]
    record = record_of(
        trials, evaluated=[model for model in models if model != "constant"], episodes=EPISODES, trials=len(trials) + 3
    )
    run = start_run(folder, record | {"plan": record["plan"] | {"accuracy_threshold": 0.6}})
    run.append(trials)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made_run(tmp_path_factory.mktemp("study") / "run")


@pytest.fixture(scope="module")
def folder(run: Run) -> Path:
    study_perturbation(run, run.folder.parent / "study")
    return run.folder.parent / "study"


@pytest.fixture(scope="module")
def figures(run: Run) -> dict[str, Figure]:
    return measured_figures(open_study(run))


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table, with the string of the ensemble for its short name."""
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    return [{key: ENSEMBLE if value == SHORT else value for key, value in row.items()} for row in rows]


def scored(run: Run, **wanted: object) -> list[Trial]:
    found = [t for t in run.trials().rows() if t.status == "scored"]
    return [t for t in found if all(vars(t)[name] == value for name, value in wanted.items())]


def is_right(cell: Trial) -> bool:
    return (cell.level == 5) == cell.truth_success


def test_the_table_holds_the_accuracies_counted_by_hand(run: Run, folder: Path) -> None:
    rows = read(folder / "table1.csv")
    assert [(r["model"], r["category"]) for r in rows] == [(m, c) for m in SKILL for c in CATEGORIES]
    for row in rows:
        cells = scored(run, model=row["model"], category=row["category"], severity=4)
        if cells:
            assert float(row["value"]) == pytest.approx(np.mean([is_right(c) for c in cells]), rel=DIGITS)
            assert float(row["low"]) <= float(row["value"]) <= float(row["high"])
            assert int(row["scored"]) == len(cells)
    failed = next(r for r in rows if (r["model"], r["category"]) == ("pocket", "temporal"))
    assert (failed["scored"], failed["asked"]) == ("9", "14")
    assert float(failed["coverage"]) == pytest.approx(9 / 14, rel=DIGITS)


def relabelled(cell: Trial) -> Trial:
    """Return a cell of a temporal change that cuts a success short: now it is a 2, and half of the models see that."""
    if cell.category != "temporal" or cell.truth_level != 5:
        return cell
    level = 1.0 if cell.model == "constant" else 5.0
    return replace(cell, expectation="relabel", truth_level=2, truth_success=False, level=level)


def test_only_cells_that_keep_their_label_lose_accuracy(tmp_path: Path) -> None:
    models, conditions = ("pocket-plain", "constant"), [("clean", 0), *((c, s) for c in CATEGORIES for s in (1, 4))]
    cells = [relabelled(made_cell(m, n, c, s)) for m in models for n in range(EPISODES) for c, s in conditions]
    run = start_run(
        tmp_path / "run", record_of(cells, evaluated=["pocket-plain"], episodes=EPISODES, trials=len(cells))
    )
    run.append(cells)
    write_tables(open_study(run), tmp_path / "study")
    rows = {(r["model"], r["category"]): r for r in read(tmp_path / "study" / "table1.csv")}
    for category in CATEGORIES:
        blind = rows["constant", category]
        assert blind["value"] == blind["clean"] and float(blind["lost"]) == 0, "what sees nothing loses nothing"
    assert (rows["pocket-plain", "temporal"]["asked"], rows["pocket-plain", "visual"]["asked"]) == ("7", "14")
    changed = [r for r in read(tmp_path / "study" / "relabelled.csv") if r["severity"] == "4"]
    assert [(r["model"], r["category"], r["value"], r["scored"], r["constant"]) for r in changed] == [
        ("pocket-plain", "temporal", "0", "7", "1"),
        ("constant", "temporal", "1", "7", "1"),
    ]
    assert "| pocket-plain | temporal | 0.000" in (tmp_path / "study" / "table1.md").read_text()


def test_tasks_that_a_model_was_trained_on_stand_apart(tmp_path: Path) -> None:
    models = ("pocket-plain", "constant")
    cells = [made_cell(m, n, c, s) for m in models for n in range(EPISODES) for c, s in (("clean", 0), ("visual", 4))]
    trained = {"pocket-plain": ["push", "assembly"]}
    record = record_of(cells, evaluated=["pocket-plain"], episodes=EPISODES, trials=len(cells), trained_tasks=trained)
    run = start_run(tmp_path / "run", record)
    run.append(cells)
    write_tables(open_study(run), tmp_path / "study")
    rows = {(r["tasks"], r["category"]): r for r in read(tmp_path / "study" / "seen_unseen.csv")}
    assert set(rows) == {(kind, category) for kind in ("seen", "unseen") for category in ("clean", "visual")}
    seen = [c for c in cells if c.model == "pocket-plain" and c.category == "visual" and c.task in ("push", "assembly")]
    assert float(rows["seen", "visual"]["value"]) == pytest.approx(np.mean([is_right(c) for c in seen]), rel=DIGITS)
    assert (rows["seen", "visual"]["scored"], rows["unseen", "visual"]["scored"]) == ("4", "10")
    assert rows["seen", "clean"]["constant"] == "0.5"
    assert "## Tasks that a model was trained on, and others" in (tmp_path / "study" / "table1.md").read_text()


def test_a_missing_cell_stays_empty_and_is_said(folder: Path) -> None:
    row = next(r for r in read(folder / "table1.csv") if (r["model"], r["category"]) == ("pocket-alt", "semantic"))
    assert (row["value"], row["low"], row["high"], row["scored"], row["asked"]) == ("", "", "", "0", "0")
    page = (folder / "table1.md").read_text()
    assert "Not measured: pocket-alt under semantic change at severity 4." in page
    assert page.count("Not measured") == 1
    assert "semantic 14" in page and "3 trials of the plan are not scored yet" in (folder / "claims.md").read_text()


def test_a_severity_that_was_not_asked_for_is_a_gap_and_is_said(tmp_path: Path) -> None:
    drawn = measured_figures(open_study(made_run(tmp_path / "run", severities=(1, 3))))
    for name in ("figure1", "figure2"):
        said = [text.get_text() for text in drawn[name].findobj(Text)]
        assert any("open at severity 2, 4: this run did not ask for it" in " ".join(text.split()) for text in said)
        curve = next(line for line in drawn[name].axes[0].lines if line.get_label() == "pocket")
        assert np.isnan(curve.get_ydata()).tolist() == [False, False, True, False, True]


def test_only_models_that_play_a_part_have_a_number_of_the_paper_beside_them(folder: Path) -> None:
    stated = {(r["model"], r["category"]): r["paper"] for r in read(folder / "table1.csv")}
    assert stated["pocket-plain", "visual"] == "0.805" and stated[ENSEMBLE, "domain"] == "0.883"
    assert {model for (model, _), number in stated.items() if not number} == {"pocket-alt", "constant"}
    fails = {(r["model"], r["paper_fails_at"]) for r in read(folder / "reliability.csv") if r["level"] == "0.7"}
    assert fails == {("pocket-plain", "1"), ("pocket", "3-5"), (ENSEMBLE, "4-5"), ("pocket-alt", ""), ("constant", "")}


def test_parts_can_be_given_to_any_model_and_two_ensembles_play_none(run: Run, tmp_path: Path) -> None:
    write_tables(open_study(run, {"tuned": ["pocket-alt"]}), tmp_path)
    stated = {r["model"] for r in read(tmp_path / "table1.csv") if r["paper"]}
    assert stated == {"pocket-alt"}
    page = (tmp_path / "claims.md").read_text()
    assert "| general | no model of this run |" in page and "not measured" in page
    assert roles_of(["mine", "ensemble:a,b", "ensemble:b,c"]) == {}
    with pytest.raises(PlanError, match="roles must be given to models of the run"):
        study_perturbation(run, tmp_path, roles="tuned=nobody")


def test_a_role_that_the_paper_does_not_have_is_an_arm_beside_the_others(run: Run, tmp_path: Path) -> None:
    write_tables(open_study(run, {"tuned": ["pocket-alt"], "mine": ["pocket", ENSEMBLE]}), tmp_path)
    found = {(r["model"], r["plays"]) for r in read(tmp_path / "table1.csv")}
    assert {("pocket-alt", "tuned"), ("mine, 2 trainings", "")} <= found
    assert not {"pocket", ENSEMBLE} & {model for model, _ in found}, "an arm stands for its trainings"
    compared = {(r["model"], r["less"]) for r in read(tmp_path / "contrasts.csv")}
    assert ("pocket-alt", "mine, 2 trainings") in compared and ("mine, 2 trainings", "constant") in compared


def test_roles_on_the_command_line_are_those_of_python(run: Run, tmp_path: Path) -> None:
    roles = {"general": "pocket", "tuned": "pocket-alt", "ensemble": ENSEMBLE}
    flags = [word for role, model in roles.items() for word in ("--roles", f"{role}={model}")]
    assert main(["study", "perturbation", str(run.folder), str(tmp_path / "line"), *flags]) == 0
    write_tables(open_study(run, {role: [model] for role, model in roles.items()}), tmp_path / "python")
    for name in ("table1.csv", "claims.md", "reliability.csv"):
        assert (tmp_path / "line" / name).read_text() == (tmp_path / "python" / name).read_text()
    stated = {r["model"]: r["plays"] for r in read(tmp_path / "line" / "table1.csv") if r["paper"]}
    assert stated == {model: role for role, model in roles.items()}
    for wrong in (("tuned",), ("tuned=",), ("=pocket",), ("tuned=pocket", "tuned=pocket")):
        with pytest.raises(PlanError, match=r"roles must be ROLE=MODEL, such as .*, each model once"):
            study_perturbation(run, tmp_path / "wrong", roles=wrong)


def test_trainings_of_a_role_are_one_arm_whose_interval_holds_their_spread(run: Run, tmp_path: Path) -> None:
    trainings = ["pocket-plain", "pocket", "pocket-alt"]
    study = open_study(run, {"tuned": trainings, "ensemble": [ENSEMBLE]}, fold=0)
    arm = study.model("tuned")
    assert study.arms == {arm: tuple(trainings)} and study.evaluated == (arm, ENSEMBLE)
    each = [study.accuracy.combined(at(name, "visual", 1)) for name in trainings]
    together = study.accuracy.combined(at(arm, "visual", 1))
    assert together.value == pytest.approx(np.mean([one.value for one in each]))
    spread = max(one.value for one in each) - min(one.value for one in each)
    assert together.low < together.value < together.high and together.high - together.low > spread / 2
    with_itself = study.accuracy.combined(less(at(arm, "visual", 1), at(arm, "visual", 1)))
    assert (with_itself.value, with_itself.low, with_itself.high) == (0, 0, 0)
    write_tables(study, tmp_path)
    assert {r["plays"] for r in read(tmp_path / "table1.csv") if r["model"] == arm} == {"tuned"}
    assert "pocket-plain, pocket, pocket-alt" in (tmp_path / "claims.md").read_text()


def test_strata_hold_the_primary_measures_beside_every_control(run: Run, tmp_path: Path) -> None:
    write_tables(open_study(run, {"general": ["pocket-plain"], "tuned": ["pocket"]}, fold=0), tmp_path)
    rows = read(tmp_path / "strata.csv")
    assert {r["stratum"] for r in rows} == {"known tasks", "unseen tasks", "real clips"}
    assert {r["model"] for r in rows} == set(SKILL)
    (found,) = [r for r in rows if (r["model"], r["stratum"], r["category"], r["severity"], r["metric"])
                == ("pocket", "known tasks", "visual", "1", "balanced_success_accuracy")]  # fmt: skip
    known = [task for task in TASKS[:-1] if task not in unseen_tasks(0)]
    cells = [c for c in scored(run, model="pocket", category="visual", severity=1) if c.task in known]
    sides = [np.mean([is_right(c) for c in cells if c.truth_success is side]) for side in (True, False)]
    assert float(found["value"]) == pytest.approx(np.mean(sides), rel=DIGITS) and int(found["trials"]) == len(cells)
    assert float(found["low"]) <= float(found["value"]) <= float(found["high"]) and found["lost"]
    (gap,) = [r for r in read(tmp_path / "contrasts.csv") if (r["stratum"], r["category"], r["severity"], r["metric"])
              == ("known tasks", "visual", "1", "micro_mae")]  # fmt: skip
    assert (gap["model"], gap["less"]) == ("pocket", "pocket-plain") and gap["difference"] and gap["low"]


def test_every_perturbation_has_its_own_numbers_and_verdicts_their_price(folder: Path, run: Run) -> None:
    rows = read(folder / "perturbations.csv")
    assert {r["perturbation"] for r in rows} == {f"{c}-{half}" for c in CATEGORIES for half in (0, 1)}
    cells = [c for c in scored(run, model="pocket", category="visual", severity=2) if c.drawn == "visual-1"]
    (row,) = [r for r in rows if (r["model"], r["perturbation"], r["severity"], r["metric"])
              == ("pocket", "visual-1", "2", "success_accuracy")]  # fmt: skip
    assert float(row["value"]) == pytest.approx(np.mean([is_right(cell) for cell in cells]), rel=DIGITS)
    seconds = {r["model"]: r["seconds"] for r in read(folder / "cost.csv")}
    assert seconds["pocket"] == "0.5" and seconds["pocket-plain"] == ""
    fitted = {r["model"]: r for r in read(folder / "equation.csv")}
    assert {"pocket-plain", "pocket", ENSEMBLE} <= set(fitted)
    assert float(fitted["pocket-plain"]["visual"]) >= 0


def test_a_clip_without_a_label_is_a_test_of_expectations_alone(tmp_path: Path) -> None:
    cells = [replace(cell, task="fold the towel", subset="droid", truth_level=None, truth_success=None)
             for cell in (made_cell(m, n, c, s) for m in ("pocket", "constant") for n in range(6)
                          for c, s in (("clean", 0), ("visual", 2)))]  # fmt: skip
    labelled = [made_cell("pocket", n, c, s) for n in range(20, 26) for c, s in (("clean", 0), ("visual", 2))]
    labelled += [made_cell("constant", n, c, s) for n in range(20, 26) for c, s in (("clean", 0), ("visual", 2))]
    run = start_run(tmp_path / "run", record_of([*cells, *labelled], evaluated=["pocket"], episodes=12, trials=48))
    run.append([*cells, *labelled])
    write_tables(open_study(run), tmp_path / "study")
    rows = [r for r in read(tmp_path / "study" / "strata.csv") if r["stratum"] == "clips without labels"]
    assert {r["metric"] for r in rows} == {"flip_rate", "level_shift", "signed_shift", "expectation_kept"}
    assert next(r for r in rows if (r["model"], r["metric"]) == ("constant", "flip_rate"))["value"] == "0"


def test_the_papers_own_simulated_study_comes_out_as_it_was_put_in(tmp_path: Path) -> None:
    simulated = study_montecarlo(out=tmp_path / "run", episodes=400).run
    assert simulated is not None
    study = open_study(simulated)
    verdicts = {claim.sentence: claim.verdict for claim in paper_claims(study)}
    assert verdicts["the general model's tau falls from .97 to .82"] == "supported"
    assert verdicts["the ensemble's tau stays above .93"] == "supported"
    assert verdicts["the ensemble is reliable up to severity 4-5"] == "supported"
    assert verdicts["the general model is unreliable from severity 1 on in every category"] == "contradicted"
    assert verdicts["tasks that need precision lose more"] == "inconclusive"  # it has no tasks


def test_every_number_is_the_one_of_the_report(run: Run, folder: Path) -> None:
    summary, rows = load_summary(run), read(folder / "every.csv")
    assert len(rows) == sum(row.group in CATEGORIES for row in summary.measurements)
    for row in rows:
        ours = summary.measurement(row["model"], row["category"], int(row["severity"]), row["metric"])
        assert row["value"] == ("" if ours.value is None else f"{ours.value:.4g}")
        assert bool(row["null"]) == (row["metric"] in ("ordinal_ece", "top_label_ece"))
    assert {"success_accuracy", "micro_mae", "progress_tau_b", "flip_rate", "ordinal_ece"} <= {
        r["metric"] for r in rows
    }


def test_thresholds_are_at_the_papers_level_whatever_the_run_was_planned_with(folder: Path) -> None:
    every = read(folder / "reliability.csv")
    assert [*dict.fromkeys(row["level"] for row in every)] == ["0.7", "0.8", "0.85", "0.9"]
    reached = {level: [row["certified"] for row in every if row["level"] == level] for level in ("0.7", "0.9")}
    assert all(
        strict == "none" or int(strict) <= int(mild)
        for mild, strict in zip(reached["0.7"], reached["0.9"], strict=True)
    )
    rows = [row for row in every if row["level"] == "0.7"]
    assert len(rows) == len(SKILL) * 4
    for row in rows:
        certified, measured = (-1 if row[way] == "none" else int(row[way]) for way in ("certified", "measured"))
        assert certified <= measured
    assert [r["certified"] for r in rows if r["model"] == "constant"] == ["none"] * 4  # it is right in one half


def curves(axes: Axes) -> dict[object, list[float]]:
    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    return {line.get_label(): np.asarray(line.get_ydata(), dtype=float).tolist() for line in lines}


def diamonds(figure: Figure) -> list[tuple[float, float]]:
    marked = [line for axes in figure.axes for line in axes.lines if line.get_marker() == "D"]
    return [(float(x), float(y)) for line in marked for x, y in np.asarray(line.get_xydata())]


def notes(figure: Figure) -> str:
    return figure.texts[-1].get_text().replace("\n", " ")


def test_figure_1_shows_every_accuracy(run: Run, figures: dict[str, Figure]) -> None:
    figure = figures["figure1"]
    assert [axes.get_title() for axes in figure.axes] == list(CATEGORIES)
    assert figure.axes[0].get_ylabel() == "success accuracy"
    for axes, category in zip(figure.axes, CATEGORIES, strict=True):
        for model in ("pocket-plain", "pocket-alt", "constant"):
            for severity in (1, 4):
                cells = [is_right(c) for c in scored(run, model=model, category=category, severity=severity)]
                expected = np.mean(cells) if cells else np.nan
                assert curves(axes)[model][severity] == pytest.approx(expected, nan_ok=True)
    assert len(diamonds(figure)) == 12  # three models with a stated number in four categories
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"pocket-plain as general", "ensemble of 3", "constant, sees nothing"} <= set(labels)
    assert "<made by hand>" in notes(figure)


def test_figure_2_is_the_mean_over_categories_of_scipys_tau(run: Run, folder: Path, figures: dict[str, Figure]) -> None:
    found = {(r["model"], r["severity"]): r["tau"] for r in read(folder / "figure2.csv")}
    cells = [scored(run, model="pocket", category=category, severity=4) for category in CATEGORIES]
    taus = [np.mean([kendalltau(c.progress, c.truth_progress).statistic for c in many]) for many in cells]
    assert float(found["pocket", "4"]) == pytest.approx(np.mean(taus), rel=DIGITS)
    assert found["pocket-alt", "4"] == ""  # one category is missing, and so is the mean
    (axes,) = figures["figure2"].axes
    assert curves(axes)["pocket"][4] == pytest.approx(np.mean(taus))
    assert np.isnan(curves(axes)["pocket-alt"][4])
    assert diamonds(figures["figure2"]) == [(0, 0.97), (4, 0.82)]


def test_claims_about_tau_say_how_far_tau_can_reach(run: Run) -> None:
    study = open_study(run)
    reach = study.summary.clean(study.model("general"), "progress_tau_b_ceiling").value
    rules = [claim.meaning for claim in paper_claims(study) if "tau-b" in claim.meaning]
    assert reach is not None and len(rules) == 3
    assert all(f"progress without ties reaches at most {reach:.2f}" in rule for rule in rules)


def test_figure_3_is_what_a_kind_of_task_loses_against_its_own_clean_episodes(
    run: Run, folder: Path, figures: dict[str, Figure]
) -> None:
    clean = {cell.episode: is_right(cell) for cell in scored(run, model="pocket", severity=0)}
    losses = []
    for category in CATEGORIES:
        cells = scored(run, model="pocket", category=category, severity=3, task="peg-insert-side")
        losses.append(np.mean([clean[c.episode] - is_right(c) for c in cells]))
    row = next(r for r in read(folder / "figure3.csv") if (r["model"], r["group"]) == ("pocket", "insertion"))
    assert float(row["loss"]) == pytest.approx(np.mean(losses), rel=DIGITS)
    assert (row["low"], row["clusters"]) == ("", "1")  # one task has no interval
    (axes,) = figures["figure3"].axes
    bars = [[bar.get_height() for bar in part] for part in axes.containers if isinstance(part, BarContainer)]
    assert bars[1][GROUPS.index("insertion")] == pytest.approx(np.mean(losses))
    assert "insertion (1 task)" in [label.get_text().replace("\n", " ") for label in axes.get_xticklabels()]
    said = notes(figures["figure3"])
    assert "insertion: peg-insert-side." in said and "Not Meta-World, left out: my own task." in said


def test_every_task_has_a_kind_and_other_tasks_have_none() -> None:
    kinds = {task: group_of(task) for task in PROGRESS_SPECS}
    assert set(kinds.values()) == set(GROUPS) - {"stacking"}
    assert (kinds["push"], kinds["hand-insert"], kinds["door-lock"]) == ("pushing", "insertion", "doors, buttons")
    assert group_of("fold the towel") is None and group_of("stack") == "stacking"


def test_a_change_that_only_some_episodes_know_makes_no_loss(tmp_path: Path) -> None:
    cells = [trial(5.0 if n < 6 else 1.0, 5, episode=str(n), video=str(n), task=str(n)) for n in range(12)]
    hard = [replace(c, category="semantic", perturbation="p", severity=4) for c in cells[6:]]
    trials = [replace(c, id=str(i), model="m") for i, c in enumerate([*cells, *hard])]
    run = start_run(tmp_path / "run", record_of(trials))
    run.append(trials)
    study = open_study(run)
    assert study.accuracy.combined(at("m", "clean", 0)).value == 0.5
    assert study.accuracy.combined(at("m", "semantic", 4)).value == 0.0
    assert study.loss.combined(at("m", "semantic", 4)).value == 0.0


def question(share: float, bound: float = 0.5, *, above: bool = True) -> Question:
    """Ask about a rate over 40 clusters of five."""
    values = (rng_for(0, "judge").permutation(200) < 200 * share).astype(float)
    whole = np.zeros(200, dtype=np.int64), ("all",)
    means = condition_means(values, np.repeat(np.arange(40), 5), [whole], draw_clusters(40, 1000, 0), proportion=True)
    return Question("a share", means, {("all",): 1.0}, bound, above)


def verdict(*questions: Question, one_is_enough: bool = False) -> str:
    return Claim("", "", "", questions, one_is_enough).verdict


def test_a_claim_holds_if_all_its_intervals_say_so_and_fails_if_one_says_the_contrary() -> None:
    yes, no, unclear, unknown = question(0.8), question(0.2), question(0.52), replace(question(0.8), weights={})
    assert [q.answer() for q in (yes, no, unclear, unknown)] == ["yes", "no", "open", "open"]
    assert question(0.2, above=False).answer() == "yes"
    assert verdict(yes, yes) == "supported"
    assert verdict(yes, unclear) == verdict(yes, unknown) == "inconclusive"
    assert verdict(yes, no, unclear) == "contradicted"
    assert verdict(yes, no, one_is_enough=True) == "supported"
    assert verdict(no, unclear, one_is_enough=True) == "inconclusive"
    assert verdict(no, no, one_is_enough=True) == "contradicted"


def test_many_questions_need_a_clearer_contradiction() -> None:
    yes, barely_no = question(0.8), question(0.41)
    assert barely_no.answer() == "no"
    assert verdict(yes, barely_no) == "contradicted"
    assert verdict(*[yes] * 19, barely_no) == "inconclusive"


def test_claims_are_decided_by_the_models_that_play_the_parts(folder: Path) -> None:
    page = (folder / "claims.md").read_text()
    verdicts = [line.split(" | ")[3] for line in page.splitlines() if line.startswith("| ") and "**" in line]
    assert len(verdicts) == 19 and set(verdicts) <= {"**supported**", "**contradicted**", "**inconclusive**"}
    assert "| general | pocket-plain |" in page and "`constant`, which sees nothing, is correct on 0.50" in page


def test_the_command_writes_the_study_of_one_run(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some: dict[str, Any] = {"perturbations": ("jpeg", "typo_keyboard"), "severities": (4,)}
    run = rewardlab.stress("noisy-oracle:0.8", tiny_data, execution=IN_PROCESS, out=tmp_path / "run", **some)
    assert main(["study", "perturbation", str(run.folder), str(tmp_path / "study")]) == 0
    written = {Path(line).name for line in capsys.readouterr().out.splitlines()}
    assert written == {path.name for path in (tmp_path / "study").iterdir()}
    assert {"table1.csv", "table1.md", "every.csv", "reliability.csv", "figure1.svg", "claims.md"} <= written
    assert {"calibration.csv"} <= written
    assert "figure3.svg" not in written  # none of its tasks is a Meta-World task
    page = (tmp_path / "study" / "claims.md").read_text()
    assert "Not in this run: temporal, domain change." in page
    assert main(["study", "perturbation", str(run.folder), str(run.folder), str(tmp_path)]) == 2
    assert f"takes no '{tmp_path}'" in capsys.readouterr().err
