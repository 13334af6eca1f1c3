"""Pictures for training: every rollout filmed plainly from two cameras, in a changed world, and perturbed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, HeldFrames, Origin, Truth, level_of_progress, whole_clip
from rewardlab.core.errors import DataError, NotApplicable
from rewardlab.core.seeding import pick, rng_for
from rewardlab.models.pocket.frame_window import SHOWN, filled
from rewardlab.perturb.domain.rerendered_world import WORLD_EDITS
from rewardlab.runner.cell_replay import CellReplay, cell_replay
from rewardlab.train.pocket.holdout import recorded_split
from rewardlab.train.pocket.plan import CAMERAS, PocketPlan
from rewardlab.train.pocket.rollouts import Rollout, Shard, load_rollouts, shards_of
from rewardlab.train.pocket.workers import spread
from rewardlab.worlds.metaworld.render import CameraView
from rewardlab.worlds.metaworld.scene_edits import render_rollout

Changes = tuple[tuple[str, tuple[float, ...]], ...]

PLAIN = 2  # cameras from which each rollout is filmed as it is
_RATE = 10.0  # frames per second that a clip says it has
_TRIES = 6  # draws until a perturbation applies and its label is known
_PEERS = 8  # tasks whose rollouts lend their instructions and frames to the perturbations that need others


@dataclass(frozen=True, eq=False)
class View:
    """A perturbed clip: its text, progress per frame (nan where unknown) and the level at the end (0 if unknown)."""

    name: str
    text: str
    progress: NDArray[np.float32]
    level: int


def render_all(plan: PocketPlan, kind: str, folder: Path) -> tuple[NDArray[np.uint8], list[View | None]]:
    """Film every rollout: `plain0`, `plain1` or `world` as kept frames, `view` as perturbed clips with their labels.

    The pixels are a file in `folder` that the workers fill together; delete it when it has been copied. Views are made
    of `plain0`, which must still be there.
    """
    shards = shards_of(plan)
    starts = np.cumsum([0, *(shard.count for shard in shards)])
    frames = SHOWN if kind == "view" else plan.kept
    path = folder / f"{kind}.npy"
    shape = (int(starts[-1]), frames, plan.size, plan.size, 3)
    np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    views: list[View | None] = []
    for found in spread(plan.workers, partial(_film_shard, plan, kind, path), shards, starts[:-1].tolist()):
        views += found
    return np.load(path, mmap_mode="r"), views


def camera_of(plan: PocketPlan, shard: Shard, index: int, kind: str) -> str:
    """Return the camera of a rollout; its two plain cameras are never the same."""
    rng = rng_for(plan.seed, "camera", shard.name, index)
    pair = rng.choice(np.array(list(CAMERAS)), size=PLAIN, replace=False, p=np.array(list(CAMERAS.values())))
    return str(pair[1 if kind == "plain1" else 0])


def _film_shard(plan: PocketPlan, kind: str, path: Path, shard: Shard, start: int) -> list[View | None]:
    pixels = np.load(path, mmap_mode="r+")
    views: list[View | None] = []
    replay = _replay(plan) if kind == "view" else None
    plain = np.load(path.with_name("plain0.npy"), mmap_mode="r")
    worlds = recorded_split(plan).train_worlds
    for index, rollout in enumerate(load_rollouts(plan.out / "rollouts" / shard.name)):
        rng = rng_for(plan.seed, kind, shard.name, index)
        if replay is None:
            camera_view = CameraView(camera_of(plan, shard, index, kind), plan.size)
            pixels[start + index] = _filmed(plan, rollout, camera_view, _world(worlds, rng) if kind == "world" else ())
            continue
        episode = _episode(rollout, np.array(plain[start + index]), f"{shard.name}#{index}", rng)
        pixels[start + index], view = _perturbed(replay, episode, rng)
        views.append(view)
    return views


def _filmed(plan: PocketPlan, rollout: Rollout, camera_view: CameraView, changes: Changes) -> Frames:
    try:
        return render_rollout(rollout.trajectory, range(plan.kept), camera_view, changes, tiled=True)
    except NotApplicable:  # such as no room on the table for one thing more
        return render_rollout(rollout.trajectory, range(plan.kept), camera_view, tiled=True)


def _world(names: Sequence[str], rng: Generator) -> Changes:
    """Draw one or two changes of the world, each at any severity."""
    chosen = rng.choice(len(names), size=int(rng.integers(1, 3)), replace=False)
    entries = [WORLD_EDITS[names[int(i)]] for i in chosen]
    return tuple((entry.edit, entry.sample(entry.table[int(rng.integers(4))], rng)) for entry in entries)


def _episode(rollout: Rollout, frames: Frames, name: str, rng: Generator) -> Episode:
    progress = tuple(float(m.progress) for m in rollout.trajectory.readings)
    text = pick(rollout.texts, rng)
    level = level_of_progress(progress[-1])
    source = HeldFrames(frames, np.arange(len(frames)), len(frames), name)
    return Episode(
        name,
        text,
        whole_clip(source, _RATE),
        Truth(level, level == 5, progress),
        Origin("metaworld", rollout.trajectory.task),
    )


@lru_cache(maxsize=1)
def _replay(plan: PocketPlan) -> CellReplay:
    """Return the perturbations with some rollouts of several tasks as peers."""
    firsts = [shard for shard in shards_of(plan) if shard.part == "train" and shard.number == 0]
    rng = rng_for(plan.seed, "peers")
    peers: list[Episode] = []
    for place in rng.choice(len(firsts), size=min(_PEERS, len(firsts)), replace=False):
        shard = firsts[int(place)]
        for index, rollout in enumerate(load_rollouts(plan.out / "rollouts" / shard.name)[:2]):
            frames = render_rollout(rollout.trajectory, range(plan.kept), CameraView("right", plan.size), tiled=True)
            peers.append(_episode(rollout, frames, f"{shard.name}#{index}", rng))
    return cell_replay(tuple(peers), recorded_split(plan).train_perturbations, f"uniform:{SHOWN}", plan.seed)


def _perturbed(replay: CellReplay, episode: Episode, rng: Generator) -> tuple[Frames, View | None]:
    """Return the clip under a perturbation that applies and leaves a known label; else as it is, without a label."""
    at_hand = replace(replay, episodes={episode.id: episode})
    for name, severity in _draws(replay, rng):
        try:
            change = at_hand.change(episode.id, name, severity)
            frames = change.episode.frames
        except DataError:
            continue
        truth = change.episode.truth
        if change.expect in ("lower", "undefined") or truth.level is None:
            continue
        progress = np.full(SHOWN, np.nan, np.float32)
        if truth.progress is not None:
            progress[: len(truth.progress)] = truth.progress[:SHOWN]
        return filled(frames), View(f"{name}:{severity}", change.episode.instruction, progress, truth.level)
    return filled(episode.frames), None


def _draws(replay: CellReplay, rng: Generator) -> Iterator[tuple[str, int]]:
    groups: dict[str, list[str]] = {}
    for p in replay.bench.perturbations.values():
        groups.setdefault(p.category, []).append(p.name)
    probs = {"visual": 0.35, "domain": 0.25, "semantic": 0.25, "temporal": 0.15}
    for _ in range(_TRIES):
        category = str(rng.choice(np.array(list(probs)), p=np.array(list(probs.values()))))
        names = groups[category]
        yield pick(names, rng), int(rng.integers(1, 5))
