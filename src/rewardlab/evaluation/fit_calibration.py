"""Command `fit calibration`: temperature or isotonic map, conformal set, effect on held-out tasks."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import DataError, PlanError, require_packages
from rewardlab.core.records import none_if_nan
from rewardlab.core.run import Run
from rewardlab.core.seeding import digest
from rewardlab.core.settings import (
    Budget,
    Demonstrations,
    Execution,
    FramePolicyText,
    Help,
    Limit,
    RunFolder,
    Scoring,
    Seed,
    SkipInvalid,
)
from rewardlab.core.terminal import counted
from rewardlab.core.trial import Score
from rewardlab.core.trial_table import TrialTable
from rewardlab.data.task_split import deal, split_by_task
from rewardlab.evaluation.display import listed
from rewardlab.metrics.calibration import ordinal_error, top_label_error
from rewardlab.metrics.contract import answered, has_values
from rewardlab.models.calibration import (
    MIN_PROB,
    Calibration,
    apply_calibration,
    apply_temperature,
    isotonic_steps,
    nonconformity,
    prediction_set,
)
from rewardlab.models.composite import WEIGHTS
from rewardlab.models.contract import CALIBRATION

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0  # of the search


def negative_log_likelihood(probs: Numbers, truth: Codes) -> float:
    """Return the mean negative log-likelihood of true levels 0 to 4 under probabilities (n, 5); nan of nothing."""
    likelihood = np.maximum(probs[np.arange(len(truth)), truth], MIN_PROB)
    return float(-np.log(likelihood).mean()) if len(truth) else math.nan


def fit_temperature(probs: Numbers, truth: Codes) -> float:
    """Return the temperature that minimises the negative log-likelihood of true levels 0 to 4."""
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        return negative_log_likelihood(apply_temperature(probs, math.exp(log_temperature)), truth)

    bounds = (math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE))
    return float(math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))


def conformal_quantile(nonconformities: Numbers, coverage: float) -> float | None:
    """Return the split-conformal quantile of nonconformity scores at this coverage; None of too few scores."""
    rank = math.ceil((len(nonconformities) + 1) * coverage)
    return float(np.sort(nonconformities)[rank - 1]) if rank <= len(nonconformities) else None


MIN_EPISODES = 10  # episodes in each third
MIN_MEMBER_ERROR = 0.05  # of a member of an ensemble: one that is right by luck must not silence the others

Plain = dict[str, Any]


@dataclass(frozen=True)
class CalibrationRun:
    """A calibration and the run it was fitted in."""

    run: Run
    record: Plain


@dataclass(frozen=True, eq=False)
class AnsweredEpisodes:
    """Some answered episodes: what the model said, and what is true."""

    scores: list[Score]
    label: Codes
    tasks: int

    @classmethod
    def of(cls, trials: TrialTable) -> "AnsweredEpisodes":
        """Return the answered episodes of trials."""
        answers = zip(trials.number("level"), trials.vectors("probabilities", 5), strict=True)
        scores = [Score(float(x), None if np.isnan(row).any() else tuple(row.tolist())) for x, row in answers]
        tasks = len(np.unique(trials.codes("task")[0]))
        return cls(scores, trials.number("truth_level").astype(np.int64) - 1, tasks)

    def size(self) -> Plain:
        """Return how many episodes and tasks these are."""
        return {"episodes": len(self.scores), "tasks": self.tasks}


def fit_calibration(
    model: Annotated[str, Help("model to calibrate")],
    data: Annotated[str | Path, Help("dataset to fit on; not the one that the model is evaluated on later")],
    *,
    coverage: Annotated[float, Help("fraction of episodes whose true level must be in the prediction set")] = 0.9,
    frames: FramePolicyText = "uniform:16",
    seed: Seed = 0,
    limit: Limit = None,
    demonstrations: Demonstrations = False,
    skip_invalid: SkipInvalid = False,
    out: RunFolder = None,
    execution: Execution = Execution(),
    scoring: Scoring = Scoring(),
    budget: Budget = Budget(),
) -> CalibrationRun:
    """Fit a map that makes a model's probabilities match how often it is right; MODEL+FOLDER is the calibrated model.

    Examples:
        rewardlab fit calibration pocket sample-sim --out runs/calibration
        rewardlab stress pocket+runs/calibration sample
    """
    given = locals()
    from rewardlab.evaluation.evaluate import evaluate
    from rewardlab.evaluation.plan import make_plan

    require_packages("fit calibration", "scipy", extra="fit")
    if not 0 < coverage < 1:
        raise PlanError(f"coverage must be above 0 and below 1, got {coverage}")
    plan = make_plan("fit calibration", fit_calibration, given, kind="calibrate")
    (named,), run = plan.models, evaluate(plan)
    trials = run.trials()
    record: Plain = {"model": named.name, "fingerprint": named.fingerprint, "frames": frames, "seed": seed}
    record |= {"data": plan.data, "data_digest": run.record.plan.data_digest}
    record |= calibrate_trials(trials, coverage, seed)
    run.save(CALIBRATION, record)
    errors = member_errors(split_trials(trials, seed, 3)[0])
    if errors:
        weights = {name: 1 / max(error, MIN_MEMBER_ERROR) for name, error in errors.items()}
        run.save(WEIGHTS, {"weights": weights, "mae": errors, "fit": record["fit"], "data": plan.data})
    return CalibrationRun(run, record)


def calibrate_trials(trials: TrialTable, coverage: float, seed: int) -> Plain:
    """Return what was fitted on the answers of one model, and what it does to episodes of tasks kept apart."""
    fit, conformal, held_out = map(AnsweredEpisodes.of, split_trials(trials, seed, 3))
    calibration = _fit(fit, conformal, coverage)
    after = [apply_calibration(score, calibration) for score in held_out.scores]
    sets = [prediction_set(score, calibration) for score in after]
    holds = [bool(truth + 1 in levels) for truth, levels in zip(held_out.label, sets, strict=True)]
    return {
        "method": "isotonic" if calibration.temperature is None else "temperature",
        "fitted": asdict(calibration),
        "fit": fit.size(),
        "conformal": conformal.size(),
        "held_out": held_out.size()
        | {"before": _quality(held_out.scores, held_out.label), "after": _quality(after, held_out.label)}
        | {"coverage": float(np.mean(holds)), "mean_set_size": float(np.mean([len(levels) for levels in sets]))},
    }


def split_trials(trials: TrialTable, seed: int, parts: int) -> list[TrialTable]:
    """Return the usable answers in parts of about the same size; no task and no video is in two of them."""
    used = trials.where(answered(trials, "level"))
    some = has_values(used, "probabilities")
    used = used.where(some) if some.any() else used

    def draw(counts: dict[str, int]) -> dict[str, int]:
        order = sorted(counts, key=lambda task: digest(seed, task))
        return deal({task: counts[task] for task in order}, dict.fromkeys(range(parts), 1 / parts))

    items = zip(used.text("task").tolist(), used.text("video").tolist(), strict=True)
    part = np.array(split_by_task(list(items), draw), np.int64)
    sizes = np.bincount(part, minlength=parts).tolist()
    if min(sizes) < MIN_EPISODES:
        got = listed([str(size) for size in sizes])
        raise DataError(
            f"the answered episodes with a reward are split into {parts} sets without a common task, and each needs "
            f"{MIN_EPISODES} or more; here the sets have {got}; use more episodes of more tasks, or a larger --limit"
        )
    return [used.where(part == number) for number in range(parts)]


def member_errors(trials: TrialTable) -> dict[str, float]:
    """Return the MAE of each member of an ensemble; nothing for other models."""
    errors: dict[str, list[float]] = {}
    for row in trials.records(("member_levels", "truth_level")):
        for name, level in row["member_levels"] or ():
            errors.setdefault(name, []).append(abs(level - row["truth_level"]))
    return {name: float(np.mean(values)) for name, values in errors.items()}


def calibration_sentences(record: Plain) -> list[str]:
    """Return what was fitted and what it changes, one sentence each."""
    fit, held_out = record["fit"], record["held_out"]
    fitted_on = f"{counted(fit['episodes'], 'episode')} of {counted(fit['tasks'], 'task')}"
    kept_apart = f"{counted(held_out['episodes'], 'episode')} of {counted(held_out['tasks'], 'other task')}"
    temperature = record["fitted"]["temperature"]
    what = "an isotonic map of its levels" if temperature is None else f"a temperature of {temperature:.2f}"
    names = {"nll": "NLL", "ordinal_ece": "ordinal ECE", "top_label_ece": "top-label ECE", "mae": "MAE"}
    before, after = held_out["before"], held_out["after"]
    changes = [f"{names[key]} {before[key]:.3f} -> {after[key]:.3f}" for key in names if before[key] is not None]
    sets = f"sets of levels at a coverage of {record['fitted']['coverage']:g} hold the truth in"
    at_the_end = temperature is not None and not MIN_TEMPERATURE * 1.01 < temperature < MAX_TEMPERATURE * 0.99
    tried = f"from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}"
    warning = f"no temperature {tried} suits it: its probabilities say little about the level"
    return [
        f"{record['model']}: {what}, fitted on {fitted_on}",
        *([warning] if at_the_end else []),
        f"on {kept_apart}: {', '.join(changes)}",
        f"{sets} {held_out['coverage']:.2f} of them, with {held_out['mean_set_size']:.1f} of 5 levels on average",
    ]


def _fit(fit: AnsweredEpisodes, conformal: AnsweredEpisodes, coverage: float) -> Calibration:
    if fit.scores[0].probabilities is None:
        levels = np.array([score.level for score in fit.scores])
        calibration = Calibration(None, isotonic_steps(levels, (fit.label + 1).astype(np.float64)), coverage, None)
    else:
        calibration = Calibration(fit_temperature(_probs(fit.scores), fit.label), (), coverage, None)
    pairs = zip(conformal.scores, conformal.label, strict=True)
    nonconformities = [nonconformity(apply_calibration(score, calibration))[truth] for score, truth in pairs]
    return replace(calibration, threshold=conformal_quantile(np.array(nonconformities), coverage))


def _quality(scores: Sequence[Score], truth: Codes) -> Plain:
    levels = np.array([score.level for score in scores])
    mae = float(np.abs(levels - truth - 1).mean())
    found: Plain = {"mae": mae, "nll": None, "ordinal_ece": None, "top_label_ece": None}
    if scores[0].probabilities is not None:
        probs = _probs(scores)
        found["nll"] = none_if_nan(negative_log_likelihood(probs, truth))
        found["ordinal_ece"], found["top_label_ece"] = ordinal_error(probs, truth), top_label_error(probs, truth)
    return found


def _probs(scores: Sequence[Score]) -> Numbers:
    return np.array([score.probabilities for score in scores], dtype=np.float64)
