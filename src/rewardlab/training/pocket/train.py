"""One network: step, averaged weights, scores on seen and unseen tasks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from rewardlab.core.episode import SUCCESS_THRESHOLD
from rewardlab.core.seeding import rng_for
from rewardlab.core.storage import atomic_write
from rewardlab.metrics.accuracy import auc_of_pairs
from rewardlab.metrics.rank_correlation import count_pairs
from rewardlab.training.encoders import Dinov2, load_distillation_teacher
from rewardlab.training.loop import TRAINED, Progress, Step, TrainingFiles
from rewardlab.training.loop import fit as run_loop
from rewardlab.training.optimizer import MasterAdamW, OptimizerConfig, learning_rate
from rewardlab.training.pocket import PocketSettings, Training
from rewardlab.training.pocket.calibration import Predictions, probe_all
from rewardlab.training.pocket.frame_store import (
    FrameStore,
    gather_changed_frames,
    gather_frames,
    gather_places,
    gather_words,
    shown_frames,
    to_device,
)
from rewardlab.training.pocket.network import (
    NetworkConfig,
    NetworkOutput,
    PocketNetwork,
    caption_loss,
    displacement_loss,
    distillation_loss,
    level_and_progress_loss,
    network_config,
    place_loss,
)
from rewardlab.training.pocket.sources import Batch, training_batches
from rewardlab.training.processes import Processes

_LOG_EVERY = 100  # steps
# Of the averaged weights, every so many steps: over some 1,300 steps, which is better on all that is held out.
_EMA_DECAY, _EMA_EVERY = 0.997, 4
# In the loss:
_DISPLACEMENT_WEIGHT, _CAPTION_WEIGHT, _PLACE_WEIGHT, _DISTILLATION_WEIGHT = 0.2, 0.5, 0.2, 1.0
_DISTILLATION_FRAMES = 128  # of a batch, whose pretrained features are predicted


def fit(settings: PocketSettings, training: Training, store: FrameStore) -> None:
    """Train one network from its last checkpoint on, and write its averaged weights."""
    weights = settings.out / f"{training.name}.pt"
    if weights.exists():
        return
    torch.manual_seed(settings.seed)
    teacher = load_distillation_teacher(settings.dinov2, settings.device) if settings.dinov2 else None
    network = network_config(training.variant, settings.size)
    model, ema = (initial_network(settings, network, teacher) for _ in range(2))
    if settings.device != "cpu":  # the parts of the network are compiled
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch forgot it
        model.image_encoder.compile()
        model.temporal_encoder.encode = torch.compile(model.temporal_encoder.encode)  # type: ignore[method-assign]
    config = OptimizerConfig(settings.lr, weight_decay=0.05, betas=(0.9, 0.98), schedule="cosine-from-start")
    optimizer = MasterAdamW(model, config, settings.device)
    distilled = teacher if not network.dinov2 and "distillation" not in settings.ablate else None
    trainer = Trainer(settings, training, store, network, model, ema, config, optimizer, distilled)
    run_loop(
        trainer,
        TrainingFiles(settings.out / f"{training.name}.checkpoint", settings.out / f"{training.name}-curve.jsonl"),
        steps=settings.steps,
        eval_every=settings.eval_every,
        processes=Processes(settings.device),
        show=partial(_show, training.name),
        log_every=_LOG_EVERY,
        name=training.name,
    )
    with atomic_write(weights) as partial_file:
        torch.save({key: value.cpu() for key, value in trainer.ema.trained_state().items()}, partial_file)


def _show(name: str, progress: Progress, row: Mapping[str, float]) -> None:
    if row:
        values = ", ".join(f"{key} {value:.3g}" for key, value in row.items())
        print(f"{name} step {progress.step}: {values}", flush=True)


def initial_network(settings: PocketSettings, network: NetworkConfig, encoder: Dinov2 | None) -> PocketNetwork:
    """Return a network before its training; the same settings draw the same weights."""
    torch.manual_seed(settings.seed + 1)
    return PocketNetwork(network, encoder).to(settings.device)


@dataclass(frozen=True, eq=False)
class Trainer:
    """One network as the loop trains it."""

    settings: PocketSettings
    training: Training
    store: FrameStore
    network: NetworkConfig
    model: PocketNetwork
    ema: PocketNetwork  # the averaged weights, which are validated and kept
    config: OptimizerConfig
    optimizer: MasterAdamW
    teacher: Dinov2 | None

    def batches(self, start: int) -> Iterator[Batch]:
        return training_batches(self.settings, self.training, self.store.sources, start)

    def step(self, number: int, batch: Batch) -> Step:
        """Take one optimizer step, and now and then average the weights."""
        rng = rng_for(self.settings.seed, "step", self.training.variant, number)
        torch.manual_seed(int(rng.integers(2**31)))
        device = self.store.word_vectors.device
        self.model.train()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu"):
            if self.training.robust:
                frames, places = gather_changed_frames(self.store, batch, self.network)
            else:
                frames = gather_frames(self.store, batch, self.network)
                places = gather_places(self.store, batch, self.network)
            words = gather_words(self.store, batch, augment=True)
            out = self.model(frames, *words, to_device(batch.video, self.store))
            losses = _losses(self, batch, out, places) | _distillation_losses(self, frames, out, rng)
        torch.stack(list(losses.values())).sum().backward()
        lr = learning_rate(number, self.settings.steps, self.config)
        self.optimizer.step(lr)
        if number % _EMA_EVERY == 0:
            _update_ema(self.ema, self.model, min(_EMA_DECAY, (1 + number) / (10 + number)))
        return Step({name: loss.detach() for name, loss in losses.items()}, lr)

    def validate(self) -> tuple[None, dict[str, float]]:
        """Write what the averaged weights predict for the probes, and return their scores; the last weights count."""
        found = probe_all(self.settings, self.store, self.network, self.ema)
        path = self.settings.out / f"{self.training.name}-probes.npz"
        np.savez_compressed(path, **dict[str, Any](found))
        return None, _scores(self.settings, self.training, found)

    def state(self) -> dict[str, Any]:
        """Return the averaged weights, the network, and the moments of AdamW."""
        model, moments = self.model.trained_state(), self.optimizer.moments()
        return {TRAINED: self.ema.trained_state(), "model": model, "moments": moments}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.ema.load_trained_state(state[TRAINED])
        self.model.load_trained_state(state["model"])
        self.optimizer.restore(state["model"], state["moments"])


def _losses(trainer: Trainer, batch: Batch, out: NetworkOutput, places: Tensor) -> dict[str, Tensor]:
    """Return the weighted losses of what is said about a clip."""
    shown = shown_frames(trainer.network)
    labels = (batch.progress[:, shown], batch.level[:, shown], batch.displacements[:, shown], batch.caption)
    progress, level, displacements, caption = (to_device(values, trainer.store) for values in labels)
    losses = {
        "levels": level_and_progress_loss(out.progress.float(), out.levels.float(), progress, level),
        "displacements": _DISPLACEMENT_WEIGHT * displacement_loss(out.displacements.float(), displacements),
    }
    if "places" not in trainer.settings.ablate:
        losses["places"] = _PLACE_WEIGHT * place_loss(out.where.float(), out.moves.float(), places)
    if "captions" not in trainer.settings.ablate:
        losses["caption"] = _CAPTION_WEIGHT * caption_loss(out.caption.float(), caption)
    return losses


def _distillation_losses(
    trainer: Trainer, frames: Tensor, out: NetworkOutput, rng: np.random.Generator
) -> dict[str, Tensor]:
    """Return the loss of predicting the pretrained features of some frames, if there are any."""
    if trainer.teacher is None:
        return {}
    flat = frames.flatten(0, 1)
    drawn = rng.choice(len(flat), min(_DISTILLATION_FRAMES, len(flat)), replace=False)
    chosen = torch.from_numpy(drawn).to(flat.device)
    with torch.no_grad():
        features = trainer.teacher(flat[chosen], round(out.tokens.shape[1] ** 0.5))
    predicted = trainer.model.temporal_encoder.eyes(out.tokens[chosen])
    return {"distillation": _DISTILLATION_WEIGHT * distillation_loss(predicted, features)}


@torch.no_grad()
def _update_ema(ema: PocketNetwork, model: PocketNetwork, decay: float) -> None:
    for old, new in zip(ema.trained_state().values(), model.trained_state().values(), strict=True):
        if old.dtype.is_floating_point:
            old.lerp_(new, 1 - decay)
        else:
            old.copy_(new)


def _scores(settings: PocketSettings, training: Training, found: Predictions) -> dict[str, float]:
    """Return the mean absolute error and success AUC of Meta-World tasks and the tabletop, and how often demonstrations
    score higher whole and under their own instruction."""
    tasks, scores = found["own/task"], dict[str, float]()
    for name, members in (("seen", settings.seen(training.fold)), ("unseen", settings.unseen(training.fold))):
        scores |= _error_and_auc(found, "own", np.isin(tasks, members), name)
    if "tabletop/level" in found:
        for what in np.unique(found["tabletop/task"]):
            scores |= _error_and_auc(found, "tabletop", found["tabletop/task"] == what, f"tabletop {what}".strip())
        scores["tabletop other"] = float(_median_level(found["tabletop_other/logits"]).mean())
    if "demonstrations/level" in found:
        whole = _expected_level(found["demonstrations/logits"])
        for name in ("other", "half", "backwards"):
            less = _expected_level(found[f"demonstrations_{name}/logits"])
            several = np.tile(whole, len(less) // len(whole))
            scores[f"own > {name}"] = float(((several > less) + 0.5 * (several == less)).mean())
    return {name: value for name, value in scores.items() if np.isfinite(value)}


def _error_and_auc(found: Predictions, probe: str, chosen: NDArray[np.bool_], name: str) -> dict[str, float]:
    logits, truth, tasks = (found[f"{probe}/{what}"][chosen] for what in ("logits", "level", "task"))
    error = np.abs(_median_level(logits) - truth)
    of_tasks = [error[tasks == task].mean() for task in np.unique(tasks)]
    done = (truth >= SUCCESS_THRESHOLD).astype(np.float64)
    members = np.unique(tasks, return_inverse=True)[1]
    areas = auc_of_pairs(count_pairs(_expected_level(logits), done, members, len(of_tasks)))
    return {
        f"{name} mae": float(np.mean(of_tasks)) if of_tasks else float("nan"),
        f"{name} auc": float(np.mean(areas[np.isfinite(areas)])) if np.isfinite(areas).any() else float("nan"),
    }


def _median_level(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the level that the models answer with: the median of its probabilities."""
    return np.asarray(1 + (softmax(logits, axis=1).cumsum(1) < 0.5).sum(1))


def _expected_level(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.asarray(softmax(logits.astype(np.float64), axis=1) @ np.arange(1, 6))
