"""What a study of rewards and policies shows, in sentences."""

import math
from collections.abc import Sequence

import numpy as np

from rewardlab.analysis.reward_hacking import HackingRate, hacking_rates
from rewardlab.analysis.reward_quality import predictions
from rewardlab.analysis.reward_severity import SeverityCurve, severity_curves
from rewardlab.analysis.rl_results import RlResults
from rewardlab.analysis.rl_series import Series, mean_success, series_of
from rewardlab.metrics.policy_statistics import interquartile_mean, pooled, stratified_interval

LIFTED_BY, LIFTED_TO = 0.30, 0.90


def findings(results: RlResults) -> list[str]:
    """Return what may be said of a study; every number is with its interval or its count."""
    own = {"curves": _lift_sentences, "types": _type_sentences, "quality": _quality_sentences}
    own |= {"severity": _severity_sentences}
    said = own[results.figure](results) if results.figure in own else []
    return [*said, *_hacking_sentences(hacking_rates(results)), *_failure_sentences(results)]


def lifted_tasks(series: Series) -> list[str]:
    """Return the tasks on which every finished seed gains 30 points or reaches 90 %."""
    gain, final = series.gain(), series.final()
    return [
        task
        for task in series.tasks
        if final[task] and all(g >= LIFTED_BY - 1e-9 or f >= LIFTED_TO - 1e-9 for g, f in zip(gain[task], final[task]))
    ]


def success_text(series: Series) -> str:
    """Return the interquartile mean of final success with its stratified interval."""
    low, high = stratified_interval(series.final())
    mean = _percent(interquartile_mean(pooled(series.final())))
    return f"{mean} (one seed a task)" if math.isnan(low) else f"{mean} [{_percent(low)}, {_percent(high)}]"


def _lift_sentences(results: RlResults) -> list[str]:
    said = []
    for series in series_of(results):
        lifted = lifted_tasks(series)
        seeds = max((len(own) for own in series.final().values()), default=0)
        parts = [
            f"{task} from {_percent(results.base.get(task, math.nan))} to {_percent(float(np.mean(own)))}"
            for task, own in series.final().items()
            if own
        ]
        said.append(
            f"{series.name}: final success {success_text(series)} (interquartile mean over {len(series.tasks)} tasks "
            f"and up to {seeds} seeds); every seed gains {100 * LIFTED_BY:.0f} points or reaches {LIFTED_TO:.0%} on "
            f"{len(lifted)} of {len(series.tasks)} tasks. Means: {', '.join(parts)}."
        )
    return said


def _type_sentences(results: RlResults) -> list[str]:
    ranked = sorted(series_of(results), key=lambda series: -mean_success(series))
    order = "; ".join(f"{series.name} {success_text(series)}" for series in ranked)
    by_name = {series.reward.partition("@")[0]: series for series in ranked}
    said = [f"Final success by reward type, the best first: {order}."]
    for name in ("head:progress", "head:levels"):
        if name in by_name and "head:binary" in by_name:
            said.append(_contrast(by_name[name], by_name["head:binary"]))
    return said


def _contrast(first: Series, second: Series) -> str:
    """Say how two series differ, with the interval of the difference of their means over draws of seeds."""
    difference = mean_success(first) - mean_success(second)
    if min(max(map(len, series.final().values()), default=0) for series in (first, second)) < 2:
        return (
            f"{first.name} against {second.name}: {100 * difference:+.0f} points, of one seed a task: nothing is sure."
        )
    draws = [_mean_draws(series) for series in (first, second)]
    low, high = np.percentile(draws[0] - draws[1], (2.5, 97.5))
    sure = "surely better" if low > 0 else "surely worse" if high < 0 else "not surely different"
    return (
        f"{first.name} against {second.name}: {100 * difference:+.0f} points [{100 * low:+.0f}, {100 * high:+.0f}], "
        f"{sure}."
    )


def _mean_draws(series: Series) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    from rewardlab.core.seeding import rng_for

    rng, draws = rng_for(0, "contrast", series.name), np.zeros(2000)
    own = [np.asarray(values) for values in series.final().values() if values]
    for values in own:
        draws += values[rng.integers(len(values), size=(2000, len(values)))].mean(axis=1) / len(own)
    return draws


def _quality_sentences(results: RlResults) -> list[str]:
    found = predictions(results)
    said = []
    for each in (prediction for prediction in found if prediction.measure == "mae"):
        said.append(
            f"Over {each.points} pairs of reward and task, r = {each.pearson:.2f} [{each.low:.2f}, {each.high:.2f}] "
            f"between reward accuracy (4 - MAE) and final success; Spearman {each.spearman:.2f}. RoboReward reports "
            "r = 0.83."
        )
    known = [each for each in found if not math.isnan(each.pearson)]
    if known:
        order = ", ".join(f"{each.measure} {each.pearson:.2f} [{each.low:.2f}, {each.high:.2f}]" for each in known)
        said.append(f"Offline measures by how well they predict success (Pearson's r): {order}.")
    return said


def _severity_sentences(results: RlResults) -> list[str]:
    curves = severity_curves(results)
    return [_severity_sentence(curve) for curve in curves] + _certificate_sentence(curves)


def _severity_sentence(curve: SeverityCurve) -> str:
    values = ", ".join("-" if math.isnan(value) else _percent(value) for value in curve.success)
    silent = max((value for value in curve.silent if not math.isnan(value)), default=0.0)
    still = f"; silent on up to {_percent(silent)} of episodes" if silent else ""
    less = f"; {', '.join(curve.left_out)} left out, trained at fewer severities" if curve.left_out else ""
    holds = "unknown" if curve.holds is None else f"{curve.holds} at least" if curve.is_open else str(curve.holds)
    certified = "unknown" if curve.certified is None else "none" if curve.certified < 0 else str(curve.certified)
    return (
        f"{curve.reward} under {curve.perturbation}: success {values} at severities 0 to 4; learning holds up to "
        f"{holds}, certified up to {certified}{still}{less}."
    )


def _certificate_sentence(curves: Sequence[SeverityCurve]) -> list[str]:
    known = [c for c in curves if c.certified is not None and c.holds is not None and not c.is_open]
    if not known:
        return []
    safe = sum((c.holds or 0) >= (c.certified or 0) for c in known)
    same = sum(c.holds == c.certified for c in known)
    return [
        f"The certified severity is never past the breaking of learning in {safe} of {len(known)} curves, and is "
        f"exactly where learning breaks in {same}."
    ]


def _hacking_sentences(rates: Sequence[HackingRate]) -> list[str]:
    known = [rate for rate in rates if not any(math.isnan(share) for share in rate.rates)]
    grown = [rate for rate in known if rate.rates[1] > rate.rates[0]]
    if not known:
        return []
    before, after = (_percent(float(np.mean([rate.rates[side] for rate in known]))) for side in (0, 1))
    worst = max(known, key=lambda rate: rate.rates[1])
    return [
        f"False success among failures goes from {before} before RL to {after} after it, on average over "
        f"{len(known)} rewards; it grows for {len(grown)} of them, most of all ends {worst.reward} "
        f"({worst.condition}) at {_percent(worst.rates[1])}."
    ]


def _failure_sentences(results: RlResults) -> list[str]:
    failed = [cell for cell in results.cells if cell.status == "failed"]
    if not failed:
        return []
    return [
        f"{len(failed)} of {len(results.cells)} trainings failed and count in nothing; the first: {failed[0].reason}."
    ]


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.0%}"
