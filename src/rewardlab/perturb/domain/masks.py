"""Where things move, where they stand still and where the goal may be: guesses from the pixels of one clip.

All of it is worked out on a copy at most 256 px high. A mask is float32 (H, W) in [0, 1] at the size of the clip.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.core.errors import NotApplicable

Mask = NDArray[np.float32]

_WORK_HEIGHT = 256
_MOST_FRAMES = 15  # enough for a median that no passing arm reaches
_NOTICED = 26  # of 255; sensor noise and compression stay below it
_ARM_REACH = 0.3  # heights from the edge within which a difference may be the arm alone
_TABLE_COLOUR = 22.0  # Lab distance within which a pixel belongs to the table
_COMPACT = 0.55  # share of its convex hull that a table fills
_SPECK = 0.0005  # share of the picture; smaller moving spots are flicker of the codec
_MOST_MOTION = 0.7  # share of the picture
_LEAST_MOTION = 0.002  # share of the picture


def size_of(frames: Frames) -> tuple[int, int]:
    """Return height and width in pixels."""
    return frames.shape[1], frames.shape[2]


def small(frames: Frames) -> Frames:
    """Return the frames at working size."""
    height, width = frames.shape[1:3]
    if height <= _WORK_HEIGHT:
        return frames
    size = (max(1, round(width * _WORK_HEIGHT / height)), _WORK_HEIGHT)
    return np.stack([cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames])


def scaled_to(mask: NDArray[np.generic], frames: Frames) -> Mask:
    """Return a mask made at working size at the size of these frames."""
    height, width = frames.shape[1:3]
    return np.asarray(cv2.resize(mask.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR))


def background(frames: Frames) -> Frames:
    """Return the picture (H, W, 3) that is left when what passes by is taken away."""
    picks = np.unique(np.round(np.linspace(0, len(frames) - 1, min(_MOST_FRAMES, len(frames)))).astype(np.int64))
    rows = frames[picks]
    for turn in range(len(rows)):  # odd-even sort of whole frames, faster than sorting pixel by pixel
        low, high = rows[turn % 2 : -1 : 2], rows[turn % 2 + 1 :: 2]
        lower = np.minimum(low, high)
        np.maximum(low, high, out=high)
        low[:] = lower
    return np.asarray(rows[len(rows) // 2])


def moved(frames: Frames, still: Frames) -> NDArray[np.bool_]:
    """Tell for each frame which pixels differ from the still picture, (T, H, W)."""
    calm = cv2.GaussianBlur(still, (5, 5), 0)
    gaps = (cv2.split(cv2.absdiff(cv2.GaussianBlur(frame, (5, 5), 0), calm)) for frame in frames)
    return np.stack([cv2.max(cv2.max(red, green), blue) for red, green, blue in gaps]) > _NOTICED


def motion(gone: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return 1 where anything ever moves, given what `moved` tells; dropped where nothing does, or everything."""
    ever = gone.any(axis=0).astype(np.uint8)
    ever = np.asarray(cv2.morphologyEx(ever, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8)))
    ever = _without_specks(ever, _SPECK)
    if ever.mean() < _LEAST_MOTION:
        raise NotApplicable("nothing moves in this clip, so the robot cannot be told from the scene")
    if ever.mean() > _MOST_MOTION:
        raise NotApplicable("nearly all of the picture moves, as with a wrist camera: nothing in it stands still")
    return ever


def _without_specks(mask: NDArray[np.uint8], least: float) -> NDArray[np.uint8]:
    _, labels, facts, _ = cv2.connectedComponentsWithStats(mask)
    large = facts[:, cv2.CC_STAT_AREA] >= least * mask.size
    large[0] = False
    return np.asarray(large[labels], np.uint8)


def grown(mask: NDArray[np.uint8], share: float) -> NDArray[np.uint8]:
    """Return the mask widened on all sides by a share of the height of the picture."""
    reach = max(1, round(share * mask.shape[0]))
    return np.asarray(cv2.distanceTransform(1 - mask, cv2.DIST_L2, 5) <= reach, np.uint8)


def goal_region(frames: Frames) -> NDArray[np.bool_]:
    """Guess where the goal is: where the last tenth of the clip differs most from the first.

    Differences count less towards the edges, where arms come in. The cell is dropped where nothing differs:
    then no guard can tell whether the goal is still in view.
    """
    tiny = small(frames)
    tenth = max(1, len(tiny) // 10)
    start, end = tiny[:tenth].mean(axis=0), tiny[-tenth:].mean(axis=0)
    gap = cv2.GaussianBlur(np.abs(end - start).max(axis=-1), (0, 0), max(0.5, tiny.shape[1] / 64))
    if gap.max() < _NOTICED:
        raise NotApplicable("the end of this clip looks like its start, so the place of the goal is not known")
    inner = gap * np.clip(_depth(*gap.shape) / _ARM_REACH, 0.05, 1)
    return scaled_to((inner > 0.5 * float(inner.max())) | (inner == inner.max()), frames) > 0.5


def table_region(still: Frames) -> NDArray[np.bool_]:
    """Guess where the table is in a still picture: a large, bright, compact patch of one colour in its lower part.

    What lies on the table in another colour is left out. All is False where no patch is compact.
    """
    lab = cv2.cvtColor(still, cv2.COLOR_RGB2LAB).astype(np.float32) * np.array([0.6, 1, 1], np.float32)
    lower = lab[len(lab) * 2 // 5 :].reshape(-1, 3)
    _, members, sizes = np.unique(lower // 14 @ np.array([1, 100, 10_000]), return_inverse=True, return_counts=True)
    middles = [lower[members == cell].mean(axis=0) for cell in np.argsort(-sizes, kind="stable")[:5]]
    alike = [apart(lab, middle) < _TABLE_COLOUR for middle in middles]
    patches = [mask & _largest_patch(mask) for mask in alike]
    fits = [_compact_area(patch) * float(middle[0]) for patch, middle in zip(patches, middles)]
    best = int(np.argmax(fits))
    return patches[best] if fits[best] > 0 else np.zeros(still.shape[:2], bool)


def apart(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the distance between two colours, pixel by pixel."""
    gap = one - other
    return np.asarray(np.sqrt(np.einsum("...c,...c", gap, gap)))


def hull_of(mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the convex outline of a mask, filled with 1."""
    filled = np.zeros(mask.shape, np.uint8)
    points = np.argwhere(mask)[:, ::-1].astype(np.int32)
    return np.asarray(cv2.fillConvexPoly(filled, cv2.convexHull(points), 1)) if len(points) else filled


def _largest_patch(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the largest connected patch of a mask, thin lines bridged; all False where there is none."""
    bridged = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    patches = cv2.morphologyEx(bridged, cv2.MORPH_OPEN, np.ones((5, 5), np.uint8))
    _, labels, facts, _ = cv2.connectedComponentsWithStats(patches)
    facts[0, cv2.CC_STAT_AREA] = 0
    largest = int(facts[:, cv2.CC_STAT_AREA].argmax())
    return np.asarray((labels == largest) & (patches > 0))


def _compact_area(patch: NDArray[np.bool_]) -> float:
    area = float(patch.sum())
    return area if area > _COMPACT * float(hull_of(patch).sum()) else 0.0


def _depth(height: int, width: int) -> NDArray[np.float64]:
    """Return the distance of each pixel from the nearest edge, in heights of the picture."""
    y, x = np.ogrid[:height, :width]
    return np.asarray((np.minimum(np.minimum(y, height - 1 - y), np.minimum(x, width - 1 - x)) + 0.5) / height)
