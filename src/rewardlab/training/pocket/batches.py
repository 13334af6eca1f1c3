"""Training batches: drawn by step from the rollout table, ahead of time where there are worker processes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache, partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.seeding import rng_for
from rewardlab.models.pocket import WORD_VECTORS
from rewardlab.models.pocket.wordpiece import load_word_pieces
from rewardlab.runner.dispatch import map_items
from rewardlab.training.pocket.clip_sampling import Lesson, SampledClip, sample_clip, sample_perturbed_clip
from rewardlab.training.pocket.plan import PocketPlan, Training
from rewardlab.training.pocket.rollout_table import Floats, Ints, RolloutTable
from rewardlab.worlds.metaworld.captions import CAPTION_WORDS

_PREFETCH = 48  # batches that are drawn while the device is busy
_DRAWERS = 12  # processes that draw them
# Which rendering the pixels of a clip come from; `view` is a perturbed clip.
_CLEAN_SHARES = {"plain": 0.35, "crowd": 0.35, "look": 0.3}
_SCENES = ("crowd", "look", "world")  # in which things of other tasks stand
_ROBUST_SHARES = {"plain": 0.2, "crowd": 0.2, "look": 0.2, "world": 0.15, "view": 0.25}


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
    caption: Floats  # (B, words): which words describe what happened
    matches_task: NDArray[np.bool_]  # (B,): the text asks for what is done or begun, whatever words it uses for it


def training_batches(plan: PocketPlan, training: Training, table: RolloutTable, start: int) -> Iterator[Batch]:
    """Yield the batch of every step from `start` on; other processes draw them ahead where there are any."""
    steps = range(start, plan.steps)
    workers = min(plan.workers, _DRAWERS)
    yield from map_items(partial(_draw_step, plan, training, table), steps, workers, ahead=_PREFETCH)


def _draw_step(plan: PocketPlan, training: Training, table: RolloutTable, step: int) -> Batch:
    rng = rng_for(plan.seed, "lesson", training.variant, training.fold, step)
    return draw_batch(plan, table, rng, robust=training.robust)


def draw_batch(plan: PocketPlan, table: RolloutTable, rng: Generator, *, robust: bool) -> Batch:
    """Draw a batch; it depends on the generator alone."""
    shares = _ROBUST_SHARES if robust else _CLEAN_SHARES
    left_out = _SCENES if "scenes" in plan.without else ()
    kinds = np.array([kind for kind in shares if kind in table.scenes and kind not in left_out], dtype=object)
    weights = np.array([shares[kind] for kind in kinds])
    sources = rng.choice(kinds, size=plan.batch, p=weights / weights.sum())
    clips = []
    for source in sources:
        lesson = Lesson(table, str(source), "contraries" not in plan.without)
        clips.append((sample_perturbed_clip if source == "view" else sample_clip)(lesson, rng))
    return make_batch(table, sources, clips)


def make_batch(table: RolloutTable, sources: NDArray[np.object_], clips: list[SampledClip]) -> Batch:
    """Return clips as the arrays of a batch."""
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
        caption=np.stack([_caption_words(clip.caption) for clip in clips]),
        matches_task=np.array([clip.matches_task for clip in clips]),
    )


def _displacements(table: RolloutTable, row: Ints, frames: Ints) -> Floats:
    frames = np.minimum(frames, table.gripper_pos.shape[1] - 1)  # a perturbed clip may have more frames than were kept
    gripper, obj = table.gripper_pos[row[:, None], frames], table.object_pos[row[:, None], frames]
    distance = np.linalg.norm(gripper - obj, axis=2, keepdims=True)
    return np.concatenate([obj - obj[:, :1], gripper - gripper[:, :1], distance], axis=2)


@lru_cache(maxsize=50_000)
def _piece_ids(text: str) -> Ints:
    return load_word_pieces(WORD_VECTORS).piece_ids(text)


def _caption_words(text: str) -> Floats:
    """Return which words a caption has; nan where there is no caption."""
    if not text:
        return np.full(len(CAPTION_WORDS), np.nan, np.float32)
    known, found = _caption_index(), np.zeros(len(CAPTION_WORDS), np.float32)
    found[[known[word] for word in text.replace(",", "").split() if word in known]] = 1.0
    return found


@cache
def _caption_index() -> dict[str, int]:
    return {word: index for index, word in enumerate(CAPTION_WORDS)}
