"""One training run: base policy, rounds, evaluation, checkpoint."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rewardlab.core.errors import ModelError, RunError, SimulatorError
from rewardlab.core.records import read_json
from rewardlab.core.seeding import rng_for
from rewardlab.core.storage import atomic_write, write_file
from rewardlab.rl.diffusion_policy import DiffusionPolicy, clone_policy, collect_demonstrations
from rewardlab.rl.dsrl import SteeredPolicy
from rewardlab.rl.plan import RlPlan, StudyFolder, TrainingRun
from rewardlab.rl.rendering import hacked_episode, keep_clip, parse_condition
from rewardlab.rl.results import TRAINING_RUNS, CurvePoint, FalseSuccess, HackedEpisode, TrainingRunResult
from rewardlab.rl.rewards import EpisodeReward, RewardValue, open_reward
from rewardlab.rl.rollouts import Decide, PolicyEpisode, open_simulators, roll_out
from rewardlab.worlds.metaworld.physics import SteppedRollout

OBSERVATION_SIZE = 39  # of every Meta-World task


def make_base_policy(plan: RlPlan, folder: StudyFolder, task: str) -> None:
    """Clone the base policy of a task and measure its success, unless that was done before."""
    if folder.policy_facts(task).exists():
        return
    torch.set_num_threads(1)
    demonstrations = collect_demonstrations(task, plan.demonstrations, plan.control, plan.seed)
    policy = clone_policy(demonstrations, plan.policy, plan.seed)
    folder.policy(task).parent.mkdir(parents=True, exist_ok=True)
    policy.save(folder.policy(task))
    simulators = open_simulators(task, plan.schedule.simulators)
    steered = SteeredPolicy(policy, "dsrl", plan.sac, plan.control, 1)
    scenes = evaluation_scenes(plan, task, plan.schedule.final)
    episodes = roll_out(simulators, scenes, steered.base_decisions(plan.seed), plan.control)
    facts = {
        "success": float(np.mean([episode.success for episode in episodes])),
        "demonstrations": demonstrations.successes / demonstrations.episodes,
    }
    write_file(folder.policy_facts(task), json.dumps(facts) + "\n")


def read_policy_facts(path: Path) -> tuple[float, float]:
    """Return the success of a base policy, and the fraction of successes among its demonstrations."""
    try:
        found = read_json(path)
        return float(found["success"]), float(found["demonstrations"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}); remove it to clone the policy again") from error


def evaluation_scenes(plan: RlPlan, task: str, count: int) -> list[int]:
    """Return the seeds of the scenes in which every policy of a task is evaluated; none trains on them."""
    return [int(rng_for(plan.seed, "evaluation", task, index).integers(2**30)) for index in range(count)]


@dataclass
class Progress:
    """How far a training run is; with the policy's own state it is all that resuming needs."""

    episodes: int = 0
    queried: int = 0
    unscored: int = 0
    unscored_reason: str = ""
    base_failures: int = 0  # of the base policy, among its scored episodes
    base_called: int = 0  # those of them that the reward calls successes
    base_scored: int = 0
    seconds: float = 0.0
    reward_seconds: float = 0.0
    points: list[dict[str, Any]] = field(default_factory=list)  # CurvePoints as JSON


@dataclass(eq=False)
class PolicyTraining:
    """A training run in progress."""

    plan: RlPlan
    folder: StudyFolder
    run: TrainingRun
    policy: SteeredPolicy
    reward: EpisodeReward
    simulators: Sequence[SteppedRollout]
    progress: Progress

    def train(self) -> TrainingRunResult:
        """Train to the end, from the last checkpoint if there is one, and return the record."""
        started, reward_before = time.perf_counter(), self.progress.reward_seconds
        schedule, spent = self.plan.schedule, self.progress.seconds
        every = max(1, schedule.episodes // (schedule.evaluations + 1))
        while self.progress.episodes < schedule.episodes:
            before = self.progress.episodes
            self._learn_round()
            self.progress.seconds = spent + time.perf_counter() - started
            self.progress.reward_seconds = reward_before + self.reward.seconds
            if self.progress.episodes // every > before // every and self.progress.episodes < schedule.episodes:
                scenes = evaluation_scenes(self.plan, self.run.task, schedule.evaluated)
                self._add_point(self._roll_out(scenes, self.policy.exploit()))
                self.save()
        if self.progress.unscored == self.progress.queried:
            raise ModelError(
                f"{self.run.reward} scored none of {self.progress.queried} episodes, so that nothing was learned: "
                f"{self.progress.unscored_reason}"
            )
        result = self._finish()
        return replace(result, seconds=spent + time.perf_counter() - started)

    def _learn_round(self) -> None:
        """Run one episode in every simulator, compute their rewards, and learn from those that have one."""
        done, schedule, run = self.progress.episodes, self.plan.schedule, self.run
        count = min(schedule.simulators, schedule.episodes - done)
        drawn = [rng_for(run.seed, "training", run.task, done + index).integers(2**30) for index in range(count)]
        scenes = [int(scene) + 2**30 for scene in drawn]  # evaluation scenes lie below 2**30
        episodes = self._roll_out(scenes, self.policy.explore(run.seed, done))
        values = self.reward.compute(episodes)
        progress = self.progress
        progress.queried += len(values)
        progress.unscored += sum(value.reward is None for value in values)
        first = next((value.reason for value in values if value.reason), "")
        progress.unscored_reason = progress.unscored_reason or first
        if done < self.plan.sac.initial_episodes:
            counted = false_success(episodes, values)
            progress.base_failures += counted.failures
            progress.base_called += counted.called
            progress.base_scored += counted.episodes
        paired = zip(episodes, values, strict=True)
        scored = [(episode, value.reward) for episode, value in paired if value.reward is not None]
        self.policy.learn([episode for episode, _ in scored], [reward for _, reward in scored], run.seed, done)
        progress.episodes += count

    def _add_point(self, episodes: Sequence[PolicyEpisode]) -> None:
        success = float(np.mean([episode.success for episode in episodes]))
        reached = float(np.mean([episode.trajectory.progress[-1] for episode in episodes]))
        done = self.progress.episodes
        self.progress.points.append(asdict(CurvePoint(done, done * self.plan.control.steps, success, reached)))

    def _finish(self) -> TrainingRunResult:
        """Evaluate the final policy; keep clips of it and of its false successes."""
        run, progress, schedule = self.run, self.progress, self.plan.schedule
        scenes = evaluation_scenes(self.plan, run.task, schedule.final)
        episodes = self._roll_out(scenes, self.policy.exploit())
        self._add_point(episodes)
        values = self.reward.compute(episodes)
        names = (run.task, run.reward, run.condition, run.algorithm, run.seed)
        clips = [
            keep_clip(e, self.folder.training_run(run), f"final-{n}") for n, e in enumerate(episodes[: schedule.clips])
        ]
        return TrainingRunResult(
            *names,
            "finished",
            "",
            read_policy_facts(self.folder.policy_facts(run.task))[0],
            progress.points[-1]["success"],
            tuple(CurvePoint(**point) for point in progress.points),
            progress.queried,
            progress.unscored,
            progress.unscored_reason,
            FalseSuccess(progress.base_failures, progress.base_called, progress.base_scored),
            false_success(episodes, values),
            self._hacked(episodes, values),
            tuple(f"{TRAINING_RUNS}/{run.id}/{name}" for name in clips),
            progress.seconds,
            progress.reward_seconds,
        )

    def _hacked(self, episodes: Sequence[PolicyEpisode], values: Sequence[RewardValue]) -> tuple[HackedEpisode, ...]:
        """Return the failures that the reward calls successes; a few of them with a clip."""
        paired = zip(episodes, values, strict=True)
        found = [
            (episode, value.level or 0.0) for episode, value in paired if value.called_success and not episode.success
        ]
        folder, most = self.folder.training_run(self.run), self.plan.schedule.hacked
        clips = [
            f"{TRAINING_RUNS}/{self.run.id}/{keep_clip(episode, folder, f'hacked-{number}')}" if number < most else ""
            for number, (episode, _) in enumerate(found)
        ]
        return tuple(hacked_episode(*each, clip) for each, clip in zip(found, clips, strict=True))

    def _roll_out(self, scenes: Sequence[int], decide: Decide) -> list[PolicyEpisode]:
        """Run episodes; simulators that fail are reopened once, and a second failure ends the training run."""
        try:
            return roll_out(self.simulators, scenes, decide, self.plan.control)
        except SimulatorError:
            open_simulators.cache_clear()
            self.simulators = open_simulators(self.run.task, len(self.simulators))
            return roll_out(self.simulators, scenes, decide, self.plan.control)

    def save(self) -> None:
        """Write the checkpoint: the policy with its replay buffer, and the progress, in one file."""
        with atomic_write(self.folder.checkpoint(self.run)) as partial:
            torch.save({"policy": self.policy.state(), "progress": json.dumps(asdict(self.progress))}, partial)

    def resume(self) -> None:
        """Continue from the checkpoint, if there is one."""
        path = self.folder.checkpoint(self.run)
        if not path.exists():
            return
        try:
            state = torch.load(path, weights_only=True)
            self.policy.restore(state["policy"])
            self.progress = Progress(**json.loads(state["progress"]))
        except Exception as error:  # torch has many errors for a file that is not what it was
            raise RunError(
                f"{path} holds no checkpoint of this training run ({error}); remove it to start over"
            ) from error


def open_training_run(plan: RlPlan, folder: StudyFolder, run: TrainingRun) -> PolicyTraining:
    """Return a training run ready to train, resumed from its checkpoint if there is one."""
    torch.set_num_threads(1)
    torch.manual_seed(run.seed)  # of the first weights
    base = DiffusionPolicy(OBSERVATION_SIZE, plan.control.chunk_size, plan.policy)
    base.load(folder.policy(run.task))
    policy = SteeredPolicy(base, run.algorithm, plan.sac, plan.control, plan.schedule.episodes)
    condition = parse_condition(run.condition)
    reward = open_reward(run.reward, folder.heads, plan.watch, condition, plan.seed)
    simulators = open_simulators(run.task, plan.schedule.simulators)
    training = PolicyTraining(plan, folder, run, policy, reward, simulators, Progress())
    training.resume()
    return training


def false_success(episodes: Sequence[PolicyEpisode], values: Sequence[RewardValue]) -> FalseSuccess:
    """Count the scored failures, and those of them that the reward calls successes."""
    paired = zip(episodes, values, strict=True)
    scored = [(episode, value) for episode, value in paired if value.reward is not None]
    failures = [value for episode, value in scored if not episode.success]
    return FalseSuccess(len(failures), sum(value.called_success for value in failures), len(scored))
