"""The training loop: steps on drawn batches, probes on rollouts never trained on; it resumes where it stopped."""

import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor, nn

from rewardlab.core.seeding import rng_for
from rewardlab.core.storage import atomic_write
from rewardlab.training.encoders import Dinov2, load_distillation_teacher
from rewardlab.training.holdout import recorded_split
from rewardlab.training.pocket import PocketPlan, Training
from rewardlab.training.pocket.calibration import Predictions, probe_all
from rewardlab.training.pocket.export import export
from rewardlab.training.pocket.frame_store import (
    FrameStore,
    calibration_frames,
    for_fold,
    gather_frames,
    gather_words,
    make_frame_store,
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
)
from rewardlab.training.pocket.rendering import of_fold
from rewardlab.training.pocket.rollouts import simulate_all
from rewardlab.training.pocket.sampling import Batch, training_batches
from rewardlab.worlds.metaworld.tasks import unseen_tasks

_LOG_EVERY = 100  # steps
_EMA_DECAY, _EMA_EVERY = 0.99, 4  # of the averaged weights; every so many steps
_WARM_UP, _WEIGHT_DECAY = 0.05, 0.05
_DISPLACEMENT_WEIGHT, _CAPTION_WEIGHT, _DISTILLATION_WEIGHT = 0.2, 0.5, 1.0  # in the loss
_DISTILLATION_FRAMES = 128  # of a batch, whose pretrained features are predicted


@dataclass(frozen=True, eq=False)
class Trainer:
    """What a step works with."""

    plan: PocketPlan
    store: FrameStore
    model: PocketNetwork
    optimizer: torch.optim.Optimizer
    eyes: Dinov2 | None


def train_pocket(plan: PocketPlan) -> None:
    """Simulate, render and train every variant and fold of the plan; what is already there is not made again."""
    plan.out.mkdir(parents=True, exist_ok=True)
    recorded_split(plan.out)  # before the workers ask for it
    started = time.monotonic()
    simulate_all(plan)
    print(f"{time.monotonic() - started:.0f} s: rollouts are there", flush=True)
    store = make_frame_store(plan)
    print(f"{time.monotonic() - started:.0f} s: frames are there", flush=True)
    for training in plan.trainings:
        fit(plan, training, store)
        print(f"{time.monotonic() - started:.0f} s: {training.name} is trained", flush=True)
    for training in plan.trainings:  # all folds tell how sure each may be
        own = for_fold(store, of_fold(store.table, unseen_tasks(training.fold)))
        export(plan, training, plan.out, calibration_frames(own, training.variant))


def fit(plan: PocketPlan, training: Training, everything: FrameStore) -> None:
    """Train one network from its last checkpoint on, and write its averaged weights and what it says of the probes."""
    if (plan.out / f"{training.name}.pt").exists():
        return
    torch.manual_seed(plan.seed)
    store = for_fold(everything, of_fold(everything.table, unseen_tasks(training.fold)))
    model, ema = (_initial_network(plan) for _ in range(2))
    _compile(model, plan)
    ema.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(_parameter_groups(model), lr=plan.rate, betas=(0.9, 0.98), weight_decay=_WEIGHT_DECAY)
    eyes = load_distillation_teacher(plan.eyes, plan.device) if plan.eyes and "eyes" not in plan.without else None
    trainer = Trainer(plan, store, model, optimizer, eyes)
    start = _resume(plan, training, model, ema, optimizer)
    for step, batch in enumerate(training_batches(plan, training, store.table, start), start=start):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * _schedule(step / plan.steps)
        rng = rng_for(plan.seed, "step", training.variant, step)
        torch.manual_seed(int(rng.integers(2**31)))
        losses = _step(trainer, batch, rng)
        if step % _EMA_EVERY == 0:
            _update_ema(ema, model, min(_EMA_DECAY, (1 + step) / (10 + step)))
        if (step + 1) % _LOG_EVERY == 0:
            told = ", ".join(f"{name} {float(loss):.3f}" for name, loss in losses.items())
            print(f"{training.name} step {step + 1}: {told}", flush=True)
        if (step + 1) % plan.check_every == 0 or step + 1 == plan.steps:
            _log_validation(plan, training, step + 1, probe_all(plan, store, ema))
            _save(plan, training, step + 1, model, ema, optimizer)
    with atomic_write(plan.out / f"{training.name}.pt") as partial:
        torch.save({key: value.cpu() for key, value in ema.state_dict().items()}, partial)


def _initial_network(plan: PocketPlan) -> PocketNetwork:
    torch.manual_seed(plan.seed + 1)
    model = PocketNetwork(NetworkConfig(size=plan.size))
    model.to(plan.device)
    return model


def _compile(model: PocketNetwork, plan: PocketPlan) -> None:
    """Have the parts of a network compiled for a GPU."""
    if plan.device != "cpu":
        model.to(memory_format=torch.channels_last)
        model.image_encoder.compile()
        model.temporal_encoder.encode = torch.compile(model.temporal_encoder.encode)  # type: ignore[method-assign]


def _parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Return the weights, of which matrices decay and all else does not."""
    parts = {flat: [p for p in model.parameters() if (p.ndim < 2) == flat] for flat in (False, True)}
    return [{"params": parts[False]}, {"params": parts[True], "weight_decay": 0.0}]


def _schedule(share: float) -> float:
    """Return the learning rate as a share of the highest: a linear warm-up, a cosine decay."""
    return min(share / _WARM_UP, 1.0) * 0.5 * (1 + float(np.cos(np.pi * share)))


def _step(trainer: Trainer, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
    """Take one step, and return the losses."""
    store, device = trainer.store, trainer.store.word_vectors.device
    trainer.model.train()
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu"):
        frames, words = gather_frames(store, batch, rng), gather_words(store, batch, augment=True)
        out = trainer.model(frames, *words)
        losses = _losses(trainer, batch, out) | _distillation_losses(trainer, frames, out, rng)
    loss = torch.stack(list(losses.values())).sum()
    trainer.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
    trainer.optimizer.step()
    return {name: loss.detach() for name, loss in losses.items()}


def _losses(trainer: Trainer, batch: Batch, out: NetworkOutput) -> dict[str, Tensor]:
    """Return the weighted losses of what is said about a clip."""
    names = ("progress", "level", "displacements", "caption")
    progress, level, displacements, caption = (to_device(getattr(batch, name), trainer.store) for name in names)
    losses = {
        "levels": level_and_progress_loss(out.progress.float(), out.levels.float(), progress, level),
        "displacements": _DISPLACEMENT_WEIGHT * displacement_loss(out.displacements.float(), displacements),
    }
    if "captions" not in trainer.plan.without:
        losses["caption"] = _CAPTION_WEIGHT * caption_loss(out.caption.float(), caption)
    return losses


def _distillation_losses(
    trainer: Trainer, frames: Tensor, out: NetworkOutput, rng: np.random.Generator
) -> dict[str, Tensor]:
    """Return the loss of predicting the pretrained features of some frames, if there are any."""
    if trainer.eyes is None:
        return {}
    flat = frames.flatten(0, 1)
    chosen = torch.from_numpy(rng.choice(len(flat), min(_DISTILLATION_FRAMES, len(flat)), replace=False)).to(
        flat.device
    )
    with torch.no_grad():
        features = trainer.eyes(flat[chosen], round(out.tokens.shape[1] ** 0.5))
    return {
        "eyes": _DISTILLATION_WEIGHT
        * distillation_loss(trainer.model.temporal_encoder.eyes(out.tokens[chosen]), features)
    }


@torch.no_grad()
def _update_ema(ema: nn.Module, model: nn.Module, decay: float) -> None:
    for old, new in zip(ema.state_dict().values(), model.state_dict().values()):
        if old.dtype.is_floating_point:
            old.lerp_(new, 1 - decay)
        else:
            old.copy_(new)


def median_levels(logits: NDArray[Any]) -> NDArray[np.int64]:
    """Return the level that the models answer with: the median of its probabilities."""
    return np.asarray(1 + (softmax(logits, axis=1).cumsum(1) < 0.5).sum(1))


def _scores(plan: PocketPlan, training: Training, found: Predictions) -> dict[str, float]:
    """Return the MAE of the level, averaged over tasks, and the accuracy of success, on seen and on unseen tasks."""
    guess, truth = median_levels(found["own/logits"]), found["own/level"]
    tasks = found["own/task"]
    errors, right = np.abs(guess - truth), (guess == 5) == (truth == 5)
    scores = {}
    for name, members in (("seen", plan.seen(training.fold)), ("unseen", plan.unseen(training.fold))):
        groups = [errors[tasks == task] for task in members if (tasks == task).any()]
        scores[f"{name} mae"] = float(np.mean([group.mean() for group in groups])) if groups else float("nan")
        in_split = np.isin(tasks, members)
        scores[f"{name} success"] = float(right[in_split].mean()) if in_split.any() else float("nan")
    return scores


def _log_validation(plan: PocketPlan, training: Training, step: int, found: Predictions) -> None:
    """Write what is said of the probes, and add a line to the learning curve."""
    np.savez_compressed(plan.out / f"{training.name}-probes.npz", allow_pickle=False, **found)
    row = {"step": step, **_scores(plan, training, found)}
    print(f"{training.name} " + ", ".join(f"{name} {value:.3f}" for name, value in row.items()), flush=True)
    with (plan.out / f"{training.name}-curve.jsonl").open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(row) + "\n")


def _save(
    plan: PocketPlan, training: Training, step: int, model: nn.Module, ema: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    state = {"step": step, "model": model.state_dict(), "ema": ema.state_dict(), "optimizer": optimizer.state_dict()}
    with atomic_write(plan.out / f"{training.name}.checkpoint") as partial:
        torch.save(state, partial)


def _resume(
    plan: PocketPlan, training: Training, model: nn.Module, ema: nn.Module, optimizer: torch.optim.Optimizer
) -> int:
    path = plan.out / f"{training.name}.checkpoint"
    if not path.exists():
        return 0
    state = torch.load(path, map_location=plan.device, weights_only=True)
    model.load_state_dict(state["model"])
    ema.load_state_dict(state["ema"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
