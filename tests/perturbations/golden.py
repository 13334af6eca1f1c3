"""What each version of each perturbation makes of two shipped clips, in golden.json; run this module to renew it.

`python -m tests.perturbations.golden` writes entries of new perturbations and of those whose version was raised, and
stops where the output of an unchanged version differs: raise `version=` in the decorator first.

Words, order of frames and labels are kept exactly. Pixels are kept as statistics of blocks and frames, which codecs,
renderers and the last bit of floating-point numbers do not move on another processor.
"""

import base64
import json
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, hold_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.perturbations import PERTURBATIONS
from rewardlab.perturbations.contract import Perturbation

FILE = Path(__file__).with_name("golden.json")
CLIPS = {"sample": "bridge_v2/9be3d357ea.mp4", "sample-sim": "metaworld/drawer-open-0001.mp4"}
SEVERITIES = (2, 4)
BLOCKS = 8  # on each side of the picture
TOLERANCE = 3  # of 255, for each statistic
# Encoders and renderers of another processor make other pixels: less exact for one block, and exact on average.
CODED = ("jpeg", "codec", "codec_h265")
BLOCK_TOLERANCE, MEAN_TOLERANCE = 16, 3
# Damaged streams differ wholly where an encoder writes another byte; only the whole picture is compared.
DAMAGED = ("packet_loss", "bit_error")
DAMAGED_TOLERANCE = 12


@cache
def _dataset(name: str) -> tuple[Episode, ...]:
    return open_dataset(name).episodes


@cache
def _clean(data: str) -> Episode:
    (episode,) = (each for each in _dataset(data) if each.id == CLIPS[data])
    return replace(episode, clip=hold_frames(episode.clip, episode.clip.order))


def outputs(perturbation: Perturbation) -> dict[str, Any]:
    """Return the version of a perturbation and what it makes of each clip at each severity."""
    made = {
        f"{data}@{severity}": _output(perturbation, data, severity)
        for data in CLIPS
        for severity in SEVERITIES
        if data == "sample-sim" or not perturbation.uses_world
    }
    return {"version": perturbation.version, **made}


def _output(perturbation: Perturbation, data: str, severity: int) -> dict[str, Any]:
    episode, policy = _clean(data), frame_policy("uniform:16")
    sampled = sample_frames(episode, policy)
    try:
        if perturbation.stage == "sampled":
            made = perturbation(sampled, severity, 0, _dataset(data))
            after = made.episode
        else:
            made = perturbation(episode, severity, 0, _dataset(data))
            after = sample_frames(made.episode, policy)
    except NotApplicable:  # for what reason may be worded better in the same version
        return {"not_applicable": True}
    found: dict[str, Any] = {"expect": made.expect}
    if after.instruction != sampled.instruction:
        found["instruction"] = after.instruction
    if (after.label.level, after.label.success) != (sampled.label.level, sampled.label.success):
        found["label"] = [after.label.level, after.label.success]
    if after.clip.source.digest != sampled.clip.source.digest:
        found["frames"] = base64.b64encode(statistics(after.frames).tobytes()).decode()
    elif after.clip.order.tolist() != sampled.clip.order.tolist():
        found["order"] = after.clip.order.tolist()
    return found


def statistics(frames: Frames) -> NDArray[np.uint8]:
    """Return mean and standard deviation of each block over time, then the mean colour of each frame, rounded."""
    rows, columns = (np.arange(BLOCKS + 1) * side // BLOCKS for side in frames.shape[1:3])
    blocks = [
        frames[:, top:bottom, left:right].astype(np.float64)
        for top, bottom in pairwise(rows)
        for left, right in pairwise(columns)
    ]
    means, spreads = [block.mean() for block in blocks], [block.std() for block in blocks]
    return np.rint([*means, *spreads, *frames.mean(axis=(1, 2)).ravel()]).astype(np.uint8)


def differences(name: str, golden: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what differs between two outputs of a perturbation, in words; nothing where they agree."""
    found = []
    for key in golden.keys() | now.keys():
        old, new = golden.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            old, new = dict(old), dict(new)
            pixels = [np.frombuffer(base64.b64decode(each.pop("frames", "")), np.uint8) for each in (old, new)]
            if not _alike(name, *pixels):
                found.append(f"{key}: other pixels")
        if old != new:
            found.append(f"{key}: {old} became {new}")
    return found


def _alike(name: str, old: NDArray[np.uint8], new: NDArray[np.uint8]) -> bool:
    if len(old) != len(new):
        return False
    if name in CODED or name.startswith("world_"):
        apart = np.abs(old.astype(int) - new)
        return len(old) == 0 or bool(apart.max() <= BLOCK_TOLERANCE and apart.mean() <= MEAN_TOLERANCE)
    if name not in DAMAGED:
        return bool((np.abs(old.astype(int) - new) <= TOLERANCE).all())
    halves = (slice(BLOCKS**2), slice(BLOCKS**2, 2 * BLOCKS**2))
    return len(old) == 0 or all(abs(old[half].mean() - new[half].mean()) <= DAMAGED_TOLERANCE for half in halves)


def stored() -> dict[str, dict[str, Any]]:
    """Return the entries of golden.json."""
    entries: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return entries


def renew() -> int:
    """Write golden.json anew; entries of unchanged versions stay as they are, and must hold."""
    before, after = stored() if FILE.exists() else {}, dict[str, Any]()
    for name, perturbation in PERTURBATIONS.items():
        after[name] = outputs(perturbation)
        if name in before and before[name]["version"] == perturbation.version:
            if changed := differences(name, before[name], after[name]):
                print(f"{name} makes something else: {changed[0]}; raise its version", file=sys.stderr)
                return 1
            after[name] = before[name]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in after.items())
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(renew())
