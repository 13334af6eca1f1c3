"""The one training loop: resume, steps, finite losses, curve, validation, best weights, checkpoint.

Random numbers are not in it: each step makes its own from the seed and its number.
"""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from torch import Tensor, nn

from rewardlab.core.storage import atomic_write
from rewardlab.core.terminal import one_line, terminal_console
from rewardlab.training.optimizer import MasterAdamW, trained_parameters

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
def load_trainable(network: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put trained parameters in place."""
    for name, parameter in trained_parameters(network).items():
        parameter.copy_(tensors[name])


# What a person sees of a training: a live line on a terminal, an occasional one elsewhere; and curves as files.

CURVE = "curve.jsonl"
_LINE_SECONDS = 15.0  # how often a line is printed where there is no terminal


class LiveView:
    """A bar with the last loss and validation error on a terminal; lines on stderr elsewhere."""

    def __init__(self, what: str, total: int, done: int, *, quiet: bool = False) -> None:
        self._what, self._total, self._quiet, self._note = what, total, quiet, ""
        self._shown = time.monotonic()
        self._bar: RichProgress | None = None
        if sys.stderr.isatty() and not quiet:
            columns = (TextColumn(what), BarColumn(16), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
            self._bar = RichProgress(
                *columns, TimeRemainingColumn(), console=terminal_console(stderr=True), auto_refresh=False
            )
            self._task = self._bar.add_task("", total=total, completed=done, note="")
            self._bar.start()

    def step(self, done: int, note: str = "") -> None:
        """Show how much is done."""
        self._note = note or self._note
        if self._bar:
            self._bar.update(self._task, completed=done, note=self._note)
            self._bar.refresh()
        elif not self._quiet and time.monotonic() - self._shown > _LINE_SECONDS:
            self._shown = time.monotonic()
            self.say(f"{self._what} {done} of {self._total} {self._note}")

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self._quiet:
            return
        if self._bar:
            self._bar.console.print(one_line(text), markup=False, highlight=False)
        else:
            print(one_line(text), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the terminal as it is."""
        if self._bar:
            self._bar.stop()


class Curves:
    """The numbers of a training, one JSON object a line, and TensorBoard's files where it is installed."""

    def __init__(self, folder: Path, step: int, *, tensorboard: bool = True) -> None:
        self._path = folder / CURVE
        self._writer: Any = None
        kept = [row for row in read_curve(folder) if row["step"] <= step]  # what was not saved is done again
        with atomic_write(self._path) as partial:
            partial.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        if tensorboard and find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add a line."""
        with self._path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps({"step": step, **values}) + "\n")
        for name, value in values.items() if self._writer else ():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        if self._writer:
            self._writer.close()


def read_curve(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a curve; one that a crash has cut off ends it."""
    path, rows = folder / CURVE, []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows
