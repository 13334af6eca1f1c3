"""Why a rollout failed, as a model says it against the truth: which causes are mistaken for which, and how far off the
frame is. The best constant answer, the most common cause at the median frame, is the baseline that sees nothing."""

from dataclasses import dataclass

import numpy as np

from rewardlab.core.trial import FAILURE_ANSWERS, NO_FAILURE
from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics.clustered_bootstrap import SHARE, Codes, Draws, Numbers, percentile_interval, sum_by
from rewardlab.metrics.estimates import MetricEstimate, clusters_of, estimate_means

_KINDS = len(FAILURE_ANSWERS)


@dataclass(frozen=True, eq=False)
class CauseAnswers:
    """The true cause of each trial and the one that was said (-1: unknown), and the frames as fractions of the clip."""

    truth: Codes
    said: Codes
    true_frame: Numbers
    said_frame: Numbers
    cluster: Codes

    def constant(self) -> "CauseAnswers":
        """Return the answers of whoever always says the most common cause, at the median of the true frames."""
        common = int(np.bincount(self.truth[self.truth >= 0], minlength=_KINDS).argmax())
        known = self.true_frame[~np.isnan(self.true_frame)]
        frame = float(np.median(known)) if len(known) else np.nan
        said, said_frame = np.full_like(self.said, common), np.full_like(self.said_frame, frame)
        return CauseAnswers(self.truth, said, self.true_frame, said_frame, self.cluster)


def cause_answers(trials: TrialTable) -> CauseAnswers:
    """Return what trials on untouched episodes say of causes; a trial that failed otherwise may still have a cause."""
    succeeded = (trials.number("truth_success") == 1) & ~trials.matches("status", "dropped")
    truth = _codes(trials, "truth_failure_cause")
    truth = np.where((truth < 0) & succeeded, FAILURE_ANSWERS.index(NO_FAILURE), truth)
    true_frame, said_frame = (_fractions(trials, column) for column in ("truth_failure_frame", "failure_frame"))
    return CauseAnswers(truth, _codes(trials, "failure_cause"), true_frame, said_frame, clusters_of(trials))


def says_causes(trials: TrialTable) -> bool:
    """Tell whether a model was asked for causes in any of its trials."""
    return any((trials.codes(column)[0] >= 0).any() for column in ("failure_cause", "failure_text"))


def cause_accuracy(answers: CauseAnswers, draws: Draws) -> MetricEstimate:
    """Return the share of the answers that name the true cause, `none` for a success among them."""
    asked = answers.truth >= 0
    used = asked & (answers.said >= 0)
    right = np.where(used, answers.said == answers.truth, np.nan).astype(np.float64)
    return _mean(right, answers.cluster, draws, int(asked.sum()), proportion=True)


def cause_macro_f1(answers: CauseAnswers, draws: Draws) -> MetricEstimate:
    """Return the mean over the causes that occur, `none` among them, of the F1 score of each."""
    asked = answers.truth >= 0
    used = asked & (answers.said >= 0)
    place = (answers.truth * _KINDS + answers.said)[used]
    clusters = draws.clusters
    counts = sum_by(place * clusters + answers.cluster[used], _KINDS**2 * clusters).reshape(_KINDS**2, clusters)
    value = float(_macro_f1(counts.sum(axis=1, keepdims=True))[0])
    behind = np.array([len(np.unique(answers.cluster[used]))], dtype=np.float64)
    low, high = (
        float(end[0]) for end in percentile_interval(_macro_f1(draws.sums(counts))[None], behind, bounds=SHARE)
    )
    return MetricEstimate(value, low, high, int(used.sum()), int(asked.sum()))


def cause_frame_error(answers: CauseAnswers, draws: Draws) -> MetricEstimate:
    """Return how far from the true frame the one that is said lies on average, as a fraction of the clip."""
    error = np.abs(answers.said_frame - answers.true_frame)
    asked = int((~np.isnan(answers.true_frame)).sum())
    return _mean(error, answers.cluster, draws, asked, proportion=False)


def cause_confusion(answers: CauseAnswers) -> Codes:
    """Return how often each true cause (row) is said to be each (column); the last column counts missing answers."""
    known = answers.truth >= 0
    said = np.where(answers.said[known] < 0, _KINDS, answers.said[known])
    counts = np.bincount(answers.truth[known] * (_KINDS + 1) + said, minlength=_KINDS * (_KINDS + 1))
    return np.asarray(counts.reshape(_KINDS, _KINDS + 1), np.int64)


def _macro_f1(counts: Numbers) -> Numbers:
    """Return the macro F1 of each column of pairs of true and said causes."""
    table = counts.reshape(_KINDS, _KINDS, -1)
    right, true, said = np.einsum("iid->id", table), table.sum(axis=1), table.sum(axis=0)
    there = true > 0
    score = np.where(there, 2 * right / np.maximum(true + said, 1), 0)
    with np.errstate(invalid="ignore"):
        return np.asarray(score.sum(axis=0) / there.sum(axis=0))


def _mean(values: Numbers, cluster: Codes, draws: Draws, asked: int, *, proportion: bool) -> MetricEstimate:
    place = np.zeros(len(values), dtype=np.int64)
    found = estimate_means(values, cluster, place, 1, draws, proportion=proportion, bounds=SHARE)
    value, low, high = (float(column[0]) for column in (found.value, found.low, found.high))
    return MetricEstimate(value, low, high, int(found.trials[0]), asked)


def _codes(trials: TrialTable, column: str) -> Codes:
    codes, names = trials.codes(column)
    known = np.array([*(FAILURE_ANSWERS.index(name) for name in names), -1], dtype=np.int64)
    return np.asarray(known[codes], np.int64)  # -1 is the last


def _fractions(trials: TrialTable, column: str) -> Numbers:
    """Return where in its clip the shown frame with this number is, by the frames of the video; nan where unknown."""
    flat, lengths = trials.lists("shown")
    number, start = trials.number(column), np.cumsum(lengths) - lengths
    found = np.full(len(lengths), np.nan)
    for row in np.flatnonzero((number < lengths) & (lengths > 1)):
        shown = flat[start[row] : start[row] + lengths[row]]
        if shown[-1] > shown[0]:
            found[row] = (shown[int(number[row])] - shown[0]) / (shown[-1] - shown[0])
    return found
