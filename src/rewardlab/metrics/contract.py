"""What a metric is, how it is shown, which trials it is about."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVELS
from rewardlab.core.trial import CLEAN, MIDWAY, STAGE
from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics.clustered_bootstrap import SHARE, UNBOUNDED, Codes, ConditionEstimates, Draws, Numbers, sum_by

Mask = NDArray[np.bool_]
COVERED_END, HIDDEN_FROM = "covered_end", 3  # the perturbation, and the severity from which too little is left to judge
_Labelled = Literal["level", "success", "unfinished", "failure", "every failure", "every success", "probabilities"]
_AtLevel = Literal["true level 1", "true level 2", "true level 3", "true level 4", "near miss or success"]
_OfProgress = Literal[
    "changed midway", "progress of successes", "progress of failures", "true progress", "reversed clip", "static clip"
]
_OfStages = Literal["stages", "undone stage", "completed stage"]  # read from progress too
_OfAbstention = Literal["visible end", "hidden end"]  # read from abstentions too, which are no scores
_Other = Literal["clean score", "unchanged", "another instruction", "one stage"]
Eligibility = _Other | _OfAbstention | _Labelled | _AtLevel | _OfProgress | _OfStages


def eligible(trials: TrialTable, eligibility: Eligibility) -> Mask:
    """Tell which trials a metric of this eligibility is about; failed ones count, dropped ones do not."""
    return ~trials.matches("status", "dropped") & _RULES[eligibility](trials)


def answered(trials: TrialTable, eligibility: Eligibility) -> Mask:
    """Tell which of the eligible trials were answered with what the metric reads."""
    if eligibility in _READ_ABSTENTION:
        return eligible(trials, eligibility) & ~np.isnan(trials.number("abstained"))
    scored = eligible(trials, eligibility) & trials.matches("status", "scored")
    if eligibility == "probabilities":
        return scored & has_values(trials, "probabilities")
    return scored & has_values(trials, "progress") if eligibility in _READ_PROGRESS else scored


def has_values(trials: TrialTable, column: str) -> Mask:
    """Tell which trials have this list of numbers."""
    found: Mask = trials.list_lengths(column) > 0
    return found


def _labelled(trials: TrialTable) -> Mask:
    """The label holds or is known anew; a trial that failed before its expectation was known still had a truth."""
    kept = trials.matches("expectation", "same") | trials.matches("expectation", "relabel")
    return kept | (trials.matches("status", "failed") & trials.matches("expectation", "undefined"))


def _level(trials: TrialTable) -> Mask:
    return _labelled(trials) & ~np.isnan(trials.number("truth_level"))


def _success(trials: TrialTable) -> Mask:
    return _labelled(trials) & ~np.isnan(trials.number("truth_success"))


def _clean_score(trials: TrialTable) -> Mask:
    return ~trials.matches("expectation", "undefined") & ~np.isnan(trials.number("clean_level"))


def _another_instruction(trials: TrialTable) -> Mask:
    """A success is judged against another instruction of the same source, as `task_swap` is at severity 1 only."""
    near = trials.matches("perturbation", "task_swap") & (trials.number("severity") == 1)
    return np.asarray(_clean_score(trials) & (near | trials.matches("perturbation", "instruction_swap")))


def _changed_midway(trials: TrialTable) -> Mask:
    """The pixels change from the middle on, or the whole clip is asked about with other words."""
    code, names = trials.codes("perturbation")
    begins = np.array([name.startswith(MIDWAY) and "+" not in name for name in names] + [False])[code]
    return np.asarray(_clean_score(trials) & (begins | trials.matches("category", "semantic")))


def _outcome(trials: TrialTable, outcome: int) -> Mask:
    """Tell which episodes succeeded (1), or did not (0), whether or not their level is known."""
    return np.asarray(_success(trials) & (trials.number("truth_success") == outcome))


def _at_level(trials: TrialTable, *levels: int) -> Mask:
    return np.asarray(_level(trials) & np.isin(trials.number("truth_level"), levels))


def _hidden_end(trials: TrialTable) -> Mask:
    """Nearly all of the clip, its end too, is covered, so that nothing shows whether the task is done."""
    return np.asarray(trials.matches("perturbation", COVERED_END) & (trials.number("severity") >= HIDDEN_FROM))


def _static(trials: TrialTable) -> Mask:
    """More than one frame is shown, and all of them are the same one."""
    moves = trials.derived("moves between frames", lambda whole: in_blocks(whole, _moves))
    return np.asarray((trials.list_lengths("shown") > 1) & (moves == 0))


def in_blocks(trials: TrialTable, compute: Callable[[TrialTable], Numbers]) -> Numbers:
    """Return one number per trial, computed for some trials at a time: many per-frame numbers are held for each."""
    return np.concatenate([np.zeros(0), *(compute(block) for block in trials.blocks())])


def _moves(trials: TrialTable) -> Numbers:
    """Return how many of the frames shown are not the first."""
    shown, lengths = trials.lists("shown")
    owner = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum(lengths) - lengths
    return sum_by(owner, len(lengths), (shown != shown[starts[owner]]).astype(np.float64))


def _stages(trials: TrialTable) -> Numbers:
    """Return how many stages each trial asks about; 0 where it has none."""
    frames = trials.list_lengths("shown")
    return np.where(frames > 0, trials.list_lengths("truth_stages") / np.maximum(frames, 1), 0)


def _asks_stage(trials: TrialTable) -> Mask:
    """Tell which trials ask about one stage by its own instruction; a whole task can have a single stage too."""
    code, names = trials.codes("episode")
    asked = np.array([re.search(rf"{STAGE}\d+$", name) is not None for name in names], dtype=bool)
    return np.asarray(asked[code] & (_stages(trials) == 1))


def _stage_events(trials: TrialTable) -> Numbers:
    """Return how often a stage is completed (in the first row) and undone (in the second)."""
    done, lengths = trials.lists("truth_stages")
    frames, owner = trials.list_lengths("shown"), np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(done)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    begins = place % np.maximum(frames[owner], 1) == 0
    before = np.where(begins, 0, np.append(0, done[:-1])[: len(done)])
    return np.stack(
        [sum_by(owner, len(lengths), (change > 0).astype(float)) for change in (done - before, before - done)]
    )


_RULES: dict[Eligibility, Callable[[TrialTable], Mask]] = {
    "level": _level,
    "success": _success,
    "clean score": _clean_score,
    "unchanged": lambda trials: _clean_score(trials) & trials.matches("expectation", "same"),
    "another instruction": _another_instruction,
    "changed midway": _changed_midway,
    "unfinished": lambda trials: _level(trials) & (trials.number("truth_level") <= 3),
    "failure": lambda trials: _level(trials) & (trials.number("truth_success") == 0),
    "every failure": lambda trials: _outcome(trials, 0),
    "every success": lambda trials: _outcome(trials, 1),
    "true level 1": lambda trials: _at_level(trials, 1),
    "true level 2": lambda trials: _at_level(trials, 2),
    "true level 3": lambda trials: _at_level(trials, 3),
    "true level 4": lambda trials: _at_level(trials, 4),
    "near miss or success": lambda trials: _at_level(trials, 4, 5),
    "probabilities": _level,
    "progress of successes": lambda trials: _outcome(trials, 1),
    "progress of failures": lambda trials: _outcome(trials, 0),
    "true progress": lambda trials: has_values(trials, "truth_progress"),
    "reversed clip": lambda trials: trials.matches("perturbation", "reverse") & (trials.number("severity") == 4),
    "static clip": _static,
    "one stage": _asks_stage,
    "completed stage": lambda trials: _asks_stage(trials) & (_stage_events(trials)[0] > 0),
    "visible end": lambda trials: trials.matches("perturbation", CLEAN) | trials.matches("expectation", "same"),
    "hidden end": _hidden_end,
    "stages": lambda trials: _stages(trials) > 1,
    "undone stage": lambda trials: (_stages(trials) > 1) & (_stage_events(trials)[1] > 0),
}
_READ_PROGRESS = frozenset((*get_args(_OfProgress), *get_args(_OfStages)))
_READ_ABSTENTION = frozenset(get_args(_OfAbstention))
OPTIONAL = _READ_PROGRESS | _READ_ABSTENTION | {"probabilities"}  # answers that many models do not give at all


Better = Literal["higher", "lower"]
Values = Callable[[TrialTable], Numbers]  # one number per trial, nan where the trial does not count
Resample = Callable[[TrialTable, Draws], Numbers]  # the metric under every draw
# The metric of many conditions at once, given the condition of each trial; None where one by one is the better way.
ByCondition = Callable[[TrialTable, Codes, int, Draws], ConditionEstimates | None]


@dataclass(frozen=True)
class Display:
    """Where a metric is shown, always with its interval; what is shown nowhere is still in the files of numbers."""

    heading: str = ""  # of its column; by default the metric's name
    title: str = ""  # of its curve and in sentences; by default the heading
    axis: tuple[float, float] = (0.0, 1.0)  # ends of its axis, and of the colours of its heat map
    headline: bool = False  # clean episodes on the page and on the robustness card
    terminal: bool = False  # clean episodes in the terminal
    wrong_reward: bool = False  # clean episodes in the page's table of false and missed successes
    curve: bool = False  # over severity, one figure per category
    heat_map: bool = False  # category by severity
    reliability_level: bool = False  # its curve shows the level of `--accuracy-threshold`, and comes first
    perturbation_table: bool = False  # every perturbation at the highest severity
    midway: bool = False  # changes in the middle of the clip, on the page
    stages: bool = False  # clean episodes of long tasks, on the page and in the terminal
    ceiling: str = ""  # the metric that says how far it can reach on the same trials; shown beside it
    compared: bool = False  # tested between two models by `rewardlab compare`


_SHOWN_NOWHERE = Display()
LEVELS_APART = (0.0, float(LEVELS[-1] - LEVELS[0]))  # how far two levels can be from each other


@dataclass(frozen=True)
class Metric:
    """A named number of a set of trials; `eligibility` says which trials it is about.

    Where the metric is a mean, `values` are what it is the mean of. Else `resample` gives it under every draw of
    clusters. With neither, the metric has no interval: it is biased under resampling and is read against its null.
    """

    name: str
    summary: str
    better: Better
    eligibility: Eligibility
    compute: Callable[[TrialTable], float]
    display: Display
    values: Values | None = None
    resample: Resample | None = None
    by_condition: ByCondition | None = None  # a faster way to the same numbers and intervals
    proportion: bool = False  # a fraction of trials, so its interval is Wilson's
    bounds: tuple[float, float] = UNBOUNDED  # outside of which it cannot be, so that no interval reaches there

    def __call__(self, trials: TrialTable) -> float:
        """Return the number, nan if no trial can be used."""
        return self.compute(trials)

    def values_of(self, trials: TrialTable) -> Numbers:
        """Return what the metric is the mean of, nan where a trial does not count."""
        assert self.values is not None, f"{self.name} is no mean"
        return np.where(answered(trials, self.eligibility), self.values(trials), np.nan)

    @property
    def heading(self) -> str:
        """Return what a column of this metric is called."""
        return self.display.heading or self.name.replace("_", " ")

    @property
    def title(self) -> str:
        """Return what the metric is called in sentences and above its curve."""
        return self.display.title or self.heading


def metric(
    better: Better,
    eligibility: Eligibility = "level",
    display: Display = _SHOWN_NOWHERE,
    *,
    resample: Resample | Literal["recompute"] | None = "recompute",
    by_condition: ByCondition | None = None,
    bounds: tuple[float, float] = UNBOUNDED,
) -> Callable[[Callable[[TrialTable], float]], Metric]:
    """Turn a function of trials into a metric named like the function.

    Its interval comes from `resample`, by default from calling the function on the trials of every draw. None is for a
    metric that is biased under resampling, or that gives its intervals `by_condition`.
    """

    def wrap(compute: Callable[[TrialTable], float]) -> Metric:
        def recompute(trials: TrialTable, draws: Draws) -> Numbers:
            cluster, rows = trials.number("cluster").astype(np.int64), np.arange(len(trials))
            drawn = (np.repeat(rows, draws.counts[cluster, draw]) for draw in range(draws.number))
            return np.array([compute(trials.take(picked)) for picked in drawn])

        name, summary = compute.__name__, _summary(compute)
        drawn = recompute if resample == "recompute" else resample
        given = (name, summary, better, eligibility, compute, display)
        return Metric(*given, resample=drawn, by_condition=by_condition, bounds=bounds)

    return wrap


def mean_metric(
    better: Better,
    eligibility: Eligibility = "level",
    display: Display = _SHOWN_NOWHERE,
    *,
    proportion: bool = False,
    bounds: tuple[float, float] = UNBOUNDED,
) -> Callable[[Values], Metric]:
    """Turn a function that gives one number per trial into the metric that is their mean; nan does not count."""

    def wrap(values: Values) -> Metric:
        def compute(trials: TrialTable) -> float:
            return mean_or_nan(values(trials))

        given = (values.__name__, _summary(values), better, eligibility, compute, display)
        return Metric(*given, values, proportion=proportion, bounds=SHARE if proportion else bounds)

    return wrap


def mean_or_nan(values: Numbers) -> float:
    """Return the mean of the numbers that are there, nan of nothing."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def where_known(truth: NDArray[np.bool_], *known: Numbers) -> Numbers:
    """Return 1 and 0 for true and false, nan where one of the numbers behind it is missing."""
    missing = np.isnan(np.asarray(known)).any(axis=0)
    return np.where(missing, np.nan, truth.astype(np.float64))


def _summary(function: Callable[..., object]) -> str:
    return " ".join((function.__doc__ or "").split())
