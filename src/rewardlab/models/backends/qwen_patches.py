"""Frames as the vision tower of Qwen-VL takes them: resized, normalised, and cut into patches of two frames."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewardlab.core.episode import Frames

MERGE = 2  # patches along each side that become one token
FRAMES_PER_PATCH = 2
FEWEST, MOST = 128, 768  # tokens per frame of the published budget (qwen-vl-utils, VIDEO_MIN_TOKEN_NUM and _MAX_)


@dataclass(frozen=True)
class Family:
    """What differs between generations: the side of a patch, the normalisation, the system text, the video layout."""

    patch: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    system: str  # the system turn its chat template adds; "" for none
    timed: bool  # the seconds before each pair of frames, or one block for the whole video
    deep: bool  # features of inner layers of the tower go to the first layers of the language model


FAMILIES = {
    "qwen2_5_vl": Family(
        patch=14,
        mean=(0.48145466, 0.4578275, 0.40821073),
        std=(0.26862954, 0.26130258, 0.27577711),
        system="You are a helpful assistant.",
        timed=False,
        deep=False,
    ),
    "qwen3_vl": Family(patch=16, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), system="", timed=True, deep=True),
}


@dataclass(frozen=True, eq=False)
class Pair:
    """Two frames that the tower sees at once; `key` names their content, `size` is what they are resized to."""

    key: str
    frames: Frames  # (2, H, W, 3)
    size: tuple[int, int]


def frame_size(height: int, width: int, family: Family, most_pixels: int) -> tuple[int, int]:
    """Return the size nearest to the frame's in whole tokens and within the budget (the rule of qwen-vl-utils)."""
    side = family.patch * MERGE
    most = most_pixels or MOST * side * side
    fewest = min(FEWEST * side * side, most)
    rows, columns = (max(side, round(length / side) * side) for length in (height, width))
    if rows * columns < fewest:
        grow = math.sqrt(fewest / (height * width))
        rows, columns = (math.ceil(length * grow / side) * side for length in (height, width))
    if rows * columns > most:
        fit = math.sqrt(most / (height * width))
        rows, columns = (max(side, math.floor(length * fit / side) * side) for length in (height, width))
    return rows, columns


def patchify(pair: Pair, family: Family, device: str) -> Any:
    """Return the patches of a pair, (patches, 3 * 2 * side * side), in the order in which they are merged."""
    import torch

    frames = torch.from_numpy(np.ascontiguousarray(pair.frames)).to(device).permute(0, 3, 1, 2).float()
    if frames.shape[-2:] != pair.size:
        frames = torch.nn.functional.interpolate(frames, pair.size, mode="bicubic", antialias=True)
        frames = frames.round().clamp(0, 255)
    mean, std = (torch.tensor(v, device=device).view(1, 3, 1, 1) * 255 for v in (family.mean, family.std))
    rows, columns = (length // family.patch // MERGE for length in pair.size)
    cut = ((frames - mean) / std).view(FRAMES_PER_PATCH, 3, rows, MERGE, family.patch, columns, MERGE, family.patch)
    # window row, window column, row in it, column in it, then the patch itself: channel, frame, y, x
    return cut.permute(2, 5, 3, 6, 1, 0, 4, 7).reshape(rows * columns * MERGE * MERGE, -1)
