"""What a training would take: parameters, memory and time, from a forward and backward pass that are measured."""

import math
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rewardlab.training.vlm.answer_network import answer_loss
from rewardlab.training.vlm.base_model import Named, load_base
from rewardlab.training.vlm.plan import VlmTraining
from rewardlab.training.vlm.processes import Processes
from rewardlab.training.vlm.trained_parts import set_training, trained_parts, training_dtype
from rewardlab.training.vlm.training_loop import Trainer, TrainingData, check_interval, make_trainer, step_batches

_MB = 1e6
_FLOAT32 = 4
_MEASURED = 2  # passes, of which the last counts: the first also compiles and fills caches
_FORWARD_SHARE = 1 / 3  # of a training pass, which validation takes


@dataclass(frozen=True)
class Estimate:
    """What was counted and measured before a training."""

    examples: int
    validation: int
    steps: int
    checks: int
    trained: int  # parameters
    parameters: int
    weight_bytes: int
    master_bytes: int  # float32 copies of what computes in bfloat16
    activation_bytes: int  # kept for the backward pass of one forward pass
    seconds: float  # of one example, decoded already, vision tower included
    device: str
    epochs: int

    @property
    def lines(self) -> list[str]:
        """Return the estimate as a person reads it."""
        parts = {
            "weights": self.weight_bytes + self.master_bytes,
            "gradients": self.trained * _FLOAT32 + self.master_bytes // 2,
            "optimizer": 2 * self.trained * _FLOAT32,
            "activations": self.activation_bytes,
        }
        whole = sum(parts.values())
        told = ", ".join(f"{name} {size / _MB:,.0f}" for name, size in parts.items())
        passes = self.examples * self.epochs + self.validation * self.checks * _FORWARD_SHARE
        return [
            f"{self.examples:,} examples, {self.validation:,} to validate by, "
            f"{self.epochs} epochs: {self.steps:,} steps",
            f"{self.trained / _MB:,.1f} of {self.parameters / _MB:,.1f} million parameters are trained",
            f"memory: about {whole / _MB:,.0f} MB ({told})",
            f"time: about {passes * self.seconds / 60:,.1f} minutes on {self.device}, {self.seconds:.3g} s an example",
        ]


def estimate(training: VlmTraining, named: Named, data: TrainingData, processes: Processes) -> Estimate:
    """Load the model, measure one forward pass and its backward pass, and tell what the training would take."""
    plan = replace(training.plan, cache_gb=0.0, workers=0)
    base = load_base(named, trained_parts(plan), processes.device, training_dtype(plan, processes.device))
    trainer = make_trainer(replace(training, plan=plan), base, data, processes)
    seconds, kept = _measure(trainer)
    steps = trainer.order.steps
    parameters = list(base.model.parameters())
    return Estimate(
        examples=len(data.examples),
        validation=len(data.validation),
        steps=steps,
        checks=math.ceil(steps / check_interval(plan, steps)),
        trained=sum(p.numel() for p in parameters if p.requires_grad),
        parameters=sum(p.numel() for p in parameters),
        weight_bytes=sum(p.nbytes for p in parameters),
        master_bytes=sum(p.nbytes for p in trainer.optimizer.masters.values()) if trainer.optimizer.apart else 0,
        activation_bytes=kept,
        seconds=seconds,
        device=processes.device,
        epochs=plan.numbers.epochs,
    )


def _measure(trainer: Trainer) -> tuple[float, int]:
    """Return the seconds of one example, and the bytes that one forward pass keeps for its backward pass."""
    batch = next(step_batches(trainer, 0))[0].to(trainer.processes.device)
    set_training(trainer.base.model)
    kept: dict[int, int] = {}

    def keep(value: Tensor) -> Tensor:
        if not isinstance(value, torch.nn.Parameter):
            kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    seconds = 0.0
    for _ in range(_MEASURED):
        started = time.perf_counter()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
            loss = answer_loss(trainer.network(batch), batch)
        loss.backward()
        float(loss.detach())  # waits for a GPU
        seconds = time.perf_counter() - started
    return seconds / len(batch.places), sum(kept.values())
