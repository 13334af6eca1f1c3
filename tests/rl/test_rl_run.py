"""`study rl` and `study rl-page` on a tiny study: what is finished stays, whatever happens to the rest."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("stable_baselines3")
pytest.importorskip("metaworld")

import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import PlanError, RunError
from rewardlab.core.settings import Execution
from rewardlab.rl.experiment import run_rl
from rewardlab.rl.offline_measures import held_out_clips, measure_rewards, score_held_out
from rewardlab.rl.plan import StudyFolder, plan_from_json, read_rl_plan
from rewardlab.rl.results import TrainingRunResult, read_results
from rewardlab.worlds.offscreen import backend
from tests.rl.tiny_study import tiny_plan, write_plan

try:
    backend()
except PlanError:
    pytest.skip("nothing can render here", allow_module_level=True)

REWARDS = ["true", "noisy-oracle:1", "head:levels", "tests.rl.tiny_study:Abstains", "tests.rl.tiny_study:NeverAnswers"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A finished study of five rewards, and its plan."""
    folder = tmp_path_factory.mktemp("rl")
    plan = write_plan(folder / "plan.toml", rewards=REWARDS, figure="quality", title="Tiny <study>")
    rewardlab.study_rl(plan, out=folder / "out", execution=Execution(workers=1))
    return plan, folder / "out"


@pytest.mark.slow
def test_every_reward_trains_a_policy_that_the_simulator_evaluates(study: tuple[Path, Path]) -> None:
    results = read_results(study[1])
    finished = [run for run in results.training_runs if run.status == "finished"]
    assert [run.reward for run in finished] == REWARDS[:-1]
    for run in finished:
        assert [point.episodes for point in run.points] == [4, 8] and run.points[-1].steps == 8 * 12
        assert run.success == run.points[-1].success and run.base_success == results.base["button-press"]


@pytest.mark.slow
def test_episodes_without_a_score_are_counted_and_not_learned_from(study: tuple[Path, Path]) -> None:
    by_reward = {run.reward.rpartition(":")[2]: run for run in read_results(study[1]).training_runs}
    assert (by_reward["Abstains"].queried, by_reward["Abstains"].unscored) == (8, 4)
    assert by_reward["Abstains"].unscored_reason == "not sure enough"
    assert by_reward["true"].unscored == 0


@pytest.mark.slow
def test_a_reward_without_any_score_fails_its_training_run_with_the_reason(study: tuple[Path, Path]) -> None:
    silent = read_results(study[1]).training_runs[-1]
    assert (silent.status, silent.success) == ("failed", None)
    assert "scored none of 8 episodes" in silent.reason and silent.reason.endswith("never sure enough")


@pytest.mark.slow
def test_a_damaged_wall_time_costs_no_record(study: tuple[Path, Path]) -> None:
    (study[1] / "seconds.json").write_text("{}", encoding="utf-8")
    (study[1] / "rl.json").unlink()
    rewardlab.study_rl(study[0], out=study[1], execution=Execution(workers=1))
    assert len(read_results(study[1]).training_runs) == len(REWARDS)


@pytest.mark.slow
def test_false_successes_are_counted_and_kept(study: tuple[Path, Path]) -> None:
    fooled = next(run for run in read_results(study[1]).training_runs if run.reward.endswith(":Abstains"))
    # It calls every clip that it judges a success, and so small a policy presses nothing.
    assert fooled.after.failures == fooled.after.called == len(fooled.hacked) == 1
    assert (study[1] / fooled.hacked[0].clip).stat().st_size > 500


@pytest.mark.slow
def test_offline_measures_say_what_the_oracle_of_stated_error_is_worth(study: tuple[Path, Path]) -> None:
    offline = {each.reward: each for each in read_results(study[1]).offline if not each.task}
    assert offline["true"].measures["false_success"] == 0
    assert offline["noisy-oracle:1"].measures["mae"] == 1
    assert offline["tests.rl.tiny_study:NeverAnswers"].measures["mae"] is None
    assert {"tau", "success_auc", "near_miss_auc", "expectations_kept", "robustness_auc"} <= set(
        offline["true"].measures
    )


@pytest.mark.slow
def test_the_page_is_one_safe_file_with_curves_and_clips(study: tuple[Path, Path], tmp_path: Path) -> None:
    assert main(["study", "rl-page", str(study[1]), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Tiny &lt;study&gt;" in page and "Tiny <study>" not in page
    assert page.count("<svg") == 2 and "data:video/mp4;base64," in page
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)


@pytest.mark.slow
def test_a_second_run_tries_only_what_failed_and_another_plan_is_refused(
    study: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, out = study
    before = {path: path.stat().st_mtime_ns for path in (out / "training_runs").rglob("result.json")}
    assert main(["study", "rl", str(plan), "--out", str(out), "--workers", "1"]) == 3
    assert "4 of 5 training runs are finished" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in (out / "training_runs").rglob("result.json")}
    with pytest.raises(RunError, match="begun with other settings"):
        rewardlab.study_rl(write_plan(tmp_path / "other.toml", seeds=2), out=out, execution=Execution(workers=1))


@pytest.mark.slow
def test_a_worker_that_crashes_costs_its_training_run_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewards = ["tests.rl.tiny_killer:KillsItsProcess", "true"]
    plan = write_plan(tmp_path / "plan.toml", rewards=rewards)
    out = tmp_path / "out"
    results = rewardlab.study_rl(plan, out=out, execution=Execution(workers=2))
    by_reward = {run.reward: run for run in results.training_runs}
    assert by_reward["true"].status == "finished"
    assert by_reward[rewards[0]].status == "failed" and "its process ended 2 times" in by_reward[rewards[0]].reason
    finished = StudyFolder(out).result(tiny_plan(rewards=rewards).training_runs()[1]).read_bytes()
    monkeypatch.setenv("TINY_KILLER", "asleep")  # mended: the next start repeats that training run, and only that one
    results = rewardlab.study_rl(plan, out=out, execution=Execution(workers=1))
    assert [run.status for run in results.training_runs] == ["finished"] * 2
    assert StudyFolder(out).result(tiny_plan(rewards=rewards).training_runs()[1]).read_bytes() == finished


@pytest.mark.slow
def test_a_study_that_is_stopped_has_a_record_of_what_is_finished(tmp_path: Path) -> None:
    plan, out = write_plan(tmp_path / "plan.toml", rewards=["true", "constant:3"]), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_rl(plan, out, Execution(workers=1), "", _stop)
    assert [run.reward for run in read_results(tmp_path / "out").training_runs] == ["true"]
    first = next((tmp_path / "out").glob("training_runs/*/result.json")).read_bytes()
    results = rewardlab.study_rl(plan, out=out, execution=Execution(workers=1, quiet=True))
    assert [run.reward for run in results.training_runs] == ["true", "constant:3"]
    assert first in [path.read_bytes() for path in (tmp_path / "out").glob("training_runs/*/result.json")]


def _stop(_result: TrainingRunResult, _number: int, _total: int) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tasks": ["fly"]}, "Meta-World task"),
        ({"conditions": ["gaussian_noise@7"]}, "severity from 0 to 4"),
        ({"conditions": ["truncate_end@2"]}, "changes the label"),
        ({"rewards": ["head:colour"]}, "head:KIND"),
        ({"rewards": ["head:levels@5"]}, "none of the checkpoints"),
        ({"seeds": "three"}, "seeds must be whole number"),
        ({"algorithms": ["ppo"]}, "must be `dsrl`, `dsrl-na`, `sac`"),
        ({"algorithms": ["dsrl", "dsrl-na"], "figure": "severity"}, "one of dsrl and dsrl-na"),
        ({"preset": "robomimic-canned"}, "robomimic-can"),
        ({"sac": {"speed": 1}}, "unknown speed"),
        ({"control": {"decisions": 0}}, "at least 1"),
        ({"rewards": ["true", "true"]}, "rewards of a plan are named once each"),
        ({"seeds": 10**30}, "1 to 1,000 seeds"),
        ({"offline": {"severities": [0]}}, "severities from 1 to 4"),
        ({"offline": {"perturbations": ["gaussian_nose"]}}, "gaussian_noise"),
    ],
)
def test_a_plan_that_means_nothing_is_refused_before_anything_runs(change: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        tiny_plan(**change)


def test_a_plan_that_is_no_toml_or_not_there_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("seeds = = 3", encoding="utf-8")
    with pytest.raises(PlanError, match="is not a TOML file"):
        read_rl_plan(tmp_path / "plan.toml")
    with pytest.raises(PlanError, match="there is no plan"):
        read_rl_plan(tmp_path / "none.toml")
    for text, said in (
        ("a=" + "[" * 5000, "is not a TOML"),
        ("x." * 50_000 + "x=1", "larger"),
        ("[sac]\nrate=nan", "nan"),
    ):
        (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
        with pytest.raises(PlanError, match=said):
            read_rl_plan(tmp_path / "plan.toml")


def without_success(study: Any) -> None:
    study["training_runs"][0]["success"] = None


def with_an_endless_gripper(study: Any) -> None:
    next(run["hacked"] for run in study["training_runs"] if run["hacked"])[0]["gripper"][0] = 1e308


def without_demonstrations(study: Any) -> None:
    study["demonstrations"] = {}


@pytest.mark.parametrize("edit", [without_success, with_an_endless_gripper, without_demonstrations])
def test_an_edited_record_is_refused(tmp_path: Path, edit: Callable[[Any], None]) -> None:
    study = json.loads((Path(__file__).parents[2] / "results" / "rl" / "quality" / "rl.json").read_text())
    edit(study)
    (tmp_path / "rl.json").write_text(json.dumps(study), encoding="utf-8")
    with pytest.raises(RunError, match=r"rl.json is not what `rewardlab study rl` writes"):
        rewardlab.study_rl_page(tmp_path, out=tmp_path / "rl.html")


@pytest.mark.parametrize(
    ("preset", "gradient_steps", "discount", "train_denoising"),
    [("robomimic-lift", 30, 0.99, 20), ("robomimic-can", 20, 0.99, 20), ("robomimic-square", 20, 0.999, 100)],
)
def test_robomimic_presets_hold_the_published_numbers(
    preset: str, gradient_steps: int, discount: float, train_denoising: int
) -> None:
    plan = plan_from_json({"preset": preset}, "a test")
    sac = plan.sac
    assert plan.algorithms == ("dsrl-na",) and plan.control.chunk == 4 and plan.schedule.simulators == 4
    assert (sac.rate, sac.batch, sac.target_entropy, sac.tau, sac.layers) == (3e-4, 256, 0, 0.005, 3)
    assert (sac.hidden, sac.noise_critic_steps, sac.magnitude) == (2048, 10, 1.5)
    assert (sac.gradient_steps, sac.discount) == (gradient_steps, discount)
    assert (plan.policy.train_denoising, plan.policy.denoising) == (train_denoising, 8)


def test_the_widowx_preset_holds_the_published_numbers_and_a_plan_may_change_one() -> None:
    plan = plan_from_json({"preset": "widowx", "sac": {"hidden": 64}}, "a test")
    assert plan.algorithms == ("dsrl",) and plan.sac.hidden == 64
    assert (plan.sac.gradient_steps, plan.sac.discount, plan.sac.magnitude) == (30, 0.97, 1.5)
    assert plan.sac.initial_episodes == 20
    assert plan_from_json({"preset": "widowx"}, "a test").sac.hidden == 1024


def test_the_committed_plans_can_be_read() -> None:
    plans = Path(__file__).parents[2] / "results" / "rl"
    found = {path.stem: read_rl_plan(path) for path in plans.glob("*.toml")}
    assert {"dsrl_true", "reward_types", "quality", "severity"} <= set(found)
    assert len(found["quality"].rewards) >= 10 and len(found["quality"].tasks) >= 3
    assert found["dsrl_true"].algorithms == ("dsrl", "sac") and found["dsrl_true"].seeds == 3
    assert set(found["reward_types"].rewards) == {"true", "head:binary", "head:progress", "head:levels"}


@pytest.mark.slow
def test_the_record_of_a_study_that_was_tampered_with_is_refused(study: tuple[Path, Path], tmp_path: Path) -> None:
    content = json.loads((study[1] / "rl.json").read_text(encoding="utf-8"))
    content["training_runs"][0]["hacked"] = "all"
    (tmp_path / "rl.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(RunError, match=r"training_runs\[0\]\.hacked must be a list"):
        read_results(tmp_path)
    assert os.listdir(tmp_path) == ["rl.json"]


def test_a_reward_that_could_not_be_opened_is_scored_by_the_next_start(tmp_path: Path) -> None:
    plan, folder = tiny_plan(rewards=["head:levels"], figure="quality"), StudyFolder(tmp_path)
    clips = held_out_clips(plan)[0]
    found = score_held_out(plan, folder, clips)
    assert found.name.endswith(".unopened.parquet") and measure_rewards(plan, [found])[0].measures["mae"] is None
    found.unlink()
    assert score_held_out(plan, folder, clips) == found and found.exists(), "it is scored again, not read"
