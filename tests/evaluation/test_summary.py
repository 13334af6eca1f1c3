"""The summary of a run: intervals, certified thresholds, verdicts on controls, drops, calibration, and its cost."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rewardlab.core import __version__
from rewardlab.core.errors import RunError
from rewardlab.core.run import Run, start_run
from rewardlab.core.seeding import rng_for
from rewardlab.core.summary import SCHEMA, Measurement, Summary, join_summaries
from rewardlab.core.trial import Trial
from rewardlab.core.trial_table import (
    METRIC_COLUMNS,
    OPTIONAL_COLUMNS,
    TRIAL_COLUMNS,
    TrialTable,
    to_arrow,
    trial_schema,
)
from rewardlab.evaluation.measurements import measurements
from rewardlab.evaluation.summary import load_summary, save_summary, summarise
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.estimates import with_clean_answers, with_clusters
from tests.handmade_runs import record_of
from tests.metrics.handmade_trials import trial
from tests.narrowing import known

EPISODES, TASKS = 60, 15


def probabilities(level: int, sure: float = 0.8) -> tuple[float, ...]:
    return tuple(sure if k == level else (1 - sure) / 4 for k in range(1, 6))


def answer(model: str, truth: int, severity: int, draw: np.random.Generator) -> int:
    """A good judge that gets worse with severity, beside controls."""
    if model == "constant":
        return 3
    if model == "random":
        return int(draw.integers(1, 6))
    wrong = draw.random() < 0.05 + 0.15 * severity
    return int(draw.integers(1, 6)) if wrong else truth


def some_trials() -> list[Trial]:
    trials = []
    for model in ("judge", "constant", "random"):
        draw = rng_for(0, "summary", model)
        for number in range(EPISODES):
            truth = 5 if number % 2 else int(rng_for(number, "truth").integers(1, 5))
            for name, category, severity in [
                ("clean", "clean", 0),
                *((f"{c}_change", c, s) for c in ("visual", "temporal") for s in (1, 2, 3, 4)),
            ]:
                level = answer(model, truth, severity if category == "visual" else 0, draw)
                trials.append(
                    trial(
                        float(level), truth, model=model, episode=f"e{number}", video=f"v{number}",
                        task=f"t{number % TASKS}", subset=f"s{number % 3}", perturbation=name, category=category,
                        severity=severity, probabilities=probabilities(level) if model == "judge" else None,
                    )
                )  # fmt: skip
    return [replace(t, id=f"{i:06d}") for i, t in enumerate(trials)]


def run_of(table: pa.Table, folder: Path, judged: list[str]) -> Run:
    run = start_run(folder, record_of(TrialTable(table).rows(), evaluated=judged, versions={"rewardlab": __version__}))
    run.append(TrialTable(table).rows())
    return run


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    run = run_of(to_arrow(some_trials()), tmp_path_factory.mktemp("summary") / "run", ["judge"])
    return summarise(run)


def row(summary: Summary, *key: object) -> Measurement:
    found = [m for m in summary.measurements if (m.model, m.group, m.severity, m.metric) == key]
    assert len(found) == 1, key
    return found[0]


def test_every_number_lies_in_its_interval_and_beside_its_coverage(summary: Summary) -> None:
    rows = summary.measurements
    assert {r.severity for r in rows} == {0, 1, 2, 3, 4}
    assert {r.group for r in rows} == {"clean", "visual", "temporal", "visual_change", "temporal_change"}
    for r in rows:
        assert 0 <= r.scored <= r.asked and r.asked > 0
        if r.low is not None:
            assert r.low - 1e-9 <= known(r.value) <= known(r.high) + 1e-9, r
        elif r.value is not None:
            assert METRICS[r.metric].values is None and METRICS[r.metric].resample is None, r


def test_intervals_of_success_accuracy_are_wider_than_if_trials_were_independent(summary: Summary) -> None:
    clean = row(summary, "judge", "clean", 0, "success_accuracy")
    assert clean.scored == clean.asked == EPISODES
    assert known(clean.low) < known(clean.value) and 0.05 < known(clean.high) - known(clean.low) < 0.4


def test_the_summary_is_plain_json_without_nan_and_the_same_every_time(summary: Summary, tmp_path: Path) -> None:
    text = json.dumps(summary.to_json(), allow_nan=False)
    again = summarise(run_of(to_arrow(some_trials()), tmp_path / "run", ["judge"]))
    assert json.dumps(again.to_json()) == text
    assert Summary.from_json(json.loads(text)) == summary
    assert summary.bootstrap.draws == 2000 and summary.bootstrap.seed == 0
    assert summary.bootstrap.clusters == TASKS and not summary.bootstrap.few_clusters


def test_what_models_said_in_words_is_not_needed_for_any_number(tmp_path: Path) -> None:
    trials = [replace(t, raw=f"level {t.level}") for t in some_trials()]
    run = run_of(to_arrow(trials), tmp_path / "run", ["judge"])
    every, some = (with_clusters(with_clean_answers(run.trials(c))) for c in (TRIAL_COLUMNS, METRIC_COLUMNS))
    draws = draw_clusters(TASKS, 50, seed=0)
    assert "raw" in every.source.column_names and "raw" not in some.source.column_names
    assert list(measurements(every, draws)) == list(measurements(some, draws)) != []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _content: {"schema": SCHEMA}, "the whole has no accuracy_threshold, bootstrap, calibration"),
        (lambda content: content | {"schema": SCHEMA + 1}, f"schema: {SCHEMA}"),
        (lambda content: content | {"mood": 1}, "an unknown mood"),
        (lambda content: content | {"accuracy_threshold": "high"}, "accuracy_threshold must be number, got 'high'"),
        (lambda content: content | {"counts": {}}, "counts must be a list, got {}"),
        (lambda content: content | {"counts": [content["counts"][0] | {"failed": 1.5}]}, r"counts\[0\].failed must"),
        (lambda content: content | {"controls": [content["controls"][0] | {"conclusion": "wins"}]}, "got 'wins'"),
        (lambda content: content | {"drops": [content["drops"][0] | {"low": True}]}, r"low must be number or null"),
    ],
)
def test_a_foreign_summary_is_refused_in_one_sentence_that_names_the_place(
    summary: Summary, tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], words: str
) -> None:
    run = run_of(to_arrow(some_trials()[:9]), tmp_path / "run", ["judge"])
    run.save("summary.json", change(summary.to_json()))
    with pytest.raises(RunError, match=words) as caught:
        load_summary(run)
    assert "summary.json is not a summary of this version" in str(caught.value) and "\n" not in str(caught.value)


def test_a_summary_is_what_the_trials_say_whatever_an_older_or_foreign_file_says(
    summary: Summary, tmp_path: Path
) -> None:
    run = run_of(to_arrow(some_trials()[:9]), tmp_path / "run", ["judge"])
    made = load_summary(run)
    assert made.counts[0].scored == 9
    run.save("summary.json", {"rows": [], "bootstrap": {}})
    with pytest.raises(RunError, match=r"is not a summary of this version.*remove it and run the same command again"):
        load_summary(run)
    run.save("summary.json", summary.to_json() | {"trials_sha256": "of another run"})
    assert load_summary(run) == made
    with pytest.raises(RunError, match="was made of other trials"):
        _ = run.summary
    save_summary(run)
    assert load_summary(run) == run.summary == made


def test_a_summary_that_does_not_say_what_its_trials_say_is_refused(tmp_path: Path) -> None:
    run = run_of(to_arrow(some_trials()[:9]), tmp_path / "run", ["judge"])
    save_summary(run)
    content = known(run.stored("summary.json"))
    content["measurements"][0]["value"] = 0.001
    run.save("summary.json", content)  # with a checksum that fits
    with pytest.raises(RunError, match="does not match the trials"):
        load_summary(run)


def test_a_model_of_two_runs_carries_the_name_of_its_run_in_every_record(summary: Summary) -> None:
    joined = join_summaries([("one", summary), ("two", replace(summary, evaluated=("judge", "only here")))])
    assert joined.evaluated == ("judge (one)", "judge (two)", "only here")
    assert joined.models[:5] == ("judge (one)", "judge (two)", "only here", "constant (one)", "random (one)")
    for field in ("measurements", "thresholds", "controls", "drops", "worst", "calibration", "robustness", "counts"):
        records = vars(joined)[field]
        assert len(records) == 2 * len(vars(summary)[field])
        assert all(record.model.endswith(("(one)", "(two)")) for record in records), field
    assert {check.control for check in joined.controls} == {
        f"{name} ({run})" for name in ("constant", "random") for run in ("one", "two")
    }
    assert joined.clean("judge (two)", "micro_mae").value == summary.clean("judge", "micro_mae").value


def test_the_certified_severity_is_never_above_the_measured_one(summary: Summary) -> None:
    visual, temporal = (summary.threshold("judge", category) for category in ("visual", "temporal"))
    assert temporal.measured == 4 and known(visual.measured) < 4
    assert all(known(found.certified) <= known(found.measured) for found in (visual, temporal))
    assert sum(visual.draws.values()) == pytest.approx(1)


def test_a_severity_that_was_not_measured_ends_the_claim(tmp_path: Path) -> None:
    kept = [t for t in some_trials() if t.severity in (0, 1, 4)]
    found = summarise(run_of(to_arrow(kept), tmp_path / "run", ["judge"]), draws=100)
    assert found.threshold("judge", "temporal").measured == 1


def test_a_good_judge_beats_the_controls_and_a_control_beats_nothing(summary: Summary, tmp_path: Path) -> None:
    checks = summary.controls
    assert {(c.control, c.where) for c in checks} == {
        (control, where) for control in ("constant", "random") for where in ("clean", "all trials")
    }
    assert {c.conclusion for c in checks} == {"beats"}
    assert all(known(c.p_holm) >= known(c.p) and known(c.low) > 0 for c in checks)
    others = summarise(run_of(to_arrow(some_trials()), tmp_path / "run", ["random"])).controls
    assert {c.conclusion for c in others if c.control == "judge"} == {"does not beat"}


AUC = "success_auc_within_subset"


def test_a_model_stands_beside_the_best_control_and_not_beside_the_oracle(tmp_path: Path) -> None:
    rows = [t for t in some_trials() if t.severity == 0]
    oracle = [
        replace(t, model="oracle", id=f"x{t.id}", level=float(known(t.truth_level)))
        for t in rows
        if t.model == "constant"
    ]
    found = summarise(run_of(to_arrow([*rows, *oracle]), tmp_path / "run", ["judge"]), draws=200)
    values = {name: known(found.clean(name, AUC).value) for name in ("constant", "random", "oracle")}
    best = known(found.best_control("judge", AUC, "higher"))
    assert best.value == max(values["constant"], values["random"]) < values["oracle"] == 1
    assert values["constant"] == 0.5
    error = known(found.best_control("judge", "micro_mae", "lower"))
    assert error.value == min(known(found.clean(name, "micro_mae").value) for name in ("constant", "random"))
    assert found.best_control("constant", AUC, "higher") is None


def test_the_success_auc_of_a_model_is_paired_with_that_of_each_control(summary: Summary) -> None:
    checks = {c.control: c for c in summary.controls if c.metric == AUC}
    assert checks.keys() == {"constant", "random"} and {c.where for c in checks.values()} == {"clean"}
    for control, check in checks.items():
        gap = known(summary.clean("judge", AUC).value) - known(summary.clean(control, AUC).value)
        assert check.gain == pytest.approx(gap) and known(check.low) <= gap <= known(check.high)
        assert check.trials == EPISODES


def test_without_failures_there_is_no_success_auc_to_compare(tmp_path: Path) -> None:
    wins = [t for t in some_trials() if t.truth_success and t.severity == 0]
    found = summarise(run_of(to_arrow(wins), tmp_path / "run", ["judge"]), draws=200)
    assert {c.metric for c in found.controls} == {"micro_mae"}


def test_identical_models_cannot_be_told_apart(tmp_path: Path) -> None:
    judge = [t for t in some_trials() if t.model == "judge"]
    twin = [replace(t, model="twin", id="x" + t.id) for t in judge]
    checks = summarise(run_of(to_arrow([*judge, *twin]), tmp_path / "run", ["judge"]), draws=200).controls
    assert {c.conclusion for c in checks} == {"cannot tell"}


def test_drops_say_what_could_have_been_seen(summary: Summary) -> None:
    drops = {d.category: d for d in summary.drops}
    assert drops["visual"].drop > 0.1 and known(drops["visual"].p_holm) < 0.05
    assert abs(drops["temporal"].drop) < known(drops["temporal"].minimum_detectable_drop)
    assert f"with these {EPISODES} episodes in {TASKS} clusters a drop under 0." in drops["visual"].note


def test_the_worst_perturbation_comes_first(summary: Summary) -> None:
    worst = summary.worst
    assert [w.perturbation for w in worst] == ["visual_change", "temporal_change"]
    assert worst[0].severity == 4 and worst[0].expectation_kept < worst[1].expectation_kept
    assert known(worst[0].micro_mae) > known(worst[0].clean_micro_mae)


def test_calibration_is_there_for_models_with_probabilities_only(summary: Summary) -> None:
    assert [(c.model, c.where) for c in summary.calibration] == [("judge", "clean"), ("judge", "perturbed")]
    clean, changed = summary.calibration
    assert (clean.trials, changed.trials) == (EPISODES, EPISODES * 8)
    assert known(changed.ranked_probability_score) > known(clean.ranked_probability_score)
    assert known(clean.top_label_ece_null) > 0 and clean.diagram[0].trials > 0
    assert not [m for m in summary.measurements if m.metric == "brier_score" and m.model != "judge"]


def test_robustness_is_taken_against_the_constant_control(summary: Summary) -> None:
    robustness = {entry.model: entry for entry in summary.robustness}
    judge, constant = robustness["judge"], robustness["constant"]
    assert judge.reference == "constant" and 0 < known(judge.mce) < 1
    assert constant.mce == pytest.approx(1) and constant.relative_mce is None
    assert known(judge.auc["visual"]) < known(judge.auc["temporal"]) <= 1.2


def test_failed_cells_lower_coverage_and_nothing_else(tmp_path: Path) -> None:
    trials = [replace(t, status="failed", level=None) if i % 10 == 0 else t for i, t in enumerate(some_trials())]
    found = summarise(run_of(to_arrow(trials), tmp_path / "run", ["judge"]), draws=100)
    clean = row(found, "judge", "clean", 0, "micro_mae")
    assert clean.scored < clean.asked == EPISODES


def test_a_run_of_one_episode_or_of_none_has_numbers_but_no_intervals(tmp_path: Path) -> None:
    one = [t for t in some_trials() if t.episode == "e1"]
    found = summarise(run_of(to_arrow(one), tmp_path / "one", ["judge"]), draws=50)
    assert row(found, "judge", "clean", 0, "micro_mae").low is None
    assert found.bootstrap.few_clusters and found.threshold("judge", "visual").certified is None
    assert {c.conclusion for c in found.controls} == {"cannot tell"}
    empty = summarise(run_of(trial_schema().empty_table(), tmp_path / "none", ["judge"]), draws=50)
    assert empty.measurements == () and empty.counts == ()


def many_trials(episodes: int, perturbations: int, models: int) -> pa.Table:
    """Return the trials of a study with fractional levels, probabilities and progress."""
    rng = rng_for(0, "many trials")
    names = ("visual", "semantic", "temporal", "domain")
    cells = [("clean", "clean", 0)]
    cells += [(f"p{i}", names[i % 4], severity) for i in range(perturbations) for severity in (1, 2, 3, 4)]
    count = episodes * len(cells) * models
    episode, cell, model = np.unravel_index(np.arange(count), (episodes, len(cells), models))
    truth = rng.integers(1, 6, episodes)[episode]
    severity = np.array([c[2] for c in cells])[cell]
    level = np.clip(truth + rng.normal(0, 0.4 + 0.2 * severity), 1, 5)
    columns = {
        "id": [f"{i:07d}" for i in range(count)],
        "model": [("constant", "random")[m] if m < 2 else f"m{m}" for m in model],
        "episode": [f"e{e}" for e in episode], "video": [f"v{e}" for e in episode],
        "subset": [f"s{e % 6}" for e in episode], "task": [f"t{e % (episodes // 2)}" for e in episode],
        "perturbation": [cells[c][0] for c in cell], "category": [cells[c][1] for c in cell],
        "severity": severity, "seed": np.zeros(count, dtype=np.int64), "expectation": ["same"] * count,
        "truth_level": truth, "truth_success": truth == 5, "truth_progress": [None] * count,
        "instruction": [""] * count, "shown": [list(range(8))] * count, "frames_hash": [""] * count,
        "status": ["scored"] * count, "level": level, "probabilities": list(rng.dirichlet(np.ones(5), count)),
        "progress": list(rng.random((count, 8))), "raw": [None] * count, "reason": [None] * count,
        "seconds": np.zeros(count),
        **{name: [None] * count for name in OPTIONAL_COLUMNS},
    }  # fmt: skip
    return pa.table(columns, schema=trial_schema())


@pytest.mark.slow
def test_every_number_of_a_study_too_large_to_be_held_at_once_has_its_interval(tmp_path: Path) -> None:
    run = run_of(many_trials(episodes=20, perturbations=12, models=4), tmp_path / "run", ["m2"])
    found = summarise(run, draws=20_000)  # two million drawn numbers are held at a time: 100 conditions of 192
    means = [m for m in found.measurements if m.metric in ("micro_mae", "success_accuracy")]
    assert len({(m.model, m.group, m.severity) for m in means}) > 192
    assert all(known(m.low) <= known(m.value) <= known(m.high) for m in means)
    assert not math.isnan(found.drops[0].drop)
