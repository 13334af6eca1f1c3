"""Every objective, backbone and seed, evaluated alike, written as one record."""

import base64
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewardlab.core.episode import Frames
from rewardlab.core.errors import RunError
from rewardlab.core.records import none_if_nan
from rewardlab.core.run import claim_folder, read_seconds, timed
from rewardlab.core.settings import as_command
from rewardlab.core.storage import atomic_write
from rewardlab.core.terminal import ProgressBar
from rewardlab.evaluation.engines.ordered_map import map_items
from rewardlab.evaluation.frame_rewards import Measured, PerturbedLevels, robustness
from rewardlab.evaluation.objective_comparison import (
    ClipRewards,
    Comparison,
    KeptRewards,
    LearningCurve,
    ObjectiveEntry,
    RewardTrace,
    in_steps,
    write_comparison,
    write_rewards,
)
from rewardlab.models.backends.checkpoint import choose_device
from rewardlab.models.calibration import UNCALIBRATED, LevelMap, fit_levels
from rewardlab.training.loop import files_in, load_trainable, read_curve
from rewardlab.training.objectives import SECONDS, ObjectiveSettings, train_objective
from rewardlab.training.objectives.backbones import Backbone, TrainablePair, load_pair, write_pair
from rewardlab.training.objectives.clips import TEST, TRAIN, VALIDATION, ClipTable, PerturbedFrames, levels_of, only
from rewardlab.training.objectives.features import (
    captioned_frames,
    encode_inputs,
    evaluated_rows,
    load_inputs,
    make_sampler,
)
from rewardlab.training.objectives.losses import NamedObjective, name_objective
from rewardlab.training.objectives.train import (
    CARD,
    LEVELS,
    TrainContext,
    TrainingJob,
    clip_values,
    fit,
    load_best,
    make_job,
    model_string,
    slug,
    tune,
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


@torch.no_grad()
def evaluate_frames(context: TrainContext, cells: PerturbedFrames) -> EvaluatedValues:
    """Return the rewards of the pair as it is now."""
    validation, test = (clip_values(context, context.evaluated.rows(part)) for part in (VALIDATION, TEST))
    parts = [np.zeros(0)]
    for start in range(0, len(cells), _CELLS_AT_ONCE):
        some = slice(start, start + _CELLS_AT_ONCE)
        images = context.pair.images(context.store.cells[some].to(context.device))
        texts = context.pair.texts(context.store.text_rows(cells.texts[some]).to(context.device))
        parts.append((images * texts).sum(-1).double().cpu().numpy())
    return EvaluatedValues(validation, test, np.concatenate(parts))


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


def levels_and_robustness(
    evaluated: ClipTable, cells: PerturbedFrames, values: EvaluatedValues
) -> tuple[Numbers, Measured]:
    """Return the calibrated level of every test clip, and its accuracy under perturbations."""
    test, level_map = only(evaluated, TEST), calibration(evaluated, values)
    levels = np.interp(values.test[:, -1], level_map.similarities, level_map.levels)
    if not len(cells):
        return levels, (np.zeros(len(levels)), np.zeros(len(levels)))
    said = np.interp(values.cells, level_map.similarities, level_map.levels)
    row = {clip.id: place for place, clip in enumerate(test.clips)}
    name = {perturbation: place for place, perturbation in enumerate(dict.fromkeys(cells.perturbations))}
    numbers = ([row[clip] for clip in cells.clips], [name[each] for each in cells.perturbations])
    columns = (np.array(column, np.int64) for column in (*numbers, cells.severities, cells.levels))
    return levels, robustness(levels, said, test.facts, PerturbedLevels(*columns))


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


def _clip_rewards(one: EvaluatedBackbone, evaluated: ClipTable, cells: PerturbedFrames) -> list[ClipRewards]:
    """Return what every training and control gives to the test clips."""
    time = np.linspace(0, 1, evaluated.pixels.shape[1])  # all that the length baseline knows: how late a frame is
    validation, test = (np.tile(time, (len(evaluated.rows(part)), 1)) for part in (VALIDATION, TEST))
    blind = EvaluatedValues(validation, test, np.ones(len(cells)))
    every = [(name, values, False) for name, seeds in one.values.items() for values in seeds]
    every += [(BACKBONE, one.alone, True), (LENGTH, blind, True)]
    return [
        ClipRewards(
            one.name,
            name,
            *in_steps(values.test),
            *levels_and_robustness(evaluated, cells, values),
            control,
            name == LENGTH,
        )
        for name, values, control in every
    ]


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
    every = {name: seeds[0] for name, seeds in one.values.items()} | {BACKBONE: one.alone}
    return [
        RewardTrace(
            one.name,
            test.clips[row].id,
            test.clips[row].asked,
            group,
            test.clips[row].success == 1,
            tuple(none_if_nan(float(value)) for value in test.progress[row]),
            {name: tuple(values.test[row].tolist()) for name, values in every.items()},
            _stills(test.pixels[row]),
        )
        for row, group in shown.items()
    ]


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
        f"then {len(settings.seeds)} seeds; {settings.steps} steps of {settings.batch_size} clips each, and every clip "
        "counts: for an objective that learns from successes alone, a success of the same task takes the place of any "
        "other clip. Tasks, looks, words and random numbers of a step are the same for every objective.",
        "The checkpoint and the setting are chosen by agreement on validation clips of seen tasks; test clips are "
        "asked for in words that no training has seen where the data has several.",
        f"Robustness: {len(cells)} perturbed clips that keep their label, by {len(set(cells.perturbations))} changes.",
    )


@dataclass(frozen=True, eq=False)
class Comparing:
    """What is compared on which clips."""

    settings: ObjectiveSettings
    table: ClipTable
    cells: PerturbedFrames
    objectives: tuple[NamedObjective, ...]


def compare_all(comparing: Comparing, backbones: Sequence[Backbone]) -> tuple[str, ...]:
    """Encode, train and evaluate on each backbone, write the record, and return the model strings."""
    settings = comparing.settings
    found = [one for backbone in backbones if (one := _on_backbone(comparing, backbone)) is not None]
    if found:
        write_comparison(settings.out, _compare(comparing, found))
    return tuple(model_string(job) for one in found for jobs in one.jobs.values() for job in jobs)


def _compare(comparing: Comparing, backbones: Sequence[EvaluatedBackbone]) -> Comparison:
    settings, table, cells = comparing.settings, comparing.table, comparing.cells
    evaluated = table.take(evaluated_rows(table))
    test = only(evaluated, TEST)
    trainings = tuple(found for one in backbones for found in _clip_rewards(one, evaluated, cells))
    ids = tuple(clip.id for clip in test.clips)
    kept = KeptRewards(ids, test.facts, test.groups, trainings, settings.against, settings.n_resamples)
    write_rewards(settings.out, kept)
    made = kept.table()
    return Comparison(
        command=as_command("train objective", train_objective, vars(settings)),
        facts=_facts(settings, table, cells),
        against=settings.against,
        objectives=tuple(
            ObjectiveEntry(
                name,
                jobs[0].objective.entry.summary,
                jobs[0].objective.entry.needs,
                {one.name: _chosen(one.jobs[name][0]) for one in backbones},
            )
            for name, jobs in backbones[0].jobs.items()
        ),
        controls=(BACKBONE, LENGTH),
        groups={
            name: len({test.clips[row].task for row in np.flatnonzero(kept)}) for name, kept in test.groups.items()
        },
        cells=made[0],
        contrasts=made[1],
        curves=tuple(curve for one in backbones for curve in _curves(one)),
        traces=tuple(trace for one in backbones for trace in _traces(one, test)),
        seconds=read_seconds(settings.out / SECONDS),
    )


def _on_backbone(comparing: Comparing, backbone: Backbone) -> EvaluatedBackbone | None:
    settings, out = comparing.settings, comparing.settings.out
    device, claim = choose_device(settings.device), out / "backbones" / f"{backbone.name}.json"
    try:
        claim_folder(claim, {key: str(value) for key, value in vars(backbone).items()})
    except RunError:
        raise RunError(f"{claim} says that {backbone.name} is another backbone; give this one another name") from None
    folder = backbone.folder or write_pair(backbone, out / "backbones" / f"{backbone.name}-parts")
    if backbone.pretrain:
        with timed(out / SECONDS, "pretrain"):
            folder = _pretrained(comparing, backbone, folder, device)
    pair = load_pair(folder, device, settings.lora)
    with timed(out / SECONDS, "features"):
        encode_inputs(settings, pair, comparing.table, comparing.cells, out / "features" / backbone.name)
    if not settings.does("train"):
        return None
    with timed(out / SECONDS, "train"):
        context = _context(comparing, backbone, pair, device)
        if settings.parallel > 1:
            table, cells = comparing.table, comparing.cells  # whose pixels are encoded, so that workers need none
            table, cells = replace(table, pixels=table.pixels[:, :, :0]), replace(cells, pixels=cells.pixels[:0])
            shared = replace(comparing, table=table, cells=cells, objectives=())
            work = partial(_train_elsewhere, shared, backbone, folder)
            deque(map_items(work, [each.text for each in comparing.objectives], settings.parallel), maxlen=0)
        jobs = _train(comparing, context, backbone.name)
    if not settings.does("evaluate"):
        return None
    with timed(out / SECONDS, "evaluate"):
        return _evaluate(comparing, context, backbone.name, jobs)


def _train_elsewhere(comparing: Comparing, backbone: Backbone, folder: Path, objective: str) -> None:
    """Tune and train one objective in a process of its own; the folder holds what comes out."""
    device = choose_device(comparing.settings.device)
    context = _context(comparing, backbone, load_pair(folder, device, comparing.settings.lora), device)
    _train(replace(comparing, objectives=(name_objective(objective),)), context, backbone.name)


def _context(comparing: Comparing, backbone: Backbone, pair: TrainablePair, device: str) -> TrainContext:
    """Return what the trainings of a backbone share, from its encoded inputs; its projections are aligned."""
    out, table = comparing.settings.out, comparing.table
    sampler = make_sampler(only(table, TRAIN), load_inputs(out / "features" / backbone.name, device), device)
    context = TrainContext(pair, _weights(pair), sampler, table.take(evaluated_rows(table)), device)
    return context if backbone.folder else _aligned(comparing, context, out / "backbones" / backbone.name)


def _pretrained(comparing: Comparing, backbone: Backbone, parts: Path, device: str) -> Path:
    """Return the folder of a pair that InfoNCE has trained as a whole, on training frames and their captions.

    A step has as many frames as one of an objective, and a tenth of the learning rate.
    """
    settings, folder = comparing.settings, parts.with_name(f"{backbone.name}-pretrained")
    if (folder / "config.json").exists():
        return folder
    pair, table = load_pair(parts, device, settings.lora, whole=True), comparing.table
    sampler = captioned_frames(pair, table, device)
    context = TrainContext(pair, _weights(pair), sampler, table.take(evaluated_rows(table)), device)
    frames, optimizer = settings.batch_size * settings.frames, OptimizerConfig(settings.lr / 10)
    interval, steps = max(1, backbone.pretrain // 4), backbone.pretrain
    job = TrainingJob(name_objective("infonce"), settings.seed, optimizer, steps, frames, interval, folder)
    with ProgressBar(f"pretraining {backbone.name}", steps, 0) as view:
        fit(job, context, view, 0)
    load_best(job, context)
    pair.write(folder)
    return folder


def _weights(pair: TrainablePair) -> dict[str, Tensor]:
    """Return a copy of the trained weights as they are now."""
    return {name: value.detach().clone() for name, value in trained_parameters(pair.network).items()}


def _aligned(comparing: Comparing, context: TrainContext, folder: Path) -> TrainContext:
    """Return the context whose trainings start from projections that InfoNCE has aligned; the folder holds them."""
    settings, pair = comparing.settings, context.pair
    if settings.align_steps:
        job = TrainingJob(
            name_objective("infonce"),
            settings.seed,
            OptimizerConfig(settings.lr),
            settings.align_steps,
            settings.batch_size,
            max(1, settings.align_steps // 4),
            folder,
        )
        with ProgressBar(f"aligning {folder.name}", settings.align_steps, 0) as view:
            fit(job, context, view, 0)
        load_best(job, context)
    if not (folder / "config.json").exists():
        pair.write(folder)
    return replace(context, start=_weights(pair))


def _train(comparing: Comparing, context: TrainContext, backbone: str) -> dict[str, list[TrainingJob]]:
    """Tune and train every objective; what is done already is not done again."""
    settings = comparing.settings
    each = settings.steps * ((settings.tuning if settings.tuning > 1 else 0) + len(settings.seeds))
    jobs: dict[str, list[TrainingJob]] = {}
    with ProgressBar(f"trainings on {backbone}", each * len(comparing.objectives), 0) as view:
        for number, objective in enumerate(comparing.objectives):
            setting = tune(objective, settings, context, backbone, view, number * each)
            folder = settings.out / "trainings" / backbone / slug(objective.text)  # `contrastive:` takes each seed's
            made = [make_job(settings, setting, seed, folder / f"seed{seed}") for seed in settings.seeds]
            for turn, job in enumerate(made):
                found = fit(job, context, view, (number + 1) * each - (len(made) - turn) * settings.steps)
                if not (job.folder / CARD).exists():  # it is written last
                    load_best(job, context)
                    write_result(job, context, settings, found)
            jobs[objective.text] = made
            view.say(f"{backbone}: {objective.text} is trained")
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
                now = evaluate_frames(context, comparing.cells)
                with atomic_write(path) as partial, partial.open("wb") as handle:
                    np.savez_compressed(handle, validation=now.validation, test=now.test, cells=now.cells)
            calibration(context.evaluated, read_values(path)).write(job.folder / LEVELS)
        values[name] = [read_values(job.folder / VALUES) for job in made]
    load_trainable(context.pair.network, context.start)
    return EvaluatedBackbone(backbone, jobs, values, evaluate_frames(context, comparing.cells))
