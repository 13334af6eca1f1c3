"""What a change must leave alone, guessed from pixels and words: motion, table, goal, colours.

All of it is computed on a copy at most 256 px high. A mask is float32 (H, W) in [0, 1] at the size of the clip.
"""

import re
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.core.errors import NotApplicable

Mask = NDArray[np.float32]

_WORKING_HEIGHT = 256
_MAX_FRAMES = 15  # enough for a median that no passing arm reaches
_MIN_DIFFERENCE = 26  # of 255; sensor noise and compression stay below it
_ARM_REACH = 0.3  # heights from the edge within which a difference may be the arm alone
_TABLE_COLOUR = 22.0  # Lab distance within which a pixel belongs to the table
_MIN_COMPACTNESS = 0.55  # fraction of its convex hull that a table fills
_MIN_COMPONENT = 0.0005  # fraction of the picture; smaller moving spots are flicker of the codec
_MAX_MOTION = 0.7  # fraction of the picture
_MIN_MOTION = 0.002  # fraction of the picture


@dataclass(frozen=True)
class MotionSegmentation:
    """The frames at working size, their static background, and where the foreground is: per frame and ever."""

    frames: Frames
    background: Frames
    foreground: NDArray[np.bool_]  # (T, H, W)
    moving: NDArray[np.uint8]  # (H, W), 1 where anything ever moves


def segment_motion(frames: Frames) -> MotionSegmentation:
    """Tell what moves from what stands still; not applicable where nothing moves, or nearly everything."""
    small = downscale(frames)
    background = static_background(small)
    smooth = cv2.GaussianBlur(background, (5, 5), 0)
    differences = (cv2.split(cv2.absdiff(cv2.GaussianBlur(frame, (5, 5), 0), smooth)) for frame in small)
    foreground = np.stack([cv2.max(cv2.max(red, green), blue) for red, green, blue in differences]) > _MIN_DIFFERENCE
    return MotionSegmentation(small, background, foreground, moving_region(foreground))


def downscale(frames: Frames) -> Frames:
    """Return the frames at working size."""
    height, width = frames.shape[1:3]
    if height <= _WORKING_HEIGHT:
        return frames
    size = (max(1, round(width * _WORKING_HEIGHT / height)), _WORKING_HEIGHT)
    return np.stack([cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames])


def resize_mask(mask: NDArray[np.generic], frames: Frames) -> Mask:
    """Return a mask made at working size at the size of these frames."""
    height, width = frames.shape[1:3]
    return np.asarray(cv2.resize(mask.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR))


def static_background(frames: Frames) -> Frames:
    """Return the median picture (H, W, 3): what is left when what passes by is taken away."""
    indices = np.unique(np.round(np.linspace(0, len(frames) - 1, min(_MAX_FRAMES, len(frames)))).astype(np.int64))
    rows = frames[indices]
    for turn in range(len(rows)):  # odd-even sort of whole frames, faster than sorting pixel by pixel
        low, high = rows[turn % 2 : -1 : 2], rows[turn % 2 + 1 :: 2]
        lower = np.minimum(low, high)
        np.maximum(low, high, out=high)
        low[:] = lower
    return np.asarray(rows[len(rows) // 2])


def moving_region(foreground: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return 1 where anything ever moves, (H, W); not applicable where nothing moves, or nearly everything."""
    moving = foreground.any(axis=0).astype(np.uint8)
    moving = np.asarray(cv2.morphologyEx(moving, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8)))
    _, labels, stats, _ = cv2.connectedComponentsWithStats(moving)
    large = stats[:, cv2.CC_STAT_AREA] >= _MIN_COMPONENT * moving.size
    large[0] = False
    moving = np.asarray(large[labels], np.uint8)
    if moving.mean() < _MIN_MOTION:
        raise NotApplicable("nothing moves in this clip, so the robot cannot be told from the scene")
    if moving.mean() > _MAX_MOTION:
        raise NotApplicable("nearly all of the picture moves, as with a wrist camera: nothing in it stands still")
    return moving


def dilate(mask: NDArray[np.uint8], fraction: float) -> NDArray[np.uint8]:
    """Return the mask widened on all sides by a fraction of the height of the picture."""
    reach = max(1, round(fraction * mask.shape[0]))
    return np.asarray(cv2.distanceTransform(1 - mask, cv2.DIST_L2, 5) <= reach, np.uint8)


def goal_region(frames: Frames) -> NDArray[np.bool_]:
    """Guess where the goal is: where the last tenth of the clip differs most from the first.

    Differences count less towards the edges, where arms come in. Not applicable where nothing differs:
    then no guard can tell whether the goal is still in view.
    """
    small = downscale(frames)
    tenth = max(1, len(small) // 10)
    start, end = small[:tenth].mean(axis=0), small[-tenth:].mean(axis=0)
    difference = cv2.GaussianBlur(np.abs(end - start).max(axis=-1), (0, 0), max(0.5, small.shape[1] / 64))
    if difference.max() < _MIN_DIFFERENCE:
        raise NotApplicable("the end of this clip looks like its start, so the place of the goal is not known")
    height, width = difference.shape
    y, x = np.ogrid[:height, :width]
    edge = np.minimum(np.minimum(y, height - 1 - y), np.minimum(x, width - 1 - x))  # pixels to the nearest edge
    inner = difference * np.clip((edge + 0.5) / height / _ARM_REACH, 0.05, 1)
    return resize_mask((inner > 0.5 * float(inner.max())) | (inner == inner.max()), frames) > 0.5


def table_region(background: Frames) -> NDArray[np.bool_]:
    """Guess where the table is in the background: a large, bright, compact patch of one colour in its lower part.

    What lies on the table in another colour is left out. All is False where no patch is compact.
    """
    lab = cv2.cvtColor(background, cv2.COLOR_RGB2LAB).astype(np.float32) * np.array([0.6, 1, 1], np.float32)
    lower = lab[len(lab) * 2 // 5 :].reshape(-1, 3)
    _, members, sizes = np.unique(lower // 14 @ np.array([1, 100, 10_000]), return_inverse=True, return_counts=True)
    centres = [lower[members == cell].mean(axis=0) for cell in np.argsort(-sizes, kind="stable")[:5]]
    similar = [colour_distance(lab, centre) < _TABLE_COLOUR for centre in centres]
    patches = [mask & _largest_component(mask) for mask in similar]
    areas = [float(patch.sum()) for patch in patches]
    compact = [area > _MIN_COMPACTNESS * float(convex_hull(p).sum()) for area, p in zip(areas, patches, strict=True)]
    fitness = [a * float(centre[0]) if c else 0.0 for a, c, centre in zip(areas, compact, centres, strict=True)]
    best = int(np.argmax(fitness))
    return patches[best] if fitness[best] > 0 else np.zeros(background.shape[:2], bool)


def colour_distance(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the distance between two colours, pixel by pixel."""
    difference = one - other
    return np.asarray(np.sqrt(np.einsum("...c,...c", difference, difference)))


def convex_hull(mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the convex outline of a mask, filled with 1."""
    filled = np.zeros(mask.shape, np.uint8)
    points = np.argwhere(mask)[:, ::-1].astype(np.int32)
    return np.asarray(cv2.fillConvexPoly(filled, cv2.convexHull(points), 1)) if len(points) else filled


def _largest_component(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the largest connected patch of a mask, thin lines bridged; all False where there is none."""
    bridged = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    patches = cv2.morphologyEx(bridged, cv2.MORPH_OPEN, np.ones((5, 5), np.uint8))
    _, labels, stats, _ = cv2.connectedComponentsWithStats(patches)
    stats[0, cv2.CC_STAT_AREA] = 0
    largest = int(stats[:, cv2.CC_STAT_AREA].argmax())
    return np.asarray((labels == largest) & (patches > 0))


# Words of an instruction that forbid a change of the picture.

# fmt: off
COLOUR_WORDS = frozenset({
    "amber", "beige", "black", "blue", "bronze", "brown", "copper", "cream", "crimson", "cyan", "gold", "golden",
    "gray", "green", "grey", "indigo", "ivory", "khaki", "lavender", "lilac", "magenta", "maroon", "navy", "olive",
    "orange", "peach", "pink", "purple", "red", "scarlet", "silver", "tan", "teal", "turquoise",
    "violet", "white", "yellow", "colour", "color", "colours", "colors", "coloured", "colored",
})
# fmt: on


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation; parts of `light-blue` count alone."""
    return re.findall(r"[^\W\d_]+", text.lower())


def colours_in(text: str) -> list[str]:
    """Return the colour words of an instruction."""
    found = []
    for word in words_of(text):
        stem = word.removesuffix("ish")  # of `reddish`, `bluish` or `greenish`
        if word in COLOUR_WORDS or (stem != word and {stem, stem[:-1], stem + "e"} & COLOUR_WORDS):
            found.append(word)
    return found


def require_no_colour(text: str) -> None:
    """Raise NotApplicable where the instruction tells objects apart by colour."""
    if named := colours_in(text):
        raise NotApplicable(f"the instruction names a colour ({named[0]!r}), and this change alters colours")
