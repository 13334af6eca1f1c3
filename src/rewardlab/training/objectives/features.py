"""Inputs encoded once, and the sampler that makes batches of them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor, nn

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError
from rewardlab.core.seeding import rng_for
from rewardlab.core.storage import atomic_write, write_file
from rewardlab.core.terminal import ProgressBar
from rewardlab.training.objectives import ObjectiveSettings
from rewardlab.training.objectives.backbones import TrainablePair
from rewardlab.training.objectives.clips import TRAIN, ClipFact, ClipTable, PerturbedFrames, levels_of, only
from rewardlab.training.objectives.contract import DEMONSTRATIONS, DRAWS, ClipBatch

_AT_ONCE = 256  # frames or texts that are encoded together
_DEVICE_SHARE = 0.4  # of a GPU's free memory that inputs may fill
_LEAST_CROP = 0.8  # of the side
_TINT, _SHIFT = 0.15, 15.0  # most by which a channel is scaled and moved


@dataclass(frozen=True, eq=False)
class InputStore:
    """Everything that batches and evaluations are made from, on the device where it fits there."""

    train: Tensor  # (views, training clips, frames, ...)
    evaluated: Tensor  # (clips for validation and test, frames, ...)
    cells: Tensor  # (perturbed cells, ...)
    texts: Tensor  # (texts, ...)
    text_row: dict[str, int]

    def text_rows(self, texts: Sequence[str]) -> Tensor:
        return self.texts[[self.text_row[text] for text in texts]]


def encode_inputs(
    settings: ObjectiveSettings, pair: TrainablePair, table: ClipTable, cells: PerturbedFrames, folder: Path
) -> None:
    """Encode what is not in the folder yet; each file is written in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    train = only(table, TRAIN)
    evaluated = table.take(evaluated_rows(table))
    trained = [text for clip in train.clips for text in clip.texts]
    texts = list(dict.fromkeys([*trained, *(clip.asked for clip in evaluated.clips), *cells.texts]))
    write_file(folder / "texts.json", json.dumps(texts) + "\n")
    make: dict[str, Callable[[], Any]] = {
        "texts": lambda: _many(pair.text_inputs, texts),
        "evaluated": lambda: _clips(pair, evaluated.pixels),
        "train": lambda: np.stack([_clips(pair, _look(settings, train, v)) for v in range(settings.views)]),
        "cells": lambda: _many(pair.image_inputs, cells.pixels),
    }
    with ProgressBar(f"features of {folder.name}", len(make), 0) as view:
        for done, (name, arrays) in enumerate(make.items(), start=1):
            path = folder / f"{name}.npy"
            if not path.exists():
                made = arrays()
                with atomic_write(path) as partial, partial.open("wb") as handle:
                    np.save(handle, made, allow_pickle=False)
            view.step(done)


def evaluated_rows(table: ClipTable) -> Any:
    """Return the clips for validation and test."""
    return np.flatnonzero([clip.part != TRAIN for clip in table.clips])


def captioned_frames(pair: TrainablePair, table: ClipTable, device: str) -> "Sampler":
    """Return a sampler of single training frames with their captions, each caption as often as any other.

    What is evaluated are the clips of the table for validation, with their instructions.
    """
    train, evaluated = only(table, TRAIN), table.take(evaluated_rows(table))
    if not all(clip.captions for clip in train.clips):
        raise DataError(
            "an image-text pair is pretrained on frames with captions, which clips of datasets do not have; name only "
            "worlds in --data, or leave ?pretrain out"
        )
    frames = [
        ClipFact(f"{clip.id}-{at}", caption, (caption,), caption, TRAIN, True, False, 0, 1)
        for clip in train.clips
        for at, caption in enumerate(clip.captions)
    ]
    pixels = train.pixels.reshape(-1, 1, *train.pixels.shape[2:])
    unknown = np.full((len(frames), 1), np.nan)
    shown = ClipTable(tuple(frames), unknown, unknown, pixels)
    texts = list(dict.fromkeys([*shown.tasks, *(clip.asked for clip in evaluated.clips)]))
    store = InputStore(
        torch.from_numpy(pixels)[None],
        torch.from_numpy(evaluated.pixels),
        torch.zeros(0),
        torch.from_numpy(_many(pair.text_inputs, texts)),
        {text: row for row, text in enumerate(texts)},
    )
    return _sampler(shown, store, device)


def load_inputs(folder: Path, device: str) -> InputStore:
    """Return the encoded inputs of a backbone."""
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("train", "evaluated", "cells", "texts")}
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    fits = device != "cpu" and sum(a.nbytes for a in arrays.values()) < _DEVICE_SHARE * torch.cuda.mem_get_info()[0]
    placed = {n: torch.from_numpy(np.array(array)).to(device if fits else "cpu") for n, array in arrays.items()}
    return InputStore(**placed, text_row={text: row for row, text in enumerate(texts)})


@torch.no_grad()
def _many(encode: Callable[[Any], Tensor], rows: Any) -> Any:
    if not len(rows):
        return np.zeros((0, 1), np.float16)
    parts = [encode(rows[start : start + _AT_ONCE]).cpu().numpy() for start in range(0, len(rows), _AT_ONCE)]
    return np.concatenate(parts)


def _clips(pair: TrainablePair, pixels: Frames) -> Any:
    clips, frames = pixels.shape[:2]
    made = _many(pair.image_inputs, pixels.reshape(-1, *pixels.shape[2:]))
    return made.reshape(clips, frames, *made.shape[1:])


def _look(settings: ObjectiveSettings, train: ClipTable, view: int) -> Frames:
    """Return the training clips in one of their looks: the first is as it is."""
    if view == 0:
        return train.pixels
    drawn = (rng_for(settings.seed, "look", clip.id, view) for clip in train.clips)
    return np.stack([augmented(frames, rng) for frames, rng in zip(train.pixels, drawn, strict=True)])


def augmented(frames: Frames, rng: Generator) -> Frames:
    """Return a clip cropped and tinted, the same in every frame."""
    side = frames.shape[1]
    kept = max(1, round(side * float(rng.uniform(_LEAST_CROP, 1.0))))
    top, left = (int(rng.integers(0, side - kept + 1)) for _ in range(2))
    x = torch.from_numpy(np.ascontiguousarray(frames[:, top : top + kept, left : left + kept])).permute(0, 3, 1, 2)
    x = nn.functional.interpolate(x.float(), size=(side, side), mode="bilinear", antialias=True, align_corners=False)
    scale, shift = rng.uniform(1 - _TINT, 1 + _TINT, (1, 3, 1, 1)), rng.uniform(-_SHIFT, _SHIFT, (1, 1, 1, 1))
    tinted = x * torch.from_numpy(scale).float() + torch.from_numpy(shift).float()
    made: Frames = tinted.round().clamp(0, 255).permute(0, 2, 3, 1).to(torch.uint8).numpy()
    return made


# The sampler: which clips a step shows, in which look and words. Every place of a batch has the same task, look, words
# and random numbers for every objective with the same seed; only the clip differs where an objective counts successes
# alone and the place holds another.

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sampler:
    """The training clips of each task, successes and others apart."""

    table: ClipTable
    store: InputStore
    by_task: tuple[tuple[Ints, Ints], ...]  # rows of others, rows of successes
    levels: Ints
    done: NDArray[np.bool_]  # which clips show their task done
    device: str

    def batch(self, pair: TrainablePair, seed: int, step: int, clips: int, needs: str = "") -> ClipBatch:
        """Return the embedded batch of a step, with so many clips that count for an objective that needs this.

        Every task comes as often as any other, and successes as often as not; for demonstrations every clip is a
        success.
        """
        rng, facts = rng_for(seed, "objective batch", step), self.table.facts
        rows = np.array([self._row(chosen, needs == DEMONSTRATIONS) for chosen in rng.random((clips, 3))], np.int64)
        looks = rng.integers(0, len(self.store.train), clips)
        texts_of = (self.table.clips[row].texts for row in rows.tolist())
        words = [texts[int(at * len(texts))] for texts, at in zip(texts_of, rng.random(clips), strict=True)]
        draws = torch.from_numpy(rng.random((clips, DRAWS), np.float32)).to(self.device)
        where = self.store.train.device
        inputs = self.store.train[torch.from_numpy(looks).to(where), torch.from_numpy(rows).to(where)].to(self.device)
        texts = pair.texts(self.store.text_rows(words).to(self.device))
        known = (
            facts.progress[rows].astype(np.float32),
            self.levels[rows],
            facts.success[rows] == 1,
            facts.task[rows],
            self.done[rows],
        )
        progress, level, success, task, done = (torch.from_numpy(column).to(self.device) for column in known)
        return ClipBatch(embed_clips(pair, inputs), texts, progress, level, success, task, done, draws)

    def _row(self, numbers: NDArray[np.float64], demonstrations: bool) -> int:
        """Return the row that three numbers from 0 to 1 choose; a task without a success lends its place to any."""
        task, outcome, clip = numbers.tolist()
        others, won = self.by_task[int(task * len(self.by_task))]
        chosen = won if len(won) and (outcome < 0.5 or not len(others)) else others
        if demonstrations:
            chosen = won if len(won) else self.successes
        return int(chosen[int(clip * len(chosen))])

    @cached_property
    def successes(self) -> Ints:
        return np.concatenate([won for _, won in self.by_task])


def make_sampler(train: ClipTable, store: InputStore, device: str) -> Sampler:
    """Return the sampler of some training clips; DataError where they cannot be contrasted."""
    facts = train.facts
    if len(train.tasks) < 2:
        raise DataError(
            f"objectives contrast tasks, and the training clips show {len(train.tasks)} ({', '.join(train.tasks)}); "
            "add another task, or change --fold, --holdout or --tasks"
        )
    for value, word in ((1, "success"), (0, "failure")):
        if not (facts.success == value).any():
            raise DataError(
                f"none of the {len(train.clips)} training clips is known to be a {word}, and objectives and their "
                "evaluation need both; add some, or label them"
            )
    return _sampler(train, store, device)


def _sampler(train: ClipTable, store: InputStore, device: str) -> Sampler:
    facts = train.facts
    won = facts.success == 1
    groups = tuple(
        (np.flatnonzero((facts.task == task) & ~won), np.flatnonzero((facts.task == task) & won))
        for task in np.unique(facts.task)
    )
    done = won | np.array([clip.repeats_success for clip in train.clips], bool)
    return Sampler(train, store, groups, levels_of(train), done, device)


def embed_clips(pair: TrainablePair, inputs: Tensor) -> Tensor:
    """Return the unit vectors of the frames of clips, (clips, frames, width)."""
    return pair.images(inputs.flatten(0, 1)).unflatten(0, tuple(inputs.shape[:2]))
