"""Prints every table of this folder's README from the records that are kept here, and draws its figure.

    python results/rl/read_runs.py
    python results/rl/read_runs.py --figure

Intervals are 95 % bootstraps: of success over the seeds of each task, of correlations over rewards.
"""

import sys
from pathlib import Path

import numpy as np

from rewardlab.metrics.policy_statistics import (
    clustered_correlation_interval,
    pearson,
    stratified_interval,
)
from rewardlab.rl.results import RlResults, read_results
from rewardlab.studies.rl.analysis import QualityPoint, quality_points, series_of, severity_curves
from rewardlab.studies.rl.findings import hacking_rates

HERE = Path(__file__).resolve().parent
MEASURES = ("mae", "success_auc", "tau", "success_accuracy", "near_miss_auc")
SYNTHETIC = ("oracle", "noisy-oracle", "constant", "random")
Scores = dict[str, list[float]]


def main() -> None:
    for name, table in TABLES.items():
        print(f"\n{name}\n")
        for cells in table():
            print("| " + " | ".join(cells) + " |")


def true_reward() -> list[list[str]]:
    results = record("dsrl_true")
    rows = [["task", "base policy", "DSRL, three seeds", "mean", "plain SAC, three seeds"]]
    dsrl, sac = (final(results, "true", algorithm=each) for each in ("dsrl", "sac"))
    for task, base in results.base.items():
        rows.append([f"`{task}`", share(base), listed(dsrl[task]), share(mean(dsrl[task])), listed(sac[task])])
    return rows


def noise_aliased() -> list[list[str]]:
    results = record("dsrl_na")
    aliased, plain = (final(results, "true", algorithm=each) for each in ("dsrl-na", "dsrl"))
    rows = [["task", "base policy", "DSRL-NA", "DSRL-SAC", "difference"]]
    for task, base in results.base.items():
        one, other = mean(aliased[task]), mean(plain[task])
        rows.append([f"`{task}`", share(base), share(one), share(other), points(one - other)])
    base = mean(list(results.base.values()))
    rows.append(["all", share(base), share(over_tasks(aliased)), share(over_tasks(plain)), gap(aliased, plain)])
    return rows


def reward_types() -> list[list[str]]:
    results = record("reward_types")
    rates = {each.reward: each.rates for each in hacking_rates(results)}
    success = final(results, "head:binary")
    rows = [["reward", "success", "less learned success", *success, "failures called a success: before RL, after"]]
    for reward in ("true", "head:binary", "head:progress", "head:levels"):
        own = final(results, reward)
        less = "" if reward == "head:binary" else gap(own, success)
        tasks = [share(mean(own[task])) for task in success]
        called = ", ".join(map(share, rates[reward])) if reward in rates else ""
        rows.append([f"`{reward}`", whole(own), less, *tasks, called])
    return rows


def quality() -> list[list[str]]:
    results = record("quality")
    offline = {(each.reward, each.task): each.measures for each in results.offline}
    rows = []
    for series in series_of(results):
        own = series.final()
        mae, near = (mean_known([offline[series.reward, task][m] for task in own]) for m in ("mae", "near_miss_auc"))
        tasks = [share(mean(own[task])) for task in results.base]
        row = [f"`{series.reward}`", f"{mae:.2f}", f"{near:.2f}", share(over_tasks(own)), *tasks]
        rows.append((over_tasks(own), row))
    ordered = [row for _, row in sorted(rows, key=lambda each: -each[0])]
    return [["reward", "MAE", "near-miss AUC", "success, mean over tasks", *results.base], *ordered]


def prediction() -> list[list[str]]:
    """Return Pearson's r with success over pairs of reward and task, of all rewards and of groups of them."""
    results = record("quality")
    names = dict.fromkeys(run.reward for run in results.training_runs)
    learned = [name for name in names if not name.startswith(SYNTHETIC)]
    groups = {
        "all": list(names),
        "better than a constant": better_than_constant(results),
        "learned": learned,
        "learned, trained to the end": [name for name in learned if "@" not in name],
        "synthetic": [name for name in names if name.startswith(SYNTHETIC)],
    }
    rows = [["measure", *(f"{len(some)} {name}" for name, some in groups.items())]]
    for measure in MEASURES:
        points = quality_points(results, measure)
        rows.append([measure, *(correlation([p for p in points if p.reward in some]) for some in groups.values())])
    return rows


def better_than_constant(results: RlResults) -> set[str]:
    """Return the rewards with a lower mean error than the constant: the others are noise, or heads before training."""
    errors: Scores = {}
    for each in results.offline:
        if each.task and (value := each.measures["mae"]) is not None:
            errors.setdefault(each.reward, []).append(value)
    return {reward for reward, own in errors.items() if mean(own) < mean(errors["constant:3"]) - 1e-9}


def exploited() -> list[list[str]]:
    """Return what policies make of learned rewards on button-press, and what these measure on held-out episodes."""
    results, task = record("quality"), "button-press"
    rows = [["reward", "before RL", "after", "failures called a success", "near-miss AUC", "successes missed"]]
    for reward in ("pocket", "pocket-plain", "hf:smol-reward"):
        (run,) = [run for run in results.training_runs if (run.reward, run.task, run.seed) == (reward, task, 0)]
        (own,) = [each.measures for each in results.offline if (each.reward, each.task) == (reward, task)]
        called = f"{run.after.called} of {run.after.failures}"
        ends = [share(results.base[task]), share(run.success or 0.0), called, f"{own['near_miss_auc'] or 0:.2f}"]
        rows.append([f"`{reward}`", *ends, share(own["missed_success"] or 0.0)])
    return rows


def noisy_pairs() -> list[list[str]]:
    """Return in how many pairs of training runs under noise, alike but for the reward, `pocket` ends higher."""
    found = {
        (run.reward, run.task, run.seed, run.condition): run.success or 0.0
        for run in record("severity").training_runs
        if run.status == "finished" and run.condition.startswith("gaussian_noise")
    }
    keys = [key[1:] for key in found if key[0] == "pocket" and ("pocket-plain", *key[1:]) in found]
    higher = sum(found["pocket", *key] > found["pocket-plain", *key] for key in keys)
    return [["reward", "ends higher", "pairs"], ["`pocket`", str(higher), str(len(keys))]]


def correlation(found: list[QualityPoint]) -> str:
    x, y = (np.array([getattr(point, each) for point in found], np.float64) for each in ("quality", "success"))
    low, high = clustered_correlation_interval(x, y, [point.reward for point in found])
    return f"{pearson(x, y):.2f} [{low:.2f}, {high:.2f}]"


def severity() -> list[list[str]]:
    rows = [["reward", "perturbation", "0", "1", "2", "3", "4", "certified up to", "learning holds up to"]]
    for curve in severity_curves(record("severity")):
        ends = [str(max(each or 0, 0)) for each in (curve.certified, curve.holds)]
        rows.append([f"`{curve.reward}`", f"`{curve.perturbation}`", *map(share, curve.success), *ends])
    return rows


def guarded() -> list[list[str]]:
    results = record("guards")
    rewards, conditions = (
        dict.fromkeys(getattr(run, each) for run in results.training_runs) for each in ("reward", "condition")
    )
    rows = [["what the reward sees", "`pocket`", "abstaining guard", "holding guard"]]
    for condition in conditions:
        rows.append([f"`{condition}`", *(share(over_tasks(final(results, reward, condition))) for reward in rewards)])
    return rows


def record(folder: str) -> RlResults:
    return read_results(HERE / folder)


def final(
    results: RlResults,
    reward: str,
    condition: str = "clean",
    *,
    algorithm: str = "",
) -> Scores:
    """Return the final success of all seeds by task, of one reward under one condition."""
    found: Scores = {}
    for run in results.training_runs:
        alike = (run.reward, run.condition, run.status) == (reward, condition, "finished")
        if alike and (not algorithm or run.algorithm == algorithm) and run.success is not None:
            found.setdefault(run.task, []).append(run.success)
    return found


def mean(values: list[float]) -> float:
    return float(np.mean(values))


def mean_known(values: list[float | None]) -> float:
    return mean([value for value in values if value is not None])


def over_tasks(scores: Scores) -> float:
    return mean([mean(own) for own in scores.values()])


def whole(scores: Scores) -> str:
    low, high = stratified_interval(scores, lambda rows: np.asarray(rows.mean(axis=-1)))
    return f"{share(over_tasks(scores))} [{100 * low:.0f}, {100 * high:.0f}]"


def gap(one: Scores, other: Scores) -> str:
    """Return the difference of means in points with its interval, seeds of each drawn again by themselves."""
    rng, drawn = np.random.default_rng(0), []
    for scores in (one, other):
        rows = [np.array(own)[rng.integers(len(own), size=(10_000, len(own)))].mean(axis=1) for own in scores.values()]
        drawn.append(np.mean(rows, axis=0))
    low, high = np.percentile(drawn[0] - drawn[1], (2.5, 97.5))
    return f"{points(over_tasks(one) - over_tasks(other))} [{points(low)}, {points(high)}]"


def share(value: float) -> str:
    return f"{value:.0%}"


def points(value: float) -> str:
    return f"{100 * value:+.0f}"


def listed(values: list[float]) -> str:
    return ", ".join(map(share, values))


TABLES = {
    "the true reward": true_reward,
    "DSRL-NA and DSRL-SAC": noise_aliased,
    "reward types": reward_types,
    "rewards of graded quality": quality,
    "what predicts success": prediction,
    "button-press": exploited,
    "perturbed rewards": severity,
    "pairs under noise": noisy_pairs,
    "the guard": guarded,
}


def draw() -> None:
    """Draw final success over the error of the reward, a point for each reward and task."""
    from matplotlib import rc_context

    from rewardlab.reporting.figures import COLUMN, PALETTE, STYLE, fix_layout, new_panels, save_figure

    results = record("quality")
    better, found = better_than_constant(results), quality_points(results, "mae")
    with rc_context(STYLE):
        figure, (axes,) = new_panels(COLUMN, 2.6)
        sides = (("better than a constant", PALETTE[0], "o", True), ("not better", PALETTE[1], "s", False))
        for label, colour, marker, inside in sides:
            some = [point for point in found if (point.reward in better) == inside]
            xs, ys = [4 - point.quality for point in some], [100 * point.success for point in some]
            axes.scatter(xs, ys, s=18, c=colour, marker=marker, label=label)
        axes.set(xlabel="MAE of the reward, levels", ylabel="success of the policy, %", ylim=(-4, 104))
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
        figure.set_layout_engine("constrained")
        save_figure(fix_layout(figure), HERE / "quality.svg")


if __name__ == "__main__":
    draw() if "--figure" in sys.argv else main()
