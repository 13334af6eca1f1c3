"""The training loop of one objective: steps, validation, checkpoints; it resumes to the very same weights."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewardlab.analysis.objective_measures import ranking_score
from rewardlab.core.bounded_json import read_json
from rewardlab.core.errors import ModelError, RunError
from rewardlab.core.run import atomic_write
from rewardlab.training.learning_rate import learning_rate
from rewardlab.training.live_view import Curves, LiveView
from rewardlab.training.master_weights import MasterAdamW
from rewardlab.training.objective_training.clips import VALIDATION, ClipTable, only
from rewardlab.training.objective_training.features import InputStore
from rewardlab.training.objective_training.sampling import Sampler, embed_clips
from rewardlab.training.objective_training.trainable_pair import TrainablePair
from rewardlab.training.objectives import NamedObjective
from rewardlab.training.training_state import BEST, STATE, Progress, put_trained, resume, save_best, save_state

WORK, RECORD = "training", "fitted.json"
_CLIPS_AT_ONCE = 64


@dataclass(frozen=True)
class TrainingNumbers:
    """What the optimizer needs; the same for every objective but for the rate, which is tuned."""

    rate: float
    warm_up: float = 0.05
    weight_decay: float = 0.01
    max_norm: float = 1.0


@dataclass(frozen=True)
class TrainingJob:
    """One training: an objective with its options, a seed, a budget, and the folder of what comes out."""

    objective: NamedObjective
    seed: int
    numbers: TrainingNumbers
    steps: int
    batch: int
    interval: int
    folder: Path

    @property
    def identity(self) -> dict[str, object]:
        """Return what decides the weights that come out, beside backbone and data."""
        options = {name: str(value) for name, value in self.objective.options.items()}
        budget = (self.seed, self.numbers.rate, self.steps, self.batch, self.interval)
        return {
            "objective": self.objective.text,
            "code": self.objective.code,
            "options": options,
            "budget": list(budget),
        }


@dataclass(frozen=True, eq=False)
class Workbench:
    """What all trainings of a backbone share: the pair, its weights before any training, and the encoded data."""

    pair: TrainablePair
    start: dict[str, Tensor]
    sampler: Sampler
    judged: ClipTable
    device: str

    @property
    def store(self) -> InputStore:
        """Return the encoded inputs."""
        return self.sampler.store


@dataclass(frozen=True)
class Fitted:
    """What a training has come to: its validation agreement, nan where none can be measured, and at which step."""

    agreement: float
    step: int


def fitted(job: TrainingJob) -> Fitted | None:
    """Return what a training has come to, if it is done; RunError where the folder holds another."""
    path = job.folder / RECORD
    if not path.exists():
        return None
    record = read_json(path)
    if record["job"] != job.identity:
        raise RunError(f"{job.folder} holds a training with other settings; choose another --out or remove that folder")
    agreement = record["agreement"]
    return Fitted(math.nan if agreement is None else float(agreement), int(record["step"]))


def fit(job: TrainingJob, bench: Workbench, view: LiveView, done: int) -> Fitted:
    """Train from the last checkpoint on; the best weights are then in its folder. `done` counts the steps before."""
    found = fitted(job)
    if found is not None:
        return found
    work = job.folder / WORK
    work.mkdir(parents=True, exist_ok=True)
    _begin(job, work)
    put_trained(bench.pair.network, bench.start)
    optimizer = MasterAdamW(bench.pair.network, job.numbers, bench.device)
    progress = resume(work, optimizer)
    curves = Curves(job.folder, progress.step, tensorboard=False)  # hundreds of short trainings have a page
    try:
        progress = _run(job, bench, optimizer, progress, (view, curves, done))
    finally:
        curves.close()
    agreement = None if progress.best_error < 0 else 1 - progress.best_error
    record = {"job": job.identity, "agreement": agreement, "step": progress.best_step}
    with atomic_write(job.folder / RECORD) as partial:
        partial.write_text(json.dumps(record) + "\n", encoding="utf-8")
    (work / STATE).unlink(missing_ok=True)
    return Fitted(math.nan if agreement is None else agreement, progress.best_step)


def _begin(job: TrainingJob, work: Path) -> None:
    path = work / "begun.json"
    if path.exists() and read_json(path) != job.identity:
        raise RunError(f"{job.folder} holds a training with other settings; choose another --out or remove that folder")
    with atomic_write(path) as partial:
        partial.write_text(json.dumps(job.identity) + "\n", encoding="utf-8")


def _run(
    job: TrainingJob,
    bench: Workbench,
    optimizer: MasterAdamW,
    progress: Progress,
    shown: tuple[LiveView, Curves, int],
) -> Progress:
    view, curves, before = shown
    losses: list[Tensor] = []
    for step in range(progress.step, job.steps):
        losses.append(take_step(job, bench, optimizer, step))
        view.step(before + step + 1, job.objective.text)
        if (step + 1) % job.interval and step + 1 < job.steps:
            continue
        mean = _finite(job, losses, step + 1)
        progress, agreement = _check(job, bench, optimizer, replace(progress, step=step + 1))
        curves.add(step + 1, {"loss": mean, **({} if math.isnan(agreement) else {"agreement": agreement})})
        losses = []
    return progress


def take_step(job: TrainingJob, bench: Workbench, optimizer: MasterAdamW, step: int) -> Tensor:
    """Take one optimizer step and return the loss, still on its device."""
    batch = bench.sampler.batch(bench.pair, job.seed, step, job.batch)
    loss = job.objective.loss(batch)
    if not isinstance(loss, Tensor) or loss.ndim or not loss.requires_grad:
        raise ModelError(
            f"objective {job.objective.text} must return one number that depends on the batch's images or texts, "
            f"as a tensor without dimensions, got {_shown(loss)}"
        )
    loss.backward()
    optimizer.collect()
    optimizer.step(learning_rate(step, job.steps, job.numbers))
    return loss.detach()


def _shown(loss: object) -> str:
    return f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__


def _finite(job: TrainingJob, losses: Sequence[Tensor], step: int) -> float:
    values = torch.stack(list(losses)).float().cpu()
    wrong = (~torch.isfinite(values)).nonzero()
    if len(wrong):
        first = step - len(values) + int(wrong[0]) + 1
        raise ModelError(f"the loss of {job.objective.text} is not a number at step {first}; try a lower --rate")
    return float(values.mean())


def _check(job: TrainingJob, bench: Workbench, optimizer: MasterAdamW, progress: Progress) -> tuple[Progress, float]:
    """Validate, keep the weights where they are the best so far (or the last, where nobody can say), and save."""
    agreement = validation_agreement(bench)
    error = -float(progress.step) if math.isnan(agreement) else 1 - agreement
    better = error < progress.best_error
    progress = replace(progress, best_step=progress.step, best_error=error) if better else progress
    trained = optimizer.trained()
    if better:
        save_best(job.folder / WORK, trained)
    if progress.step < job.steps:  # after the last step there is nothing to go on with
        save_state(job.folder / WORK, progress, trained, optimizer.moments())
    return progress, agreement


def validation_agreement(bench: Workbench) -> float:
    """Return the agreement with true progress on the validation clips."""
    rows = bench.judged.rows(VALIDATION)
    if not len(rows):
        return math.nan
    return ranking_score(clip_values(bench, rows), only(bench.judged, VALIDATION).facts)


@torch.no_grad()
def clip_values(bench: Workbench, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the reward of every frame of some judged clips, under the words that each is judged by."""
    parts = [np.zeros((0, bench.store.judged.shape[1]))]
    for start in range(0, len(rows), _CLIPS_AT_ONCE):
        some = rows[start : start + _CLIPS_AT_ONCE]
        inputs = bench.store.judged[torch.from_numpy(some)].to(bench.device)
        asked = bench.store.text_rows([bench.judged.clips[row].asked for row in some]).to(bench.device)
        similarity = torch.einsum("btd,bd->bt", embed_clips(bench.pair, inputs), bench.pair.texts(asked))
        parts.append(similarity.double().cpu().numpy())
    return np.concatenate(parts)


def use_best(job: TrainingJob, bench: Workbench) -> None:
    """Put the best weights of a finished training in place."""
    from safetensors.torch import load_file

    put_trained(bench.pair.network, load_file(job.folder / WORK / BEST))
