"""Training batches: drawn by step from the rollout table, ahead of time where there are worker processes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.seeding import rng_for
from rewardlab.models.pocket import WORD_VECTORS
from rewardlab.models.pocket.clip_padding import CLIP_FRAMES
from rewardlab.models.pocket.wordpiece import load_word_pieces
from rewardlab.runner.dispatch import map_processes
from rewardlab.training.pocket.clip_sampling import sample_clip, sample_perturbed_clip
from rewardlab.training.pocket.plan import PocketPlan
from rewardlab.training.pocket.rollout_table import Floats, Ints, RolloutTable

_PREFETCH = 24  # batches that are drawn while the device is busy
# Which rendering the pixels of a clip come from, for plain and for robust training; `view` is a perturbed clip.
_PLAIN_SOURCES = {"plain0": 0.5, "plain1": 0.5}
_ROBUST_SOURCES = {"plain0": 0.2, "plain1": 0.2, "world": 0.25, "view": 0.35}


@dataclass(frozen=True, eq=False)
class Batch:
    """The clips of one step: where their frames are, their texts, and their labels; nan and 0 are unknown."""

    source: NDArray[np.object_]  # (B,)
    row: Ints  # (B,): rollouts
    frames: Ints  # (B, 16): frames of the rollout
    piece_ids: Ints  # (B, 48): word pieces of the text, -1 for none
    progress: Floats  # (B, 16)
    level: Ints  # (B, 16)
    displacements: Floats  # (B, 16, 7): of object and gripper since the first frame, and the distance between them
    matches_task: NDArray[np.bool_]  # (B,): the text asks for what is done or begun, whatever words it uses for it


def training_batches(plan: PocketPlan, variant: str, table: RolloutTable, start: int) -> Iterator[Batch]:
    """Yield the batch of every step from `start` on; other processes draw them ahead where there are any."""
    steps = range(start, plan.steps_of(variant))
    yield from map_processes(partial(_draw_step, plan, variant, table), steps, min(plan.workers, 6), ahead=_PREFETCH)


def _draw_step(plan: PocketPlan, variant: str, table: RolloutTable, step: int) -> Batch:
    rng = rng_for(plan.seed, "lesson", variant, step)
    return draw_batch(table, plan.batch, rng, robust=variant != "pocket-plain")


def draw_batch(table: RolloutTable, size: int, rng: Generator, *, robust: bool) -> Batch:
    """Draw a batch; it depends on the generator alone."""
    shares = _ROBUST_SOURCES if robust else _PLAIN_SOURCES
    sources = rng.choice(np.array(list(shares), dtype=object), size=size, p=np.array(list(shares.values())))
    clips = [(sample_perturbed_clip if source == "view" else sample_clip)(table, rng) for source in sources]
    row, frames = np.array([clip.row for clip in clips]), np.stack([clip.frames for clip in clips])
    perturbed = (sources == "view")[:, None, None]
    return Batch(
        source=sources,
        row=row,
        frames=frames,
        piece_ids=np.stack([_piece_ids(clip.text) for clip in clips]),
        progress=np.stack([clip.progress for clip in clips]),
        level=np.stack([clip.level for clip in clips]),
        displacements=np.where(perturbed, np.float32(np.nan), _displacements(table, row, frames)),
        matches_task=np.array([clip.matches_task for clip in clips]),
    )


def whole_clips(table: RolloutTable, rows: Ints) -> Batch:
    """Return these rollouts from start to end under their first phrasing, for validation."""
    last = table.progress.shape[1] - 1
    frames = np.tile(np.linspace(0, last, CLIP_FRAMES).round().astype(np.int64), (len(rows), 1))
    return Batch(
        source=np.full(len(rows), "plain0", dtype=object),
        row=rows,
        frames=frames,
        piece_ids=np.stack([_piece_ids(table.texts[row][0]) for row in rows]),
        progress=table.progress[rows[:, None], frames],
        level=table.levels[rows[:, None], frames],
        displacements=_displacements(table, rows, frames),
        matches_task=np.ones(len(rows), dtype=bool),
    )


def _displacements(table: RolloutTable, row: Ints, frames: Ints) -> Floats:
    frames = np.minimum(frames, table.gripper_pos.shape[1] - 1)  # a perturbed clip may have more frames than were kept
    gripper, obj = table.gripper_pos[row[:, None], frames], table.object_pos[row[:, None], frames]
    distance = np.linalg.norm(gripper - obj, axis=2, keepdims=True)
    return np.concatenate([obj - obj[:, :1], gripper - gripper[:, :1], distance], axis=2)


@lru_cache(maxsize=50_000)
def _piece_ids(text: str) -> Ints:
    return load_word_pieces(WORD_VECTORS).piece_ids(text)
