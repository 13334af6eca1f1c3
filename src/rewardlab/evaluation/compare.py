"""Two models on the same trials: paired tests per category and overall, and the result in words."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import RunError
from rewardlab.core.run import Run
from rewardlab.core.settings import Help, Seed
from rewardlab.core.terminal import counted
from rewardlab.core.trial import CATEGORIES, CLEAN
from rewardlab.core.trial_table import METRIC_COLUMNS, TrialTable
from rewardlab.evaluation.display import display_names, format_p_value, run_and_model
from rewardlab.metrics import METRICS, metrics_shown
from rewardlab.metrics.accuracy import success_accuracy
from rewardlab.metrics.clustered_bootstrap import FEW_CLUSTERS, Draws, draw_clusters
from rewardlab.metrics.contract import Metric, answered
from rewardlab.metrics.estimates import clusters_of, with_clusters
from rewardlab.metrics.noise_floor import noise_floor, repeat_variance, split_repeats
from rewardlab.metrics.paired_differences import PairedDifference, exact_mcnemar, holm, paired_metric

DRAWS = 10_000
OVERALL = "overall"
SIGNIFICANT = 0.05  # after Holm's correction

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]


def compare(
    a: Annotated[Run | str | Path, Help("a run folder, or FOLDER::MODEL for one of its models", metavar="A")],
    b: Annotated[Run | str | Path, Help("another run folder, or FOLDER::MODEL", metavar="B")],
    *,
    n_resamples: Annotated[int, Help("resamples of the clustered bootstrap")] = DRAWS,
    seed: Seed = 0,
) -> "Comparison":
    """Compare two models on the trials both scored: paired tests, corrected for their number, in words.

    Examples:
        rewardlab compare runs/before runs/after
        rewardlab compare runs/both::pocket runs/both::constant --out verdict.md
    """
    (run_a, model_a), (run_b, model_b) = (run_and_model(str(x.folder if isinstance(x, Run) else x)) for x in (a, b))
    return compare_runs(run_a, run_b, model_a, model_b, n_resamples, seed)


@dataclass(frozen=True)
class PairedTest:
    """One paired test: what A and B score in a group of trials, A less B with its 95 % interval, and its p-value."""

    group: str
    metric: str
    paired: PairedDifference
    p_holm: float
    episodes: int
    tasks: int
    mcnemar: float  # exact, for success on clean episodes only: it takes trials as independent; else nan
    noise_floor: float  # the difference that asking both again alone can make; nan where it is unknown

    @property
    def better(self) -> str | None:
        """Return which of the two is better, None where no difference can be claimed."""
        if math.isnan(self.p_holm) or self.p_holm >= SIGNIFICANT or abs(self.paired.difference) <= self.noise_floor:
            return None
        return "a" if (self.paired.difference > 0) == (METRICS[self.metric].better == "higher") else "b"

    @property
    def gap(self) -> str:
        """Return A less B with its interval, in words where it has none, such as with one cluster."""
        low, high = self.paired.low, self.paired.high
        interval = "(no interval)" if math.isnan(low) else f"[{low:+.2f}, {high:+.2f}]"
        return f"{self.paired.difference:+.2f} {interval}"


@dataclass(frozen=True)
class Comparison:
    """Two models compared on the trials that both scored: what they are called, and their whole strings."""

    model_a: str
    model_b: str
    string_a: str
    string_b: str
    tests: tuple[PairedTest, ...]
    notes: tuple[str, ...]
    draws: int
    seed: int


@dataclass(frozen=True, eq=False)
class SharedTrials:
    """The trials that both models scored, in the same order."""

    a: TrialTable
    b: TrialTable
    notes: tuple[str, ...]


def compare_runs(run_a: Run, run_b: Run, model_a: str, model_b: str, draws: int = DRAWS, seed: int = 0) -> Comparison:
    """Compare a model of one run with a model of another, or of the same, on the trials that both scored."""
    trials = {run: _with_noise(run) for run in {run_a, run_b}}
    shared = _common(_of_model(run_a, trials[run_a], model_a), _of_model(run_b, trials[run_b], model_b))
    if not len(shared.a):
        raise RunError(
            f"{run_a.folder} and {run_b.folder} share no trial that {model_a} and {model_b} both scored; "
            "compare runs of the same dataset, perturbations and seed"
        )
    drawn = draw_clusters(int(clusters_of(shared.a).max()) + 1, draws, seed)
    family = metrics_shown(lambda display: display.compared)  # in every group; Holm's family is all of them
    tests = [_paired_test(shared, group, mask, metric, drawn) for group, mask in _groups(shared.a) for metric in family]
    corrected = holm([test.paired.p for test in tests])
    results = tuple(replace(test, p_holm=p) for test, p in zip(tests, corrected, strict=True))
    short = display_names([model_a, model_b], {**run_b.record.names, **run_a.record.names})
    a, b = short[model_a], short[model_b]
    if model_a == model_b:
        a, b = f"{a} ({run_a.folder.name})", f"{b} ({run_b.folder.name})"
    return Comparison(a, b, model_a, model_b, results, shared.notes, draws, seed)


def finding(comparison: Comparison, test: PairedTest) -> str:
    """Return one result as a sentence that says no more than may be claimed."""
    a, b = comparison.model_a, comparison.model_b
    known = {CLEAN: "on clean episodes", OVERALL: "overall", "pair": "under pairs of changes"}
    where = known.get(test.group, f"under {test.group} change")
    p = format_p_value(test.p_holm)
    basis = f"{p} (Holm), {counted(test.episodes, 'episode')} in {counted(test.tasks, 'task')}"
    basis += ", too few to rely on the interval" if test.paired.clusters < FEW_CLUSTERS else ""
    basis += "" if math.isnan(test.noise_floor) else f", noise floor {test.noise_floor:.2f}"
    metric, difference, low, high = METRICS[test.metric], test.paired.difference, test.paired.low, test.paired.high
    if math.isnan(difference):
        why = "it is undefined for at least one of them"
        return f"{metric.title} cannot be compared between {a} and {b} {where}: {why}"
    if test.better is None:
        return f"no difference can be claimed between {a} and {b} {where}: {metric.title} {test.gap}, {basis}"
    better, worse = (a, b) if test.better == "a" else (b, a)
    ends = sorted(abs(end) for end in (low, high))
    size = f"{metric.title} {metric.better} by {abs(difference):.2f} [{ends[0]:.2f}, {ends[1]:.2f}]"
    return f"{better} is better than {worse} {where}: {size}, {basis}"


_NOISE = "noise of "  # before the name of a metric: the column with its variance between askings


def _with_noise(run: Run) -> TrialTable:
    """Return the trials of a run; where they were asked several times, with what that tells of each."""
    repeats = run.record.plan.repeats > 1
    trials = run.trials(METRIC_COLUMNS, repeats=repeats)
    if not repeats:
        return trials
    first, again = split_repeats(trials)
    for name, variance in repeat_variance(first, again, run.record.plan.repeated).variance.items():
        first = first.with_column(_NOISE + name, variance)
    return first


def _noise_floor(a: TrialTable, b: TrialTable, metric: Metric) -> float:
    """Return what asking again can make of the difference on the same trials; nan where one was asked only once."""
    column = _NOISE + metric.name
    if not all(column in trials.source.column_names for trials in (a, b)):
        return math.nan
    weights = np.full(len(a), 1 / max(len(a), 1))
    return noise_floor(*((trials.number(column), weights) for trials in (a, b)))


def _of_model(run: Run, trials: TrialTable, model: str) -> TrialTable:
    mine = trials.where(trials.matches("model", model) & trials.matches("status", "scored"))
    if not len(mine):
        known = ", ".join(trials.codes("model")[1]) or "none"
        raise RunError(f"{run.folder} has no scored trial of model {model!r}; its models are: {known}")
    return mine


def _common(a: TrialTable, b: TrialTable) -> SharedTrials:
    """Pair the trials; those with different instructions or truths are left out and counted, other frames are noted."""
    in_a, in_b = _same_trials(a, b)
    a, b = a.take(in_a), b.take(in_b)
    asked = a.text("instruction") == b.text("instruction")
    alike = asked.copy()
    for column in ("truth_level", "truth_success"):
        x, y = a.number(column), b.number(column)
        alike &= (x == y) | (np.isnan(x) & np.isnan(y))
    frames = int((a.text("frames_hash") != b.text("frames_hash"))[alike].sum())
    notes = []
    for what, count in (("instruction", int((~asked).sum())), ("truth", int((asked & ~alike).sum()))):
        if count:
            notes.append(f"{count} trials are left out: their {what} differs between the runs")
    if frames:
        notes.append(f"in {frames} trials the two models were not shown the same frames")
    a = with_clusters(a.where(alike))
    return SharedTrials(a, b.where(alike).with_column("cluster", clusters_of(a)), tuple(notes))


def _same_trials(a: TrialTable, b: TrialTable) -> tuple[Rows, Rows]:
    """Return, in the order of a, the rows of a that b has too, and where b has them.

    The seed matters only where chance had a part.
    """
    columns: list[NDArray[np.float64] | Rows] = []
    for name in ("episode", "video", "perturbation"):
        (in_a, names), (in_b, others) = a.codes(name), b.codes(name)
        codes = {text: code for code, text in enumerate(dict.fromkeys((*names, *others)))}
        columns.append(np.concatenate([in_a, np.array([codes[text] for text in others], dtype=np.int64)[in_b]]))
    columns.append(np.concatenate([trials.number("severity") for trials in (a, b)]))
    columns.append(np.concatenate([np.where(t.matches("perturbation", CLEAN), -1, t.number("seed")) for t in (a, b)]))
    key, size = np.zeros(len(a) + len(b), dtype=np.int64), len(a)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        key = np.unique(key * max(len(values), 1) + code, return_inverse=True)[1]
    place = np.full(int(key.max(initial=-1)) + 1, -1)
    place[key[size:]] = np.arange(len(b))
    found = place[key[:size]]
    return np.flatnonzero(found >= 0), found[found >= 0]


def _groups(trials: TrialTable) -> list[tuple[str, Mask]]:
    """Return the groups that have trials, and all trials together where that is more than one group."""
    groups = [(name, trials.matches("category", name)) for name in (CLEAN, *CATEGORIES)]
    groups.append((OVERALL, np.ones(len(trials), dtype=bool)))
    found = [(name, mask) for name, mask in groups if mask.any()]
    return found[:1] if len(found) == 2 else found


def _paired_test(shared: SharedTrials, group: str, mask: Mask, metric: Metric, draws: Draws) -> PairedTest:
    used = mask & answered(shared.a, metric.eligibility) & answered(shared.b, metric.eligibility)
    a, b = shared.a.where(used), shared.b.where(used)
    exact = math.nan
    if metric is success_accuracy and group == CLEAN:
        assert metric.values is not None
        right_a, right_b = metric.values(a), metric.values(b)
        exact = exact_mcnemar(int((right_a > right_b).sum()), int((right_b > right_a).sum()))
    episodes, tasks = (len(np.unique(a.codes(column)[0])) for column in ("episode", "task"))
    paired, floor = paired_metric(metric, a, b, draws), _noise_floor(a, b, metric)
    return PairedTest(group, metric.name, paired, math.nan, episodes, tasks, exact, floor)
