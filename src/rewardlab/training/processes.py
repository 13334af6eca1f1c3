"""One process, or several that `accelerate launch` has started: who this one is, and what they do together."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch import Tensor, nn

from rewardlab.core.errors import PlanError, require_packages
from rewardlab.models.backends.checkpoint import choose_device

_TIMEOUT = timedelta(hours=12)  # while the first process encodes clips or writes the result, the others wait


@dataclass(frozen=True)
class Processes:
    """The processes of a training; a single one needs no accelerate."""

    device: str
    rank: int = 0
    world: int = 1
    accelerator: Any = None
    sharded: bool = False  # whether each process holds a part of the parameters, or all of them

    @property
    def first(self) -> bool:
        """Tell whether this process writes files and speaks."""
        return self.rank == 0

    def share(self, network: nn.Module, layers: Iterable[nn.Module]) -> Any:
        """Return the network as the processes share it; each of the layers is gathered when it is its turn."""
        if not self.accelerator:
            return network
        if not self.sharded:
            return self.accelerator.prepare(network)
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.accelerator.device.type, (self.world,))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(network, mesh=mesh)

    def accumulating(self, network: Any, *, last: bool) -> Any:
        """Return the context of a pass, forward and backward, whose gradients are not exchanged yet, unless last."""
        if self.sharded:
            network.set_requires_gradient_sync(last)
        return nullcontext() if last or self.sharded or not self.accelerator else self.accelerator.no_sync(network)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes."""
        if not self.accelerator:
            return values
        total: Tensor = self.accelerator.reduce(values, "sum")
        return total

    def wait(self) -> None:
        """Return when every process is here."""
        if self.accelerator:
            self.accelerator.wait_for_everyone()

    @contextmanager
    def one_after_the_first(self) -> Iterator[None]:
        """Let the first process do something before the others do it."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()


def open_processes(device: str) -> Processes:
    """Return this process, or its place among those that a launcher has started."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return Processes(choose_device(device))
    require_packages("training in several processes", "accelerate", extra="vlm-train")
    from accelerate import Accelerator, InitProcessGroupKwargs

    # Else transformers leaves the weights of all but the first process empty, for accelerate to fill.
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
    accelerator = Accelerator(cpu=device == "cpu", kwargs_handlers=[InitProcessGroupKwargs(timeout=_TIMEOUT)])
    if accelerator.num_processes < 2:
        raise PlanError("several processes were started without a common launcher; start them with `accelerate launch`")
    place = "cpu" if accelerator.device.type == "cpu" else str(accelerator.device)
    sharded = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"  # `accelerate launch` sets it
    return Processes(place, accelerator.process_index, accelerator.num_processes, accelerator, sharded)
