"""AdamW on float32 master weights, parameter groups, the two learning-rate schedules.

The network computes as `hf:` does when it scores, without casts in between; gradients of all passes of a step are added
up in float32. Where the network computes in float32, its parameters are their own masters.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class OptimizerConfig:
    """Hyperparameters of AdamW and of its learning rate."""

    lr: float  # the highest learning rate
    warmup: float = 0.05  # fraction of the steps in which it is reached
    weight_decay: float = 0.01  # of matrices; biases and norms do not decay
    max_norm: float = 1.0  # at which gradients are clipped
    betas: tuple[float, float] = (0.9, 0.999)
    schedule: Literal["cosine", "cosine-from-start"] = "cosine"


def learning_rate(step: int, steps: int, config: OptimizerConfig) -> float:
    """Return the learning rate of a step.

    `cosine` is a linear warm-up from zero, then half a cosine down to zero; `cosine-from-start` is half a cosine over
    all steps, times a linear warm-up.
    """
    if config.schedule == "cosine-from-start":
        done = step / steps
        return config.lr * min(done / config.warmup, 1.0) * 0.5 * (1 + math.cos(math.pi * done))
    warmup = math.ceil(config.warmup * steps)
    if step < warmup:
        return config.lr * step / warmup
    return config.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


class MasterAdamW:
    """The optimizer of a training; its state is whole tensors by the names of the parameters."""

    def __init__(self, network: nn.Module, config: OptimizerConfig, device: str) -> None:
        self.working = trained_parameters(network)
        self.apart = any(p.dtype != torch.float32 for p in self.working.values())
        self.masters = {
            name: nn.Parameter(p.detach().float().clone()) if self.apart else p for name, p in self.working.items()
        }
        fused = {"fused": True} if device != "cpu" else {}
        self.counts_on = device  # where AdamW counts its steps: beside the parameters if it is fused
        masters = self.masters.values()
        groups: list[dict[str, Any]] = [
            {"params": [p for p in masters if p.ndim >= 2], "weight_decay": config.weight_decay},
            {"params": [p for p in masters if p.ndim < 2], "weight_decay": 0.0},
        ]
        self.adamw = torch.optim.AdamW(groups, config.lr, config.betas, **fused)
        self.max_norm = config.max_norm

    @torch.no_grad()
    def collect(self) -> None:
        """Add the gradients of a pass to those of the masters."""
        if not self.apart:
            return
        for master, parameter in zip(self.masters.values(), self.working.values(), strict=True):
            if parameter.grad is None:
                continue
            if master.grad is None:
                master.grad = parameter.grad.float()
            else:
                whole, part = _parts((master.grad, parameter.grad))
                whole.add_(part)
            parameter.grad = None

    def step(self, lr: float) -> None:
        """Clip the gradients, move the masters, and have the network compute with what they are now."""
        nn.utils.clip_grad_norm_(self.masters.values(), self.max_norm)
        for group in self.adamw.param_groups:
            group["lr"] = lr
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        self._round()

    @torch.no_grad()
    def _round(self) -> None:
        if self.apart:
            torch._foreach_copy_(_parts(self.working.values()), _parts(self.masters.values()))

    def trained(self) -> dict[str, Tensor]:
        """Return the trained parameters in full and in float32, in main memory; every process must ask."""
        return {_plain(name): _whole(master) for name, master in self.masters.items()}

    def moments(self) -> dict[str, dict[str, Tensor]]:
        """Return what AdamW remembers of each parameter, likewise."""
        state = self.adamw.state
        return {
            _plain(n): {key: _whole(v) for key, v in state[m].items()} for n, m in self.masters.items() if m in state
        }

    @torch.no_grad()
    def restore(self, trained: Mapping[str, Tensor], moments: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Put saved parameters and moments in place."""
        for name, master in self.masters.items():
            master.copy_(_placed(trained[_plain(name)], master))
            kept = moments.get(_plain(name), {})
            self.adamw.state[master] = {
                key: _placed(value, master) if value.ndim else value.to(self.counts_on) for key, value in kept.items()
            }
        self._round()


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _plain(name: str) -> str:
    return name.removeprefix("module.")  # what several processes put before it


def _parts(values: Iterable[Any]) -> list[Tensor]:
    """Return what this process holds of each tensor."""
    from torch.distributed.tensor import DTensor

    return [value.to_local() if isinstance(value, DTensor) else value for value in values]


def _whole(value: Tensor) -> Tensor:
    """Return a copy in main memory, of which every process held a part where it is shared out."""
    from torch.distributed.tensor import DTensor

    full = value.full_tensor() if isinstance(value, DTensor) else value
    return full.detach().cpu().clone()


def _placed(value: Tensor, like: Tensor) -> Tensor:
    """Return a whole tensor where another one is, shared out as that one is."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    moved = value.to(like.device)
    return distribute_tensor(moved, like.device_mesh, like.placements) if isinstance(like, DTensor) else moved
