"""The training loop: steps on drawn batches, validation on rollouts never trained on; it resumes where it stopped."""

import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor, nn

from rewardlab.core.run import atomic_write
from rewardlab.core.seeding import rng_for
from rewardlab.training.pocket.batches import Batch, training_batches, whole_clips
from rewardlab.training.pocket.frame_store import FrameStore, gather_frames, gather_words, make_frame_store, to_device
from rewardlab.training.pocket.losses import displacement_loss, level_and_progress_loss
from rewardlab.training.pocket.network import NETWORK_CONFIGS, PocketNetwork
from rewardlab.training.pocket.onnx_export import export
from rewardlab.training.pocket.perturbation_holdout import recorded_split
from rewardlab.training.pocket.plan import PocketPlan
from rewardlab.training.pocket.rollouts import simulate_all

Predictions = dict[str, NDArray[Any]]  # rows of the table, their level logits, and their true levels

_LOG_EVERY = 100  # steps
_EMA_DECAY, _EMA_EVERY = 0.99, 4  # of the averaged weights; every so many steps
_WARM_UP, _WEIGHT_DECAY = 0.05, 0.05
_DISPLACEMENT_WEIGHT = 0.2  # in the loss


def train_pocket(plan: PocketPlan) -> None:
    """Simulate, render and train every variant of the plan; what is already there is not made again."""
    plan.out.mkdir(parents=True, exist_ok=True)
    recorded_split(plan)  # before the workers ask for it
    started = time.monotonic()
    simulate_all(plan)
    print(f"{time.monotonic() - started:.0f} s: rollouts are there", flush=True)
    store = make_frame_store(plan, robust=any(name != "pocket-plain" for name in plan.variants))
    print(f"{time.monotonic() - started:.0f} s: frames are there", flush=True)
    for variant in plan.variants:
        fit(plan, variant, store)
        export(plan, variant, plan.out)
        print(f"{time.monotonic() - started:.0f} s: {variant} is trained", flush=True)


def fit(plan: PocketPlan, variant: str, store: FrameStore) -> None:
    """Train one variant from its last checkpoint on, and write its averaged weights and validation predictions."""
    torch.manual_seed(plan.seed)
    torch.backends.cudnn.deterministic = True
    model, ema = (_initial_network(plan, variant) for _ in range(2))
    ema.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(_parameter_groups(model), lr=plan.rate, betas=(0.9, 0.98), weight_decay=_WEIGHT_DECAY)
    start = _resume(plan, variant, model, ema, optimizer)
    for step, batch in enumerate(training_batches(plan, variant, store.table, start), start=start):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * _schedule(step / plan.steps_of(variant))
        rng = rng_for(plan.seed, "step", variant, step)
        torch.manual_seed(int(rng.integers(2**31)))
        loss = _step(store, model, optimizer, batch, rng)
        if step % _EMA_EVERY == 0:
            _update_ema(ema, model, min(_EMA_DECAY, (1 + step) / (10 + step)))
        if (step + 1) % _LOG_EVERY == 0:
            print(f"{variant} step {step + 1} loss {float(loss):.4f}", flush=True)
        if (step + 1) % plan.check_every == 0 or step + 1 == plan.steps_of(variant):
            _log_validation(plan, variant, store, {"step": step + 1, "loss": float(loss)}, validate(plan, store, ema))
            _save(plan, variant, step + 1, model, ema, optimizer)
    with atomic_write(plan.out / f"{variant}.pt") as partial:
        torch.save({key: value.cpu() for key, value in ema.state_dict().items()}, partial)


def _initial_network(plan: PocketPlan, variant: str) -> PocketNetwork:
    torch.manual_seed(plan.seed + 1)
    model = PocketNetwork(replace(NETWORK_CONFIGS[variant], size=plan.size))
    model.to(plan.device)
    if plan.device != "cpu":
        model.to(memory_format=torch.channels_last)
    return model


def _parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Return the weights, of which matrices decay and all else does not."""
    parts = {flat: [p for p in model.parameters() if (p.ndim < 2) == flat] for flat in (False, True)}
    return [{"params": parts[False]}, {"params": parts[True], "weight_decay": 0.0}]


def _schedule(share: float) -> float:
    """Return the learning rate as a share of the highest: a linear warm-up, a cosine decay."""
    return min(share / _WARM_UP, 1.0) * 0.5 * (1 + float(np.cos(np.pi * share)))


def _step(
    store: FrameStore, model: PocketNetwork, optimizer: torch.optim.Optimizer, batch: Batch, rng: np.random.Generator
) -> Tensor:
    device = store.word_vectors.device
    model.train()
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu"):
        frames, words = gather_frames(store, batch, rng), gather_words(store, batch, augment=True)
        progress, levels, displacements = model(frames, *words)
    true_progress, true_level = to_device(batch.progress, store), to_device(batch.level, store)
    loss = level_and_progress_loss(progress.float(), levels.float(), true_progress, true_level)
    true_displacements = to_device(batch.displacements, store)
    loss = loss + _DISPLACEMENT_WEIGHT * displacement_loss(displacements.float(), true_displacements)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


@torch.no_grad()
def _update_ema(ema: nn.Module, model: nn.Module, decay: float) -> None:
    for old, new in zip(ema.state_dict().values(), model.state_dict().values()):
        if old.dtype.is_floating_point:
            old.lerp_(new, 1 - decay)
        else:
            old.copy_(new)


def validate(plan: PocketPlan, store: FrameStore, model: PocketNetwork) -> Predictions:
    """Return the predictions at the end of every validation rollout, and the true levels."""
    rows = np.setdiff1d(np.arange(len(store.table.tasks)), store.table.training)
    logits = final_level_logits(store, model, whole_clips(store.table, rows), plan.batch)
    return {"rows": rows, "logits": logits, "level": store.table.levels[rows, -1]}


@torch.no_grad()
def final_level_logits(store: FrameStore, model: PocketNetwork, clips: Batch, size: int) -> NDArray[np.float32]:
    """Return the logits of the level at the end of every clip, without augmentation."""
    model.eval()
    parts = []
    for members in np.array_split(np.arange(len(clips.row)), max(1, len(clips.row) // size)):
        part = Batch(**{name: values[members] for name, values in vars(clips).items()})
        _, levels, _ = model(gather_frames(store, part, None), *gather_words(store, part, augment=False))
        parts.append(levels[:, -1].float().cpu().numpy())
    return np.concatenate(parts)


def median_levels(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the level that the models answer with: the median of its probabilities."""
    return np.asarray(1 + (softmax(logits, axis=1).cumsum(1) < 0.5).sum(1))


def _validation_scores(plan: PocketPlan, store: FrameStore, predictions: Predictions) -> dict[str, float]:
    """Return the MAE of the level, averaged over tasks, on seen and on unseen tasks, and the accuracy of success."""
    guess, truth = median_levels(predictions["logits"]), predictions["level"]
    tasks = np.array([store.table.tasks[int(row)] for row in predictions["rows"]])
    errors, right = np.abs(guess - truth), (guess == 5) == (truth == 5)
    scores = {}
    for name, members in (("seen", plan.split("train")), ("unseen", plan.split("val"))):
        groups = [errors[tasks == task] for task in members if (tasks == task).any()]
        scores[f"{name} mae"] = float(np.mean([group.mean() for group in groups])) if groups else float("nan")
        in_split = np.isin(tasks, members)
        scores[f"{name} success"] = float(right[in_split].mean()) if in_split.any() else float("nan")
    return scores


def _log_validation(
    plan: PocketPlan, variant: str, store: FrameStore, row: dict[str, float], predictions: Predictions
) -> None:
    """Write the validation predictions, and add a line to the learning curve."""
    np.savez_compressed(plan.out / f"{variant}-checks.npz", allow_pickle=False, **predictions)
    row |= _validation_scores(plan, store, predictions)
    print(f"{variant} " + ", ".join(f"{name} {value:.3f}" for name, value in row.items()), flush=True)
    with (plan.out / f"{variant}-curve.jsonl").open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(row) + "\n")


def _save(
    plan: PocketPlan, variant: str, step: int, model: nn.Module, ema: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    state = {"step": step, "model": model.state_dict(), "ema": ema.state_dict(), "optimizer": optimizer.state_dict()}
    with atomic_write(plan.out / f"{variant}.checkpoint") as partial:
        torch.save(state, partial)


def _resume(plan: PocketPlan, variant: str, model: nn.Module, ema: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    path = plan.out / f"{variant}.checkpoint"
    if not path.exists():
        return 0
    state = torch.load(path, map_location=plan.device, weights_only=True)
    model.load_state_dict(state["model"])
    ema.load_state_dict(state["ema"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
