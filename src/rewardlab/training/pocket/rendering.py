"""Every Meta-World rollout rendered once, in one of five kinds, and the table of what is known of it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import (
    LEVEL_STARTS,
    Episode,
    Frames,
    InMemoryFrames,
    Label,
    Provenance,
    is_success,
    level_of_progress,
    whole_clip,
)
from rewardlab.core.errors import DataError, NotApplicable
from rewardlab.core.seeding import pick, rng_for
from rewardlab.evaluation.engines.ordered_map import map_items
from rewardlab.evaluation.replay import TrialReplay, trial_replay
from rewardlab.models.pocket.inference import CLIP_FRAMES, pad_clip
from rewardlab.training.holdout import recorded_split
from rewardlab.training.pocket import CAMERA_SHARES, CLEAN_KINDS, PocketSettings
from rewardlab.training.pocket.rollouts import Rollout, Shard, draw_by_share, load_rollouts, shards_of
from rewardlab.worlds.edits import WORLD_EDITS
from rewardlab.worlds.metaworld.distractors import DISTRACTORS, place_distractors
from rewardlab.worlds.metaworld.instructions import phrasings
from rewardlab.worlds.metaworld.render import CameraView
from rewardlab.worlds.metaworld.scene_edits import (
    DISTRACTOR_OBJECTS_EDIT,
    LOOK_EDIT,
    ObjectLook,
    draw_look,
    render_rollout,
)
from rewardlab.worlds.metaworld.tasks import OTHER_OBJECTS

SceneEdits = tuple[tuple[str, tuple[float, ...]], ...]

_FPS = 10.0  # that a clip claims to have
_CATEGORY_SHARES = {"visual": 0.5, "domain": 0.1, "semantic": 0.25, "temporal": 0.15}  # of perturbations drawn
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

    kind: str = "plain"
    things: tuple[tuple[str, tuple[str, ...]], ...] = ()
    look: ObjectLook | None = None
    perturbed: PerturbedClip | None = None
    camera: str = ""  # where it is known what it sees


def render_all(settings: PocketSettings, path: Path) -> list[RenderedScene]:
    """Render every rollout into a new file of pixels, uint8 (rollouts, frames, H, W, 3), and return what they show."""
    shards = shards_of(settings)
    starts = np.cumsum([0, *(shard.count for shard in shards)])
    new_pixels(path, int(starts[-1]), max(settings.frames_per_rollout, CLIP_FRAMES), settings.size)
    placed = zip(shards, starts[:-1].tolist(), strict=True)
    found = map_items(partial(_render_shard, settings, path), placed, settings.workers)
    return [scene for scenes in found for scene in scenes]


def new_pixels(path: Path, clips: int, frames: int, size: int) -> Frames:
    """Return a new file of pixels, uint8 (clips, frames, H, W, 3), that workers fill together."""
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(clips, frames, size, size, 3))


def _render_shard(settings: PocketSettings, path: Path, placed: tuple[Shard, int]) -> list[RenderedScene]:
    shard, start = placed
    pixels = np.load(path, mmap_mode="r+")
    scenes = []
    for index, rollout in enumerate(load_rollouts(settings.out / "rollouts" / shard.name)):
        rng = rng_for(settings.seed, "rendering", shard.name, index)
        checked = shard.part == "check"
        kind = ("plain", "crowd")[index % 2] if checked else draw_by_share(settings.rendered_kinds, rng)
        frames, scene = _render(settings, "plain" if kind == "view" else kind, rollout, rng)
        if kind == "view":
            episode = _episode(rollout, frames, f"{shard.name}#{index}", rng)
            frames, clip = _perturbed(_replay(settings, shard), episode, rng)
            scene = RenderedScene(kind, perturbed=clip)
        pixels[start + index, : len(frames)] = frames
        scenes.append(scene)
    return scenes


def _render(settings: PocketSettings, kind: str, rollout: Rollout, rng: Generator) -> tuple[Frames, RenderedScene]:
    view, frames = CameraView(draw_by_share(CAMERA_SHARES, rng), settings.size), range(settings.frames_per_rollout)
    if kind == "plain":
        return render_rollout(rollout.trajectory, frames, view, tiled=True), RenderedScene(camera=view.camera)
    seed, count = int(rng.integers(2**31)), int(rng.integers(1, _MOST_THINGS + 1))
    things = tuple((thing.name, thing.state.tasks) for thing in place_distractors(rollout.trajectory, count, seed))
    edits: SceneEdits = ((DISTRACTOR_OBJECTS_EDIT, (count, seed)),)
    if kind == "look":
        edits = (*edits, (LOOK_EDIT, (seed,)))
    more: SceneEdits = ()
    if kind == "world":  # one or two edits, each at any severity
        names = recorded_split(settings.out).train_worlds
        chosen = rng.choice(len(names), size=int(rng.integers(1, 3)), replace=False)
        entries = [WORLD_EDITS[names[int(i)]] for i in chosen]
        more = tuple((entry.edit, entry.sample(entry.table[int(rng.integers(4))], rng)) for entry in entries)
    camera = "" if kind == "world" else view.camera
    scene = RenderedScene(kind, things, draw_look(seed) if kind == "look" else None, camera=camera)
    try:
        return render_rollout(rollout.trajectory, frames, view, (*edits, *more), tiled=True), scene
    except NotApplicable:  # such as no room on the table for one object more
        return render_rollout(rollout.trajectory, frames, view, edits, tiled=True), scene


def _episode(rollout: Rollout, frames: Frames, name: str, rng: Generator) -> Episode:
    progress = tuple(float(reading.progress) for reading in rollout.trajectory.readings)
    level = level_of_progress(progress[-1])
    clip = whole_clip(InMemoryFrames(frames, np.arange(len(frames)), len(frames), name), _FPS)
    label, provenance = Label(level, is_success(level), progress), Provenance("metaworld", rollout.trajectory.task)
    return Episode(name, pick(rollout.texts, rng), clip, label, provenance)


@lru_cache(maxsize=1)
def _replay(settings: PocketSettings, shard: Shard) -> TrialReplay:
    """Return the perturbations with two rollouts of the same task as the dataset, so that no other task comes in."""
    rng = rng_for(settings.seed, "peers", shard.name)
    dataset = []
    for index, rollout in enumerate(load_rollouts(settings.out / "rollouts" / shard.name)[:2]):
        view, shown = CameraView("right", settings.size), range(settings.frames_per_rollout)
        frames = render_rollout(rollout.trajectory, shown, view, tiled=True)
        dataset.append(_episode(rollout, frames, f"{shard.name}#{index}", rng))
    return trial_replay(
        tuple(dataset), recorded_split(settings.out).train_perturbations, f"uniform:{CLIP_FRAMES}", settings.seed
    )


def _perturbed(replay: TrialReplay, episode: Episode, rng: Generator) -> tuple[Frames, PerturbedClip | None]:
    """Return the clip under a perturbation that applies and leaves a known label; else as it is, without a label."""
    single = replace(replay, episodes={episode.id: episode})
    groups = _grouped((str(p.category), p.name) for p in replay.context.perturbations.values())
    for _ in range(_MAX_DRAWS):
        name, severity = pick(groups[draw_by_share(_CATEGORY_SHARES, rng)], rng), int(rng.integers(1, 5))
        try:
            change = single.change(episode.id, name, severity)
            frames = change.episode.frames
        except DataError:
            continue
        truth = change.episode.label
        if change.expect in ("lower", "undefined") or truth.level is None:
            continue
        progress = np.full(CLIP_FRAMES, np.nan, np.float32)
        if truth.progress is not None:
            progress[: len(truth.progress)] = truth.progress[:CLIP_FRAMES]
        return pad_clip(frames), PerturbedClip(change.episode.instruction, progress, truth.level)
    return pad_clip(episode.frames), None


# The rollout table: labels, positions, instructions and scenes of every rollout, in the order of the frames.

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Key = TypeVar("Key")
Value = TypeVar("Value")

MIN_CLIP_FRAMES = 4


@dataclass(frozen=True, eq=False)
class RolloutTable:
    """What is known about each rollout; every column has one entry per rollout."""

    tasks: tuple[str, ...]
    progress: Floats  # (rollouts, kept)
    gripper_pos: Floats  # (rollouts, kept, 3)
    object_pos: Floats  # (rollouts, kept, 3)
    texts: tuple[tuple[str, ...], ...]  # phrasings of the task
    held_out_texts: tuple[tuple[str, ...], ...]
    counterfactuals: tuple[tuple[tuple[int, str, int], ...], ...]  # (frame, text, level at that frame)
    scenes: tuple[RenderedScene, ...]
    training: Ints  # the rollouts to train on
    perturbed: Ints  # those to train on as a perturbation shows them
    checks: Ints  # the rollouts for validation

    @cached_property
    def levels(self) -> Ints:
        return levels_of(self.progress)

    @cached_property
    def by_level(self) -> dict[tuple[str, int], list[int]]:
        """Return the training rollouts of each task in which some later frame has a level."""
        present = ((row, np.unique(self.levels[row, MIN_CLIP_FRAMES - 1 :])) for row in self.training.tolist())
        return _grouped(((self.tasks[row], int(level)), row) for row, levels in present for level in levels)

    @cached_property
    def by_end(self) -> dict[tuple[str, int], list[int]]:
        """Return the training rollouts of each task that end at a level."""
        return _grouped(((self.tasks[row], int(self.levels[row, -1])), row) for row in self.training.tolist())

    @cached_property
    def by_task(self) -> dict[str, list[int]]:
        return _grouped((self.tasks[row], row) for row in self.training.tolist())

    @cached_property
    def task_names(self) -> tuple[str, ...]:
        return tuple(self.by_task)


def read_rollout_table(settings: PocketSettings, scenes: list[RenderedScene]) -> RolloutTable:
    """Read the rollouts of a folder, as they were rendered."""
    shards = [shard for shard in shards_of(settings) for _ in range(shard.count)]
    rollouts = [r for shard in shards_of(settings) for r in load_rollouts(settings.out / "rollouts" / shard.name)]
    check = np.array([shard.part == "check" for shard in shards])
    perturbed = np.array([scene.perturbed is not None for scene in scenes])
    shown_as_it_was = np.array([scene.kind != "view" for scene in scenes])
    paths = [r.trajectory for r in rollouts]
    return RolloutTable(
        tasks=tuple(shard.task for shard in shards),
        progress=np.array([path.progress for path in paths], np.float32),
        gripper_pos=np.array([path.gripper_pos for path in paths], np.float32),
        object_pos=np.array([path.object_pos for path in paths], np.float32),
        texts=tuple(r.texts for r in rollouts),
        held_out_texts=tuple(r.held_out_texts for r in rollouts),
        counterfactuals=tuple(r.counterfactuals for r in rollouts),
        scenes=tuple(scenes),
        training=np.flatnonzero(~check & shown_as_it_was),
        perturbed=np.flatnonzero(perturbed),
        checks=np.flatnonzero(check),
    )


def of_training(table: RolloutTable, unseen: tuple[str, ...], *, robust: bool) -> RolloutTable:
    """Return the table as a training may use it that never sees some tasks: no rollout, word or thing of them.

    One that is not robust sees no changed world and no perturbation either.
    """
    unsaid = {text for task in unseen for lists in phrasings()[task].values() for text in lists}
    unsaid |= {OTHER_OBJECTS["coffee-button"][0]} if "coffee-pull" in unseen else set()

    def may_be_seen(row: int) -> bool:
        scene = table.scenes[row]
        strange = any(set(DISTRACTORS[name].tasks) <= set(unseen) for name, _ in scene.things)
        said = scene.perturbed is not None and scene.perturbed.text in unsaid
        return table.tasks[row] not in unseen and not strange and not said and (robust or scene.kind in CLEAN_KINDS)

    def known_part(scene: RenderedScene) -> RenderedScene:
        things = tuple((name, tuple(task for task in asked if task not in unseen)) for name, asked in scene.things)
        return replace(scene, things=things)

    training, perturbed = (
        np.array([row for row in rows.tolist() if may_be_seen(row)], np.int64)
        for rows in (table.training, table.perturbed)
    )
    return replace(
        table,
        counterfactuals=tuple(tuple(other for other in row if other[1] not in unsaid) for row in table.counterfactuals),
        scenes=tuple(map(known_part, table.scenes)),
        training=training,
        perturbed=perturbed,
    )


def evenly(rows: Ints, count: int) -> Ints:
    """Return about so many of the rows, evenly from all of them."""
    return rows[:: max(1, len(rows) // count)]


def levels_of(progress: Floats) -> Ints:
    """Return the level of every progress, 0 where it is nan."""
    level = 1 + sum((progress >= start).astype(np.int64) for start in LEVEL_STARTS)
    return np.where(np.isnan(progress), 0, level)


def _grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
