"""Frames as the vision tower of Qwen-VL takes them: resized, normalised, and cut into patches of two frames."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rewardlab.core.episode import Frames

MERGE = 2  # patches along each side that become one token
FRAMES_PER_PATCH = 2
MIN_TOKENS, MAX_TOKENS = 128, 768  # per frame, the published budget (qwen-vl-utils, VIDEO_MIN_TOKEN_NUM and _MAX_)


@dataclass(frozen=True)
class Family:
    """What differs between generations: patch size, normalisation, system prompt, video layout."""

    patch_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    system_prompt: str  # the one its chat template adds; "" for none
    timestamps: bool  # the seconds before each pair of frames, or one vision block for the whole video
    deepstack: bool  # features of inner layers of the vision tower go to the first layers of the language model


_HALF = (0.5, 0.5, 0.5)
FAMILIES = {
    "qwen2_5_vl": Family(
        patch_size=14,
        mean=(0.48145466, 0.4578275, 0.40821073),
        std=(0.26862954, 0.26130258, 0.27577711),
        system_prompt="You are a helpful assistant.",
        timestamps=False,
        deepstack=False,
    ),
    "qwen3_vl": Family(16, _HALF, _HALF, system_prompt="", timestamps=True, deepstack=True),
}


@dataclass(frozen=True, eq=False)
class FramePair:
    """Two frames that the vision tower encodes together; `key` is their hash, `size` what they are resized to."""

    key: str
    frames: Frames  # (2, H, W, 3)
    size: tuple[int, int]


def frame_size(height: int, width: int, family: Family, max_pixels: int) -> tuple[int, int]:
    """Return the size nearest to the frame's in whole tokens and within the budget (the rule of qwen-vl-utils)."""
    side = family.patch_size * MERGE
    most = max_pixels or MAX_TOKENS * side * side
    fewest = min(MIN_TOKENS * side * side, most)
    rows, columns = (max(side, round(length / side) * side) for length in (height, width))
    if rows * columns < fewest:
        scale = math.sqrt(fewest / (height * width))
        rows, columns = (math.ceil(length * scale / side) * side for length in (height, width))
    if rows * columns > most:
        scale = math.sqrt(most / (height * width))
        rows, columns = (max(side, math.floor(length * scale / side) * side) for length in (height, width))
    return rows, columns


def token_grid(pair: FramePair, family: Family) -> tuple[int, int]:
    """Return how many tokens high and wide a pair of frames is."""
    height, width = pair.size
    return height // family.patch_size // MERGE, width // family.patch_size // MERGE


def patchify(pairs: Sequence[FramePair], family: Family, device: Any) -> Any:
    """Return patches of pairs of one size, (patches, 3 * 2 * size * size), in the order in which they are merged."""
    import torch

    shape = len(pairs), *pairs[0].frames.shape
    stacked = torch.empty(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")  # copied twice as fast from there
    np.stack([pair.frames for pair in pairs], out=stacked.numpy())
    frames = stacked.to(device, non_blocking=True).permute(0, 1, 4, 2, 3).flatten(0, 1).float()
    if frames.shape[-2:] != pairs[0].size:
        frames = torch.nn.functional.interpolate(frames, pairs[0].size, mode="bicubic", antialias=True)
        frames = frames.round().clamp(0, 255)
    mean, std = _colours(family, device)
    (rows, columns), size = token_grid(pairs[0], family), family.patch_size
    patches = ((frames - mean) / std).view(len(pairs), FRAMES_PER_PATCH, 3, rows, MERGE, size, columns, MERGE, size)
    # pair, window row, window column, row in it, column in it, then the patch itself: channel, frame, y, x
    return patches.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(len(pairs) * rows * columns * MERGE * MERGE, -1)


@cache
def _colours(family: Family, device: Any) -> tuple[Any, Any]:
    """Return mean and deviation of the colours; on a GPU once, as what is sent there waits for all work before it."""
    import torch

    return tuple(torch.tensor(value, device=device).view(1, 3, 1, 1) * 255 for value in (family.mean, family.std))
