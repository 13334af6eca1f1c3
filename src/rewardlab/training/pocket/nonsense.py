"""Clips that are no attempt at any task, such as noise, a talking head or a screen recording.

Training shows some kinds as what they are, level 1 under any instruction. Others are kept for evaluation, to measure
whether a model recognises nonsense that it was not trained on.
"""

from collections.abc import Callable
from string import ascii_lowercase
from typing import Any

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError
from rewardlab.models.pocket.inference import resize_frames

Colour = tuple[int, ...]
Floats = NDArray[np.float64]

_SKIN = np.array([[255, 219, 190], [234, 192, 156], [198, 146, 104], [141, 92, 60], [92, 58, 40]])  # from light to dark
_BARS = np.array([[r, g, b] for g in (191, 0) for r in (191, 0) for b in (191, 0)], np.uint8)  # in their usual order


def nonsense_clip(kind: str, rng: Generator, frames: int, size: int, shown: Frames | None = None) -> Frames:
    """Return a clip of a kind, uint8 (frames, size, size, 3); `still` and `letters` are made from the clip `shown`.

    A clip of `letters` is nonsense only under the instruction that `random_letters` returns.
    """
    if kind in _DRAWN:
        return _DRAWN[kind](rng, frames, size)
    if kind not in _FROM_CLIP:
        raise DataError(f"expected one of the kinds {', '.join((*TRAINED_KINDS, *UNSEEN_KINDS))}, got {kind!r}")
    if shown is None or not len(shown):
        raise DataError(f"the kind {kind} is made from a clip, got none; pass its frames as `shown`")
    at = rng.integers(len(shown), size=1).repeat(frames) if kind == "still" else np.linspace(0, len(shown) - 1, frames)
    return resize_frames(list(shown[at.round().astype(np.int64)]), size)


def random_letters(rng: Generator) -> str:
    """Return an instruction of two to six words that are random letters."""
    lengths = rng.integers(3, 10, size=rng.integers(2, 7))
    return " ".join("".join(rng.choice(list(ascii_lowercase), length)) for length in lengths)


# Kinds that training uses.


def _noise(rng: Generator, count: int, size: int) -> Frames:
    """Return uniform noise, new in every frame, in colour or grey."""
    channels = int(rng.choice([1, 3]))
    return np.repeat(rng.integers(0, 256, (count, size, size, channels), dtype=np.uint8), 3 // channels, axis=3)


def _one_colour(rng: Generator, count: int, size: int) -> Frames:
    """Return black or one colour, every second time with the faint noise of a sensor behind a lens cap."""
    colour = rng.uniform(0, 255, 3) * rng.integers(2)
    return _with_sensor_noise(
        np.broadcast_to(colour, (count, size, size, 3)), np.float64(rng.choice([0, rng.uniform(1, 8)])), rng
    )


def _colour_bars(rng: Generator, count: int, size: int) -> Frames:
    """Return upright or lying bars of the colours of a test signal, some of them, in their order or another."""
    bars = _BARS[rng.permutation(8)] if rng.random() < 0.5 else _BARS
    row = cv2.resize(bars[None, : rng.integers(4, 9)], (size, size), interpolation=cv2.INTER_NEAREST)
    if rng.random() < 0.5:  # a band of greys below
        ramp = np.linspace(0, 255, int(rng.integers(3, 12))).round().astype(np.uint8)[None, :, None].repeat(3, axis=2)
        height = int(size * rng.uniform(0.1, 0.4))
        row[size - height :] = cv2.resize(ramp, (size, height), interpolation=cv2.INTER_NEAREST)
    frame = row if rng.random() < 0.7 else row.transpose(1, 0, 2)
    return _with_sensor_noise(
        np.broadcast_to(frame, (count, size, size, 3)), np.float64(rng.choice([0, rng.uniform(1, 6)])), rng
    )


def _talking_head(rng: Generator, count: int, size: int) -> Frames:
    """Return a drawn face that speaks, blinks and sways before a blurred room."""
    room = _texture(rng, size, cells=int(rng.integers(2, 7)))
    skin, shirt = _SKIN[rng.integers(len(_SKIN))] * rng.uniform(0.8, 1.0), _colour(rng)
    hair = rng.uniform(10, 150) * np.array([1, rng.uniform(0.6, 1), rng.uniform(0.3, 1)])
    lips, eyes = _as_colour(skin * (0.85, 0.55, 0.55)), _as_colour(rng.uniform(0, 90, 3))
    wide, high = size * rng.uniform(0.11, 0.2), size * rng.uniform(0.16, 0.26)
    middle = size * np.array([rng.uniform(0.35, 0.65), rng.uniform(0.38, 0.52)])
    time, pace = np.linspace(0, rng.uniform(1, 4), count), rng.uniform(0, 2 * np.pi, 4)
    sway = size * rng.uniform(0.005, 0.04) * np.sin(2 * np.pi * (time[:, None] * rng.uniform(0.3, 1, 2) + pace[:2]))
    speaks = np.abs(np.sin(2 * np.pi * time * rng.uniform(1.5, 4) + pace[2])) * rng.uniform(0.3, 1)
    blinks = rng.random(count) < 0.12
    found = []
    for (x, y), mouth, blink in zip(middle + sway, speaks, blinks, strict=True):
        lid = 0.03 if blink else 0.1
        parts = [  # ellipses from back to front: place and radii in radii of the face, colour
            (0, 2.3, 2.3, 1.1, shirt),
            (0, 1.1, 0.45, 0.6, _as_colour(skin * 0.85)),
            (0, -0.25, 1.12, 1, _as_colour(hair)),
            (0, 0, 1, 1, _as_colour(skin)),
            *((side, -0.15, 0.2, lid, (250, 250, 250)) for side in (-0.4, 0.4)),
            *((side, -0.15, 0.09, lid, eyes) for side in (-0.4, 0.4)),
            (0, 0.18, 0.1, 0.16, _as_colour(skin * 0.9)),
            (0, 0.52, 0.38, 0.05 + 0.15 * mouth, lips),
        ]
        frame = room.copy()
        for right, down, width, height, colour in parts:
            place = (round(x + right * wide), round(y + down * high))
            radii = (max(1, round(width * wide)), max(1, round(height * high)))
            cv2.ellipse(frame, place, radii, 0, 0, 360, colour, -1, cv2.LINE_AA)
        found.append(frame)
    return _with_sensor_noise(np.stack(found), rng.uniform(0, 5), rng)


# Kinds that only evaluation uses.


def _page(rng: Generator, count: int, size: int) -> Frames:
    """Return a screen recording: a window with lines of text and pictures that scrolls under a pointer."""
    paper, ink = (rng.uniform(225, 256, 3), rng.uniform(0, 80, 3))[:: int(rng.choice([1, -1]))]
    line, bar = max(5, round(size * rng.uniform(0.05, 0.09))), max(4, round(size * 0.08))
    steps = np.cumsum(rng.integers(0, max(2, size // 6), count) * (rng.random(count) < 0.6))
    page = np.full((int(steps[-1]) + size, size, 3), paper.round(), np.uint8)
    for top in range(line, len(page), line):
        if rng.random() < 0.1:
            width, height = rng.integers(size // 4, size), rng.integers(line, 3 * line)
            cv2.rectangle(page, (size // 10, top), (int(width), top + int(height)), _colour(rng), -1)
        elif rng.random() < 0.85:
            cv2.putText(page, random_letters(rng), (size // 10, top), 0, line / 40, _as_colour(ink), 1, cv2.LINE_AA)
    found, pointer = [], size * rng.uniform(0.2, 0.8, 2)
    title = _colour(rng)
    for step in steps:
        frame = page[step : step + size].copy()
        cv2.rectangle(frame, (0, 0), (size, bar), title, -1)
        for button in range(3):
            cv2.circle(frame, (bar * (button + 1) // 2 + bar * button // 3, bar // 2), bar // 5, (240, 240, 240), -1)
        pointer = np.clip(pointer + rng.normal(0, size / 25, 2), 0, size - 1)
        arrow = np.array([[0, 0], [0, 7], [2, 5], [5, 5]]) * size / 128 + pointer
        cv2.fillConvexPoly(frame, arrow.round().astype(np.int32), (0, 0, 0), cv2.LINE_AA)
        found.append(frame)
    return np.stack(found)


def _ceiling(rng: Generator, count: int, size: int) -> Frames:
    """Return what a webcam that points at a ceiling sees: plaster, an edge, a lamp, a drifting exposure, noise."""
    side = size + size // 4
    plaster = rng.uniform(130, 235) + rng.uniform(-12, 12, 3)
    slope = np.linspace(-1, 1, side)[:, None] * rng.uniform(-30, 30) + np.linspace(-1, 1, side) * rng.uniform(-30, 30)
    wall = np.clip(plaster + slope[..., None], 0, 255).astype(np.uint8)
    if rng.random() < 0.7:  # where the ceiling meets a wall
        ends = [(0, int(rng.integers(side))), (side, int(rng.integers(side)))]
        corner = np.array([*ends, (side, side), (0, side)])
        cv2.fillConvexPoly(wall, corner, _as_colour(plaster * rng.uniform(0.7, 0.95)), cv2.LINE_AA)
    if rng.random() < 0.8:  # a lamp and its glow
        lamp, centre = np.zeros((side, side), np.float32), (int(rng.integers(side)), int(rng.integers(side)))
        axes = (int(side * rng.uniform(0.05, 0.25)), int(side * rng.uniform(0.04, 0.12)))
        cv2.ellipse(lamp, centre, axes, int(rng.integers(180)), 0, 360, 1.0, -1, cv2.LINE_AA)
        light = np.maximum(lamp, 2 * cv2.GaussianBlur(lamp, (0, 0), side * rng.uniform(0.05, 0.15)))
        wall = np.clip(wall + 130 * light[..., None], 0, 255).astype(np.uint8)
    margin = side - size
    drift = np.cumsum(rng.normal(0, size * rng.uniform(0.002, 0.03), (count, 2)), axis=0) + margin / 2
    corners = np.clip(drift, 0, margin).round().astype(int)
    exposure = 1 + rng.uniform(0, 0.1) * np.sin(np.linspace(0, rng.uniform(1, 8), count))
    seen = [wall[y : y + size, x : x + size] * gain for (x, y), gain in zip(corners, exposure, strict=True)]
    return _with_sensor_noise(np.stack(seen), rng.uniform(1, 6), rng)


def _shapes(rng: Generator, count: int, size: int) -> Frames:
    """Return an animation: plain shapes that bounce off the edges and turn."""
    number, ground = int(rng.integers(2, 9)), _colour(rng)
    radius, colours = size * rng.uniform(0.04, 0.18, number), [_colour(rng) for _ in range(number)]
    start, speed = size * rng.uniform(0, 2, (number, 2)), size * rng.normal(0, 0.08, (number, 2))
    edges, turn = rng.choice([3, 4, 5, 40], number), rng.normal(0, 0.3, number)
    found = []
    for step in range(count):
        frame = np.full((size, size, 3), ground, np.uint8)
        places = np.abs((start + speed * step) % (2 * size) - size)  # mirrored at the edges
        for place, far, corners, angle, colour in zip(places, radius, edges, turn * step, colours, strict=True):
            around = angle + np.linspace(0, 2 * np.pi, corners, endpoint=False)
            outline = place + far * np.stack([np.cos(around), np.sin(around)], axis=1)
            cv2.fillConvexPoly(frame, outline.round().astype(np.int32), colour, cv2.LINE_AA)
        found.append(frame)
    return np.stack(found)


def _landscape(rng: Generator, count: int, size: int) -> Frames:
    """Return the view from a moving car: sky, hills, a field, and trees that pass."""
    length = 4 * size
    horizon, speed = size * rng.uniform(0.35, 0.65), size * rng.uniform(0.02, 0.2)
    sky = np.linspace(rng.uniform(60, 200, 3) * (0.6, 0.8, 1.2), rng.uniform(190, 250, 3), size).clip(0, 255)
    layers: list[tuple[Floats, Colour, float]] = []  # the upper edge over a long way, the colour, the speed
    for depth in (0.15, 0.4):
        waves = rng.uniform(0, 2 * np.pi, 4)[:, None] + np.linspace(0, 2 * np.pi, length) * rng.integers(2, 14, (4, 1))
        edge = horizon - size * 0.12 * (1 - depth) + np.sin(waves).sum(axis=0) * size * 0.02
        layers.append((edge, _as_colour(rng.uniform(50, 110, 3) * (0.8, 1.3, 1)), depth))
    layers.append((np.full(length, horizon + size * 0.08), _as_colour(rng.uniform(60, 140, 3) * (1, 1.2, 0.6)), 1.0))
    trees, rows = rng.uniform(0, length, rng.integers(6, 20)), np.arange(size)[:, None]
    crown, bark = _as_colour(rng.uniform(20, 90, 3) * (0.7, 1.2, 0.6)), _as_colour(rng.uniform(40, 90, 3))
    wide = size * rng.uniform(0.05, 0.15)
    found = []
    for step in range(count):
        frame = np.repeat(sky[:, None].astype(np.uint8), size, axis=1)
        for edge, colour, depth in layers:
            columns = (np.arange(size) + int(step * speed * depth)) % length
            frame[rows >= edge[columns]] = colour
        for tree in trees:
            x, y = round((tree - step * speed * 1.5) % length - wide), round(horizon + size * 0.12)
            cv2.line(frame, (x, y), (x, round(y - 2 * wide)), bark, max(1, round(wide / 4)), cv2.LINE_AA)
            cv2.circle(frame, (x, round(y - 2.5 * wide)), round(wide), crown, -1, cv2.LINE_AA)
        found.append(frame)
    return _with_sensor_noise(np.stack(found), rng.uniform(0, 5), rng)


def _texture(rng: Generator, size: int, cells: int) -> Frames:
    """Return a blurred room: smooth patches of random colours, mostly pale."""
    patches = rng.uniform(20, 230, (cells, cells, 1)) + rng.uniform(0, 60) * rng.standard_normal((cells, cells, 3))
    return np.asarray(cv2.resize(patches.clip(0, 255).astype(np.uint8), (size, size), interpolation=cv2.INTER_CUBIC))


def _with_sensor_noise(frames: NDArray[Any], deviation: float, rng: Generator) -> Frames:
    noisy = frames + deviation * rng.standard_normal(frames.shape, np.float32) if deviation else frames
    return np.clip(np.round(noisy), 0, 255).astype(np.uint8)


def _colour(rng: Generator) -> Colour:
    return _as_colour(rng.uniform(0, 255, 3))


def _as_colour(values: NDArray[Any]) -> Colour:
    return tuple(int(value) for value in np.clip(values, 0, 255))


_FROM_CLIP = ("still", "letters")
_DRAWN: dict[str, Callable[[Generator, int, int], Frames]] = {
    "noise": _noise,
    "one_colour": _one_colour,
    "colour_bars": _colour_bars,
    "talking_head": _talking_head,
    "page": _page,
    "ceiling": _ceiling,
    "shapes": _shapes,
    "landscape": _landscape,
}
UNSEEN_KINDS = ("page", "ceiling", "shapes", "landscape")
TRAINED_KINDS = (*(kind for kind in _DRAWN if kind not in UNSEEN_KINDS), *_FROM_CLIP)
