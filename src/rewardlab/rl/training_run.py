"""One training run: base policy, rounds, evaluation, checkpoint."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch

from rewardlab.core.errors import ModelError, RunError, SimulatorError
from rewardlab.core.records import read_json
from rewardlab.core.seeding import rng_for
from rewardlab.core.storage import atomic_write
from rewardlab.rl.diffusion_policy import DiffusionPolicy, clone_policy, collect_demonstrations
from rewardlab.rl.dsrl import SteeredPolicy
from rewardlab.rl.plan import RlPlan, RunFolder, TrainingRun
from rewardlab.rl.rendering import hacked_episode, keep_clip, parse_condition
from rewardlab.rl.results import CurvePoint, FalseSuccess, HackedEpisode, TrainingRunResult
from rewardlab.rl.rewards import EpisodeReward, Payment, open_reward
from rewardlab.rl.rollouts import Decide, PolicyEpisode, open_simulators, reopen_simulators, roll_out
from rewardlab.worlds.metaworld.physics import SteppedRollout

OBSERVATION_SIZE = 39  # of every Meta-World task


def make_base_policy(plan: RlPlan, folder: RunFolder, task: str) -> None:
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
    with atomic_write(folder.policy_facts(task)) as partial:
        partial.write_text(json.dumps(facts) + "\n", encoding="utf-8")


def open_base_policy(plan: RlPlan, folder: RunFolder, task: str) -> DiffusionPolicy:
    """Return the base policy of a task."""
    policy = DiffusionPolicy(OBSERVATION_SIZE, plan.control.chunk_size, plan.policy)
    policy.load(folder.policy(task))
    return policy


def read_policy_facts(path: Path) -> tuple[float, float]:
    """Return the success of a base policy, and the share of successes among its demonstrations."""
    try:
        found = read_json(path)
        return float(found["success"]), float(found["demonstrations"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}); remove it to clone the policy again") from error


def evaluation_scenes(plan: RlPlan, task: str, count: int) -> list[int]:
    """Return the seeds of the scenes in which every policy of a task is evaluated."""
    return [int(rng_for(plan.seed, "evaluation", task, index).integers(2**30)) for index in range(count)]


def training_scene(cell_seed: int, task: str, index: int) -> int:
    """Return the seed of a scene that is learned from; no evaluation has one of these."""
    return int(rng_for(cell_seed, "training", task, index).integers(2**30)) + 2**30


@dataclass
class Progress:
    """How far a cell is; with the policy's own state it is all that a resumed cell needs."""

    episodes: int = 0
    asked: int = 0
    silent: int = 0
    silence: str = ""
    first_failures: int = 0  # of the base policy's episodes that the reward judged
    first_called: int = 0
    first_judged: int = 0
    seconds: float = 0.0
    reward_seconds: float = 0.0
    points: list[dict[str, float]] = field(default_factory=list)


@dataclass(eq=False)
class RunTraining:
    """A cell while it is trained."""

    plan: RlPlan
    folder: RunFolder
    cell: TrainingRun
    policy: SteeredPolicy
    reward: EpisodeReward
    simulators: list[SteppedRollout]
    progress: Progress

    def run(self) -> TrainingRunResult:
        """Train to the end, from the last checkpoint if there is one, and return what came out."""
        started, asked_before = time.perf_counter(), self.progress.reward_seconds
        schedule, spent = self.plan.schedule, self.progress.seconds
        every = max(1, schedule.episodes // (schedule.evaluations + 1))
        while self.progress.episodes < schedule.episodes:
            before = self.progress.episodes
            self._learn_round()
            self.progress.seconds = spent + time.perf_counter() - started
            self.progress.reward_seconds = asked_before + self.reward.seconds
            if self.progress.episodes // every > before // every and self.progress.episodes < schedule.episodes:
                self._evaluate_along()
        if self.progress.silent == self.progress.asked:
            raise ModelError(
                f"{self.cell.reward} answered for none of {self.progress.asked} episodes, so that nothing was learned: "
                f"{self.progress.silence}"
            )
        result = self._finish()
        seconds = spent + time.perf_counter() - started
        return TrainingRunResult(**vars(result) | {"seconds": seconds})

    def _learn_round(self) -> None:
        """Run one episode in every simulator, have them paid, and learn from those that were."""
        done, schedule, cell = self.progress.episodes, self.plan.schedule, self.cell
        count = min(schedule.simulators, schedule.episodes - done)
        scenes = [training_scene(cell.seed, cell.task, done + index) for index in range(count)]
        episodes = self._roll_out(scenes, self.policy.explore(cell.seed, done))
        payments = self.reward.pay(episodes)
        self._count(episodes, payments)
        paid = [(episode, paid.reward) for episode, paid in zip(episodes, payments) if paid.reward is not None]
        self.policy.learn([episode for episode, _ in paid], [reward for _, reward in paid], cell.seed, done)
        self.progress.episodes += count

    def _count(self, episodes: Sequence[PolicyEpisode], payments: Sequence[Payment]) -> None:
        progress = self.progress
        progress.asked += len(payments)
        progress.silent += sum(paid.reward is None for paid in payments)
        progress.silence = progress.silence or next((paid.reason for paid in payments if paid.reason), "")
        if progress.episodes < self.plan.sac.initial_episodes:
            counted = false_success(episodes, payments)
            progress.first_failures += counted.failures
            progress.first_called += counted.called
            progress.first_judged += counted.episodes

    def _evaluate_along(self) -> None:
        scenes = evaluation_scenes(self.plan, self.cell.task, self.plan.schedule.evaluated)
        self._add_point(self._roll_out(scenes, self.policy.exploit()))
        self.save()

    def _add_point(self, episodes: Sequence[PolicyEpisode]) -> None:
        success = float(np.mean([episode.success for episode in episodes]))
        reached = float(np.mean([episode.trajectory.progress[-1] for episode in episodes]))
        done = self.progress.episodes
        self.progress.points.append(asdict(CurvePoint(done, done * self.plan.control.steps, success, reached)))

    def _finish(self) -> TrainingRunResult:
        """Evaluate the final policy and keep clips of it and of the false successes it found."""
        cell, progress, schedule = self.cell, self.progress, self.plan.schedule
        scenes = evaluation_scenes(self.plan, cell.task, schedule.final)
        episodes = self._roll_out(scenes, self.policy.exploit())
        self._add_point(episodes)
        payments = self.reward.pay(episodes)
        clips = [keep_clip(e, self.folder.cell(cell), f"final-{n}") for n, e in enumerate(episodes[: schedule.clips])]
        return TrainingRunResult(
            cell.task,
            cell.reward,
            cell.condition,
            cell.algorithm,
            cell.seed,
            "finished",
            "",
            read_policy_facts(self.folder.policy_facts(cell.task))[0],
            progress.points[-1]["success"],
            tuple(_point(point) for point in progress.points),
            progress.asked,
            progress.silent,
            progress.silence,
            FalseSuccess(progress.first_failures, progress.first_called, progress.first_judged),
            false_success(episodes, payments),
            self._hacked(episodes, payments),
            tuple(f"cells/{cell.id}/{name}" for name in clips),
            progress.seconds,
            progress.reward_seconds,
        )

    def _hacked(self, episodes: Sequence[PolicyEpisode], payments: Sequence[Payment]) -> tuple[HackedEpisode, ...]:
        """Return the failures that the reward calls successes; a few of them with a clip."""
        found = [(e, paid) for e, paid in zip(episodes, payments) if paid.called_success and not e.success]
        names = [
            f"cells/{self.cell.id}/{keep_clip(episode, self.folder.cell(self.cell), f'hacked-{number}')}"
            if number < self.plan.schedule.hacked
            else ""
            for number, (episode, _) in enumerate(found)
        ]
        return tuple(hacked_episode(e, paid.level or 0.0, name) for (e, paid), name in zip(found, names))

    def _roll_out(self, scenes: Sequence[int], decide: Decide) -> list[PolicyEpisode]:
        """Run episodes; simulators that fail are opened anew once, and if that does not help the cell ends."""
        try:
            return roll_out(self.simulators, scenes, decide, self.plan.control)
        except SimulatorError:
            self.simulators = reopen_simulators(self.cell.task, len(self.simulators))
            return roll_out(self.simulators, scenes, decide, self.plan.control)

    def save(self) -> None:
        """Write the checkpoint: the policy with its replay buffer, and how far the cell is, in one file."""
        with atomic_write(self.folder.checkpoint(self.cell)) as partial:
            torch.save({"policy": self.policy.state(), "progress": json.dumps(asdict(self.progress))}, partial)

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one."""
        path = self.folder.checkpoint(self.cell)
        if not path.exists():
            return
        try:
            state = torch.load(path, weights_only=True)
            self.policy.restore(state["policy"])
            self.progress = Progress(**json.loads(state["progress"]))
        except Exception as error:  # torch has many errors for a file that is not what it was
            raise RunError(f"{path} holds no checkpoint of this cell ({error}); remove it to begin anew") from error


def open_training_run(plan: RlPlan, folder: RunFolder, cell: TrainingRun) -> RunTraining:
    """Return a cell ready to be trained, resumed where it was begun before."""
    torch.set_num_threads(1)
    torch.manual_seed(cell.seed)  # of the first weights
    base = open_base_policy(plan, folder, cell.task)
    policy = SteeredPolicy(base, cell.algorithm, plan.sac, plan.control, plan.schedule.episodes)
    condition = parse_condition(cell.condition)
    reward = open_reward(cell.reward, folder.heads, plan.watch, condition, plan.seed)
    simulators = open_simulators(cell.task, plan.schedule.simulators)
    training = RunTraining(plan, folder, cell, policy, reward, simulators, Progress())
    training.resume()
    return training


def false_success(episodes: Sequence[PolicyEpisode], payments: Sequence[Payment]) -> FalseSuccess:
    """Count the failures that a reward judged, and those of them that it calls successes."""
    judged = [(episode, paid) for episode, paid in zip(episodes, payments) if paid.reward is not None]
    failures = [paid for episode, paid in judged if not episode.success]
    return FalseSuccess(len(failures), sum(paid.called_success for paid in failures), len(judged))


def _point(point: dict[str, float]) -> CurvePoint:
    return CurvePoint(int(point["episodes"]), int(point["steps"]), point["success"], point["progress"])
