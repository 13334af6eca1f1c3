"""The attack with real files and real processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import rewardlab
from rewardlab.core.errors import PlanError, RunError
from rewardlab.core.run import Run
from rewardlab.core.run_files import RunPlan, check_trials
from rewardlab.core.settings import Execution
from rewardlab.core.trial import Trial
from rewardlab.core.trial_table import TRIAL_COLUMNS, to_arrow
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.evaluation.attack import BLOCK
from rewardlab.evaluation.attack_search import LearnedPriors, Queries, Target, random_queries, search, start_search
from rewardlab.evaluation.breaking_points import Outcome
from rewardlab.models.contract import RewardModel
from rewardlab.perturbations import PERTURBATIONS
from rewardlab.perturbations.composition import at_severity, severity_ladder
from tests.evaluation.test_stress import run_judge, without_time, write_model
from tests.narrowing import known

LADDER = tuple(place / 16 for place in range(1, 65))
DARK = 35.0  # mean brightness below which the made-up model no longer sees success
Truth = Callable[[str, float], Outcome]


def answered(queries: Queries, breaks: Truth) -> list[tuple[tuple[tuple[str, float], ...], Outcome]]:
    """Answer every question; a pair breaks where the sum of its severities is 5."""
    asked = []
    try:
        query = next(queries)
        while True:
            alone = breaks(*query[0])
            outcome = alone if len(query) == 1 else "breaks" if sum(s for _, s in query) >= 5 else "holds"
            asked.append((query, outcome))
            query = queries.send(outcome)
    except StopIteration:
        return asked


def searched(targets: list[Target], budget: int, priors: LearnedPriors | None = None) -> Queries:
    return search(start_search(targets, budget, priors or LearnedPriors()))


def at(threshold: dict[str, float]) -> Truth:
    return lambda name, severity: "breaks" if severity >= threshold.get(name, 9) else "holds"


def test_bisection_finds_the_smallest_of_all_breaking_points_to_one_step() -> None:
    targets = [Target(name, "visual", LADDER) for name in ("a", "b", "c")]
    asked = answered(searched(targets, 40), at({"a": 3.3, "b": 1.3, "c": 2.0}))
    broken = min(severity for ((_, severity), *pair), outcome in asked if outcome == "breaks" and not pair)
    held = max(s for ((name, s), *pair), outcome in asked if name == "b" and outcome == "holds" and not pair)
    assert (held, broken) == (1.25, 1.3125)
    assert ((("b", 1.3125),), "breaks") in asked


def test_pairs_are_tried_of_changes_that_hold_alone() -> None:
    targets = [Target(name, "visual", (1.0, 2.0, 3.0, 4.0)) for name in ("a", "b")]
    pairs = [(query, outcome) for query, outcome in answered(searched(targets, 40), at({})) if len(query) == 2]
    assert pairs == [((("a", 4.0), ("b", 4.0)), "breaks")]
    worlds = [replace(targets[0], name=name, redraws=True) for name in ("world", "paint")]
    assert not [q for q, _ in answered(searched(worlds, 40), at({})) if len(q) == 2]  # the second would undo the first
    mixed = [q for q, _ in answered(searched([targets[0], worlds[0]], 40), at({})) if len(q) == 2]
    assert mixed == [(("world", 4.0), ("a", 4.0))]


def test_what_broke_earlier_episodes_is_asked_first_of_the_next() -> None:
    targets, priors = [Target(name, "visual", LADDER) for name in "abcdefgh"], LearnedPriors()
    for _ in range(6):
        state = start_search(targets, 30, priors)
        answered(search(state), at({"f": 0.5}))
        for probed in state.probed:
            priors.learn(probed.target.name, probed.target.ladder, probed.threshold)
    asked = answered(searched(targets, 30, priors), at({"f": 0.5}))
    (((first, severity),), _), *_ = asked
    assert first == "f" and 0.25 <= severity <= 1
    blind = answered(searched(targets, 30), at({"f": 0.5}))
    cost = [next(i for i, (_, outcome) in enumerate(each) if outcome == "breaks") for each in (asked, blind)]
    assert cost[0] < cost[1]


@pytest.mark.parametrize("budget", [1, 7, 25])
def test_no_strategy_asks_more_than_its_budget_and_none_the_same_twice(budget: int) -> None:
    import numpy as np

    targets = [Target(name, "visual", LADDER) for name in "abcdefgh"]
    dropped: Truth = lambda name, severity: "dropped" if name == "c" else at({"b": 2.0})(name, severity)
    for queries in (searched(targets, budget), random_queries(targets, budget, np.random.default_rng(0))):
        asked = answered(queries, dropped)
        assert sum(outcome != "dropped" for _, outcome in asked) <= budget
        assert len({query for query, _ in asked}) == len(asked)
        assert sum(outcome == "dropped" for _, outcome in asked) <= 2


def test_a_break_below_a_severity_that_holds_is_looked_for_with_what_is_left() -> None:
    """Answers need not be monotone: this change breaks the verdict only in the middle."""
    odd: Truth = lambda _name, severity: "breaks" if 1.9 <= severity <= 2.1 else "holds"
    asked = answered(searched([Target("a", "visual", LADDER)], 30), odd)
    assert min(query[0][1] for query, outcome in asked if outcome == "breaks") == 1.9375


def brightness_model() -> RewardModel:
    class Brightness:
        def score(self, episodes: Sequence[rewardlab.Episode]) -> list[rewardlab.Score]:
            return [rewardlab.Score(5.0 if e.frames.mean() >= DARK else 1.0) for e in episodes]

    return Brightness()


def first_dark(episode: rewardlab.Episode) -> float:
    """Go through every severity of low_light: the first at which the made-up model is wrong."""
    shown, low_light = sample_frames(episode, frame_policy("uniform:16")), PERTURBATIONS["low_light"]
    dark = [
        s for s in severity_ladder(low_light) if at_severity(low_light, s)(shown, 1, 0).episode.frames.mean() < DARK
    ]
    return dark[0]


@pytest.mark.slow
def test_the_bracket_found_is_where_a_known_model_breaks(tiny_data: Path, tmp_path: Path) -> None:
    found = rewardlab.attack(
        brightness_model(),
        tiny_data,
        perturbations="low_light",
        queries=20,
        execution=Execution(engine="local", quiet=True),
        out=tmp_path / "run",
    )
    result = found.result
    truth = {e.id: first_dark(e) for e in open_dataset(str(tiny_data)).episodes if e.label.success}
    assert {p.episode: p.breaks_at for p in result.cheapest("search")} == truth
    assert all(known(p.breaks_at) - known(p.holds_at) == 1 / 16 for p in result.cheapest("search"))
    assert result.wrong_when_clean == 6 - len(truth)  # it says 5 of everything bright: failures are judged wrong
    trials = found.run.trials().rows()
    assert all(t.truth_success for t in trials if t.perturbation != "clean"), "the label is kept"
    files = sorted(path.name for path in (tmp_path / "run" / "counterexamples").iterdir())
    assert "sheet.png" in files and len(files) == 1 + 2 * len(truth)
    assert (tmp_path / "run" / "breaking_points.csv").read_text().count("low_light@") == 2 * len(truth)
    with pytest.raises(RunError, match="is an attack"):
        rewardlab.report(found.run)


def many_copies(data: Path, folder: Path, count: int) -> Path:
    """Write a dataset of so many copies of each success."""
    folder.mkdir()
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()]
    with (folder / "metadata.jsonl").open("w") as handle:
        for row in rows:
            for copy in range(count) if row.get("reward") == 5 else ():
                name = f"{Path(row['file_name']).stem}-{copy}.mp4"
                shutil.copy(data / row["file_name"], folder / name)
                handle.write(json.dumps(row | {"file_name": name}) + "\n")
    return folder


def test_later_blocks_ask_first_about_what_broke_the_earlier(tiny_data: Path, tmp_path: Path) -> None:
    data = many_copies(tiny_data, tmp_path / "many", BLOCK)
    names = ("low_light", "gaussian_noise", "tilt", "jpeg", "elastic")
    found = rewardlab.attack(
        brightness_model(),
        data,
        perturbations=names,
        queries=1,
        out=tmp_path / "run",
        execution=Execution(quiet=True, engine="local"),
    )
    asked = Counter(t.perturbation.split("@")[0] for t in found.run.trials().rows() if t.perturbation != "clean")
    assert asked.total() >= 2 * BLOCK
    assert asked["low_light"] >= asked.total() - BLOCK  # every episode after the first block
    assert len(asked) > 1  # in the first block the order is drawn


def test_an_oracle_is_never_broken_and_what_does_not_apply_costs_nothing(tiny_data: Path, tmp_path: Path) -> None:
    names = ("low_light", "truncate_end", "number_form", "negation", "ambiguous_reference")
    found = rewardlab.attack(
        "oracle",
        tiny_data,
        perturbations=names,
        strategy="both",
        queries=10,
        execution=Execution(engine="local", quiet=True),
        out=tmp_path / "run",
    )
    result, trials = found.result, found.run.trials()
    assert all(point.breaks_at is None for point in result.points)
    assert {c.episode for c in result.certificates} == {p.episode for p in result.points}
    assert "ambiguous_reference" not in trials.codes("perturbation")[1]  # its truth is unknown
    dropped = [t for t in trials.rows() if t.perturbation.startswith("number_form")]
    assert dropped and all(t.status == "dropped" for t in dropped)
    assert all(queries <= 10 * result.attacked for queries in result.queries.values())
    assert not (tmp_path / "run" / "counterexamples").exists()


@pytest.mark.slow
def test_a_killed_attack_goes_on_where_it_stopped_and_ends_the_same(
    tiny_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = (
        "for e in episodes: sys.stderr.write('asked\\n'); sys.stderr.flush()\n"
        f"return [Score(5 if e.frames.mean() >= {DARK} else 1) for e in episodes]"
    )
    environment = write_model(tmp_path, body)
    flags = ["--perturbations", "low_light,tilt", "--queries", "12", "--strategy", "both"]
    flags += ["--workers", "1", "--batch-size", "1"]
    command = [sys.executable, "-m", "rewardlab", "attack", "judge.model:Judge", str(tiny_data), *flags]
    first = subprocess.Popen(
        [*command, "--out", str(tmp_path / "killed")], env=environment, stderr=subprocess.PIPE, text=True
    )
    assert first.stderr is not None
    for _ in range(30):
        first.stderr.readline()
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.stderr.close()
    kept = len(Run(tmp_path / "killed").trials(TRIAL_COLUMNS))
    for name in ("killed", "whole"):
        assert run_judge(tmp_path, [*command, "--engine", "local", "--out", str(tmp_path / name)]) == 0
        told = capfd.readouterr()
        if name == "killed":
            assert told.err.count("asked") == len(Run(tmp_path / name).trials()) - kept
    assert max(map(len, told.out.splitlines())) <= 80 or "/" in told.out  # paths may be longer
    assert without_time(Run(tmp_path / "killed")).equals(without_time(Run(tmp_path / "whole")))
    results = [(tmp_path / name / "attack.json").read_bytes() for name in ("killed", "whole")]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"queries": 0}, "queries must be at least 1"),
        ({"strategy": "guess"}, "strategy of attack must be .*'search'"),
        ({"perturbations": "colour_swap"}, "known effect on the label"),
    ],
)
def test_wrong_settings_are_said(tiny_data: Path, tmp_path: Path, wrong: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        rewardlab.attack("oracle", tiny_data, out=tmp_path / "run", **wrong)  # type: ignore[arg-type]


def test_only_an_attack_may_hold_severities_between_the_whole_ones() -> None:
    trial = Trial(
        "1", "m", "e", "v", "", "", "fog@2.5", "visual", 3, 0, "same", 5, True, None, "", (0,), "h", "scored", level=5.0
    )
    stress = RunPlan(("m",), ("fog", "tilt"), (1, 2, 3, 4), 0, 0.7, "")
    attack = replace(stress, graded=True)
    check_trials(to_arrow([trial, replace(trial, perturbation="fog@0.5+tilt@2", category="pair")]), attack)
    with pytest.raises(ValueError, match="perturbation must be a perturbation of the plan, got 'fog@2"):
        check_trials(to_arrow([trial]), stress)
    for foreign in ("fog@4.5", "snow@2.5", "fog@2+snow@1", "fog@"):
        with pytest.raises(ValueError, match="perturbation must be"):
            check_trials(to_arrow([replace(trial, perturbation=foreign)]), attack)
