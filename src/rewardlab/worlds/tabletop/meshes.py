"""Meshes made from profiles and paths, each about one unit large; a part of a thing scales them."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mesh = tuple[Floats, NDArray[np.int32]]  # vertices (n, 3) and triangles (m, 3)
Profile = Sequence[tuple[float, float]]  # (radius, height) from the middle of the bottom to the middle of the top

_ROUND = 20  # sides of what is round
_RING = 8  # sides of what is bent from a tube


@cache
def meshes() -> dict[str, Mesh]:
    """Return every mesh by name."""
    made = {name: lathe(profile, _ROUND) for name, profile in _PROFILES.items()}
    made |= {f"square-{name}": lathe(_PROFILES[name], 4) for name in ("cup", "bowl", "cone")}
    made["hex"] = lathe([(0, 0), (1, 0), (1, 1), (0, 1)], 6)
    made["ring"] = tube(_arc(0, 2 * np.pi, 24), [0.28] * 24, closed=True)
    made["thin-ring"] = tube(_arc(0, 2 * np.pi, 24), [0.12] * 24, closed=True)
    made["handle"] = tube(_arc(-np.pi / 2, np.pi / 2, 12), [0.16] * 12)
    bend = _arc(np.pi * 0.15, np.pi * 0.85, 13)
    made["banana"] = tube(bend, 0.05 + 0.2 * np.sin(np.linspace(0.12, np.pi - 0.12, 13)) ** 0.6)
    made["roof"] = _roof()
    made["sheet"] = _sheet()
    return made


def lathe(profile: Profile, sides: int) -> Mesh:
    """Return a profile turned about the z axis; with four sides the corners lie on the diagonals."""
    outline = np.array(profile, np.float64)
    angles = np.pi / 4 + 2 * np.pi * np.arange(sides) / sides
    stretch = np.sqrt(2) if sides == 4 else 1.0  # so that a square is as wide as a circle
    around = stretch * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    inner = outline[1:-1]
    rings = np.concatenate(
        [inner[:, None, :1] * around, np.broadcast_to(inner[:, None, 1:], (len(inner), sides, 1))], axis=2
    )
    ends = np.array([[0, 0, outline[0, 1]], [0, 0, outline[-1, 1]]])
    vertices = np.concatenate([rings.reshape(-1, 3), ends])
    bottom, top = len(vertices) - 2, len(vertices) - 1
    here, after = np.arange(sides), (np.arange(sides) + 1) % sides
    last = (len(inner) - 1) * sides
    faces = [_bands(len(inner), sides), _fan(bottom, after, here), _fan(top, last + here, last + after)]
    return vertices, np.concatenate(faces).astype(np.int32)


def tube(path: Floats, radii: Sequence[float] | Floats, *, closed: bool = False) -> Mesh:
    """Return a round tube along a path in the x-z plane, with a radius at each point."""
    along = np.roll(path, -1, axis=0) - np.roll(path, 1, axis=0) if closed else np.gradient(path, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    normal = np.stack([-along[:, 2], np.zeros(len(path)), along[:, 0]], axis=1)
    angles = 2 * np.pi * np.arange(_RING) / _RING
    wide = np.asarray(radii, np.float64)[:, None, None]
    offsets = np.cos(angles)[:, None] * normal[:, None] + np.sin(angles)[:, None] * np.array([0.0, 1.0, 0.0])
    rings = (path[:, None] + wide * offsets).reshape(-1, 3)
    here, after, count = np.arange(_RING), (np.arange(_RING) + 1) % _RING, len(path)
    faces = _bands(count, _RING)[:, ::-1]
    if closed:
        last = (count - 1) * _RING
        joint = np.concatenate(
            [np.stack([last + here, here, last + after], 1), np.stack([last + after, here, after], 1)]
        )
        return rings, np.concatenate([faces, joint[:, ::1]]).astype(np.int32)
    vertices = np.concatenate([rings, path[[0, -1]]])
    start, end, last = len(rings), len(rings) + 1, (count - 1) * _RING
    caps = [_fan(start, here, after), _fan(end, last + after, last + here)]
    return vertices, np.concatenate([faces, *caps]).astype(np.int32)


def _bands(rings: int, sides: int) -> NDArray[np.int64]:
    here, after = np.arange(sides), (np.arange(sides) + 1) % sides
    band = np.concatenate([np.stack([here, after, after + sides], 1), np.stack([here, after + sides, here + sides], 1)])
    return np.asarray(np.arange(rings - 1)[:, None, None] * sides + band).reshape(-1, 3)


def _fan(middle: int, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.stack([np.full(len(one), middle), one, other], axis=1)


def _arc(start: float, end: float, count: int) -> Floats:
    angles = np.linspace(start, end, count, endpoint=end - start < 2 * np.pi)
    return np.stack([np.cos(angles), np.zeros(count), np.sin(angles)], axis=1)


def _roof() -> Mesh:
    corners = [(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0), (-1, 0, 1), (1, 0, 1)]
    faces = [(0, 2, 1), (0, 3, 2), (0, 1, 5), (0, 5, 4), (2, 3, 4), (2, 4, 5), (0, 4, 3), (1, 2, 5)]
    return np.array(corners, np.float64), np.array(faces, np.int32)


def _sheet() -> Mesh:
    """Return a cloth that lies in waves, as two layers."""
    side = 12
    x, y = np.meshgrid(np.linspace(-1, 1, side), np.linspace(-1, 1, side), indexing="ij")
    wave = 0.5 + 0.25 * (np.sin(4 * x + 1) + np.cos(5 * y + 2 * x))
    top = np.stack([x, y, wave], axis=-1).reshape(-1, 3)
    cells = np.arange(side * side).reshape(side, side)
    a, b, c, d = (part.ravel() for part in (cells[:-1, :-1], cells[1:, :-1], cells[1:, 1:], cells[:-1, 1:]))
    faces = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    return np.concatenate([top, top - [0, 0, 0.15]]), np.concatenate([faces, faces[:, ::-1] + side * side]).astype(
        np.int32
    )


# fmt: off
_PROFILES: dict[str, Profile] = {
    "bowl": [(0, 0), (0.5, 0), (0.8, 0.35), (0.95, 0.7), (1, 1),
             (0.94, 1), (0.88, 0.7), (0.72, 0.4), (0.4, 0.12), (0, 0.1)],
    "cup": [(0, 0), (0.86, 0), (0.9, 0.05), (1, 1), (0.9, 1), (0.8, 0.08), (0, 0.06)],
    "dish": [(0, 0), (0.6, 0), (0.98, 0.85), (1, 1), (0.95, 1), (0.62, 0.4), (0, 0.35)],
    "bottle": [(0, 0), (0.95, 0), (1, 0.04), (1, 0.55), (0.9, 0.66), (0.4, 0.78), (0.36, 0.95), (0.4, 0.96),
               (0.4, 1), (0, 1)],
    "jug": [(0, 0), (0.8, 0), (1, 0.3), (0.9, 0.65), (0.7, 0.85), (0.85, 1),
            (0.78, 1), (0.6, 0.85), (0.8, 0.6), (0.88, 0.3), (0.7, 0.06), (0, 0.05)],
    "glass": [(0, 0), (0.6, 0), (0.6, 0.04), (0.12, 0.08), (0.12, 0.42), (0.6, 0.55), (1, 0.75), (0.9, 1),
              (0.84, 1), (0.92, 0.75), (0.5, 0.58), (0, 0.52)],
    "pear": [(0, 0), (0.55, 0.02), (0.95, 0.22), (1, 0.38), (0.75, 0.62), (0.48, 0.8), (0.35, 0.95), (0, 1)],
    "apple": [(0, 0.06), (0.35, 0), (0.8, 0.15), (1, 0.5), (0.9, 0.8), (0.5, 1), (0.15, 0.93), (0, 0.88)],
    "carrot": [(0, 0), (0.15, 0.02), (0.6, 0.5), (0.95, 0.9), (0.8, 1), (0, 0.98)],
    "eggplant": [(0, 0), (0.6, 0.02), (1, 0.2), (0.95, 0.45), (0.6, 0.75), (0.4, 0.95), (0, 1)],
    "egg": [(0, 0), (0.55, 0.04), (0.92, 0.22), (1, 0.42), (0.85, 0.7), (0.5, 0.92), (0, 1)],
    "cone": [(0, 0), (1, 0), (0.95, 0.08), (0.12, 0.98), (0, 1)],
    "dome": [(0, 0), (1, 0), (0.96, 0.3), (0.75, 0.7), (0.4, 0.94), (0, 1)],
    "wheel": [(0, 0), (0.8, 0), (1, 0.2), (1, 0.8), (0.8, 1), (0, 1)],
}
# fmt: on
