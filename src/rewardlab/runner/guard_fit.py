"""Fitting a guard: half of the tasks order claims by risk, half set the threshold; folds of tasks show what it does."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.command_settings import as_command, setting
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.run import Run, atomic_write
from rewardlab.core.seeding import digest
from rewardlab.core.trial import CLEAN, TrialTable
from rewardlab.models import name_model
from rewardlab.models.composite import name_composite
from rewardlab.models.contract import Composition, NamedModel
from rewardlab.models.guard.guarded_model import Guard, Probe, require_policy, risk_inputs
from rewardlab.models.guard.instruction_distance import distances, nearest_distance
from rewardlab.models.model_string import GUARD
from rewardlab.models.trust import SUCCESS_LEVEL, read_notes
from rewardlab.runner.calibration_run import split_by_task
from rewardlab.runner.conformal_risk import control_risk, fit_logistic, least_units
from rewardlab.runner.scoring_settings import FRAMES_HELP, ScoringSettings, require_selection
from rewardlab.runner.stress import StressPlan, run_stress

MIN_CLAIMS = 10  # successes, true and false each, that the model must have claimed among those to fit on
FOLDS = 4  # of tasks, each judged by a guard that is fitted on the others
_LEAST_SCALE = 1e-3

Plain = dict[str, Any]
Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class GuardPlan:
    """Fit a guard that withholds doubtful successes; afterwards MODEL+FOLDER is the guarded model."""

    model: str = setting("the model to guard", positional=True)
    data: str = setting("dataset folder or a shipped name; not the data it is evaluated on later", positional=True)
    false_success: float = setting("share of failed clips of a new task that may pass as successes, on average", 0.1)
    perturbations: tuple[str, ...] = setting("perturbations to fit on; judge on others", ("quick",))
    severities: tuple[int, ...] = setting("severities to fit on; the clean episode is always there", (2,))
    policy: str = setting("what becomes of a doubtful success: abstain, hold (level 4), fallback or pass", "abstain")
    fallback: str = setting("the model that answers in place of this one under policy fallback", "")
    frames: str = setting(FRAMES_HELP, "uniform:16")
    guard: Path = setting("folder for the guard; MODEL+FOLDER names the guarded model", Path("guard"))
    scoring: ScoringSettings = ScoringSettings()

    def __post_init__(self) -> None:
        if not 0 < self.false_success < 1:
            raise PlanError(f"false-success must be above 0 and below 1, got {self.false_success}")
        require_policy(self.policy, self.fallback)
        require_selection(self.perturbations, self.severities)

    def stress_plan(self) -> StressPlan:
        """Return the stress test whose answers the guard is fitted on."""
        return StressPlan(
            (self.model,),
            self.data,
            self.perturbations,
            self.severities,
            self.frames,
            controls=False,
            scoring=self.scoring,
        )


@dataclass(frozen=True)
class GuardRun:
    """A guard, the run it was fitted in, and the folder that names it."""

    run: Run
    record: Plain
    folder: Path


@dataclass(frozen=True, eq=False)
class JudgedClips:
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


def run_guard_fit(plan: GuardPlan) -> GuardRun:
    """Score the clips, clean and perturbed, fit the guard, and write guard.json."""
    model = name_model(plan.model)
    if plan.fallback:
        name_model(plan.fallback)
    probe = probed_model(model)
    stress = replace(plan.stress_plan(), models=(probe.name,))
    run = run_stress(stress, [probe], kind="guard", command=as_command("guard fit", plan))
    trials = run.trials()
    halves = _halves(trials, plan)
    guard = fit_guard(*halves, plan.false_success, plan.policy)
    record: Plain = {"model": model.name, "fingerprint": model.fingerprint, "fallback": plan.fallback}
    record |= {
        "data": plan.data,
        "guard": asdict(guard),
        "perturbations": list(plan.perturbations),
        "severities": list(plan.severities),
    }
    record |= {name: _size(half) for name, half in zip(("fit", "threshold"), halves)}
    record["held_out"] = effect_in_folds(trials, plan)
    run.save(GUARD, record)
    plan.guard.mkdir(parents=True, exist_ok=True)
    with atomic_write(plan.guard / GUARD) as partial:
        partial.write_bytes((run.folder / GUARD).read_bytes())
    return GuardRun(run, record, plan.guard)


def probed_model(model: NamedModel) -> NamedModel:
    """Name the model whose answers note what a guard reads of each clip."""
    composition = Composition((model.name,), digest("guard probe"), lambda built: Probe(built[0]))
    return name_composite(f"{model.name} (probed)", composition, [model])


def judged_clips(trials: TrialTable) -> JudgedClips:
    """Return the answered clips of which it is known whether they succeeded."""
    success, level = trials.number("truth_success"), trials.number("level")
    notes = [read_notes(raw).get("features") for raw in trials.text("raw")]
    keep = np.array([note is not None for note in notes]) & ~np.isnan(success) & ~np.isnan(level)
    rows = [note for note, kept in zip(notes, keep) if kept and note is not None]
    return JudgedClips(
        rows,
        level[keep] >= SUCCESS_LEVEL - 0.5,
        success[keep] == 1,
        trials.text("perturbation")[keep] == CLEAN,
        trials.text("task")[keep],
        trials.text("instruction")[keep],
    )


def fit_guard(fit: JudgedClips, threshold: JudgedClips, rate: float, policy: str) -> Guard:
    """Return the guard: claims ordered by risk on one part, the threshold by conformal risk control on the other."""
    known = tuple(sorted({str(text) for text, clean in zip(fit.instructions, fit.clean) if clean}))
    new = distances([str(text) for text in fit.instructions], [str(task) for task in fit.tasks])
    names, features = feature_rows(fit.rows, new)
    _require_claims(fit)
    reference = features[fit.clean]
    centers, scales = reference.mean(axis=0), np.maximum(reference.std(axis=0), _LEAST_SCALE)
    inputs = risk_inputs(names, (features - centers) / scales)
    weights, bias = fit_logistic(inputs[fit.claimed], fit.success[fit.claimed])
    plain = [tuple(part.tolist()) for part in (centers, scales, weights)]
    guard = Guard(names, plain[0], plain[1], plain[2], bias, None, known, rate, policy)
    return replace(guard, threshold=_threshold(guard, threshold, rate))


def feature_rows(rows: Sequence[dict[str, float]], distance: Sequence[float]) -> tuple[tuple[str, ...], Numbers]:
    """Return the names of the features that every row has, and their values (n, k)."""
    shared = sorted(set.intersection(*(set(row) for row in rows))) if rows else []
    names = (*shared, "instruction_distance")
    return names, np.array([[*(row[name] for name in shared), far] for row, far in zip(rows, distance)])


def clip_risks(guard: Guard, clips: JudgedClips) -> Numbers:
    """Return the risk of every clip, claimed a success or not."""
    near = {text: nearest_distance(str(text), guard.instructions) for text in set(clips.instructions)}
    rows = zip(clips.rows, clips.instructions)
    return np.array([guard.risk(row | {"instruction_distance": near[text]}) for row, text in rows])


def effect_in_folds(trials: TrialTable, plan: GuardPlan) -> Plain | None:
    """Return what guards fitted like this one do to tasks that they never saw; None where the tasks are too few."""
    try:
        folds = split_by_task(trials, plan.scoring.seed, FOLDS)
        judged = [_judged_by_others(fold, trials, plan) for fold in folds]
    except DataError:
        return None
    clips = [clips for clips, _ in judged]
    claimed, success, clean = (
        np.concatenate(flags) for flags in zip(*((c.claimed, c.success, c.clean) for c in clips))
    )
    passed, failed = np.concatenate([flags for _, flags in judged]), ~success
    return {
        "clips": len(passed),
        "tasks": sum(len(np.unique(each.task_codes())) for each in clips),
        "false_success": {"without": _share(claimed[failed]), "with": _share(passed[failed])},
        "found_success": {"without": _share(claimed[success]), "with": _share(passed[success])},
        "clean_withheld": _share((claimed & ~passed)[clean]),
    }


def _judged_by_others(fold: TrialTable, trials: TrialTable, plan: GuardPlan) -> tuple[JudgedClips, Flags]:
    """Return the clips of a fold, and which claims pass a guard that is fitted on all other tasks."""
    others = trials.where(~np.isin(trials.text("task").astype(str), fold.text("task").astype(str)))
    guard, clips = fit_guard(*_halves(others, plan), plan.false_success, plan.policy), judged_clips(fold)
    return clips, passed_claims(guard, clips, clip_risks(guard, clips))


def passed_claims(guard: Guard, clips: JudgedClips, risks: Numbers) -> Flags:
    """Tell of each clip whether it is claimed a success and the claim passes the guard."""
    passes: Flags = np.array([guard.passes(risk) for risk in risks.tolist()], dtype=bool)
    return clips.claimed & passes


def _halves(trials: TrialTable, plan: GuardPlan) -> tuple[JudgedClips, JudgedClips]:
    """Return the clips to order claims on, and those of other tasks to set the threshold on."""
    order, threshold = split_by_task(trials, plan.scoring.seed, 2)
    return judged_clips(order), judged_clips(threshold)


def guard_sentences(record: Plain) -> list[str]:
    """Return what was fitted and what it does to tasks kept apart, one sentence each."""
    guard, held = record["guard"], record["held_out"]
    never = "; no success passes: the model is wrong too often" if guard["threshold"] is None else ""
    said = [
        f"{record['model']}: guard for a false-success rate of {guard['false_success']:g} on new tasks like the "
        f"{record['threshold']['tasks']} that its threshold was set on{never}"
    ]
    if held is None:
        return [*said, "what such guards do to other tasks cannot be seen: the tasks are too few to keep some apart"]
    false, found = held["false_success"], held["found_success"]
    effect = (
        f"guards fitted like it, on {held['clips']} clips of {held['tasks']} tasks that they never saw: false success "
        f"{_percent(false['without'])} -> {_percent(false['with'])}, successes found {_percent(found['without'])} -> "
        f"{_percent(found['with'])}, clean clips withheld {_percent(held['clean_withheld'])}"
    )
    return [*said, effect]


def _threshold(guard: Guard, clips: JudgedClips, rate: float) -> float | None:
    failed, codes = ~clips.success, clips.task_codes()
    tasks = len(np.unique(codes[failed]))
    if tasks < least_units(rate):
        raise DataError(
            f"a false-success rate of {rate:g} takes failed clips of {least_units(rate)} tasks for the threshold, got "
            f"{tasks}; take data with more tasks, or allow a higher rate"
        )
    return control_risk(clip_risks(guard, clips)[failed], clips.claimed[failed], codes[failed], rate)


def _require_claims(fit: JudgedClips) -> None:
    true, false = int((fit.claimed & fit.success).sum()), int((fit.claimed & ~fit.success).sum())
    if min(true, false) < MIN_CLAIMS:
        raise DataError(
            f"a guard is fitted on claimed successes, {MIN_CLAIMS} true and {MIN_CLAIMS} false or more, got {true} and "
            f"{false}; take more data or more perturbations"
        )


def _size(clips: JudgedClips) -> Plain:
    return {"clips": len(clips.rows), "tasks": len(np.unique(clips.task_codes()))}


def _share(flags: Flags) -> float | None:
    return float(flags.mean()) if len(flags) else None


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f}%"
