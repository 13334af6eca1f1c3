"""Command `fit guard`: logistic risk, conformal risk control, folds of tasks."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import SUCCESS_THRESHOLD
from rewardlab.core.errors import DataError, PlanError, require_packages
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
from rewardlab.core.trial import CLEAN, Score, Trial
from rewardlab.core.trial_table import TrialTable
from rewardlab.evaluation.fit_calibration import split_trials
from rewardlab.models import name_model
from rewardlab.models.composite import name_composite
from rewardlab.models.contract import GUARD, NamedModel
from rewardlab.models.guard import (
    Guard,
    Probe,
    answer_features,
    distances,
    nearest_distance,
    require_policy,
    risk_inputs,
)

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]

_PENALTY = 0.1  # of squared weights, per clip: features are in standard deviations


def fit_logistic(features: Numbers, true: Flags) -> tuple[Numbers, float]:
    """Return weights and bias of the logistic regression of `true` on features (n, k), with a ridge penalty."""
    from scipy.optimize import minimize

    sign, design = np.where(true, 1.0, -1.0), np.hstack([features, np.ones((len(features), 1))])

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        margin = sign * (design @ weights)
        penalty = _PENALTY * weights * np.append(np.ones(len(weights) - 1), 0.0)
        gradient = -(design * (sign / (1 + np.exp(np.clip(margin, -50, 50))))[:, None]).mean(axis=0)
        return float(np.logaddexp(0, -margin).mean() + 0.5 * weights @ penalty), gradient + penalty

    found: Numbers = minimize(loss, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B").x
    return found[:-1], float(found[-1])


def control_risk(risks: Numbers, claimed: Flags, tasks: NDArray[np.int64], rate: float) -> float | None:
    """Return the highest threshold on risk at which claims on failed clips stay within `rate` for the next task.

    Given are failed clips: their risks, whether a success was claimed, and their tasks, which are the exchangeable
    units. A task's loss is the fraction of its clips whose claim passes; its expectation for a new task of the same
    kind is at most `rate` (conformal risk control, theorem 1). None where no claim may pass.
    """
    units, group = np.unique(tasks, return_inverse=True)
    count, clips = len(units), np.bincount(group)
    best = None
    for threshold in np.unique(risks[claimed]):
        passed = claimed & (risks <= threshold)
        losses = np.bincount(group, passed, minlength=count) / clips
        if (losses.sum() + 1) / (count + 1) > rate:
            break
        best = float(threshold)
    return best if best is not None and not math.isnan(best) else None


def least_units(rate: float) -> int:
    """Return how many tasks it takes to guarantee a rate: with fewer, not even silence does."""
    return max(1, math.ceil(1 / rate) - 1)


MIN_CLAIMS = 10  # successes, true and false each, that the model must have claimed among those to fit on
FOLDS = 4  # of tasks, each evaluated by a guard that is fitted on the others
_LEAST_SCALE = 1e-3

Plain = dict[str, Any]


@dataclass(frozen=True)
class GuardRun:
    """A guard and the run that it was fitted in, whose folder names it."""

    run: Run
    record: Plain


@dataclass(frozen=True, eq=False)
class EvaluatedClips:
    """Answered clips whose success is known: what the model claimed, and what a guard reads of each."""

    rows: list[dict[str, float]]
    claimed: Flags
    success: Flags
    clean: Flags
    tasks: NDArray[np.object_]
    instructions: NDArray[np.object_]

    def task_codes(self) -> NDArray[np.int64]:
        """Return the task of each clip as a number."""
        return np.unique(self.tasks.astype(str), return_inverse=True)[1].astype(np.int64)

    def size(self) -> Plain:
        """Return how many clips and tasks these are."""
        return {"clips": len(self.rows), "tasks": len(np.unique(self.task_codes()))}


def fit_guard(
    model: Annotated[str, Help("model to guard")],
    data: Annotated[str | Path, Help("dataset to fit on; not the one that the model is evaluated on later")],
    *,
    false_success: Annotated[
        float, Help("fraction of failed clips of a new task that may pass as successes, on average")
    ] = 0.1,
    perturbations: Annotated[
        str | Sequence[str], Help("perturbations to fit on; evaluate on others", metavar="NAME")
    ] = ("quick",),
    severities: Annotated[int | Sequence[int], Help("severities to fit on; clean episodes are always scored")] = (2,),
    policy: Annotated[str, Help("what to do with a doubtful success: abstain, hold (level 4), fallback or pass")] = (
        "abstain"
    ),
    fallback: Annotated[str, Help("model that answers in place of this one under the policy fallback")] = "",
    frames: FramePolicyText = "uniform:16",
    seed: Seed = 0,
    limit: Limit = None,
    demonstrations: Demonstrations = False,
    skip_invalid: SkipInvalid = False,
    out: RunFolder = None,
    execution: Execution = Execution(),
    scoring: Scoring = Scoring(),
    budget: Budget = Budget(),
) -> GuardRun:
    """Fit a guard that withholds doubtful successes; MODEL+RUNFOLDER is the guarded model.

    Examples:
        rewardlab fit guard pocket sample-sim --out guards/pocket
        rewardlab stress pocket+guards/pocket sample
    """
    given = locals()
    from rewardlab.evaluation.evaluate import evaluate
    from rewardlab.evaluation.plan import make_plan

    require_packages("fit guard", "scipy", extra="fit")
    if not 0 < false_success < 1:
        raise PlanError(f"false-success must be above 0 and below 1, got {false_success}")
    require_policy(policy, fallback)
    named = name_model(model)
    if fallback:
        name_model(fallback)
    plan = make_plan("fit guard", fit_guard, given, kind="guard", models=(probed_model(named),))
    run, terms = evaluate(plan), GuardTerms(false_success, policy, seed)
    trials = run.trials()
    halves = _halves(trials, seed)
    record: Plain = {"model": named.name, "fingerprint": named.fingerprint, "fallback": fallback, "data": plan.data}
    record |= {"guard": asdict(fitted_guard(*halves, terms)), "perturbations": list(plan.perturbations)}
    record |= {"severities": list(plan.severities), "fit": halves[0].size(), "threshold": halves[1].size()}
    record["held_out"] = effect_in_folds(trials, terms)
    run.save(GUARD, record)
    return GuardRun(run, record)


@dataclass(frozen=True)
class GuardTerms:
    """What a guard is fitted for: the rate of false successes, what becomes of them, and the seed of the splits."""

    false_success: float
    policy: str
    seed: int


def probed_model(model: NamedModel) -> NamedModel:
    """Name the model whose answers note what a guard reads of each clip."""
    return name_composite(f"{model.name} (probed)", digest("guard probe"), [model], lambda built, _: Probe(built[0]))


def evaluated_clips(trials: TrialTable) -> EvaluatedClips:
    """Return the answered clips of which it is known whether they succeeded."""
    success, level = trials.number("truth_success"), trials.number("level")
    found = [_features(trial) for trial in trials.rows()]
    keep = np.array([bool(features) for features in found]) & ~np.isnan(success) & ~np.isnan(level)
    rows = [features for features, kept in zip(found, keep, strict=True) if kept]
    return EvaluatedClips(
        rows,
        level[keep] >= SUCCESS_THRESHOLD,
        success[keep] == 1,
        trials.text("perturbation")[keep] == CLEAN,
        trials.text("task")[keep],
        trials.text("instruction")[keep],
    )


def _features(trial: Trial) -> dict[str, float]:
    """Return what a guard reads of a probed answer, less the instruction; nothing where there is no answer."""
    if trial.level is None or not trial.info.frame_quality:
        return {}
    score = Score(trial.level, trial.probabilities, info=trial.info)
    return trial.info.frame_quality | answer_features(score)


def fitted_guard(fit: EvaluatedClips, threshold: EvaluatedClips, terms: GuardTerms) -> Guard:
    """Return the guard: claims ordered by risk on one part, the threshold by conformal risk control on the other."""
    known = tuple(sorted({str(text) for text in fit.instructions[fit.clean]}))
    new = distances([str(text) for text in fit.instructions], [str(task) for task in fit.tasks])
    shared = sorted(set.intersection(*(set(row) for row in fit.rows))) if fit.rows else []
    names = (*shared, "instruction_distance")
    rows = zip(fit.rows, new, strict=True)
    features = np.array([[*(row[name] for name in shared), distance] for row, distance in rows])
    true, false = int((fit.claimed & fit.success).sum()), int((fit.claimed & ~fit.success).sum())
    if min(true, false) < MIN_CLAIMS:
        raise DataError(
            f"a guard is fitted on claimed successes, {MIN_CLAIMS} true and {MIN_CLAIMS} false or more, got {true} and "
            f"{false}; take more data or more perturbations"
        )
    reference = features[fit.clean]
    centers, scales = reference.mean(axis=0), np.maximum(reference.std(axis=0), _LEAST_SCALE)
    inputs = risk_inputs(names, (features - centers) / scales)
    weights, bias = fit_logistic(inputs[fit.claimed], fit.success[fit.claimed])
    plain = [tuple(part.tolist()) for part in (centers, scales, weights)]
    guard = Guard(names, plain[0], plain[1], plain[2], bias, None, known, terms.false_success, terms.policy)
    return replace(guard, threshold=_threshold(guard, threshold, terms.false_success))


def clip_risks(guard: Guard, clips: EvaluatedClips) -> Numbers:
    """Return the risk of every clip, claimed a success or not."""
    near = {text: nearest_distance(str(text), guard.instructions) for text in set(clips.instructions)}
    rows = zip(clips.rows, clips.instructions, strict=True)
    return np.array([guard.risk(row | {"instruction_distance": near[text]}) for row, text in rows])


def effect_in_folds(trials: TrialTable, terms: GuardTerms) -> Plain | None:
    """Return what guards fitted like this one do to tasks that they never saw; None where the tasks are too few."""
    clips: list[EvaluatedClips] = []
    passed_in: list[Flags] = []
    try:
        for fold in split_trials(trials, terms.seed, FOLDS):
            others = trials.where(~np.isin(trials.text("task").astype(str), fold.text("task").astype(str)))
            guard = fitted_guard(*_halves(others, terms.seed), terms)
            clips.append(evaluated_clips(fold))
            passed_in.append(passed_claims(guard, clips[-1], clip_risks(guard, clips[-1])))
    except DataError:
        return None
    claimed, success, clean = (
        np.concatenate([vars(each)[name] for each in clips]) for name in ("claimed", "success", "clean")
    )
    passed, failed = np.concatenate(passed_in), ~success
    return {
        "clips": len(passed),
        "tasks": sum(each.size()["tasks"] for each in clips),
        "false_success": {"without": _proportion(claimed[failed]), "with": _proportion(passed[failed])},
        "found_success": {"without": _proportion(claimed[success]), "with": _proportion(passed[success])},
        "clean_withheld": _proportion((claimed & ~passed)[clean]),
    }


def passed_claims(guard: Guard, clips: EvaluatedClips, risks: Numbers) -> Flags:
    """Tell of each clip whether it is claimed a success and the claim passes the guard."""
    passes: Flags = np.array([guard.passes(risk) for risk in risks.tolist()], dtype=bool)
    return clips.claimed & passes


def _halves(trials: TrialTable, seed: int) -> tuple[EvaluatedClips, EvaluatedClips]:
    """Return the clips to order claims on, and those of other tasks to set the threshold on."""
    order, threshold = split_trials(trials, seed, 2)
    return evaluated_clips(order), evaluated_clips(threshold)


def guard_sentences(record: Plain) -> list[str]:
    """Return what was fitted and what it does to tasks kept apart, one sentence each."""
    guard, held = record["guard"], record["held_out"]
    never = "; no success passes: the model is wrong too often" if guard["threshold"] is None else ""
    said = [
        f"{record['model']}: guard for a false-success rate of {guard['false_success']:g} on new tasks like the "
        f"{record['threshold']['tasks']} that its threshold was set on{never}"
    ]
    if held is None:
        return [*said, "the effect on other tasks is unknown: there are too few tasks to hold some out"]
    false, found = held["false_success"], held["found_success"]
    effect = (
        f"guards fitted like it, on {held['clips']} clips of {held['tasks']} tasks that they never saw: false success "
        f"{_percent(false['without'])} -> {_percent(false['with'])}, successes found {_percent(found['without'])} -> "
        f"{_percent(found['with'])}, clean clips withheld {_percent(held['clean_withheld'])}"
    )
    return [*said, effect]


def _threshold(guard: Guard, clips: EvaluatedClips, rate: float) -> float | None:
    failed, codes = ~clips.success, clips.task_codes()
    tasks = len(np.unique(codes[failed]))
    if tasks < least_units(rate):
        raise DataError(
            f"a false-success rate of {rate:g} needs failed clips of {least_units(rate)} tasks for the threshold, got "
            f"{tasks}; use data with more tasks, or allow a higher rate"
        )
    return control_risk(clip_risks(guard, clips)[failed], clips.claimed[failed], codes[failed], rate)


def _proportion(flags: Flags) -> float | None:
    return float(flags.mean()) if len(flags) else None


def _percent(fraction: float | None) -> str:
    return "unknown" if fraction is None else f"{100 * fraction:.1f}%"
