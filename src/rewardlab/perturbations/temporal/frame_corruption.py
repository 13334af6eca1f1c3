"""Frames damaged on the way: black, blended, foreign, packets lost, bytes flipped."""

import re
from collections.abc import Sequence
from functools import partial
from itertools import groupby, pairwise

import cv2
import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Episode, Frames, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.core.seeding import pick
from rewardlab.perturbations.codecs import Packet, decode, encode, h264, psnr
from rewardlab.perturbations.contract import (
    Episodes,
    PerturbedEpisode,
    is_known_success,
    on_episode,
    on_frames,
    with_unknown_label,
)
from rewardlab.perturbations.temporal.frame_sequence import part_of

_damaged = partial(on_frames, "temporal")


@_damaged(parameter="fraction of frames", table=(0.05, 0.15, 0.3, 0.5), based_on="THUMOS14-C", randomness="per_frame")
def black_frames(frames: Frames, fraction: float, rng: Generator) -> Frames:
    """The picture drops out to black for some frames, never for the last one."""
    count = len(frames)
    if count == 1:
        raise NotApplicable("a clip of one frame has no frame to lose")
    result = frames.copy()
    result[rng.permutation(count - 1)[: part_of(count, fraction)]] = 0
    return result


@on_episode(
    "temporal",
    channel="frames",
    parameter="fraction of the frames, from the end",
    table=(0.5, 0.7, 0.85, 1.0),
    label="unknown",
    expect="lower",
)
def covered_end(episode: Episode, fraction: float, _rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """The lens is covered before the robot is done: black up to the last frame, in the end the whole clip."""
    frames = episode.frames.copy()
    frames[len(frames) - part_of(len(frames), fraction) :] = 0
    success = is_known_success(episode.label)
    return with_unknown_label(with_frames(episode, frames), "lower" if success else "undefined")


@_damaged(
    parameter="frames blended into one", table=(3, 5, 7, 11), based_on="mini-Kinetics-C, length kept", stage="stream"
)
def frame_blend(frames: Frames, window: int, _rng: Generator) -> Frames:
    """A long exposure leaves ghosts of what moves; towards both ends it shortens, so the last frame is sharp."""
    if len(frames) < 3:
        raise NotApplicable(f"a clip of {len(frames)} frames has no neighbours to blend")
    result = np.empty_like(frames)
    total = np.zeros(frames.shape[1:], np.float32)
    first, last = 0, -1  # the frames that `total` holds
    for index in range(len(frames)):
        half = min(window // 2, index, len(frames) - 1 - index)
        while last < index + half:
            last += 1
            total += frames[last]
        while first < index - half:
            total -= frames[first]
            first += 1
        result[index] = cv2.convertScaleAbs(total, alpha=1 / (2 * half + 1))
    return result


@on_episode(
    "temporal",
    channel="frames",
    parameter="fraction of the length",
    table=(0.05, 0.1, 0.2, 0.3),
    randomness="per_clip",
    label="keeps_if",
    uses_dataset=True,
)
def splice_foreign(episode: Episode, fraction: float, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """Somewhere in the middle the recorder writes another robot's clip into this one; the end is this one's."""
    frames = episode.frames
    count, height, width = frames.shape[:3]
    if count < 3:
        raise NotApplicable(f"a clip of {count} frames has no middle")
    task, instruction = episode.provenance.task, episode.instruction
    others = {e.id: e for e in dataset if e.provenance.task != task and e.instruction != instruction}
    if not others:
        raise NotApplicable("no episode of another task to splice in")
    foreign = others[pick(sorted(others), rng)]  # sorted, so that the order of the dataset makes no difference
    length = min(part_of(count, fraction), count - 2)
    start = round(count * rng.uniform(0.4, 0.6) - length / 2)
    indices = np.arange(length) + min(max(start, 1), count - 1 - length)
    pixels = foreign.clip.source.read(foreign.clip.order[indices * len(foreign.clip) // count])
    result = frames.copy()
    result[indices] = [cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in pixels]
    return PerturbedEpisode(with_frames(episode, result), "same")


# The stream is coded, some of its bytes are lost or flipped, and a player makes the best of the rest.

# Live video: slices that fit a small packet, and a keyframe every second.
_LIVE_CODEC = h264(20, "slice-max-size=500", "keyint=10", "scenecut=0")
_START_CODE = re.compile(rb"\x00\x00\x00?\x01")
_NON_KEYFRAME_SLICE = 1  # NAL unit type
_HEADER_BYTES = 8  # never flipped: a slice with a wrong position is worse than a lost one
_MIN_PSNR = 20.0  # decibels; below it the end state cannot be trusted to be visible

_transmitted = partial(
    on_frames, "temporal", based_on="mini-Kinetics-C", randomness="per_frame", label="keeps_if", stage="stream"
)


@_transmitted(parameter="fraction of packets", table=(0.01, 0.02, 0.03, 0.06))
def packet_loss(frames: Frames, fraction: float, rng: Generator) -> Frames:
    """Packets of the live video get lost, and the player patches the holes from the picture before."""
    units = _nal_units(frames)
    order = rng.permutation(_exposed(units))
    lost = set(order[: part_of(len(order), fraction)].tolist())
    received = [Packet(unit.frame, b"" if i in lost else unit.data) for i, unit in enumerate(units)]
    return _play(frames, received)


@_transmitted(parameter="bytes between flipped ones", table=(40_000, 20_000, 12_000, 6_000))
def bit_error(frames: Frames, spacing: int, rng: Generator) -> Frames:
    """Bytes of the live video are flipped on the way, and the player decodes them as if they were right."""
    units = _nal_units(frames)
    exposed = _exposed(units)
    sizes = np.cumsum([len(units[i].data) - _HEADER_BYTES for i in exposed])
    draws = rng.random((max(1, round(int(sizes[-1]) / spacing)), 2))
    data = {i: bytearray(units[i].data) for i in exposed.tolist()}
    for position, mask in draws:
        byte = int(position * sizes[-1])
        row = int(np.searchsorted(sizes, byte, side="right"))
        data[int(exposed[row])][byte - int(sizes[row])] ^= 1 + int(mask * 255)  # counted from the slice's end
    received = [Packet(unit.frame, bytes(data.get(i, unit.data))) for i, unit in enumerate(units)]
    return _play(frames, received)


def _nal_units(frames: Frames) -> list[Packet]:
    """Return the units of the coded stream: parameter sets and slices, each with its start code."""
    units = []
    for packet in encode(frames, _LIVE_CODEC):
        starts = [match.start() for match in _START_CODE.finditer(packet.data)]
        units += [Packet(packet.frame, packet.data[a:b]) for a, b in pairwise([*starts, len(packet.data)])]
    return units


def _exposed(units: Sequence[Packet]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return which units may be hit; keyframes and parameter sets are sent again until they arrive."""
    types = [unit.data[unit.data.index(b"\x01") + 1] & 31 for unit in units]
    long = [len(unit.data) > 2 * _HEADER_BYTES for unit in units]
    hit = [i for i, kind in enumerate(types) if kind == _NON_KEYFRAME_SLICE and long[i]]
    if not hit:
        raise NotApplicable(f"the coded clip of {units[-1].frame + 1} frames has no packet to hit")
    return np.array(hit, dtype=np.int64)


def _play(frames: Frames, units: Sequence[Packet]) -> Frames:
    """Decode what arrived; not applicable where the last frame is no longer what it was."""
    by_frame = groupby(units, key=lambda unit: unit.frame)
    packets = [Packet(frame, b"".join(unit.data for unit in received)) for frame, received in by_frame]
    played = decode(packets, _LIVE_CODEC, frames.shape)
    quality = psnr(played[-1], frames[-1])
    if quality < _MIN_PSNR:
        raise NotApplicable(f"the last frame arrived at {quality:.1f} dB, below {_MIN_PSNR:.0f} dB")
    return played
