"""What a training resumes from: trained parameters, optimizer and the best validation so far, in one file.

Random numbers are not in it: each step makes its own from the seed and its number.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rewardlab.core.run import atomic_write
from rewardlab.training.vlm.processes import Processes
from rewardlab.training.vlm.trained_parts import trained_parameters

STATE, BEST = "state.pt", "best.safetensors"


@dataclass(frozen=True)
class Progress:
    """How far a training is: steps done, and step and error of the best checkpoint."""

    step: int = 0
    best_step: int = 0
    best_mae: float = float("inf")


def trained_tensors(network: nn.Module, processes: Processes) -> dict[str, Tensor]:
    """Return the trained parameters in full, in main memory; every process must ask."""
    names = trained_parameters(network)
    if processes.world == 1:
        return {name: parameter.detach().cpu().clone() for name, parameter in names.items()}
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    whole = get_model_state_dict(network, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    wanted = {name.removeprefix("module.") for name in names}
    return {name: value.contiguous() for name, value in whole.items() if name in wanted}


def save_best(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write the trained parameters of the best checkpoint, as numbers alone."""
    from safetensors.torch import save_file

    with atomic_write(folder / BEST) as partial:
        save_file(tensors, partial)


def save_state(folder: Path, progress: Progress, parts: dict[str, Any]) -> None:
    """Write all that is needed to go on, in one step."""
    with atomic_write(folder / STATE) as partial:
        torch.save({**parts, "progress": vars(progress)}, partial)


def state_parts(network: nn.Module, optimizer: Any, tensors: dict[str, Tensor], processes: Processes) -> dict[str, Any]:
    """Return parameters and optimizer as they are saved; every process must ask."""
    if processes.world == 1:
        return {"trained": tensors, "optimizer": optimizer.state_dict()}
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return {"trained": tensors, "optimizer": get_optimizer_state_dict(network, optimizer.optimizer, options=options)}


def resume(folder: Path, network: nn.Module, optimizer: Any, processes: Processes) -> Progress:
    """Put the saved parameters and optimizer in place, and return where to go on."""
    if not (folder / STATE).exists():
        return Progress()
    state = torch.load(folder / STATE, map_location="cpu", weights_only=True)
    if processes.world == 1:
        put_trained(network, state["trained"])
        optimizer.load_state_dict(state["optimizer"])
        return Progress(**state["progress"])
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    options = StateDictOptions(full_state_dict=True, strict=False)
    set_model_state_dict(network, state["trained"], options=options)
    set_optimizer_state_dict(network, optimizer.optimizer, state["optimizer"], options=options)
    return Progress(**state["progress"])


@torch.no_grad()
def put_trained(network: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put trained parameters in place."""
    for name, parameter in trained_parameters(network).items():
        parameter.copy_(tensors[name])
