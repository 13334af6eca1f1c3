"""Something covers the picture: a patch, the word SUCCESS."""

from contextlib import suppress
from functools import partial

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import on_frames
from rewardlab.perturbations.guards import goal_region

_ASPECTS = (1.0, 2.0, 0.5)  # shapes that a patch may have, relative to the frame
_VISIBLE_CHANGE = 8.0  # levels of 255; less is taken for noise of the video
_AREA = "fraction of the picture; kept off where the last tenth of the clip differs most from its first frame"

_overlay = partial(on_frames, "visual", label="keeps_if")


@_overlay(parameter=_AREA, table=(0.05, 0.10, 0.20, 0.35), based_on="occluders of COLOSSEUM", randomness="per_clip")
def occlusion_patch(frames: Frames, fraction: float, rng: Generator) -> Frames:
    """Something flat hangs before the lens and hides a part of the picture, away from where the task is done."""
    draw, colour = rng.random(), rng.integers(0, 256, 3, dtype=np.uint8)
    goal = changed_region(frames)
    sides = [(fraction * aspect) ** 0.5 for aspect in _ASPECTS]
    sizes = [(max(1, round(goal.shape[0] * s)), max(1, round(goal.shape[1] * fraction / s))) for s in sides]
    free = np.concatenate([_free_boxes(goal, size) for size in sizes])
    if not len(free):
        raise NotApplicable(f"every patch of {fraction:.0%} of the picture hides what changed by the last frames")
    top, left, bottom, right = free[int(draw * len(free))]
    out = frames.copy()
    out[:, top:bottom, left:right] = colour
    return out


def changed_region(frames: Frames) -> NDArray[np.uint8]:
    """Return 1 where the last tenth of the clip differs most from the first frame: a stand-in for the goal, (H, W)."""
    last = frames[-max(1, round(len(frames) / 10)) :]
    grain = max(1, frames.shape[2] // 32), max(1, frames.shape[1] // 32)  # (width, height), as OpenCV wants it
    change = cv2.blur(np.abs(last.mean(axis=0) - frames[0]).mean(axis=2), grain)
    if change.max() < _VISIBLE_CHANGE:
        raise NotApplicable("the last frames look like the first, so nothing tells where the goal is")
    changed = np.asarray(change >= change.max() / 2, np.uint8)
    return np.asarray(cv2.dilate(changed, np.ones(grain[::-1], np.uint8)))


def _free_boxes(goal: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.int64]:
    """Return the (top, left, bottom, right) of every box of this size that hides nothing of the goal."""
    height, width = size
    sums = cv2.integral(goal)
    hidden = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    corners = np.argwhere(hidden == 0)
    return np.concatenate([corners, corners + size], axis=1)


# Words written over the picture: a claim that a sound model must not read as evidence.

# The strokes of each letter on a grid 4 wide and 6 high; drawn here because fonts differ between versions of OpenCV.
_STROKES = {
    "S": ((4, 1), (3, 0), (1, 0), (0, 1), (0, 2), (1, 3), (3, 3), (4, 4), (4, 5), (3, 6), (1, 6), (0, 5)),
    "U": ((0, 0), (0, 5), (1, 6), (3, 6), (4, 5), (4, 0)),
    "C": ((4, 1), (3, 0), (1, 0), (0, 1), (0, 5), (1, 6), (3, 6), (4, 5)),
    "E": ((4, 0), (0, 0), (0, 3), (3, 3), (0, 3), (0, 6), (4, 6)),
}
_WORD = "SUCCESS"
_SIZES = (0.02, 0.04, 0.08, 0.16)
_WORD_WIDTH = (6 * len(_WORD) - 1) / 7  # width of the word in heights of a letter
_UNIT = 16  # pixels per unit of the grid on the canvas that is then made small
_GREEN = (60, 230, 90)
_MARGIN = 0.03  # heights of the picture
_MAX_HIDDEN = 0.25  # fraction of the guessed goal region that the word may hide


@_overlay(parameter="height of the letters", table=_SIZES, based_on="typographic attacks")
def success_overlay(frames: Frames, fraction: float, _rng: Generator) -> Frames:
    """The recorder writes SUCCESS over the picture, whatever happened."""
    goal = np.zeros(frames.shape[1:3], bool)
    with suppress(NotApplicable):  # where no goal can be guessed, the word hides none
        goal = goal_region(frames)
    # The same at every severity:
    at_top = _hidden_fraction(goal, _letter_height(frames, _SIZES[-1]), at_top=True) <= _MAX_HIDDEN
    letter = _letter_height(frames, fraction)
    if _hidden_fraction(goal, letter, at_top=at_top) > _MAX_HIDDEN:
        raise NotApplicable("the word would hide the guessed goal region at the top and at the bottom")
    return _draw_word(frames, letter, at_top=at_top)


def _letter_height(frames: Frames, fraction: float) -> float:
    """Return the height of a letter in pixels, at most as high as lets the word fit in."""
    height, width = frames.shape[1:3]
    return float(min(fraction * height, max(1.0, (width - 2 * _MARGIN * height) / _WORD_WIDTH)))


def _corner(height: int, letter: float, *, at_top: bool) -> tuple[float, float]:
    """Return x and y of the upper left corner of the word."""
    margin = _MARGIN * height
    return margin, margin if at_top else height - margin - letter


def _hidden_fraction(goal: NDArray[np.bool_], letter: float, *, at_top: bool) -> float:
    """Return the fraction of the guessed goal region behind the word."""
    x, y = _corner(len(goal), letter, at_top=at_top)
    behind = goal[int(y) : int(y + letter) + 1, int(x) : int(x + _WORD_WIDTH * letter) + 1]
    return float(behind.sum() / max(1, int(goal.sum())))


def _draw_word(frames: Frames, letter: float, *, at_top: bool) -> Frames:
    """Return the frames with the word in green, edged in black."""
    height, width = frames.shape[1:3]
    left, top = (max(0, round(at)) for at in _corner(height, letter, at_top=at_top))
    ink, edge = (layer[: height - top, : width - left, None] for layer in _word_masks(letter))
    window = (slice(None), slice(top, top + len(ink)), slice(left, left + ink.shape[1]))
    result = frames.copy()
    result[window] = np.round(frames[window] * (1 - edge) + ink * np.array(_GREEN))
    return result


def _word_masks(letter: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return how much of each pixel is ink, and how much is ink or its edge, for letters of this height."""
    units = (8, 6 * len(_WORD))  # the word, one stroke wide, and half a unit of edge on each side
    size = tuple(max(1, round(n * letter / 7)) for n in units[::-1])
    how = cv2.INTER_AREA if letter < 7 * _UNIT else cv2.INTER_LINEAR
    lines = [np.add(_STROKES[c], (6 * i + 1, 1), dtype=np.int32) * _UNIT for i, c in enumerate(_WORD)]
    layers = []
    for thick in (_UNIT, 2 * _UNIT):
        canvas = np.zeros((units[0] * _UNIT, units[1] * _UNIT), np.uint8)
        cv2.polylines(canvas, lines, False, 255, thick, cv2.LINE_AA)
        layers.append(np.asarray(cv2.resize(canvas, size, interpolation=how) / 255, np.float32))
    return layers[0], layers[1]
