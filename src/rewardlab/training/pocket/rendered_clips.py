"""Rendered clips for training: every rollout as it was, in crowded scenes, with another look, and perturbed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, InMemoryFrames, Origin, Truth, level_of_progress, whole_clip
from rewardlab.core.errors import DataError, NotApplicable
from rewardlab.core.seeding import pick, rng_for
from rewardlab.models.pocket.clip_padding import CLIP_FRAMES, pad_clip
from rewardlab.perturbations.rerendered_world import WORLD_EDITS
from rewardlab.runner.dispatch import map_items
from rewardlab.runner.perturbed_episode_rebuild import CellReplay, cell_replay
from rewardlab.training.pocket.perturbation_holdout import recorded_split
from rewardlab.training.pocket.plan import CAMERA_SHARES, PocketPlan
from rewardlab.training.pocket.rollouts import Rollout, Shard, load_rollouts, shards_of
from rewardlab.worlds.metaworld.render import CameraView
from rewardlab.worlds.metaworld.scene_edits import LOOK_EDIT, THINGS_EDIT, render_rollout
from rewardlab.worlds.metaworld.thing_looks import ThingLook, draw_look
from rewardlab.worlds.metaworld.thing_placement import place_things

SceneEdits = tuple[tuple[str, tuple[float, ...]], ...]

# Kinds of rendering: `plain` as it was; `crowd` among things of other tasks; `look` so with other shapes and colours;
# `world` among others in a changed world; `view` is `plain` under a perturbation of the video.
CLEAN_KINDS = ("plain", "crowd", "look")
ROBUST_KINDS = (*CLEAN_KINDS, "world", "view")
_FPS = 10.0  # that a clip claims to have
_MAX_DRAWS = 6  # until a perturbation applies and its label is known
_MOST_THINGS = 3


@dataclass(frozen=True, eq=False)
class PerturbedClip:
    """A perturbed clip: its text, progress per frame (nan where unknown) and the level at the end (0 if unknown)."""

    text: str
    progress: NDArray[np.float32]
    level: int


@dataclass(frozen=True)
class RenderedScene:
    """What a rendering shows beside the rollout: things with what could be asked of them, and the colours if others."""

    things: tuple[tuple[str, tuple[str, ...]], ...] = ()
    look: ThingLook | None = None
    perturbed: PerturbedClip | None = None


def render_all(plan: PocketPlan, kind: str, folder: Path) -> tuple[NDArray[np.uint8], list[RenderedScene]]:
    """Render every rollout in one kind, and return the pixels and what they show.

    The pixels are a file in `folder` that the workers fill together; delete it when it has been copied. Perturbed
    clips are made of `plain`, which must still be there.
    """
    shards = shards_of(plan)
    starts = np.cumsum([0, *(shard.count for shard in shards)])
    frames = CLIP_FRAMES if kind == "view" else plan.kept
    path = folder / f"{kind}.npy"
    shape = (int(starts[-1]), frames, plan.size, plan.size, 3)
    np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    scenes: list[RenderedScene] = []
    placed = zip(shards, starts[:-1].tolist())
    for found in map_items(partial(_render_shard, plan, kind, path), placed, plan.workers):
        scenes += found
    return np.load(path, mmap_mode="r"), scenes


def _render_shard(plan: PocketPlan, kind: str, path: Path, placed: tuple[Shard, int]) -> list[RenderedScene]:
    shard, start = placed
    pixels = np.load(path, mmap_mode="r+")
    rollouts = load_rollouts(plan.out / "rollouts" / shard.name)
    scenes = []
    plain = np.load(path.with_name("plain.npy"), mmap_mode="r")
    replay = _replay(plan, shard) if kind == "view" else None
    for index, rollout in enumerate(rollouts):
        rng = rng_for(plan.seed, kind, shard.name, index)
        if replay is None:
            pixels[start + index], scene = _render(plan, kind, rollout, rng)
        else:
            episode = _episode(rollout, np.array(plain[start + index]), f"{shard.name}#{index}", rng)
            pixels[start + index], clip = _perturbed(replay, episode, rng)
            scene = RenderedScene(perturbed=clip)
        scenes.append(scene)
    return scenes


def _render(plan: PocketPlan, kind: str, rollout: Rollout, rng: Generator) -> tuple[Frames, RenderedScene]:
    shares = np.array(list(CAMERA_SHARES.values()))
    view = CameraView(str(rng.choice(np.array(list(CAMERA_SHARES)), p=shares)), plan.size)
    if kind == "plain":
        return render_rollout(rollout.trajectory, range(plan.kept), view, tiled=True), RenderedScene()
    seed, count = int(rng.integers(2**31)), int(rng.integers(1, _MOST_THINGS + 1))
    things = tuple((thing.name, thing.state.tasks) for thing in place_things(rollout.trajectory, count, seed))
    edits: SceneEdits = ((THINGS_EDIT, (count, seed)),)
    if kind == "look":
        edits = (*edits, (LOOK_EDIT, (seed,)))
    more = _draw_edits(recorded_split(plan).train_worlds, rng) if kind == "world" else ()
    look = draw_look(seed) if kind == "look" else None
    return _with_edits(plan, rollout, view, edits, more), RenderedScene(things, look)


def _with_edits(plan: PocketPlan, rollout: Rollout, view: CameraView, edits: SceneEdits, more: SceneEdits) -> Frames:
    try:
        return render_rollout(rollout.trajectory, range(plan.kept), view, (*edits, *more), tiled=True)
    except NotApplicable:  # such as no room on the table for one object more
        return render_rollout(rollout.trajectory, range(plan.kept), view, edits, tiled=True)


def _draw_edits(names: Sequence[str], rng: Generator) -> SceneEdits:
    """Draw one or two scene edits, each at any severity."""
    chosen = rng.choice(len(names), size=int(rng.integers(1, 3)), replace=False)
    entries = [WORLD_EDITS[names[int(i)]] for i in chosen]
    return tuple((entry.edit, entry.sample(entry.table[int(rng.integers(4))], rng)) for entry in entries)


def _episode(rollout: Rollout, frames: Frames, name: str, rng: Generator) -> Episode:
    progress = tuple(float(reading.progress) for reading in rollout.trajectory.readings)
    text = pick(rollout.texts, rng)
    level = level_of_progress(progress[-1])
    source = InMemoryFrames(frames, np.arange(len(frames)), len(frames), name)
    return Episode(
        name,
        text,
        whole_clip(source, _FPS),
        Truth(level, level == 5, progress),
        Origin("metaworld", rollout.trajectory.task),
    )


@lru_cache(maxsize=1)
def _replay(plan: PocketPlan, shard: Shard) -> CellReplay:
    """Return the perturbations with two rollouts of the same task as the dataset, so that no other task comes in."""
    rng = rng_for(plan.seed, "peers", shard.name)
    dataset = []
    for index, rollout in enumerate(load_rollouts(plan.out / "rollouts" / shard.name)[:2]):
        frames = render_rollout(rollout.trajectory, range(plan.kept), CameraView("right", plan.size), tiled=True)
        dataset.append(_episode(rollout, frames, f"{shard.name}#{index}", rng))
    return cell_replay(tuple(dataset), recorded_split(plan).train_perturbations, f"uniform:{CLIP_FRAMES}", plan.seed)


def _perturbed(replay: CellReplay, episode: Episode, rng: Generator) -> tuple[Frames, PerturbedClip | None]:
    """Return the clip under a perturbation that applies and leaves a known label; else as it is, without a label."""
    single = replace(replay, episodes={episode.id: episode})
    for name, severity in _draw_perturbations(replay, rng):
        try:
            change = single.change(episode.id, name, severity)
            frames = change.episode.frames
        except DataError:
            continue
        truth = change.episode.truth
        if change.expect in ("lower", "undefined") or truth.level is None:
            continue
        progress = np.full(CLIP_FRAMES, np.nan, np.float32)
        if truth.progress is not None:
            progress[: len(truth.progress)] = truth.progress[:CLIP_FRAMES]
        return pad_clip(frames), PerturbedClip(change.episode.instruction, progress, truth.level)
    return pad_clip(episode.frames), None


def _draw_perturbations(replay: CellReplay, rng: Generator) -> Iterator[tuple[str, int]]:
    groups: dict[str, list[str]] = {}
    for p in replay.context.perturbations.values():
        groups.setdefault(p.category, []).append(p.name)
    shares = {"visual": 0.5, "domain": 0.1, "semantic": 0.25, "temporal": 0.15}
    for _ in range(_MAX_DRAWS):
        category = str(rng.choice(np.array(list(shares)), p=np.array(list(shares.values()))))
        names = groups[category]
        yield pick(names, rng), int(rng.integers(1, 5))
