"""The frame store: pixels of every source and word vectors on the training device, gathered and changed per batch."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from rewardlab.models.pocket import WORD_VECTORS
from rewardlab.models.pocket.inference import CLIP_FRAMES, PIECES_READ, load_word_pieces
from rewardlab.training.pocket import PocketSettings, Training
from rewardlab.training.pocket.network import NetworkConfig
from rewardlab.training.pocket.rendering import evenly, of_training, read_rollout_table, render_all
from rewardlab.training.pocket.sources import Batch, Sources, load_demonstrations, make_nonsense, make_tabletop

_CALIBRATION_CLIPS = 60  # about so many, of each source, show the ranges of the image encoder
_WORD_DROPOUT = 0.3  # the largest fraction of words left out of a text
_WORD_NOISE = 0.15  # on the vectors, so that a word stands for its neighbours too
# How strongly pixels are changed: Meta-World has many renderings, of each demonstration there is one.
_CHANGES = {"metaworld": 0.4, "demonstrations": 1.5}
Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class FrameStore:
    """Everything that batches are made from; the pixels are on the training device."""

    sources: Sources
    pixels: dict[str, Tensor]  # by source, uint8 (rollouts, frames, H, W, 3)
    word_vectors: Tensor  # (pieces + 1, width); the last row stands for no piece
    fold: int | None  # that tabletop and demonstrations are of


def make_frame_store(settings: PocketSettings) -> FrameStore:
    """Render Meta-World and nonsense, which every training shares, and put them on the device."""
    pixels: dict[str, Tensor] = {}
    scenes = _onto_device(settings, pixels, "metaworld", lambda path: render_all(settings, path))
    nonsense = _onto_device(settings, pixels, "nonsense", lambda path: make_nonsense(settings, path))
    vocabulary = load_word_pieces(WORD_VECTORS)
    vectors = torch.cat([torch.from_numpy(vocabulary.vectors), torch.zeros(1, vocabulary.vectors.shape[1])])
    sources = Sources(read_rollout_table(settings, scenes), nonsense=nonsense)
    return FrameStore(sources, pixels, vectors.to(settings.device), _NO_FOLD)


_NO_FOLD = -1


def of_fold(settings: PocketSettings, store: FrameStore, fold: int | None) -> FrameStore:
    """Return the store with the tabletop rollouts and demonstrations of a fold, made where they are of another one."""
    if store.fold == fold:
        return store
    pixels, sources = store.pixels, store.sources
    for name in ("tabletop", "demonstrations"):
        pixels.pop(name, None)
    if settings.tabletop:
        made = _onto_device(settings, pixels, "tabletop", lambda path: make_tabletop(settings, fold, path))
        sources = replace(sources, tabletop=made)
    if settings.demonstrations:
        read = _onto_device(settings, pixels, "demonstrations", lambda path: load_demonstrations(settings, fold, path))
        sources = replace(sources, demonstrations=read)
    return replace(store, sources=sources, fold=fold)


def of_variant(settings: PocketSettings, store: FrameStore, training: Training) -> FrameStore:
    """Return the store as one training may use it."""
    table = of_training(store.sources.metaworld, settings.unseen(training.fold), robust=training.robust)
    return replace(store, sources=replace(store.sources, metaworld=table))


def _onto_device(settings: PocketSettings, pixels: dict[str, Tensor], name: str, make: Callable[[Path], Made]) -> Made:
    """Make a file of pixels, move it onto the device, and return what was said of it."""
    path = settings.out / f"{name}.npy"
    made = make(path)
    frames = np.load(path, mmap_mode="r")
    pixels[name] = torch.empty(frames.shape, dtype=torch.uint8, device=settings.device)
    for start in range(0, len(frames), 512):
        some = slice(start, start + 512)
        pixels[name][some] = torch.from_numpy(np.array(frames[some])).to(settings.device)
    del frames
    path.unlink()
    print(f"{name}: {len(pixels[name]):,} clips", flush=True)
    return made


def calibration_frames(store: FrameStore, config: NetworkConfig) -> NDArray[np.uint8]:
    """Return an even choice of the frames that a variant is trained on in this store, uint8 (N, H, W, 3)."""
    chosen = []
    table = store.sources
    rows = {
        "metaworld": np.concatenate([table.metaworld.training, table.metaworld.perturbed]),
        "nonsense": table.nonsense,
    }
    rows |= {"tabletop": table.tabletop.training} if table.tabletop else {}
    rows |= {"demonstrations": table.demonstrations.training} if table.demonstrations else {}
    for name, every in rows.items():
        some = to_device(evenly(every, _CALIBRATION_CLIPS), store)
        clips = store.pixels[name][some]
        clips = clips[:, :: max(1, clips.shape[1] // 4)]
        chosen.append(resized(clips, config.size).flatten(0, 1).cpu().numpy())
    return np.concatenate(chosen)


def gather_frames(store: FrameStore, batch: Batch, config: NetworkConfig) -> Tensor:
    """Return the pixels of the videos as a network takes them, uint8 (V, T, H, W, 3), not changed."""
    return resized(_gathered(store, batch, config), config.size)


def gather_changed_frames(store: FrameStore, batch: Batch, config: NetworkConfig) -> tuple[Tensor, Tensor]:
    """Return the pixels of the videos, each cropped, turned, coloured, blurred and given noise, by source.

    And where the places of the batch are in them.
    """
    strength = np.array([_CHANGES.get(name, 1.0) for name in batch.source], np.float32)
    frames, matrix = change_pixels(_gathered(store, batch, config), config.size, to_device(strength, store))
    return frames, moved_places(gather_places(store, batch, config), matrix[to_device(batch.video, store)])


def gather_places(store: FrameStore, batch: Batch, config: NetworkConfig) -> Tensor:
    """Return the places of the batch in the frames that a network looks at, (B, T, 4)."""
    return to_device(batch.places[:, shown_frames(config)], store)


def moved_places(places: Tensor, matrix: Tensor) -> Tensor:
    """Return where places (B, T, 4) come to be if pictures are made through matrices (B, 2, 3) from new to old."""
    turn, shift = matrix[:, None, :, :2].inverse(), matrix[:, None, :, 2]
    return torch.cat([(turn @ (part - shift)[..., None])[..., 0] for part in places.split(2, dim=-1)], dim=-1)


def shown_frames(config: NetworkConfig) -> NDArray[np.int64]:
    """Return which of the 16 frames of a clip a network looks at."""
    return np.linspace(0, CLIP_FRAMES - 1, config.frames).round().astype(np.int64)


def _gathered(store: FrameStore, batch: Batch, config: NetworkConfig) -> Tensor:
    side, device = next(iter(store.pixels.values())).shape[2], store.word_vectors.device
    indices = batch.frames[:, shown_frames(config)]
    frames = torch.empty((*indices.shape, side, side, 3), dtype=torch.uint8, device=device)
    for name in dict.fromkeys(batch.source.tolist()):
        members = np.flatnonzero(batch.source == name)
        rows, times = to_device(batch.row[members], store), to_device(indices[members], store)
        frames[to_device(members, store)] = store.pixels[name][rows[:, None], times]
    mirrored = to_device(np.flatnonzero(batch.mirrored), store)
    frames[mirrored] = frames[mirrored].flip(3)
    return frames


def resized(frames: Tensor, size: int) -> Tensor:
    """Return videos (V, T, H, W, 3) with another side."""
    if frames.shape[2] == size:
        return frames
    flat = frames.flatten(0, 1).permute(0, 3, 1, 2).float()
    small = functional.interpolate(flat, size=size, mode="bilinear", antialias=True)
    return small.round().byte().permute(0, 2, 3, 1).unflatten(0, frames.shape[:2])


def change_pixels(frames: Tensor, size: int, strength: Tensor) -> tuple[Tensor, Tensor]:
    """Return videos uint8 (V, T, H, W, 3) of side `size` after changes of their own, each of its strength (V,).

    And the matrices (V, 2, 3) by which each place in the new pictures comes from one in the old.
    """
    count, times, device = len(frames), frames.shape[1], frames.device

    def drawn(low: float, high: float, *shape: int) -> Tensor:
        return torch.rand((count, *shape), device=device) * (high - low) + low

    def often(share: float) -> Tensor:
        return (torch.rand(count, device=device) < share).float()

    scale = 1.02 - drawn(0, 0.3) * strength
    stretch = 1 + drawn(-0.12, 0.12) * strength
    angle = drawn(-0.2, 0.2) * often(0.5) * strength
    right, down = (drawn(-1, 1) * (1.03 - scale).clamp(min=0) for _ in range(2))
    cosine, sine = torch.cos(angle) * scale, torch.sin(angle) * scale
    rows = (torch.stack([cosine * stretch, -sine, right], 1), torch.stack([sine, cosine / stretch, down], 1))
    flat = frames.permute(0, 1, 4, 2, 3).flatten(1, 2).float()
    matrix = torch.stack(rows, 1)
    grid = functional.affine_grid(matrix, [count, flat.shape[1], size, size], align_corners=False)
    x = (
        functional.grid_sample(flat, grid, padding_mode="reflection", align_corners=False).unflatten(1, (times, 3))
        / 255
    )

    def wide(values: Tensor) -> Tensor:
        return values.view(count, 1, -1, 1, 1)

    x = x * wide(1 + drawn(-0.3, 0.25) * strength) + wide(drawn(-0.08, 0.08) * strength)
    mean = x.mean((1, 3, 4), keepdim=True)
    x = (x - mean) * wide(1 + drawn(-0.4, 0.3) * strength) + mean
    grey = x.mean(2, keepdim=True)
    x = grey + (x - grey) * wide((1 + drawn(-0.45, 0.5) * strength) * (1 - often(0.05)))
    x = x * wide(1 + drawn(-0.11, 0.11, 3) * strength[:, None])
    x = x.clamp(1e-4, 1) ** wide(1 + drawn(-0.3, 0.4) * strength)
    blurred = often(0.25).bool()
    if blurred.any():
        some = x[blurred].flatten(0, 1)
        x[blurred] = functional.avg_pool2d(some, 3, 1, 1, count_include_pad=False).unflatten(0, (-1, times))
    coarse = often(0.2).bool()
    if coarse.any():
        some, small = x[coarse].flatten(0, 1), int(size * (0.35 + 0.3 * float(torch.rand(()))))
        some = functional.interpolate(functional.interpolate(some, size=small, mode="area"), size=size, mode="bilinear")
        x[coarse] = some.unflatten(0, (-1, times))
    x = x + torch.randn_like(x) * wide(drawn(0, 0.06) * often(0.4))
    return (x.clamp(0, 1) * 255).round().byte().permute(0, 1, 3, 4, 2), matrix


def gather_words(store: FrameStore, batch: Batch, *, augment: bool) -> tuple[Tensor, Tensor]:
    """Return the vectors of the words and which of them are there; augmented, some are left out and all have noise."""
    ids = to_device(batch.piece_ids, store)[:, :PIECES_READ]
    if not ids.is_cuda:  # there, all batches have the same shape, for which the network is compiled
        ids = ids[:, : int((batch.piece_ids >= 0).sum(axis=1).max())]
    known = (ids >= 0).float()
    if not augment:
        return store.word_vectors[ids], known  # -1 takes the last row, which is zero
    left_out = (
        _WORD_DROPOUT * torch.rand((len(ids), 1), device=ids.device) * to_device(batch.matches_task, store)[:, None]
    )
    known = known * (torch.rand(ids.shape, device=ids.device) >= left_out)
    vectors = store.word_vectors[ids]
    return (vectors + _WORD_NOISE * torch.randn_like(vectors)) * known[..., None], known


def to_device(values: NDArray[Any], store: FrameStore) -> Tensor:
    """Return an array as a tensor on the device, without waiting for it."""
    tensor, device = torch.from_numpy(values), store.word_vectors.device
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
