"""Reward hacking, and the findings of a study in sentences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rewardlab.core.seeding import rng_for
from rewardlab.metrics.policy_statistics import interquartile_mean, pooled, stratified_interval
from rewardlab.rl.results import FalseSuccess, HackedEpisode, RlResults
from rewardlab.studies.rl.analysis import (
    Series,
    SeverityCurve,
    finished_dsrl,
    mean_success,
    predictions,
    series_of,
    severity_curves,
)

LIFTED_BY, LIFTED_TO = 0.30, 0.90  # a gain in success, or a success, that counts as lifted
_APART = 0.08  # metres (or levels / 12) between clusters of hacked episodes
_LEVEL_SCALE = 1 / 12  # how far apart two true levels are, in metres of motion
_WAYS = (("right", "left"), ("away from the robot", "towards the robot"), ("up", "down"))  # along x, y and z


@dataclass(frozen=True)
class HackingRate:
    """The share of failures that a reward calls successes, of the base policy and of what was trained on it."""

    reward: str
    condition: str
    before: FalseSuccess
    after: FalseSuccess

    @property
    def rates(self) -> tuple[float, float]:
        """Return the shares before and after; nan where there was no failure."""
        return _rate(self.before), _rate(self.after)


@dataclass(frozen=True)
class HackingCluster:
    """False successes of one reward on one task that end alike."""

    task: str
    reward: str
    condition: str
    episodes: tuple[HackedEpisode, ...]

    @property
    def description(self) -> str:
        """Describe how these episodes end: motion of the gripper and of the object, and the true level."""
        moved = np.mean([np.linalg.norm(each.moved) for each in self.episodes])
        gripper = np.mean([each.gripper for each in self.episodes], axis=0)
        level = float(np.mean([each.true_level for each in self.episodes]))
        what = "the object is not moved" if moved < 0.01 else f"the object is moved by {100 * moved:.0f} cm"
        axis = int(np.abs(gripper).argmax())  # the largest part of the displacement, in the robot's frame
        way = _WAYS[axis][0 if gripper[axis] > 0 else 1]
        return f"{what}, the gripper goes {100 * abs(gripper[axis]):.0f} cm {way}; true level {level:.1f}"

    @property
    def clips(self) -> tuple[str, ...]:
        """Return the videos that were kept of it."""
        return tuple(each.clip for each in self.episodes if each.clip)


def hacking_rates(results: RlResults) -> list[HackingRate]:
    """Return the rates of every reward model and condition, over tasks and seeds."""
    finished = finished_dsrl(results)
    keys = dict.fromkeys((run.reward, run.condition) for run in finished if run.reward != "true")
    rates = []
    for key in keys:
        runs = [run for run in finished if (run.reward, run.condition) == key]
        rates.append(HackingRate(*key, _total([run.before for run in runs]), _total([run.after for run in runs])))
    return rates


def hacking_clusters(results: RlResults) -> list[HackingCluster]:
    """Return the clusters of false successes, the largest first."""
    keys = dict.fromkeys((run.task, run.reward, run.condition) for run in results.training_runs if run.hacked)
    found: list[HackingCluster] = []
    for key in keys:
        episodes = [e for c in results.training_runs if (c.task, c.reward, c.condition) == key for e in c.hacked]
        found += [HackingCluster(*key, tuple(some)) for some in cluster_episodes(episodes)]
    return sorted(found, key=lambda cluster: -len(cluster.episodes))


def cluster_episodes(episodes: Sequence[HackedEpisode]) -> list[list[HackedEpisode]]:
    """Return episodes in clusters by average linkage of how gripper and object moved and of their true level."""
    if len(episodes) < 2:
        return [list(episodes)] if episodes else []
    from scipy.cluster.hierarchy import fcluster, linkage

    features = np.array([[*e.gripper, *e.moved, _LEVEL_SCALE * e.true_level] for e in episodes], np.float64)
    labels = fcluster(linkage(features, "average"), _APART, "distance")
    return [
        [e for e, label in zip(episodes, labels, strict=True) if label == number]
        for number in sorted(set(labels.tolist()))
    ]


def _total(counts: Sequence[FalseSuccess]) -> FalseSuccess:
    return FalseSuccess(
        sum(each.failures for each in counts), sum(each.called for each in counts), sum(e.episodes for e in counts)
    )


def _rate(counted: FalseSuccess) -> float:
    return counted.called / counted.failures if counted.failures else float("nan")


def findings(results: RlResults) -> list[str]:
    """Return the findings of a study in sentences, every number with its interval or its count."""
    writers = {"curves": _lift_sentences, "types": _type_sentences, "quality": _quality_sentences}
    writers |= {"severity": _severity_sentences}
    figure = writers[results.figure](results) if results.figure in writers else []
    sentences = [*figure, *_hacking_sentences(hacking_rates(results))]
    failed = [run for run in results.training_runs if run.status == "failed"]
    if failed:
        count = f"{len(failed)} of {len(results.training_runs)}"
        sentences.append(f"{count} training runs failed and are left out; the first: {failed[0].reason}.")
    return sentences


def lifted_tasks(series: Series) -> list[str]:
    """Return the tasks on which every finished seed gains 30 points or reaches 90 %."""
    gain, final = series.gain(), series.final()
    return [
        task
        for task in series.tasks
        if final[task]
        and all(g >= LIFTED_BY - 1e-9 or f >= LIFTED_TO - 1e-9 for g, f in zip(gain[task], final[task], strict=True))
    ]


def success_text(series: Series) -> str:
    """Return the interquartile mean of final success with its stratified interval."""
    low, high = stratified_interval(series.final())
    mean = _percent(interquartile_mean(pooled(series.final())))
    return f"{mean} (one seed per task)" if math.isnan(low) else f"{mean} [{_percent(low)}, {_percent(high)}]"


def _lift_sentences(results: RlResults) -> list[str]:
    sentences = []
    for series in series_of(results):
        lifted = lifted_tasks(series)
        seeds = max((len(own) for own in series.final().values()), default=0)
        parts = [
            f"{task} from {_percent(results.base.get(task, math.nan))} to {_percent(float(np.mean(own)))}"
            for task, own in series.final().items()
            if own
        ]
        sentences.append(
            f"{series.name}: final success {success_text(series)} (interquartile mean over {len(series.tasks)} tasks "
            f"and up to {seeds} seeds); every seed gains {100 * LIFTED_BY:.0f} points or reaches {LIFTED_TO:.0%} on "
            f"{len(lifted)} of {len(series.tasks)} tasks. Means: {', '.join(parts)}."
        )
    return sentences


def _type_sentences(results: RlResults) -> list[str]:
    ranked = sorted(series_of(results), key=lambda series: -mean_success(series))
    order = "; ".join(f"{series.name} {success_text(series)}" for series in ranked)
    by_name = {series.reward.partition("@")[0]: series for series in ranked}
    sentences = [f"Final success by reward type, the best first: {order}."]
    for name in ("head:progress", "head:levels"):
        if name in by_name and "head:binary" in by_name:
            sentences.append(_contrast(by_name[name], by_name["head:binary"]))
    return sentences


def _contrast(first: Series, second: Series) -> str:
    """Compare two series: the difference of their means, with its interval over resampled seeds."""
    difference = mean_success(first) - mean_success(second)
    if min(max(map(len, series.final().values()), default=0) for series in (first, second)) < 2:
        return f"{first.name} against {second.name}: {100 * difference:+.0f} points, one seed per task: inconclusive."
    draws = np.zeros((2, 2000))
    for series, drawn in zip((first, second), draws, strict=True):
        rng, own = rng_for(0, "contrast", series.name), [np.asarray(v) for v in series.final().values() if v]
        for values in own:
            drawn += values[rng.integers(len(values), size=(2000, len(values)))].mean(axis=1) / len(own)
    low, high = np.percentile(draws[0] - draws[1], (2.5, 97.5))
    verdict = "better" if low > 0 else "worse" if high < 0 else "inconclusive"
    return (
        f"{first.name} against {second.name}: {100 * difference:+.0f} points [{100 * low:+.0f}, {100 * high:+.0f}], "
        f"{verdict}."
    )


def _quality_sentences(results: RlResults) -> list[str]:
    found = predictions(results)
    sentences = []
    for each in (prediction for prediction in found if prediction.measure == "mae"):
        sentences.append(
            f"Over {each.points} pairs of reward and task, r = {each.pearson:.2f} [{each.low:.2f}, {each.high:.2f}] "
            f"between reward accuracy (4 - MAE) and final success; Spearman {each.spearman:.2f}. RoboReward reports "
            "r = 0.83."
        )
    known = [each for each in found if not math.isnan(each.pearson)]
    if known:
        order = ", ".join(f"{each.measure} {each.pearson:.2f} [{each.low:.2f}, {each.high:.2f}]" for each in known)
        sentences.append(f"Offline measures by how well they predict success (Pearson's r): {order}.")
    return sentences


def _severity_sentences(results: RlResults) -> list[str]:
    curves = severity_curves(results)
    sentences = [_severity_sentence(curve) for curve in curves]
    known = [c for c in curves if c.certified is not None and c.holds is not None and not c.is_open]
    if known:
        safe = sum((c.holds or 0) >= (c.certified or 0) for c in known)
        same = sum(c.holds == c.certified for c in known)
        sentences.append(
            f"In {safe} of {len(known)} curves learning holds at least up to the certified severity; "
            f"in {same} exactly up to it."
        )
    return sentences


def _severity_sentence(curve: SeverityCurve) -> str:
    values = ", ".join("-" if math.isnan(value) else _percent(value) for value in curve.success)
    unscored = max((value for value in curve.unscored if not math.isnan(value)), default=0.0)
    missing = f"; no score for up to {_percent(unscored)} of episodes" if unscored else ""
    less = f"; {', '.join(curve.left_out)} left out, trained at fewer severities" if curve.left_out else ""
    holds = "unknown" if curve.holds is None else f"{curve.holds} at least" if curve.is_open else str(curve.holds)
    certified = "unknown" if curve.certified is None else "none" if curve.certified < 0 else str(curve.certified)
    return (
        f"{curve.reward} under {curve.perturbation}: success {values} at severities 0 to 4; learning holds up to "
        f"{holds}, certified up to {certified}{missing}{less}."
    )


def _hacking_sentences(rates: Sequence[HackingRate]) -> list[str]:
    known = [rate for rate in rates if not any(math.isnan(share) for share in rate.rates)]
    grown = [rate for rate in known if rate.rates[1] > rate.rates[0]]
    if not known:
        return []
    before, after = (_percent(float(np.mean([rate.rates[side] for rate in known]))) for side in (0, 1))
    worst = max(known, key=lambda rate: rate.rates[1])
    return [
        f"False success among failures goes from {before} before RL to {after} after it, on average over "
        f"{len(known)} rewards; it grows for {len(grown)} of them and is highest for {worst.reward} "
        f"({worst.condition}): {_percent(worst.rates[1])}."
    ]


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.0%}"
