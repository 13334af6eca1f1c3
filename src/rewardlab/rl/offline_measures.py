"""How a reward does offline: the metrics of the catalog on held-out episodes, clean and perturbed."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rewardlab.analysis.reward_severity import right_at
from rewardlab.analysis.rl_results import OfflineMeasures
from rewardlab.core.dataclass_json import none_if_nan, record_from_json, record_to_json
from rewardlab.core.episode import Episode
from rewardlab.core.errors import RunError
from rewardlab.core.run import atomic_write
from rewardlab.core.seeding import pick, rng_for
from rewardlab.core.trial import CLEAN, Trial, TrialTable, to_arrow
from rewardlab.metrics import METRICS
from rewardlab.metrics.derived_columns import with_clean_answers
from rewardlab.metrics.robustness_curve import robustness_auc
from rewardlab.rl.episode_reward import EpisodeReward, ModelReward, Payment, open_reward
from rewardlab.rl.plan import RlPlan
from rewardlab.rl.rollouts import PolicyEpisode
from rewardlab.rl.run_folder import RunFolder
from rewardlab.rl.watched_clip import Condition, clean_clip, parse_condition
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


def measure_reward(plan: RlPlan, folder: RunFolder, reward: str) -> tuple[OfflineMeasures, ...]:
    """Return how a reward does on held-out episodes, task by task and over all, from a file where that was done."""
    path = folder.offline / f"{file_name(reward)}.json"
    if path.exists():
        return _read(path)
    trials = [trial for task in plan.tasks for trial in _trials(plan, folder, reward, task)]
    by_task = [_measures(reward, task, [t for t in trials if t.task == task]) for task in plan.tasks]
    found = (*by_task, _measures(reward, "", trials))
    folder.offline.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        partial.write_text(json.dumps([record_to_json(each) for each in found]) + "\n", encoding="utf-8")
    return found


def file_name(reward: str) -> str:
    """Return a name for the file of a reward."""
    return "".join(letter if letter.isalnum() else "_" for letter in reward)[:60]


def held_out_episodes(plan: RlPlan, task: str) -> list[PolicyEpisode]:
    """Simulate episodes of every quality in scenes that no training and no evaluation has."""
    episodes = []
    for index in range(plan.offline.episodes):
        rng = rng_for(plan.seed, "held out", task, index)
        scene = int(rng.integers(2**30)) + 2**31
        policy = make_policy(pick(list(POLICIES), rng), task, scene)
        trajectory = simulate(task, scene, plan.control.steps, policy)
        nothing = np.zeros((1, 1), np.float32)
        episodes.append(PolicyEpisode(nothing, nothing, trajectory))
    return episodes


def _trials(plan: RlPlan, folder: RunFolder, reward: str, task: str) -> list[Trial]:
    """Have the reward judge the held-out episodes of a task, clean and under every perturbation."""
    episodes, trials = held_out_episodes(plan, task), list[Trial]()
    clean = [clean_clip(episode.trajectory, plan.watch, plan.seed) for episode in episodes]
    opened: EpisodeReward = open_reward(reward, folder.heads, plan.watch, Condition(), plan.seed)
    trials += _judged(reward, clean, opened.pay(episodes), Condition())
    for condition in stressed_conditions(plan):
        trials += _judged(reward, clean, _in_world(opened, condition).pay(episodes), condition)
    return trials


def stressed_conditions(plan: RlPlan) -> list[Condition]:
    """Return the perturbed worlds that rewards are measured in: those of the plan, else those of its settings."""
    own = [parse_condition(text) for text in plan.conditions if text != CLEAN]
    settings = plan.offline
    return own or [Condition(name, level) for name in settings.perturbations for level in settings.severities]


def _in_world(reward: EpisodeReward, condition: Condition) -> EpisodeReward:
    return replace(reward, condition=condition) if isinstance(reward, ModelReward) else reward


def _judged(reward: str, clips: Sequence[Episode], payments: Sequence[Payment], condition: Condition) -> list[Trial]:
    return [_trial(reward, clip, paid, condition) for clip, paid in zip(clips, payments)]


def _trial(reward: str, clip: Episode, paid: Payment, condition: Condition) -> Trial:
    truth, name = clip.truth, condition.name if condition.severity else CLEAN
    category = condition.perturbation.category if condition.perturbation else ""
    return Trial(
        id=f"{clip.id} {name}@{condition.severity}",
        model=reward,
        episode=clip.id,
        video=clip.id,
        subset="metaworld",
        task=clip.origin.task,
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
        status="failed" if paid.level is None else "scored",
        level=paid.level,
        reason=paid.reason or None,
    )


def _measures(reward: str, task: str, trials: Sequence[Trial]) -> OfflineMeasures:
    table = with_clean_answers(TrialTable(to_arrow(trials)))
    clean, severities = table.where(table.matches("perturbation", CLEAN)), table.number("severity")
    found = {name: none_if_nan(METRICS[metric](clean)) for name, metric in MEASURES.items()}
    found[SUCCESS_AUC] = none_if_nan(success_auc(clean.number("level"), clean.number("truth_success")))
    found[KEPT] = none_if_nan(METRICS["expectation_kept"](table.where(severities > 0)))
    curve = [_share_right(table.where(severities == level)) for level in np.unique(severities)]
    found[ROBUSTNESS] = none_if_nan(robustness_auc(curve))
    found |= _right_by_condition(table)
    return OfflineMeasures(reward, task, len(clean), found)


def _right_by_condition(table: TrialTable) -> dict[str, float | None]:
    """Return the share of rightly judged successes in each world; severity 0 of a perturbation is the clean one."""
    worlds = sorted(set(zip(table.text("perturbation").tolist(), table.number("severity").astype(int).tolist())))
    names = sorted({name for name, _ in worlds if name != CLEAN})
    share = {
        (name, level): _share_right(
            table.where(table.matches("perturbation", name) & (table.number("severity") == level))
        )
        for name, level in worlds
    }
    clean = {right_at(name, 0): none_if_nan(share[CLEAN, 0]) for name in names}
    return clean | {right_at(name, level): none_if_nan(share[name, level]) for name, level in worlds if name != CLEAN}


def _share_right(trials: TrialTable) -> float:
    """Return the share of episodes whose success is judged right."""
    return float(METRICS["success_accuracy"](trials))


def success_auc(levels: Numbers, success: Numbers) -> float:
    """Return the chance that a success gets a higher level than a failure, ties counted half; nan without both."""
    known = ~np.isnan(levels)
    good, bad = levels[known & (success == 1)], levels[known & (success == 0)]
    if not len(good) or not len(bad):
        return float("nan")
    above = (good[:, None] > bad).mean() + 0.5 * (good[:, None] == bad).mean()
    return float(above)


def _read(path: Path) -> tuple[OfflineMeasures, ...]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return tuple(record_from_json(OfflineMeasures, each) for each in content)
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}); remove it to measure the reward again") from error
