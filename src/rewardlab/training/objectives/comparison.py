"""Every objective, backbone and seed, evaluated alike, written as one record."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.core.errors import RunError
from rewardlab.core.records import none_if_nan
from rewardlab.core.run import claim_folder, read_seconds, timed
from rewardlab.core.settings import as_command
from rewardlab.core.storage import atomic_write
from rewardlab.evaluation.frame_rewards import Measured, PerturbedLevels, measure_values, robustness
from rewardlab.evaluation.objective_comparison import (
    Comparison,
    LearningCurve,
    MeasuredTrainings,
    ObjectiveEntry,
    RewardTrace,
    objective_table,
    write_comparison,
)
from rewardlab.models.backends.checkpoint import choose_device
from rewardlab.models.calibration import UNCALIBRATED, LevelMap, fit_levels
from rewardlab.training.loop import LiveView, files_in, load_trainable, read_curve
from rewardlab.training.objectives import SECONDS, ObjectiveSettings, train_objective
from rewardlab.training.objectives.backbones import Backbone, TrainablePair, load_pair, write_pair
from rewardlab.training.objectives.clips import TEST, TRAIN, VALIDATION, ClipTable, PerturbedFrames, levels_of, only
from rewardlab.training.objectives.features import encode_inputs, evaluated_rows, load_inputs, make_sampler
from rewardlab.training.objectives.losses import NamedObjective, name_objective
from rewardlab.training.objectives.train import (
    TrainContext,
    TrainingJob,
    clip_values,
    fit,
    load_best,
    make_job,
    model_string,
    training_folder,
    tune,
    write_levels,
    write_result,
)
from rewardlab.training.optimizer import OptimizerConfig, trained_parameters

Numbers = NDArray[np.float64]
VALUES = "values.npz"
_CELLS_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class EvaluatedValues:
    """The rewards that one training gives: to every frame of validation and test clips, and to perturbed frames."""

    validation: Numbers
    test: Numbers
    cells: Numbers
    by_time: bool = False  # the length baseline: rewards belong to the time, not to what a frame shows

    @property
    def test_reversed(self) -> Numbers:
        """Return the rewards of the test clips shown backwards."""
        return self.test if self.by_time else self.test[:, ::-1]


def evaluate_frames(context: TrainContext, cells: PerturbedFrames) -> EvaluatedValues:
    """Return the rewards of the pair as it is now."""
    validation, test = (clip_values(context, context.evaluated.rows(part)) for part in (VALIDATION, TEST))
    return EvaluatedValues(validation, test, _cell_values(context, cells))


@torch.no_grad()
def _cell_values(context: TrainContext, cells: PerturbedFrames) -> Numbers:
    parts = [np.zeros(0)]
    for start in range(0, len(cells), _CELLS_AT_ONCE):
        some = slice(start, start + _CELLS_AT_ONCE)
        images = context.pair.images(context.store.cells[some].to(context.device))
        texts = context.pair.texts(context.store.text_rows(cells.texts[some]).to(context.device))
        parts.append((images * texts).sum(-1).double().cpu().numpy())
    return np.concatenate(parts)


def length_values(evaluated: ClipTable, cells: PerturbedFrames) -> EvaluatedValues:
    """Return the rewards of the length baseline: how late a frame is."""
    time = np.linspace(0, 1, evaluated.pixels.shape[1])
    validation, test = (np.tile(time, (len(evaluated.rows(part)), 1)) for part in (VALIDATION, TEST))
    return EvaluatedValues(validation, test, np.ones(len(cells)), by_time=True)


def write_values(path: Path, values: EvaluatedValues) -> None:
    """Write rewards as arrays, without pickles."""
    with atomic_write(path) as partial, partial.open("wb") as handle:
        arrays = {"validation": values.validation, "test": values.test, "cells": values.cells}
        np.savez_compressed(handle, allow_pickle=False, **arrays)


def read_values(path: Path) -> EvaluatedValues:
    """Read the rewards of a training."""
    with np.load(path) as table:
        return EvaluatedValues(table["validation"], table["test"], table["cells"])


def calibration(evaluated: ClipTable, values: EvaluatedValues) -> LevelMap:
    """Return the isotonic map from reward to level over all frames of the validation clips whose level is known."""
    levels = levels_of(only(evaluated, VALIDATION)).ravel()
    known = levels > 0
    if not known.any():
        return UNCALIBRATED
    return fit_levels(values.validation.ravel()[known].tolist(), levels[known].astype(float).tolist())


def measures(evaluated: ClipTable, cells: PerturbedFrames, values: EvaluatedValues) -> Mapping[str, Measured]:
    """Return every measure of the test clips."""
    test, level_map = only(evaluated, TEST), calibration(evaluated, values)
    levels = np.interp(values.test[:, -1], level_map.similarities, level_map.levels)
    found = measure_values(values.test, levels, test.facts, values.test_reversed)
    if len(cells):
        said = np.interp(values.cells, level_map.similarities, level_map.levels)
        found["robustness_auc"] = robustness(levels, said, test.facts, _cell_facts(test, cells))
    return found


def _cell_facts(test: ClipTable, cells: PerturbedFrames) -> PerturbedLevels:
    row = {clip.id: place for place, clip in enumerate(test.clips)}
    name = {perturbation: place for place, perturbation in enumerate(dict.fromkeys(cells.perturbations))}
    columns = (
        [row[clip] for clip in cells.clips],
        [name[perturbation] for perturbation in cells.perturbations],
        cells.severities,
        cells.levels,
    )
    return PerturbedLevels(*(np.array(column, np.int64) for column in columns))


# From the rewards of all trainings to the record of the comparison: table, curves and traces.

BACKBONE, LENGTH = "backbone alone", "length baseline"  # controls: before any objective, and without vision
_STILLS = 6  # frames of a clip that the page shows


@dataclass(frozen=True, eq=False)
class EvaluatedBackbone:
    """What one backbone's trainings came to: their jobs and rewards by objective, and those of the backbone alone."""

    name: str
    jobs: Mapping[str, Sequence[TrainingJob]]
    values: Mapping[str, Sequence[EvaluatedValues]]
    alone: EvaluatedValues


def compare(
    settings: ObjectiveSettings,
    table: ClipTable,
    cells: PerturbedFrames,
    backbones: Sequence[EvaluatedBackbone],
    seconds: Mapping[str, float],
) -> Comparison:
    """Return the whole comparison."""
    evaluated = table.take(np.flatnonzero([clip.part != TRAIN for clip in table.clips]))
    test = only(evaluated, TEST)
    trainings = [found for one in backbones for found in _measured(one, evaluated, cells)]
    made = objective_table(trainings, test.facts.task, test.groups, settings.against, settings.n_resamples)
    return Comparison(
        command=as_command("train objective", train_objective, vars(settings)),
        facts=_facts(settings, table, cells),
        against=settings.against,
        objectives=_entries(backbones),
        controls=(BACKBONE, LENGTH),
        groups={
            name: len({test.clips[row].task for row in np.flatnonzero(kept)}) for name, kept in test.groups.items()
        },
        cells=made[0],
        contrasts=made[1],
        curves=tuple(curve for one in backbones for curve in _curves(one)),
        traces=tuple(trace for one in backbones for trace in _traces(one, test)),
        seconds=dict(seconds),
    )


def _measured(one: EvaluatedBackbone, evaluated: ClipTable, cells: PerturbedFrames) -> list[MeasuredTrainings]:
    found = [
        MeasuredTrainings(one.name, name, tuple(measures(evaluated, cells, values) for values in seeds))
        for name, seeds in one.values.items()
    ]
    alone, length = measures(evaluated, cells, one.alone), measures(evaluated, cells, length_values(evaluated, cells))
    controls = {BACKBONE: alone, LENGTH: length}
    return found + [MeasuredTrainings(one.name, name, (own,), control=True) for name, own in controls.items()]


def _entries(backbones: Sequence[EvaluatedBackbone]) -> tuple[ObjectiveEntry, ...]:
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
    return f"lr {job.optimizer.lr:.2g}{options}"


def _curves(one: EvaluatedBackbone) -> list[LearningCurve]:
    curves = []
    for name, jobs in one.jobs.items():
        for job in jobs:
            rows = [row for row in read_curve(files_in(job.folder).curve) if "agreement" in row]
            steps, scores = tuple(int(row["step"]) for row in rows), tuple(float(row["agreement"]) for row in rows)
            curves.append(LearningCurve(one.name, name, job.seed, steps, scores))
    return curves


def _traces(one: EvaluatedBackbone, test: ClipTable) -> list[RewardTrace]:
    """Return a success of each of the narrower groups of tasks, and a failure of an unseen task."""
    shown: dict[int, str] = {}
    for name, kept in test.groups.items():
        wanted = 1 if "," in name else 0 if name.startswith("unseen") else None
        if wanted is not None:
            shown |= {int(row): name for row in np.flatnonzero(kept & (test.facts.success == wanted))[:1]}
    return [_trace(one, test, row, group) for row, group in shown.items()]


def _trace(one: EvaluatedBackbone, test: ClipTable, row: int, group: str) -> RewardTrace:
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


def _facts(settings: ObjectiveSettings, table: ClipTable, cells: PerturbedFrames) -> tuple[str, ...]:
    parts = {part: only(table, part) for part in (TRAIN, TEST)}
    seen, unseen = ({c.task for c in table.clips if c.seen is which} for which in (True, False))
    return (
        f"{len(parts[TRAIN].clips)} training clips of {len(seen)} tasks, {len(parts[TEST].clips)} test clips, of which "
        f"{sum(not c.seen for c in parts[TEST].clips)} are of tasks never trained on ({len(unseen)}); "
        f"{settings.frames} frames of {settings.size} pixels, {settings.views} looks of each training clip.",
        f"Budget of every objective on every backbone: {settings.tuning} settings tried on seed {settings.seeds[0]}, "
        f"then {len(settings.seeds)} seeds; {settings.steps} steps of {settings.batch_size} clips each; clips, looks, "
        "words and random numbers of a step are the same for every objective.",
        "The checkpoint and the setting are chosen by agreement on validation clips of seen tasks; test clips are "
        "asked for in words that no training has seen where the data has several.",
        f"Robustness: {len(cells)} perturbed clips that keep their label, by {len(set(cells.perturbations))} changes.",
    )


_ALIGNMENT = "infonce"


@dataclass(frozen=True, eq=False)
class Comparing:
    """What is compared on which clips."""

    settings: ObjectiveSettings
    table: ClipTable
    cells: PerturbedFrames
    objectives: tuple[NamedObjective, ...]

    @property
    def device(self) -> str:
        """Return where it computes."""
        return choose_device(self.settings.device)


def compare_all(comparing: Comparing, backbones: Sequence[Backbone]) -> tuple[str, ...]:
    """Encode, train and evaluate on each backbone, write the record, and return the model strings."""
    settings = comparing.settings
    found = [one for backbone in backbones if (one := _on_backbone(comparing, backbone)) is not None]
    if found and settings.does("evaluate"):
        write_comparison(
            settings.out,
            compare(settings, comparing.table, comparing.cells, found, read_seconds(settings.out / SECONDS)),
        )
    return tuple(model_string(job) for one in found for jobs in one.jobs.values() for job in jobs)


def _on_backbone(comparing: Comparing, backbone: Backbone) -> EvaluatedBackbone | None:
    settings, out = comparing.settings, comparing.settings.out
    _claim_backbone(backbone, out / "backbones")
    start = write_pair(backbone, out / "backbones" / f"{backbone.name}-parts") if backbone.folder is None else None
    pair = load_pair(start or _folder(backbone), comparing.device, settings.lora)
    features = out / "features" / backbone.name
    with timed(out / SECONDS, "features"):
        encode_inputs(settings, pair, comparing.table, comparing.cells, features)
    if not settings.does("train"):
        return None
    context = _train_context(comparing, pair, features)
    with timed(out / SECONDS, "train"):
        if start is not None:
            context = _aligned(comparing, context, out / "backbones" / backbone.name)
        jobs = _train(comparing, context, backbone.name)
    if not settings.does("evaluate"):
        return None
    with timed(out / SECONDS, "evaluate"):
        return _evaluate(comparing, context, backbone.name, jobs)


def _claim_backbone(backbone: Backbone, folder: Path) -> None:
    """Write down what a name stands for; RunError where it stood for something else in this folder."""
    path = folder / f"{backbone.name}.json"
    try:
        claim_folder(path, {key: str(value) for key, value in vars(backbone).items()})
    except RunError:
        raise RunError(f"{path} says that {backbone.name} is another backbone; give this one another name") from None


def _folder(backbone: Backbone) -> Path:
    assert backbone.folder is not None
    return backbone.folder


def _train_context(comparing: Comparing, pair: TrainablePair, features: Path) -> TrainContext:
    store = load_inputs(features, comparing.device)
    sampler = make_sampler(only(comparing.table, TRAIN), store, comparing.device)
    evaluated = comparing.table.take(evaluated_rows(comparing.table))
    start = {name: value.detach().clone() for name, value in trained_parameters(pair.network).items()}
    return TrainContext(pair, start, sampler, evaluated, comparing.device)


def _aligned(comparing: Comparing, context: TrainContext, folder: Path) -> TrainContext:
    """Return the context whose trainings start from projections that InfoNCE has aligned; the folder holds them."""
    settings, pair = comparing.settings, context.pair
    if settings.align_steps:
        interval = max(1, settings.align_steps // 4)
        job = TrainingJob(
            name_objective(_ALIGNMENT),
            settings.seed,
            OptimizerConfig(settings.lr),
            settings.align_steps,
            settings.batch_size,
            interval,
            folder,
        )
        view = LiveView(f"aligning {folder.name}", settings.align_steps, 0)
        try:
            fit(job, context, view, 0)
        finally:
            view.close()
        load_best(job, context)
    pair.write(folder)
    start = {name: value.detach().clone() for name, value in trained_parameters(pair.network).items()}
    return TrainContext(pair, start, context.sampler, context.evaluated, context.device)


def _train(comparing: Comparing, context: TrainContext, backbone: str) -> dict[str, list[TrainingJob]]:
    """Tune and train every objective; what is done already is not done again."""
    settings = comparing.settings
    each = settings.steps * ((settings.tuning if settings.tuning > 1 else 0) + len(settings.seeds))
    view = LiveView(f"trainings on {backbone}", each * len(comparing.objectives), 0)
    jobs: dict[str, list[TrainingJob]] = {}
    try:
        for number, objective in enumerate(comparing.objectives):
            setting = tune(objective, settings, context, backbone, view, number * each)
            folders = {seed: training_folder(settings.out, backbone, objective.text, seed) for seed in settings.seeds}
            made = [make_job(settings, setting, seed, folder) for seed, folder in folders.items()]
            for turn, job in enumerate(made):
                found = fit(job, context, view, (number + 1) * each - (len(made) - turn) * settings.steps)
                if not (job.folder / "config.json").exists():
                    load_best(job, context)
                    write_result(job, context, settings, found)
            jobs[objective.text] = made
            view.say(f"{backbone}: {objective.text} is trained")
    finally:
        view.close()
    return jobs


def _evaluate(
    comparing: Comparing, context: TrainContext, backbone: str, jobs: dict[str, list[TrainingJob]]
) -> EvaluatedBackbone:
    """Evaluate every training on the test clips; rewards that are in the folder are read."""
    values = {}
    for name, made in jobs.items():
        for job in made:
            path = job.folder / VALUES
            if not path.exists():
                load_best(job, context)
                write_values(path, evaluate_frames(context, comparing.cells))
            write_levels(job, calibration(context.evaluated, read_values(path)))
        values[name] = [read_values(job.folder / VALUES) for job in made]
    load_trainable(context.pair.network, context.start)
    return EvaluatedBackbone(backbone, jobs, values, evaluate_frames(context, comparing.cells))
