"""The one training loop: resume, steps, finite losses, validation, best weights, checkpoint, curve.

A trainable computes; the loop decides when, and writes the files. Random numbers are in neither file: each step makes
its own from the seed and its number.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rewardlab.core.errors import ModelError
from rewardlab.core.storage import atomic_write, write_file
from rewardlab.training.optimizer import trained_parameters
from rewardlab.training.processes import Processes

WORK, BEST = "training", "best.safetensors"
TRAINED = "trained"  # the part of a state that is kept as the best weights


@dataclass(frozen=True)
class Step:
    """What one optimizer step came to: its losses, still on their device, and how much it has read."""

    losses: Mapping[str, Tensor]
    lr: float
    counts: Mapping[str, int] = field(default_factory=dict)  # such as clips; the curve shows them per second


class Trainable(Protocol):
    """What the loop trains. Where there are several processes, each calls every method."""

    def batches(self, start: int) -> Iterable[Any]:
        """Yield the batch of every step from `start` on."""

    def step(self, number: int, batch: Any) -> Step:
        """Take one optimizer step: forward, backward, update."""

    def validate(self) -> tuple[float | None, Mapping[str, float]]:
        """Return the error that decides which weights are the best, and the values for the curve.

        Without an error, the last weights count as the best.
        """

    def state(self) -> dict[str, Any]:
        """Return all that is needed to go on; TRAINED is the trained weights."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""


@dataclass(frozen=True)
class Progress:
    """How far a training is: steps done, and step and error of the best checkpoint."""

    step: int = 0
    best_step: int = 0
    best_error: float = float("inf")


@dataclass(frozen=True)
class TrainingFiles:
    """Where a training keeps its state and curve; the best weights and TensorBoard's files where they are wanted."""

    state: Path
    curve: Path
    best: Path | None = None
    tensorboard: Path | None = None


def files_in(folder: Path, *, tensorboard: bool = False) -> TrainingFiles:
    """Return the files of a training that has a folder of its own."""
    work = folder / WORK
    board = folder / "tensorboard" if tensorboard else None
    return TrainingFiles(work / "state.pt", folder / "curve.jsonl", work / BEST, board)


def fit(
    trainable: Trainable,
    files: TrainingFiles,
    *,
    steps: int,
    eval_every: int,
    processes: Processes,
    show: Callable[[Progress, Mapping[str, float]], None],
    log_every: int = 0,
    name: str = "",
) -> Progress:
    """Train from the last checkpoint to the last step, and return how far it came.

    After every `eval_every` steps, and after the last, the trainable is validated and saved, and then a row is added to
    the curve; `log_every` adds rows of the losses in between. `show` is called after each step, with that row if any.
    """
    progress = Progress()
    if files.state.exists():
        state = torch.load(files.state, map_location="cpu", weights_only=True)
        progress = Progress(**state.pop("progress"))
        trainable.restore(state)
    curve = Curve(files, progress.step) if processes.first else None
    recent = _Recent(name)
    try:
        for number, batch in zip(range(progress.step, steps), trainable.batches(progress.step), strict=True):
            recent.add(trainable.step(number, batch))
            progress = replace(progress, step=number + 1)
            validates = progress.step % eval_every == 0 or progress.step == steps
            logs = validates or (log_every > 0 and progress.step % log_every == 0)
            row = recent.row(progress.step) if logs else {}
            if validates:
                error, values = trainable.validate()
                progress = _save(trainable, files, progress, error, processes)
                row |= values
            if logs:
                recent = _Recent(name)
            if curve and row:
                curve.add(progress.step, row)
            show(progress, row)
    finally:
        if curve:
            curve.close()
    return progress


def _save(
    trainable: Trainable, files: TrainingFiles, progress: Progress, error: float | None, processes: Processes
) -> Progress:
    """Write the state, and the weights if they are the best so far."""
    better = error is None or error < progress.best_error
    if better:
        progress = replace(progress, best_step=progress.step, best_error=math.inf if error is None else error)
    state = trainable.state()  # every process holds a part of it
    if processes.first:
        if better and files.best:
            from safetensors.torch import save_file

            with atomic_write(files.best) as partial:
                save_file(state[TRAINED], partial)
        with atomic_write(files.state) as partial:
            torch.save({"progress": vars(progress), **state}, partial)
    return progress


class _Recent:
    """The losses and counts of the steps since the last row."""

    def __init__(self, name: str) -> None:
        self._name, self._since = name, time.monotonic()
        self._steps: list[Step] = []
        self._counts: Counter[str] = Counter()

    def add(self, step: Step) -> None:
        self._steps.append(step)
        self._counts.update(step.counts)

    def row(self, number: int) -> dict[str, float]:
        """Return mean losses, learning rate and counts per second; ModelError where a loss is not finite."""
        seconds = time.monotonic() - self._since
        names = self._steps[0].losses
        losses = {name: torch.stack([step.losses[name] for step in self._steps]).float().cpu() for name in names}
        total = torch.stack(list(losses.values())).sum(dim=0)
        wrong = (~torch.isfinite(total)).nonzero()
        if len(wrong):
            first = number - len(total) + int(wrong[0]) + 1
            of = f" of {self._name}" if self._name else ""
            raise ModelError(f"the loss{of} is not a number at step {first}; try a lower --lr")
        parts = {name: float(values.mean()) for name, values in losses.items()} if len(losses) > 1 else {}
        rates = {f"{name}_per_s": count / seconds for name, count in self._counts.items()}
        return {"loss": float(total.mean()), **parts, "lr": self._steps[-1].lr, **rates}


class Curve:
    """The values of a training, one JSON object a line, and TensorBoard's files where it is installed."""

    def __init__(self, files: TrainingFiles, step: int) -> None:
        self._path = files.curve
        self._writer: Any = None
        kept = [row for row in read_curve(files.curve) if row["step"] <= step]  # later steps are taken again
        write_file(self._path, "".join(json.dumps(row) + "\n" for row in kept))
        if files.tensorboard and find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(files.tensorboard), purge_step=step + 1)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        with self._path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps({"step": step, **values}) + "\n")
        for name, value in values.items() if self._writer else ():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer:
            self._writer.close()


def read_curve(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a curve; one that a crash has cut off ends it."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


@torch.no_grad()
def load_trainable(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put trained weights in place."""
    for name, parameter in trained_parameters(network).items():
        parameter.copy_(tensors[name])
