"""From the rewards of all trainings to the record of the comparison: table, curves and traces."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rewardlab.analysis.objective_comparison import Comparison, LearningCurve, ObjectiveEntry, RewardTrace
from rewardlab.analysis.objective_table import MeasuredTrainings, objective_table
from rewardlab.core.command_settings import as_command
from rewardlab.core.dataclass_json import none_if_nan
from rewardlab.core.episode import Frames
from rewardlab.training.live_view import read_curve
from rewardlab.training.objective_training.clips import TEST, TRAIN, ClipTable, only
from rewardlab.training.objective_training.evaluation import JudgedValues, clock_values, measures
from rewardlab.training.objective_training.perturbed_cells import PerturbedCells
from rewardlab.training.objective_training.plan import ObjectivePlan
from rewardlab.training.objective_training.training_loop import TrainingJob

BACKBONE, CLOCK = "backbone alone", "clock"  # controls: before any objective, and blind
_STILLS = 6  # frames of a clip that the page shows


@dataclass(frozen=True, eq=False)
class JudgedBackbone:
    """What one backbone's trainings came to: their jobs and rewards by objective, and those of the backbone alone."""

    name: str
    jobs: Mapping[str, Sequence[TrainingJob]]
    values: Mapping[str, Sequence[JudgedValues]]
    alone: JudgedValues


def compare(
    plan: ObjectivePlan,
    table: ClipTable,
    cells: PerturbedCells,
    backbones: Sequence[JudgedBackbone],
    seconds: Mapping[str, float],
) -> Comparison:
    """Return the whole comparison."""
    judged = table.take(np.flatnonzero([clip.part != TRAIN for clip in table.clips]))
    test = only(judged, TEST)
    trainings = [found for one in backbones for found in _measured(one, judged, cells)]
    made = objective_table(trainings, test.facts.task, test.groups, plan.against, plan.draws)
    return Comparison(
        command=as_command("train-objective", plan).replace("train-objective", "train objective", 1),
        facts=_facts(plan, table, cells),
        against=plan.against,
        objectives=_entries(backbones),
        controls=(BACKBONE, CLOCK),
        groups={
            name: len({test.clips[row].task for row in np.flatnonzero(kept)}) for name, kept in test.groups.items()
        },
        cells=made[0],
        contrasts=made[1],
        curves=tuple(curve for one in backbones for curve in _curves(one)),
        traces=tuple(trace for one in backbones for trace in _traces(one, test)),
        seconds=dict(seconds),
    )


def _measured(one: JudgedBackbone, judged: ClipTable, cells: PerturbedCells) -> list[MeasuredTrainings]:
    found = [
        MeasuredTrainings(one.name, name, tuple(measures(judged, cells, values) for values in seeds))
        for name, seeds in one.values.items()
    ]
    alone, clock = measures(judged, cells, one.alone), measures(judged, cells, clock_values(judged, cells))
    controls = {BACKBONE: alone, CLOCK: clock}
    return found + [MeasuredTrainings(one.name, name, (own,), control=True) for name, own in controls.items()]


def _entries(backbones: Sequence[JudgedBackbone]) -> tuple[ObjectiveEntry, ...]:
    return tuple(
        ObjectiveEntry(
            name,
            jobs[0].objective.entry.summary,
            jobs[0].objective.entry.needs,
            {one.name: _chosen(one.jobs[name][0]) for one in backbones},
        )
        for name, jobs in backbones[0].jobs.items()
    )


def _chosen(job: TrainingJob) -> str:
    options = "".join(f", {name} {value}" for name, value in job.objective.options.items())
    return f"rate {job.numbers.rate:.2g}{options}"


def _curves(one: JudgedBackbone) -> list[LearningCurve]:
    curves = []
    for name, jobs in one.jobs.items():
        for job in jobs:
            rows = [row for row in read_curve(job.folder) if "agreement" in row]
            steps, scores = tuple(int(row["step"]) for row in rows), tuple(float(row["agreement"]) for row in rows)
            curves.append(LearningCurve(one.name, name, job.seed, steps, scores))
    return curves


def _traces(one: JudgedBackbone, test: ClipTable) -> list[RewardTrace]:
    """Return a success of each of the narrower groups of tasks, and a failure of an unseen task."""
    shown: dict[int, str] = {}
    for name, kept in test.groups.items():
        wanted = 1 if "," in name else 0 if name.startswith("unseen") else None
        if wanted is not None:
            shown |= {int(row): name for row in np.flatnonzero(kept & (test.facts.success == wanted))[:1]}
    return [_trace(one, test, row, group) for row, group in shown.items()]


def _trace(one: JudgedBackbone, test: ClipTable, row: int, group: str) -> RewardTrace:
    clip = test.clips[row]
    every = {name: seeds[0] for name, seeds in one.values.items()} | {BACKBONE: one.alone}
    return RewardTrace(
        one.name,
        clip.id,
        clip.asked,
        group,
        clip.success == 1,
        tuple(none_if_nan(float(value)) for value in test.progress[row]),
        {name: tuple(values.test[row].tolist()) for name, values in every.items()},
        _stills(test.pixels[row]),
    )


def _stills(frames: Frames) -> str:
    import cv2

    chosen = frames[np.linspace(0, len(frames) - 1, min(_STILLS, len(frames))).round().astype(np.int64)]
    _, encoded = cv2.imencode(".jpg", np.concatenate(list(chosen), axis=1)[:, :, ::-1], (cv2.IMWRITE_JPEG_QUALITY, 80))
    return f"data:image/jpeg;base64,{base64.b64encode(encoded.tobytes()).decode()}"


def _facts(plan: ObjectivePlan, table: ClipTable, cells: PerturbedCells) -> tuple[str, ...]:
    parts = {part: only(table, part) for part in (TRAIN, TEST)}
    seen, unseen = ({c.task for c in table.clips if c.seen is which} for which in (True, False))
    return (
        f"{len(parts[TRAIN].clips)} training clips of {len(seen)} tasks, {len(parts[TEST].clips)} test clips, of which "
        f"{sum(not c.seen for c in parts[TEST].clips)} are of tasks never trained on ({len(unseen)}); {plan.frames} "
        f"frames of {plan.size} pixels, {plan.views} looks of each training clip.",
        f"Budget of every objective on every backbone: {plan.tuning} settings tried on seed {plan.seeds[0]}, then "
        f"{len(plan.seeds)} seeds; {plan.steps} steps of {plan.batch} clips each; clips, looks, words and random "
        "numbers of a step are the same for every objective.",
        "The checkpoint and the setting are chosen by agreement on validation clips of seen tasks; test clips are "
        "asked for in words that no training has seen where the data has several.",
        f"Robustness: {len(cells)} perturbed clips that keep their label, by {len(set(cells.perturbations))} changes.",
    )
