"""Near misses: what policies find when they learn from a reward model, kept to teach and to test reward models.

    python benchmarks/near_misses.py train pocket --out policies --shards shards
    python benchmarks/near_misses.py measure pocket motion --shards shards --seed 2

`train` lets one policy for each task and seed learn from the model by DSRL, and one from the simulator's own success.
It prints the success of both. The episodes that both learned from, and 40 of what they learned, go as states into
`SHARDS/policy-TASK-SEED.npz`, in the format of the rollouts of `train pocket`: 200 of them; near misses, and failures
that fooled the model into level 4 or more, are drawn four times as often as other failures, successes twice as often.
Finished training runs in `--out` are not repeated, so that another model there is set beside the same true reward.

`measure` prints the near-miss AUC on the episodes of one seed: how often a success scores above a failure that ended
at level 4 or that fooled the model of `train`, by the expected level, a tie counting half. Failures that fooled a
model were chosen by its mistakes, which lowers its own AUC: the one of level 4 alone is free of that. Intervals are
bootstraps over scenes.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from rewardlab.core.episode import Episode, Label, episode_from_frames
from rewardlab.core.records import record_to_json
from rewardlab.core.run import claim_folder
from rewardlab.core.seeding import pick, rng_for
from rewardlab.core.trial import CLEAN, Answer, Failure, Trial
from rewardlab.core.trial_table import TrialTable, to_arrow
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.evaluation.engines.ordered_map import map_items
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.estimates import MetricEstimate, measure, with_clusters
from rewardlab.models import name_model
from rewardlab.models.composite import validated_answers
from rewardlab.rl.dsrl import SacSettings
from rewardlab.rl.plan import RlPlan, Schedule, StudyFolder, TrainingRun
from rewardlab.rl.results import TrainingRunResult, read_training_run, write_training_run
from rewardlab.rl.rewards import TRUE, EpisodeReward, RewardValue
from rewardlab.rl.rollouts import PolicyEpisode
from rewardlab.rl.training_run import make_base_policy, open_training_run
from rewardlab.training.pocket.rollouts import (
    Rollout,
    Shard,
    at_steps,
    instructions_of,
    load_rollouts,
    save_rollouts,
)
from rewardlab.worlds.metaworld.instructions import counterfactuals
from rewardlab.worlds.metaworld.physics import Trajectory
from rewardlab.worlds.metaworld.render import CameraView
from rewardlab.worlds.metaworld.scene_edits import render_rollout

TASKS = ("button-press", "drawer-close", "plate-slide")
FRAMES, KEPT = 24, 200  # frames of a rollout, and rollouts of a shard
EXPLOITING = 40  # episodes without exploration in scenes of the seed's own, kept beside those that are learned from
NEAR = 4  # the level of a near miss
FOOLED, OTHER = "fooled", "policy"  # the qualities of rollouts
SHOWN, VIEW = frame_policy("uniform:16"), CameraView("right", 112)


@dataclass
class RecordedReward:
    """A reward that keeps every episode it is asked for."""

    reward: EpisodeReward
    rollouts: list[Rollout] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.reward.seconds

    def compute(self, episodes: Sequence[PolicyEpisode]) -> list[RewardValue]:
        values = self.reward.compute(episodes)
        for episode, value in zip(episodes, values, strict=True):
            true = episode.trajectory.readings[-1].level
            fooled = not episode.success and value.level is not None and value.level >= NEAR and value.level > true
            self.rollouts.append(as_rollout(episode.trajectory, FOOLED if fooled else OTHER))
        return values


def as_rollout(trajectory: Trajectory, quality: str) -> Rollout:
    """Return a trajectory as a rollout to train on, with its instructions."""
    kept = np.linspace(0, len(trajectory.actions), FRAMES).round().astype(np.int64)
    others = counterfactuals(trajectory, rng_for(trajectory.seed, "near misses", trajectory.task))
    levels = tuple((FRAMES - 1, each.text, each.level) for each in others)
    texts, held_out = instructions_of(trajectory)
    return Rollout(at_steps(trajectory, kept), quality, texts, held_out, levels)


def train_policy(plan: RlPlan, folder: StudyFolder, run: TrainingRun) -> TrainingRunResult:
    """Train one policy and keep its episodes, unless that was done."""
    if not folder.result(run).exists():
        training = open_training_run(plan, folder, run)
        training.reward = recorded = RecordedReward(training.reward)
        result = training.train()
        folder.training_run(run).mkdir(parents=True, exist_ok=True)
        del recorded.rollouts[plan.schedule.episodes :]  # those of the evaluation, whose scenes all seeds share
        drawn = [rng_for(run.seed, "near misses", run.task, index).integers(2**30) for index in range(EXPLOITING)]
        recorded.compute(training._roll_out([int(scene) + 2**30 for scene in drawn], training.policy.exploit()))
        save_rollouts(episodes_file(folder, run), recorded.rollouts)
        write_training_run(result, folder.result(run))
    return read_training_run(folder.result(run))


def episodes_file(folder: StudyFolder, run: TrainingRun) -> Path:
    return folder.training_run(run) / "rollouts.npz"


def is_hard(rollout: Rollout) -> bool:
    """Tell whether a failure ended just short of success, or fooled the model it was trained on."""
    last = rollout.trajectory.readings[-1]
    return not last.success and (last.level == NEAR or rollout.quality == FOOLED)


def choose_rollouts(rollouts: Sequence[Rollout], count: int, seed: int) -> list[Rollout]:
    """Draw some rollouts without replacement: near misses and what fooled the model first of all, then successes."""
    weights = np.array([4.0 if is_hard(r) else 2.0 if r.trajectory.readings[-1].success else 1.0 for r in rollouts])
    rng = rng_for(seed, "near misses", rollouts[0].trajectory.task)
    chosen = rng.choice(len(rollouts), min(count, len(rollouts)), replace=False, p=weights / weights.sum())
    return [rollouts[index] for index in sorted(chosen)]


def train(plan: RlPlan, model: str, folder: StudyFolder, shards: Path, workers: int) -> list[TrainingRunResult]:
    """Train every policy of the plan on the model and on the truth, and write a shard for each task and seed."""
    folder.path.mkdir(parents=True, exist_ok=True)
    claim_folder(folder.plan, record_to_json(plan))
    shards.mkdir(parents=True, exist_ok=True)
    list(map_items(partial(make_base_policy, plan, folder), plan.tasks, workers))
    runs = [run for reward in (model, TRUE) for run in replace(plan, rewards=(reward,)).training_runs()]
    results: list[TrainingRunResult] = []
    for run, result in zip(runs, map_items(partial(train_policy, plan, folder), runs, workers), strict=True):
        results.append(result)
        print(f"{run.task}, {run.reward}, seed {run.seed}: {result.success:.0%}", flush=True)
        files = [episodes_file(folder, replace(run, reward=reward)) for reward in (model, TRUE)]
        rollouts = [rollout for path in files if path.exists() for rollout in load_rollouts(path)]
        chosen = choose_rollouts(rollouts, KEPT, run.seed)
        save_rollouts(shards / Shard("policy", run.task, run.seed, len(chosen)).name, chosen)
    return results


def print_success(results: Sequence[TrainingRunResult], model: str) -> None:
    print(f"\n{'task':<14} {'base':>5}  {model + ', true: success by seed':<40} {'mean':>11}  of true")
    for task in dict.fromkeys(result.task for result in results):
        own = [result for result in results if result.task == task]
        found = [[result.success or 0.0 for result in own if result.reward == name] for name in (model, TRUE)]
        means = [float(np.mean(values)) for values in found]
        seeds = " | ".join(" ".join(f"{value:4.0%}" for value in values) for values in found)
        ratio = f"{means[0] / means[1]:.2f}" if means[1] else "-"
        print(f"{task:<14} {own[0].base_success or 0:>5.0%}  {seeds:<40} {means[0]:>4.0%} | {means[1]:>4.0%}  {ratio}")


def near_miss_auc(model: str, rollouts: Sequence[Rollout]) -> tuple[MetricEstimate, MetricEstimate]:
    """Return how well a model tells the successes among rollouts from all hard failures, and from those at level 4."""
    used = [r for r in rollouts if r.trajectory.readings[-1].success or is_hard(r)]
    answers = validated_answers(name_model(model).build(), [as_episode(rollout) for rollout in used])
    trials = [as_trial(model, index, *each) for index, each in enumerate(zip(used, answers, strict=True))]
    table = with_clusters(TrialTable(to_arrow(trials)))
    draws, metric = draw_clusters(len({trial.video for trial in trials}), 2000, 0), METRICS["success_auc"]
    return measure(metric, table, draws), measure(metric, table.where(table.number("truth_level") >= NEAR), draws)


@lru_cache(maxsize=KEPT)  # rendered once for all models
def as_episode(rollout: Rollout) -> Episode:
    trajectory = rollout.trajectory
    frames = render_rollout(trajectory, range(FRAMES), VIEW, tiled=True)
    text = pick(rollout.texts, rng_for(0, "instruction", trajectory.task, trajectory.seed))
    return sample_frames(episode_from_frames(frames, text, label=Label()), SHOWN)


def as_trial(model: str, index: int, rollout: Rollout, answer: Answer) -> Trial:
    last, scene = rollout.trajectory.readings[-1], f"{rollout.trajectory.task} {rollout.trajectory.seed}"
    trial = Trial(
        id=f"{model} {scene} {index}",
        model=model,
        episode=f"{scene} {index}",
        video=scene,
        subset="metaworld",
        task=scene,  # what the bootstrap keeps together
        perturbation=CLEAN,
        category="",
        severity=0,
        seed=0,
        expectation="same",
        truth_level=last.level,
        truth_success=last.success,
        truth_progress=None,
        instruction="",
        shown=(),
        frames_hash="",
        status="scored",
    )
    if isinstance(answer, Failure):
        return replace(trial, status="failed", reason=answer.reason)
    return replace(trial, level=answer.level, probabilities=answer.probabilities)


def print_near_misses(models: Sequence[str], shards: Path, seed: int) -> None:
    print(f"{'model':<20} {'task':<14} {'near-miss AUC':<19} {'of level 4 alone':<19} successes  failures  at level 4")
    for path in sorted(shards.glob(f"policy-*-{seed:03d}.npz")):
        rollouts = load_rollouts(path)
        hard = [rollout for rollout in rollouts if is_hard(rollout)]
        good = sum(rollout.trajectory.readings[-1].success for rollout in rollouts)
        near = sum(rollout.trajectory.readings[-1].level == NEAR for rollout in hard)
        for model in models:
            found = [f"{auc.value:.2f} [{auc.low:.2f}, {auc.high:.2f}]" for auc in near_miss_auc(model, rollouts)]
            task = rollouts[0].trajectory.task
            print(
                f"{model:<20} {task:<14} {found[0]:<19} {found[1]:<19} {good:>9}  {len(hard):>8}  {near:>10}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("model")
    training.add_argument("--out", type=Path, default=Path("policies"))
    training.add_argument("--episodes", type=int, default=120, help="that each policy learns from")
    training.add_argument("--tasks", default=",".join(TASKS), help="with commas between them")
    training.add_argument("--workers", type=int, default=1, help="policies that learn at a time")
    measuring = commands.add_parser("measure")
    measuring.add_argument("models", nargs="+")
    measuring.add_argument("--seed", type=int, default=2)
    for command in (training, measuring):
        command.add_argument("--shards", type=Path, default=Path("shards"))
    given = parser.parse_args()
    if given.command == "measure":
        print_near_misses(given.models, given.shards, given.seed)
        return
    schedule = Schedule(given.episodes, evaluations=0, final=24, clips=0, hacked=0)  # so there are no checkpoints
    # Twice the rate of the studies: the temperature of SAC must fall in fewer updates.
    plan = RlPlan(tasks=tuple(given.tasks.split(",")), sac=SacSettings(rate=1e-3, batch=128), schedule=schedule)
    results = train(plan, given.model, StudyFolder(given.out.resolve()), given.shards, given.workers)
    print_success(results, given.model)


if __name__ == "__main__":
    main()
