"""One training of one objective: settings tried, fitted, written as a folder for `contrastive:`."""

import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewardlab.core import __version__
from rewardlab.core.errors import ModelError, PlanError, RunError
from rewardlab.core.records import read_json
from rewardlab.core.run import claim_folder
from rewardlab.core.seeding import digest
from rewardlab.core.storage import write_file
from rewardlab.core.terminal import ProgressBar
from rewardlab.evaluation.frame_rewards import ranking_score
from rewardlab.training.loop import BEST, TRAINED, WORK, Step, files_in, load_trainable
from rewardlab.training.loop import fit as run_loop
from rewardlab.training.objectives import ObjectiveSettings
from rewardlab.training.objectives.backbones import TrainablePair, read_upstreams
from rewardlab.training.objectives.clips import VALIDATION, ClipTable, only
from rewardlab.training.objectives.contract import ClipBatch
from rewardlab.training.objectives.features import InputStore, Sampler, embed_clips
from rewardlab.training.objectives.losses import NamedObjective
from rewardlab.training.optimizer import MasterAdamW, OptimizerConfig, learning_rate
from rewardlab.training.processes import Processes

RECORD = "fitted.json"
_CLIPS_AT_ONCE = 64


@dataclass(frozen=True)
class TrainingJob:
    """One training: an objective with its options, a seed, a budget, and the folder of what comes out."""

    objective: NamedObjective
    seed: int
    optimizer: OptimizerConfig
    steps: int
    batch: int
    interval: int
    folder: Path

    @property
    def identity(self) -> dict[str, object]:
        """Return what decides the weights that come out, beside backbone and data."""
        return {
            "objective": self.objective.text,
            "code": self.objective.code,
            "options": {name: str(value) for name, value in self.objective.options.items()},
            "clips": self.objective.entry.needs,
            "budget": [self.seed, self.optimizer.lr, self.steps, self.batch, self.interval],
        }


@dataclass(frozen=True, eq=False)
class TrainContext:
    """What all trainings of a backbone share: the pair, its weights before any training, and the encoded data."""

    pair: TrainablePair
    start: dict[str, Tensor]
    sampler: Sampler
    evaluated: ClipTable
    device: str

    @property
    def store(self) -> InputStore:
        return self.sampler.store


@dataclass(frozen=True)
class Fitted:
    """What a training has come to: its validation agreement, nan where none can be measured, and at which step."""

    agreement: float
    step: int


def fit(job: TrainingJob, context: TrainContext, view: ProgressBar, done: int) -> Fitted:
    """Train from the last checkpoint on, unless it is done; the best weights are then in its folder.

    `done` counts the steps before. RunError where the folder holds another training.
    """
    path = job.folder / RECORD
    if path.exists():
        record = read_json(path)
        if record["job"] != job.identity:
            raise RunError(f"{job.folder} was begun with other settings; choose another --out or remove that folder")
        agreement = record["agreement"]
        return Fitted(math.nan if agreement is None else float(agreement), int(record["step"]))
    files = files_in(job.folder)
    claim_folder(files.state.with_name("begun.json"), job.identity, where=str(job.folder))
    load_trainable(context.pair.network, context.start)
    progress = run_loop(
        Trainer(job, context, MasterAdamW(context.pair.network, job.optimizer, context.device)),
        files,
        steps=job.steps,
        eval_every=job.interval,
        processes=Processes(context.device),
        show=lambda progress, _: view.step(done + progress.step, job.objective.text),
        name=job.objective.text,
    )
    agreement = None if math.isinf(progress.best_error) else 1 - progress.best_error
    record = {"job": job.identity, "agreement": agreement, "step": progress.best_step}
    write_file(path, json.dumps(record) + "\n")
    files.state.unlink(missing_ok=True)
    return Fitted(math.nan if agreement is None else agreement, progress.best_step)


@dataclass(frozen=True, eq=False)
class Trainer:
    """One objective as the loop trains it."""

    job: TrainingJob
    context: TrainContext
    optimizer: MasterAdamW

    def batches(self, start: int) -> Iterator[ClipBatch]:
        job, context = self.job, self.context
        for number in range(start, job.steps):
            yield context.sampler.batch(context.pair, job.seed, number, job.batch, job.objective.entry.needs)

    def step(self, number: int, batch: ClipBatch) -> Step:
        objective = self.job.objective
        loss = objective.loss(batch)
        if not isinstance(loss, Tensor) or loss.ndim or not loss.requires_grad:
            got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise ModelError(
                f"objective {objective.text} must return one number that depends on the batch's images or texts, "
                f"as a tensor without dimensions, got {got}"
            )
        loss.backward()
        self.optimizer.collect()
        lr = learning_rate(number, self.job.steps, self.job.optimizer)
        self.optimizer.step(lr)
        return Step({"loss": loss.detach()}, lr)

    def validate(self) -> tuple[float | None, dict[str, float]]:
        """Return the disagreement with true progress, None where no validation clip tells it, and the agreement."""
        evaluated = self.context.evaluated
        rows = evaluated.rows(VALIDATION)
        if not len(rows):
            return None, {}
        agreement = ranking_score(clip_values(self.context, rows), only(evaluated, VALIDATION).facts)
        return (None, {}) if math.isnan(agreement) else (1 - agreement, {"agreement": agreement})

    def state(self) -> dict[str, Any]:
        return {TRAINED: self.optimizer.trained(), "moments": self.optimizer.moments()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.optimizer.restore(state[TRAINED], state["moments"])


@torch.no_grad()
def clip_values(context: TrainContext, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the reward of every frame of some evaluated clips, under the instruction of each."""
    parts = [np.zeros((0, context.store.evaluated.shape[1]))]
    for start in range(0, len(rows), _CLIPS_AT_ONCE):
        some = rows[start : start + _CLIPS_AT_ONCE]
        inputs = context.store.evaluated[torch.from_numpy(some)].to(context.device)
        asked = context.store.text_rows([context.evaluated.clips[row].asked for row in some]).to(context.device)
        similarity = torch.einsum("btd,bd->bt", embed_clips(context.pair, inputs), context.pair.texts(asked))
        parts.append(similarity.double().cpu().numpy())
    return np.concatenate(parts)


def load_best(job: TrainingJob, context: TrainContext) -> None:
    """Put the best weights of a finished training in place."""
    from safetensors.torch import load_file

    load_trainable(context.pair.network, load_file(job.folder / WORK / BEST))


# Where each training of a comparison goes, and what it is.


def slug(text: str) -> str:
    """Return the text of an objective as the name of a folder; two texts never share one."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)
    return plain if plain == text else f"{plain}-{digest(text)[:6]}"


Setting = tuple[NamedObjective, float]  # an objective with its option, and a learning rate


def make_job(settings: ObjectiveSettings, setting: Setting, seed: int, folder: Path) -> TrainingJob:
    """Return the training of an objective with a learning rate."""
    objective, rate = setting
    return TrainingJob(
        objective, seed, OptimizerConfig(rate), settings.steps, settings.batch_size, settings.interval, folder
    )


# Tuning with the same budget for every objective: so many settings on one seed, chosen by validation agreement.

LR_FACTORS = (1.0, 3.0, 1 / 3, 10.0, 0.1, 30.0, 1 / 30)  # times --lr, in the order in which they are tried


def settings_to_try(objective: NamedObjective, settings: ObjectiveSettings) -> list[Setting]:
    """Return as many settings as `tuning` asks for: the objective's own option first, then learning rates."""
    if settings.tuning == 1:
        return [(objective, settings.lr)]
    entry = objective.entry
    tuned = bool(entry.values) and entry.option not in objective.options
    options = [objective.tuned(value) for value in entry.values] if tuned else [objective]
    if settings.tuning > len(LR_FACTORS) * len(options):
        raise PlanError(f"tuning tries at most {len(LR_FACTORS) * len(options)} settings of {objective.text}")
    return [(option, settings.lr * times) for times in LR_FACTORS for option in options][: settings.tuning]


def tune(
    objective: NamedObjective,
    settings: ObjectiveSettings,
    context: TrainContext,
    backbone: str,
    view: ProgressBar,
    done: int,
) -> Setting:
    """Return the setting with the best validation agreement; with one alone nothing is trained."""
    tried = settings_to_try(objective, settings)
    if len(tried) == 1:
        return tried[0]
    scores, folder = [], settings.out / "tuning" / backbone / slug(objective.text)
    for number, setting in enumerate(tried):
        job = make_job(settings, setting, settings.seeds[0], folder / f"setting{number}")
        scores.append(fit(job, context, view, done + number * settings.steps).agreement)
        shutil.rmtree(job.folder / WORK, ignore_errors=True)  # only the score is of use
    known = [-math.inf if math.isnan(score) else score for score in scores]
    return tried[known.index(max(known))]


# The result of a training: a folder for `contrastive:` with a calibration and a model card.

LEVELS, CARD = "levels.json", "README.md"


def model_string(job: TrainingJob) -> str:
    """Return the string by which the trained pair is named, with its calibration."""
    return f"contrastive:{job.folder}?levels={job.folder / LEVELS}"


def write_result(job: TrainingJob, context: TrainContext, settings: ObjectiveSettings, found: Fitted) -> None:
    """Write the pair as it is now, and its card."""
    context.pair.write(job.folder)
    write_file(job.folder / CARD, _card(job, settings, found, read_upstreams(context.pair.folder)))


def _card(job: TrainingJob, settings: ObjectiveSettings, found: Fitted, upstreams: str) -> str:
    entry, options = job.objective.entry, ", ".join(f"{k} {v}" for k, v in job.objective.options.items())
    return f"""# A contrastive reward model, trained with {job.objective.text}

Trained with rewardlab {__version__}. The reward of a frame is its similarity to the instruction. Use it as
`contrastive:FOLDER?levels=FOLDER/{LEVELS}`; without the levels its answers are an order and no more.

- **Objective**: {entry.summary} {f"Options: {options}." if options else ""}
- **Backbone**: {upstreams}. Whoever passes the folder on is bound by these licences.
- **Data**: {", ".join(settings.data)}, seed {settings.seed}; whole tasks are kept from the training.
- **Training**: {job.steps} steps of {job.batch} clips, learning rate {job.optimizer.lr:g}, seed {job.seed}.
- **Kept**: the checkpoint of step {found.step}, with a validation agreement of {found.agreement:.3f} (fraction of pairs
  of frames in the order of their true progress, within and across clips of tasks that were trained on).

Nothing is known of robots, cameras and tasks unlike those of the data: measure before you trust it.
"""
