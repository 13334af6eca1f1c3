"""Perceptual hashes: the distance of two videos by the hashes of their frames, and by what moves in them.

A frame becomes 256 bits: which of its low frequencies (of the discrete cosine transform) are above their median.
Two videos are as far apart as their frames are, on average, from the closest frame of the other. Rollouts of one scene
can be as close as a copy in bad quality; then what differs from the median frame decides.
"""

from collections.abc import Iterable, Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Frames, FrameSource
from rewardlab.core.limits import CLIP_MB

FRAMES = 48  # compared, of each video
_SIDE = 16  # frequencies per direction
_WORDS = _SIDE * _SIDE // 64
_BITS = 64 * _WORDS
_THUMBNAIL = 32  # pixels per direction

Hashes = NDArray[np.uint64]  # (1 + frames, 4): that of the mean frame comes first
GreyFrames = NDArray[np.float32]


def compared_frames(source: FrameSource) -> Iterator[Frames]:
    """Yield the frames of a video that are compared, spread evenly; as many are decoded at once as memory may hold."""
    spread = np.linspace(0, source.count - 1, min(source.count, FRAMES))
    places = np.unique(np.round(spread).astype(np.int64))
    together = max(1, CLIP_MB.in_bytes // max(source.read(places[:1]).nbytes, 1))
    for start in range(0, len(places), together):
        yield from source.read(places[start : start + together])


def frame_hashes(frames: Iterable[Frames]) -> Hashes:
    """Return the perceptual hash of the mean frame, then that of each frame."""
    grey = _small(frames, 4 * _SIDE)
    low = np.stack([cv2.dct(frame)[:_SIDE, :_SIDE].ravel() for frame in (grey.mean(axis=0), *grey)])
    bits = low > np.median(low, axis=1, keepdims=True)
    return np.packbits(bits, axis=1).view(np.uint64)


def video_distance(a: Hashes, b: Hashes) -> float:
    """Return the share of bits in which frames differ from the closest frame of the other video, from 0 to 1."""
    apart = hamming_distance(a[1:, None], b[None, 1:])
    return float(apart.min(axis=0).mean() + apart.min(axis=1).mean()) / 2


def hamming_distance(a: Hashes, b: Hashes) -> NDArray[np.float64]:
    """Return the share of bits in which hashes differ, from 0 to 1."""
    found: NDArray[np.float64] = np.bitwise_count(a ^ b).sum(axis=-1, dtype=np.int64) / _BITS
    return found


def motion_distance(a: Iterable[Frames], b: Iterable[Frames]) -> float:
    """Return how far what moves in two videos is apart, in units of how much moves; 0 for equal ones."""
    moving_a, moving_b = _foreground(a), _foreground(b)
    apart = np.sqrt(((moving_a[:, None] - moving_b[None]) ** 2).mean(axis=(2, 3)))
    scale = np.sqrt((moving_a**2).mean()) + np.sqrt((moving_b**2).mean())
    return float((apart.min(axis=0).mean() + apart.min(axis=1).mean()) / max(scale, 1e-6))


def _foreground(frames: Iterable[Frames]) -> GreyFrames:
    small = _small(frames, _THUMBNAIL)
    return small - np.median(small, axis=0).astype(np.float32)


def _small(frames: Iterable[Frames], side: int) -> GreyFrames:
    grey = (cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames)
    small = [cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA) for frame in grey]
    return np.stack(small).astype(np.float32)
