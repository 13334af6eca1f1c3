"""Offline measures of a reward: the metrics of the catalog on held-out episodes, clean and perturbed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rewardlab.core.episode import Episode
from rewardlab.core.errors import RewardlabError, RunError
from rewardlab.core.records import none_if_nan
from rewardlab.core.seeding import pick, rng_for
from rewardlab.core.storage import atomic_write
from rewardlab.core.trial import CLEAN, Trial, error_text
from rewardlab.core.trial_table import TrialTable, to_arrow
from rewardlab.metrics import METRICS
from rewardlab.metrics.estimates import with_clean_answers
from rewardlab.metrics.robustness import robustness_auc
from rewardlab.rl.plan import RlPlan, StudyFolder
from rewardlab.rl.rendering import Condition, clean_clip, parse_condition
from rewardlab.rl.results import OfflineMeasures, accuracy_at, scored_at
from rewardlab.rl.rewards import EpisodeReward, ModelEpisodeReward, RewardValue, Watched, open_reward, watched_clips
from rewardlab.rl.rollouts import PolicyEpisode
from rewardlab.worlds.metaworld.physics import simulate
from rewardlab.worlds.metaworld.policies import POLICIES, make_policy

# The name on the page, and the metric of the catalog behind it.
MEASURES = {
    "mae": "micro_mae",
    "tau": "kendall_tau_b",
    "false_success": "false_success_of_failures",
    "missed_success": "missed_success_rate",
    "near_miss_auc": "near_miss_auc",
    "success_accuracy": "balanced_success_accuracy",
}
Numbers = NDArray[np.float64]
KEPT, ROBUSTNESS, SUCCESS_AUC = "expectations_kept", "robustness_auc", "success_auc"


@dataclass(frozen=True)
class HeldOutClips:
    """The held-out episodes of a task under one condition; every reward scores the same clips."""

    task: str
    condition: Condition


def held_out_clips(plan: RlPlan) -> list[HeldOutClips]:
    """Return every task clean, and under the perturbations of the plan, else under those of its offline settings."""
    own, settings = [parse_condition(text) for text in plan.conditions if text != CLEAN], plan.offline
    given = [Condition(name, level) for name in settings.perturbations for level in settings.severities]
    return [HeldOutClips(task, condition) for task in plan.tasks for condition in (Condition(), *(own or given))]


def score_held_out(plan: RlPlan, folder: StudyFolder, clips: HeldOutClips) -> Path:
    """Score the held-out clips with every reward, unless that was done; return the file of the scores."""
    name = f"{clips.task} {clips.condition.name} {clips.condition.severity}"
    path = folder.offline / f"{name}.parquet"
    if path.exists():
        return path
    episodes = held_out_episodes(plan, clips.task)
    clean = [clean_clip(episode.trajectory, plan.watch, plan.seed) for episode in episodes]
    watched = watched_clips(episodes, plan.watch, clips.condition, plan.seed)
    trials: list[Trial] = []
    for reward in plan.rewards:
        try:
            values = _reward_values(plan, folder, reward, episodes, watched)
        except RewardlabError as error:  # the file has another name then, so that the next start scores them again
            values = [RewardValue(None, reason=error_text(error))] * len(episodes)
            path = path.with_name(f"{name}.unopened.parquet")
        trials += [_trial(reward, *each, clips.condition) for each in zip(clean, values, strict=True)]
    folder.offline.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        pq.write_table(to_arrow(trials), partial)
    return path


def _reward_values(
    plan: RlPlan, folder: StudyFolder, reward: str, episodes: Sequence[PolicyEpisode], watched: Sequence[Watched]
) -> list[RewardValue]:
    """Return the rewards of the episodes."""
    opened: EpisodeReward = open_reward(reward, folder.heads, plan.watch, Condition(), plan.seed)
    return opened.score(watched) if isinstance(opened, ModelEpisodeReward) else opened.compute(episodes)


def measure_rewards(plan: RlPlan, files: Sequence[Path]) -> tuple[OfflineMeasures, ...]:
    """Return the measures of each reward on the held-out episodes, task by task and over all."""
    trials = TrialTable(pa.concat_tables([_read(path) for path in files]))
    found: list[OfflineMeasures] = []
    for reward in plan.rewards:
        own = trials.where(trials.matches("model", reward))
        found += [_measures(reward, task, own.where(own.matches("task", task))) for task in plan.tasks]
        found.append(_measures(reward, "", own))
    return tuple(found)


def held_out_episodes(plan: RlPlan, task: str) -> list[PolicyEpisode]:
    """Simulate episodes of every quality in scenes that no training and no evaluation has."""
    episodes = []
    for index in range(plan.offline.episodes):
        rng = rng_for(plan.seed, "held out", task, index)
        scene = int(rng.integers(2**30)) + 2**31
        policy = make_policy(pick(list(POLICIES), rng), task, scene)
        nothing = np.zeros((1, 1), np.float32)
        episodes.append(PolicyEpisode(nothing, nothing, simulate(task, scene, plan.control.steps, policy)))
    return episodes


def _trial(reward: str, clip: Episode, value: RewardValue, condition: Condition) -> Trial:
    truth, name = clip.label, condition.name if condition.severity else CLEAN
    category = condition.perturbation.category if condition.perturbation else ""
    return Trial(
        id=f"{clip.id} {name}@{condition.severity}",
        model=reward,
        episode=clip.id,
        video=clip.id,
        subset="metaworld",
        task=clip.provenance.task,
        perturbation=name,
        category=category,
        severity=condition.severity,
        seed=0,
        expectation="same",
        truth_level=truth.level,
        truth_success=truth.success,
        truth_progress=truth.progress,
        instruction=clip.instruction,
        shown=(),
        frames_hash="",
        status="failed" if value.level is None else "scored",
        level=value.level,
        reason=value.reason or None,
    )


def _measures(reward: str, task: str, trials: TrialTable) -> OfflineMeasures:
    table = with_clean_answers(trials)
    clean, severities = table.where(table.matches("perturbation", CLEAN)), table.number("severity")
    found = {name: none_if_nan(METRICS[metric](clean)) for name, metric in MEASURES.items()}
    found[SUCCESS_AUC] = none_if_nan(success_auc(clean.number("level"), clean.number("truth_success")))
    found[KEPT] = none_if_nan(METRICS["expectation_kept"](table.where(severities > 0)))
    curve = [_accuracy(table.where(severities == level)) for level in np.unique(severities)]
    found[ROBUSTNESS] = none_if_nan(robustness_auc(curve))
    found |= _accuracy_by_condition(table)
    return OfflineMeasures(reward, task, len(clean), found)


def _accuracy_by_condition(table: TrialTable) -> dict[str, float | None]:
    """Return the success accuracy under each condition, and over how many scored clips.

    Severity 0 of every perturbation is the clean condition.
    """
    names, levels = table.text("perturbation").tolist(), table.number("severity").astype(int).tolist()
    conditions = sorted(set(zip(names, levels, strict=True)))
    perturbations = dict.fromkeys(name for name, _ in conditions if name != CLEAN)
    found: dict[str, float | None] = {}
    for name, level in conditions:
        chosen = table.where(table.matches("perturbation", name) & (table.number("severity") == level))
        accuracy, scored = none_if_nan(_accuracy(chosen)), float((~np.isnan(chosen.number("level"))).sum())
        for shown in perturbations if name == CLEAN else (name,):
            found |= {accuracy_at(shown, level): accuracy, scored_at(shown, level): scored}
    return found


def _accuracy(trials: TrialTable) -> float:
    return float(METRICS["success_accuracy"](trials))


def success_auc(levels: Numbers, success: Numbers) -> float:
    """Return the probability that a success gets a higher level than a failure, ties counted half; nan without both."""
    known = ~np.isnan(levels)
    good, bad = levels[known & (success == 1)], levels[known & (success == 0)]
    if not len(good) or not len(bad):
        return float("nan")
    above = (good[:, None] > bad).mean() + 0.5 * (good[:, None] == bad).mean()
    return float(above)


def _read(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"{path} cannot be read ({error}); remove it to measure the rewards again") from error
