"""What a training resumes from: trained parameters, the optimizer's moments and the best validation so far.

Random numbers are not in it: each step makes its own from the seed and its number.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rewardlab.core.run import atomic_write
from rewardlab.training.master_weights import MasterAdamW, trained_parameters

STATE, BEST = "state.pt", "best.safetensors"


@dataclass(frozen=True)
class Progress:
    """How far a training is: steps done, and step and error of the best checkpoint."""

    step: int = 0
    best_step: int = 0
    best_error: float = float("inf")


def save_best(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write the trained parameters of the best checkpoint, as numbers alone."""
    from safetensors.torch import save_file

    with atomic_write(folder / BEST) as partial:
        save_file(tensors, partial)


def save_state(
    folder: Path, progress: Progress, trained: dict[str, Tensor], moments: dict[str, dict[str, Tensor]]
) -> None:
    """Write all that is needed to go on, in one step."""
    with atomic_write(folder / STATE) as partial:
        torch.save({"progress": vars(progress), "trained": trained, "moments": moments}, partial)


def resume(folder: Path, optimizer: MasterAdamW) -> Progress:
    """Put the saved parameters and moments in place, and return where to go on."""
    if not (folder / STATE).exists():
        return Progress()
    state = torch.load(folder / STATE, map_location="cpu", weights_only=True)
    optimizer.restore(state["trained"], state["moments"])
    return Progress(**state["progress"])


@torch.no_grad()
def put_trained(network: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put trained parameters in place."""
    for name, parameter in trained_parameters(network).items():
        parameter.copy_(tensors[name])
