"""The stream is coded, some of its bytes are lost or flipped, and a player makes the best of the rest."""

import re
from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Episode, Frames, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.perturb.codecs import Picture, decode, encode, h264, psnr
from rewardlab.perturb.contract import Episodes, PerturbedEpisode, Spec, on_episode
from rewardlab.perturb.temporal.frame_indices import share_of

# Live video: slices that fit a small packet, and a fresh key picture every second.
_LIVE = h264(20, "slice-max-size=500", "keyint=10", "scenecut=0")
_START = re.compile(rb"\x00\x00\x00?\x01")
_PLAIN_SLICE = 1  # type of a slice that is no part of a key picture
_HEADER_BYTES = 8  # never flipped: a slice that lies about its own place is worse than a lost one
_LEAST_PSNR = 20.0  # decibels; below it the end state cannot be trusted to be visible


@on_episode(
    "frames",
    Spec(
        "temporal",
        "share of packets",
        (0.01, 0.02, 0.03, 0.06),
        "mini-Kinetics-C",
        "per_frame",
        "keeps_if",
        stage="stream",
    ),
)
def packet_loss(episode: Episode, share: float, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """Packets of the live video get lost, and the player patches the holes from the picture before."""
    frames = episode.frames
    slices = _slices(frames)
    order = rng.permutation(_exposed(slices))
    lost = set(order[: share_of(len(order), share)].tolist())
    kept = [Picture(s.place, b"" if i in lost else s.data) for i, s in enumerate(slices)]
    return _played(episode, frames, kept)


@on_episode(
    "frames",
    Spec(
        "temporal",
        "bytes between flipped ones",
        (40_000, 20_000, 12_000, 6_000),
        "mini-Kinetics-C",
        "per_frame",
        "keeps_if",
        stage="stream",
    ),
)
def bit_error(episode: Episode, spacing: int, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """Bytes of the live video are flipped on the way, and the player decodes them as if they were right."""
    frames = episode.frames
    slices = _slices(frames)
    exposed = _exposed(slices)
    sizes = np.cumsum([len(slices[i].data) - _HEADER_BYTES for i in exposed])
    draws = rng.random((max(1, round(int(sizes[-1]) / spacing)), 2))
    data = {i: bytearray(slices[i].data) for i in exposed.tolist()}
    for where, what in draws:
        byte = int(where * sizes[-1])
        row = int(np.searchsorted(sizes, byte, side="right"))
        data[int(exposed[row])][byte - int(sizes[row])] ^= 1 + int(what * 255)  # counted from the slice's end
    flipped = [Picture(s.place, bytes(data.get(i, s.data))) for i, s in enumerate(slices)]
    return _played(episode, frames, flipped)


def _slices(frames: Frames) -> list[Picture]:
    """Return the units of the coded stream: parameter sets and slices, each with its start code."""
    units = []
    for picture in encode(frames, _LIVE):
        starts = [match.start() for match in _START.finditer(picture.data)]
        ends = [*starts[1:], len(picture.data)]
        units += [Picture(picture.place, picture.data[a:b]) for a, b in zip(starts, ends)]
    return units


def _exposed(slices: Sequence[Picture]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return which units may be hit; key pictures and parameter sets are sent again until they arrive."""
    kinds = [s.data[s.data.index(b"\x01") + 1] & 31 for s in slices]
    hit = [i for i, kind in enumerate(kinds) if kind == _PLAIN_SLICE and len(slices[i].data) > 2 * _HEADER_BYTES]
    if not hit:
        raise NotApplicable(f"the coded clip of {slices[-1].place + 1} frames has no packet to hit")
    return np.array(hit, dtype=np.int64)


def _played(episode: Episode, frames: Frames, slices: Sequence[Picture]) -> PerturbedEpisode:
    """Decode what arrived; the cell is dropped where the last frame is no longer what it was."""
    arrived = groupby(slices, key=lambda unit: unit.place)
    pictures = [Picture(place, b"".join(unit.data for unit in units)) for place, units in arrived]
    played = decode(pictures, _LIVE, frames.shape)
    quality = psnr(played[-1], frames[-1])
    if quality < _LEAST_PSNR:
        raise NotApplicable(f"the last frame arrived at {quality:.1f} dB, below {_LEAST_PSNR:.0f} dB")
    return PerturbedEpisode(with_frames(episode, played), "same")
