"""Clip sampling: which frames of a rollout make a training clip, under which instruction, with which labels."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import LEVEL_STARTS
from rewardlab.core.seeding import pick
from rewardlab.models.pocket import WORD_VECTORS
from rewardlab.models.pocket.clip_padding import CLIP_FRAMES, pad_clip
from rewardlab.models.pocket.wordpiece import load_word_pieces
from rewardlab.training.pocket.rollout_table import MIN_CLIP_FRAMES, Floats, Ints, RolloutTable, levels_of
from rewardlab.training.pocket.synthetic_instructions import ClipPositions, synthetic_instruction
from rewardlab.worlds.metaworld.objects import OPPOSITE_TASKS, TASK_OBJECTS

# How a clip is cut from a rollout and which instruction it gets, and how often.
_CLIP_KINDS = {
    "forward": 0.5,
    "synthetic": 0.22,  # under a synthetic instruction, labelled by positions
    "mismatch": 0.06,  # what was done, under the instruction of a task with another object
    "counterfactual": 0.06,  # under another instruction for the same scene, labelled at the end only
    "undone": 0.03,  # reversed, under the instruction of the opposite task
    "reverse": 0.03,
    "rewind": 0.03,
    "static": 0.04,
    "hold": 0.03,
}
_FORWARD_KINDS = ("forward", "static", "hold")  # in a reversed clip only the words say what was to be done
_SYMMETRIC_TASKS = ("faucet-open", "faucet-close")  # opposites that begin alike: neither undoes the other
_MIN_UNDOABLE = 0.9  # progress from which a reversed rollout is the opposite task


@dataclass(frozen=True, eq=False)
class SampledClip:
    """One training clip: the frames of a rollout, a text, and the labels per frame; nan and 0 are unknown."""

    row: int
    frames: Ints  # (16,)
    text: str
    progress: Floats  # (16,)
    level: Ints  # (16,)
    matches_task: bool = False  # the text asks for what is done or begun, whatever words it uses for it


def sample_clip(table: RolloutTable, rng: Generator) -> SampledClip:
    """Draw a clip of any kind from the training rollouts."""
    kind = str(rng.choice(np.array(list(_CLIP_KINDS)), p=np.array(list(_CLIP_KINDS.values()))))
    task = pick(table.task_names, rng)
    clip = _RELABELLED[kind](table, task, rng) if kind in _RELABELLED else None
    if clip is not None:
        return clip
    kind = "forward" if kind in _RELABELLED else kind
    row, end = _row_and_end(table, task, rng, success=kind == "mismatch" and rng.random() < 0.5)
    frames, shown = _FRAME_ORDERS.get(kind, _forward)(end, rng)
    progress = np.full(CLIP_FRAMES, np.nan, np.float32)
    progress[:shown] = table.progress[row, frames[:shown]]
    text = pick(table.texts[row], rng)
    if kind == "mismatch":
        text, progress = _mismatched_text(table, task, rng), np.where(np.isnan(progress), progress, np.float32(0.0))
    return SampledClip(row, frames, text, progress, levels_of(progress), matches_task=kind in _FORWARD_KINDS)


def sample_perturbed_clip(table: RolloutTable, rng: Generator) -> SampledClip:
    """Draw a perturbed clip with a known label."""
    while True:
        row = int(table.training[int(rng.integers(len(table.training)))])
        clip = table.perturbed_clips[row]
        if clip is not None:
            break
    level = levels_of(clip.progress)
    if not level.any():
        level[CLIP_FRAMES - 1] = clip.level
    return SampledClip(row, np.arange(CLIP_FRAMES), clip.text, clip.progress, level)


def _row_and_end(table: RolloutTable, task: str, rng: Generator, *, success: bool) -> tuple[int, int]:
    """Return a rollout and the frame where the clip ends, every level as often as any other."""
    present = [level for level in range(1, 6) if (task, level) in table.by_level]
    level = 5 if success and 5 in present else pick(present, rng)
    if (task, level) in table.by_end and rng.random() < 0.5:  # as it came to rest, not as it went by
        return pick(table.by_end[task, level], rng), table.levels.shape[1] - 1
    row = pick(table.by_level[task, level], rng)
    ends = np.flatnonzero(table.levels[row, MIN_CLIP_FRAMES - 1 :] == level) + MIN_CLIP_FRAMES - 1
    return row, pick(ends.tolist(), rng)


def _forward(end: int, rng: Generator) -> tuple[Ints, int]:
    # The length is drawn whatever the level at the end.
    shown = CLIP_FRAMES if rng.random() < 0.8 else int(rng.integers(MIN_CLIP_FRAMES, CLIP_FRAMES))
    return pad_clip(_between(0, end, shown, rng)), shown


def _reverse(end: int, rng: Generator) -> tuple[Ints, int]:
    return _between(0, end, CLIP_FRAMES, rng)[::-1], CLIP_FRAMES


def _rewind(end: int, rng: Generator) -> tuple[Ints, int]:
    forward = int(rng.integers(6, 11))
    turn = int(rng.integers(0, end + 1))
    parts = [_between(0, end, forward, rng), _between(turn, end, CLIP_FRAMES - forward, rng)[::-1]]
    return np.concatenate(parts), CLIP_FRAMES


def _static(end: int, rng: Generator) -> tuple[Ints, int]:
    shown = int(rng.integers(1, CLIP_FRAMES + 1)) if rng.random() < 0.3 else CLIP_FRAMES
    return np.zeros(CLIP_FRAMES, np.int64), shown


def _hold(end: int, rng: Generator) -> tuple[Ints, int]:
    moving = int(rng.integers(5, 13))
    return pad_clip(_between(0, end, moving, rng)), CLIP_FRAMES


_FRAME_ORDERS = {"reverse": _reverse, "rewind": _rewind, "static": _static, "hold": _hold}


def _between(start: int, end: int, count: int, rng: Generator) -> Ints:
    """Return frame indices from start to end, evenly spaced, or now and then at a changing pace."""
    if rng.random() < 0.3 and count > 2:
        inner = np.sort(rng.uniform(start, end, count - 2)).round().astype(np.int64)
        return np.concatenate([[start], inner, [end]])
    return np.linspace(start, end, count).round().astype(np.int64)


def _counterfactual(table: RolloutTable, task: str, rng: Generator) -> SampledClip | None:
    row = pick(table.by_task[task], rng)
    if not table.counterfactuals[row]:
        return None
    end, text, level = pick(table.counterfactuals[row], rng)
    levels = np.zeros(CLIP_FRAMES, np.int64)
    levels[-1] = level
    frames = _between(0, end, CLIP_FRAMES, rng)
    return SampledClip(row, frames, text, np.full(CLIP_FRAMES, np.nan, np.float32), levels)


def _synthetic(table: RolloutTable, task: str, rng: Generator) -> SampledClip:
    row, end = _row_and_end(table, task, rng, success=False)
    start = int(rng.integers(0, max(1, end - MIN_CLIP_FRAMES))) if rng.random() < 0.3 else 0
    frames = _between(start, end, CLIP_FRAMES, rng)
    if rng.random() < 0.3:
        frames = frames[::-1]
    gripper_pos, object_pos = (path[row, frames].astype(np.float64) for path in (table.gripper_pos, table.object_pos))
    text, progress = synthetic_instruction(ClipPositions(task, gripper_pos, object_pos), _dictionary_words(), rng)
    return SampledClip(row, frames, text, progress, levels_of(progress))


def _undone(table: RolloutTable, task: str, rng: Generator) -> SampledClip | None:
    """Show a finished task reversed and ask for its opposite, where that is a training task too."""
    opposite = OPPOSITE_TASKS.get(task)
    if opposite not in table.task_names or task in _SYMMETRIC_TASKS:
        return None
    row, end = _row_and_end(table, task, rng, success=True)
    if table.progress[row, end] < _MIN_UNDOABLE:
        return None
    frames = _between(int(rng.integers(0, end // 2)) if rng.random() < 0.5 else 0, end, CLIP_FRAMES, rng)[::-1]
    left = (table.progress[row, frames] - LEVEL_STARTS[0]) / (table.progress[row, end] - LEVEL_STARTS[0])
    progress = 1 - left.clip(0, 1)  # below level 2 the object is as it was
    text = pick(table.texts[table.by_task[opposite][0]], rng)
    return SampledClip(row, frames, text, progress, levels_of(progress))


_RELABELLED = {"counterfactual": _counterfactual, "synthetic": _synthetic, "undone": _undone}


@cache
def _dictionary_words() -> tuple[str, ...]:
    """Return whole words of the vocabulary, to call objects by names that mean nothing here."""
    ids = load_word_pieces(WORD_VECTORS).ids
    return tuple(word for word in ids if word.isascii() and word.isalpha() and len(word) > 3)


def _mismatched_text(table: RolloutTable, task: str, rng: Generator) -> str:
    """Return an instruction for another object; the gripper is in every scene, so `reach` is no other object."""
    excluded = (TASK_OBJECTS[task], TASK_OBJECTS["reach"])
    others = [name for name in table.task_names if TASK_OBJECTS[name] not in excluded] or [task]
    return pick(table.texts[pick(table.by_task[pick(others, rng)], rng)], rng)
