"""Clips of Meta-World rollouts with the words and labels that a step shows; no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import LEVEL_STARTS
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import pick
from rewardlab.models.pocket import WORD_VECTORS
from rewardlab.models.pocket.inference import CLIP_FRAMES, load_word_pieces, pad_clip
from rewardlab.training.pocket.instructions import (
    ClipPositions,
    names_a_colour,
    new_name,
    renamed,
    synthetic_instruction,
)
from rewardlab.training.pocket.rendering import MIN_CLIP_FRAMES, Floats, Ints, RenderedScene, RolloutTable, levels_of
from rewardlab.training.pocket.rollouts import draw_by_share
from rewardlab.worlds.metaworld.instructions import (
    SYMMETRIC_TASKS,
    ask_for_distractor,
    caption,
    inverse_instructions,
    phrasings,
)
from rewardlab.worlds.metaworld.render import CAMERAS
from rewardlab.worlds.metaworld.tasks import OPPOSITE_TASKS, TASK_OBJECTS

# How a clip is cut from a rollout and which instruction it gets, and how often.
CLIP_KINDS = {
    "forward": 0.46,
    "other": 0.1,  # what was done, under an instruction for another thing that stands there
    "synthetic": 0.18,  # under a synthetic instruction, labelled by positions
    "undone": 0.09,  # reversed, under the inverse instruction
    "contrary": 0.05,  # what was done, under the inverse instruction
    "counterfactual": 0.02,  # under another instruction for the same scene, labelled at the end only
    "reverse": 0.04,
    "rewind": 0.02,
    "static": 0.03,
    "hold": 0.01,
}
_FORWARD_KINDS = ("forward", "static", "hold")  # in a reversed clip only the words say what was to be done
_INVERSE_KINDS = ("undone", "contrary")
_MIN_UNDOABLE = 0.9  # progress from which a reversed rollout is the inverse task
_RENAMED = 0.2  # fraction of clips in which the object gets another name; where it looks other, always
_MOST_DRAWS = 10_000  # of clips, until one may be shown


@dataclass(frozen=True, eq=False)
class SampledClip:
    """One training clip: the frames of a rollout, a text, and the labels per frame; nan and 0 are unknown."""

    row: int
    frames: Ints  # (16,)
    text: str
    progress: Floats  # (16,)
    level: Ints  # (16,)
    caption: str = ""
    matches_task: bool = False  # the text asks for what is done or begun, whatever words it uses for it
    places: Floats | None = None  # (16, 4): of the asked thing and the hand in the picture; None where nobody knows
    mirrored: bool = False  # left is right, in the words as well


def sample_clip(table: RolloutTable, rng: Generator, *, inverse: bool = True) -> SampledClip:
    """Draw a clip of any kind from the training rollouts, some under the inverse instruction; some are perturbed."""
    if len(table.perturbed) and rng.random() < len(table.perturbed) / (len(table.perturbed) + len(table.training)):
        return _perturbed(table, rng)
    kinds = {kind: share for kind, share in CLIP_KINDS.items() if inverse or kind not in _INVERSE_KINDS}
    kind = draw_by_share(kinds, rng)
    for _ in range(_MOST_DRAWS):
        clip = _RELABELLED[kind](table, rng) if kind in _RELABELLED else _own_words(table, kind, rng)
        if clip is not None:
            return clip
        kind = "forward" if rng.random() < 0.5 else kind
    raise PlanError("no rendering of a seen task may be shown; simulate more rollouts or tasks")


def _perturbed(table: RolloutTable, rng: Generator) -> SampledClip:
    row = int(table.perturbed[int(rng.integers(len(table.perturbed)))])
    clip = table.scenes[row].perturbed
    assert clip is not None  # or it would not be in that list
    level = levels_of(clip.progress)
    if not level.any():
        level[CLIP_FRAMES - 1] = clip.level
    return SampledClip(row, np.arange(CLIP_FRAMES), clip.text, clip.progress, level)


def _own_words(table: RolloutTable, kind: str, rng: Generator) -> SampledClip | None:
    row, end = _row_and_end(table, pick(table.task_names, rng), rng, success=False)
    scene = table.scenes[row]
    frames, shown = _frame_order(kind, end, rng)
    progress = np.full(CLIP_FRAMES, np.nan, np.float32)
    progress[:shown] = table.progress[row, frames[:shown]]
    text, name = _words(table.texts[row], table.tasks[row], scene, rng)
    said = _caption(table, row, frames, name)
    own = kind in _FORWARD_KINDS
    return SampledClip(row, frames, text, progress, levels_of(progress), said, own, _places(table, row, frames))


def _words(texts: tuple[str, ...], task: str, scene: RenderedScene, rng: Generator) -> tuple[str, str]:
    """Return an instruction that is true of how the scene looks, and the name it uses if not the usual one."""
    name = new_name(scene.look, dictionary_words(), rng)
    text = pick(texts, rng)
    other = renamed(text, task, name) if scene.look is not None or rng.random() < _RENAMED else None
    if other is not None and not names_a_colour(other.replace(name, "")):
        return other, name
    if scene.look is not None and names_a_colour(text):
        plain = [each for each in texts if not names_a_colour(each)]
        return (pick(plain, rng), "") if plain else (f"Move {name} where it belongs.", name)
    return text, ""


def _other(table: RolloutTable, rng: Generator) -> SampledClip | None:
    """Ask for another thing that stands in the scene: nobody has touched it."""
    row, end = _row_and_end(table, pick(table.task_names, rng), rng, success=rng.random() < 0.5)
    scene = table.scenes[row]
    asked = [task for _, tasks in scene.things for task in tasks]
    if not asked:
        return None
    text = ask_for_distractor(pick(asked, rng), "train", rng).text
    frames, shown = _forward(end, rng)
    progress = np.full(CLIP_FRAMES, np.nan, np.float32)
    progress[:shown] = 0.0
    return SampledClip(row, frames, text, progress, levels_of(progress), _caption(table, row, frames, ""))


def _places(table: RolloutTable, row: int, frames: Ints) -> Floats | None:
    """Return where object and gripper are in the picture; None where the camera may be any."""
    camera = table.scenes[row].camera
    seen = (
        CAMERAS[camera].seen_at(np.stack([table.object_pos[row, frames], table.gripper_pos[row, frames]], axis=1))
        if camera
        else None
    )
    return None if seen is None else seen.reshape(len(frames), 4).astype(np.float32)


def _caption(table: RolloutTable, row: int, frames: Ints, name: str) -> str:
    gripper, thing = (path[row, frames].astype(np.float64) for path in (table.gripper_pos, table.object_pos))
    return caption(table.tasks[row], gripper, thing, name=name)


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
    return pad_clip(between(0, end, shown, rng)), shown


def _frame_order(kind: str, end: int, rng: Generator) -> tuple[Ints, int]:
    """Return which frames a kind of clip shows, and how many of them before padding."""
    if kind == "reverse":
        return between(0, end, CLIP_FRAMES, rng)[::-1], CLIP_FRAMES
    if kind == "rewind":
        forward, turn = int(rng.integers(6, 11)), int(rng.integers(0, end + 1))
        parts = [between(0, end, forward, rng), between(turn, end, CLIP_FRAMES - forward, rng)[::-1]]
        return np.concatenate(parts), CLIP_FRAMES
    if kind == "static":
        shown = int(rng.integers(1, CLIP_FRAMES + 1)) if rng.random() < 0.3 else CLIP_FRAMES
        return np.zeros(CLIP_FRAMES, np.int64), shown
    if kind == "hold":
        return pad_clip(between(0, end, int(rng.integers(5, 13)), rng)), CLIP_FRAMES
    return _forward(end, rng)


def between(start: int, end: int, count: int, rng: Generator) -> Ints:
    """Return frame indices from start to end, evenly spaced, or now and then at a changing pace."""
    if rng.random() < 0.3 and count > 2:
        inner = np.sort(rng.uniform(start, end, count - 2)).round().astype(np.int64)
        return np.concatenate([[start], inner, [end]])
    return np.linspace(start, end, count).round().astype(np.int64)


def _counterfactual(table: RolloutTable, rng: Generator) -> SampledClip | None:
    row = pick(table.by_task[pick(table.task_names, rng)], rng)
    scene = table.scenes[row]
    if scene.look is not None or not table.counterfactuals[row]:
        return None
    end, text, level = pick(table.counterfactuals[row], rng)
    levels = np.zeros(CLIP_FRAMES, np.int64)
    levels[-1] = level
    frames = between(0, end, CLIP_FRAMES, rng)
    return SampledClip(row, frames, text, np.full(CLIP_FRAMES, np.nan, np.float32), levels)


def _synthetic(table: RolloutTable, rng: Generator) -> SampledClip | None:
    task = pick(table.task_names, rng)
    row, end = _row_and_end(table, task, rng, success=False)
    scene = table.scenes[row]
    start = int(rng.integers(0, max(1, end - MIN_CLIP_FRAMES))) if rng.random() < 0.3 else 0
    frames = between(start, end, CLIP_FRAMES, rng)
    if rng.random() < 0.3:
        frames = frames[::-1]
    gripper_pos, object_pos = (path[row, frames].astype(np.float64) for path in (table.gripper_pos, table.object_pos))
    usual = scene.look is None and rng.random() < 0.5
    name = TASK_OBJECTS[task] if usual else new_name(scene.look, dictionary_words(), rng)
    text, progress = synthetic_instruction(ClipPositions(task, gripper_pos, object_pos), name, rng)
    said, places = _caption(table, row, frames, name), _places(table, row, frames)
    return SampledClip(row, frames, text, progress, levels_of(progress), said, places=places)


def _undone(table: RolloutTable, rng: Generator) -> SampledClip | None:
    """Show a finished task reversed, under the inverse instruction."""
    drawn = _inverse(table, rng)
    if drawn is None:
        return None
    row, end = drawn.row, int(drawn.frames.max())
    if table.progress[row, end] < _MIN_UNDOABLE:
        return None
    frames = between(int(rng.integers(0, end // 2 + 1)) if rng.random() < 0.5 else 0, end, CLIP_FRAMES, rng)[::-1]
    left = (table.progress[row, frames] - LEVEL_STARTS[0]) / (table.progress[row, end] - LEVEL_STARTS[0])
    progress = (1 - left.clip(0, 1)).astype(np.float32)  # below level 2 the object is as it was
    said = _caption(table, row, frames, "")
    return SampledClip(row, frames, drawn.text, progress, levels_of(progress), said, places=_places(table, row, frames))


def _inverse(table: RolloutTable, rng: Generator) -> SampledClip | None:
    """Show what was done under the inverse instruction, from a rollout that came far enough for that to be clear."""
    task = pick(table.task_names, rng)
    row, end = _row_and_end(table, task, rng, success=True)
    scene = table.scenes[row]
    if task in SYMMETRIC_TASKS or table.levels[row, end] < 3:
        return None
    text, name = _inverse_words(task, table.task_names, scene, rng)
    if not text or "{where}" in text:
        return None
    frames, shown = _forward(end, rng)
    progress = np.full(CLIP_FRAMES, np.nan, np.float32)
    levels = np.zeros(CLIP_FRAMES, np.int64)
    levels[shown - 1] = 1
    said = _caption(table, row, frames, name)
    return SampledClip(row, frames, text, progress, levels, said, places=_places(table, row, frames))


def _inverse_words(task: str, seen: tuple[str, ...], scene: RenderedScene, rng: Generator) -> tuple[str, str]:
    """Return the inverse instruction, or nothing; of an unseen opposite only with another name for the object."""
    texts = inverse_instructions(task, seen)
    if texts:
        return _words(texts, task, scene, rng)
    name = new_name(scene.look, dictionary_words(), rng)
    unseen = phrasings()[OPPOSITE_TASKS[task]]["train"] if task in OPPOSITE_TASKS else ()
    other = renamed(pick(unseen, rng), task, name) if unseen and scene.look is not None else None
    return ("", "") if other is None or names_a_colour(other.replace(name, "")) else (other, name)


_RELABELLED: dict[str, Callable[[RolloutTable, Generator], SampledClip | None]] = {
    "other": _other,
    "counterfactual": _counterfactual,
    "synthetic": _synthetic,
    "undone": _undone,
    "contrary": _inverse,
}


@cache
def dictionary_words() -> tuple[str, ...]:
    """Return whole words of the vocabulary, to call objects by names that mean nothing here."""
    ids = load_word_pieces(WORD_VECTORS).ids
    return tuple(word for word in ids if word.isascii() and word.isalpha() and len(word) > 3)
