"""Where clips come from: datasets, the simulator, perturbations; runs in workers, no torch."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypeVar

import numpy as np

from rewardlab.core.catalog import find
from rewardlab.core.episode import Episode, Label, Provenance, in_memory, is_success, level_of_progress, whole_clip
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.seeding import pick, rng_for
from rewardlab.core.storage import atomic_write
from rewardlab.core.terminal import ProgressBar, counted, one_line
from rewardlab.data.task_split import split_by_task
from rewardlab.evaluation.engines.ordered_map import map_items
from rewardlab.evaluation.replay import trial_replay
from rewardlab.perturbations import choose_perturbations
from rewardlab.training.objectives import METAWORLD, TABLETOP, ObjectiveSettings
from rewardlab.training.objectives.clips import TEST, TRAIN, VALIDATION, ClipFact, ClipTable, only, write_shard
from rewardlab.training.pocket import CAMERA_SHARES, PocketSettings, pocket_settings
from rewardlab.training.pocket.rollouts import (
    SHARD_SIZE,
    Rollout,
    Shard,
    draw_by_share,
    load_rollouts,
    shards_of,
    simulate_all,
)
from rewardlab.worlds.metaworld.instructions import caption
from rewardlab.worlds.metaworld.physics import TASKS
from rewardlab.worlds.metaworld.render import CameraView
from rewardlab.worlds.metaworld.scene_edits import render_rollout
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS
from rewardlab.worlds.metaworld.tasks import FOLDS, unseen_tasks
from rewardlab.worlds.tabletop.catalog import EVERYTHING, VERBS, seen_vocabulary
from rewardlab.worlds.tabletop.goals import draw_text
from rewardlab.worlds.tabletop.goals import progress as done_so_far
from rewardlab.worlds.tabletop.render import render_states
from rewardlab.worlds.tabletop.replay import caption as describe_change
from rewardlab.worlds.tabletop.replay import video_steps
from rewardlab.worlds.tabletop.rollouts import STEPS, TWO_STEPS, make_rollout
from rewardlab.worlds.tabletop.scene import usable_verbs

Item = TypeVar("Item")
_SHARD = 64  # clips
_EVALUATED = (0.2, 0.4)  # drawn lots of clips of a seen task: below the first validation, below the second test


def clip_shards(settings: ObjectiveSettings) -> list[Path]:
    """Make the clips of every world and dataset that are not there yet, and return the shards of all."""
    paths = render_clips(settings) if METAWORLD in settings.data else []
    paths += tabletop_clips(settings) if TABLETOP in settings.data else []
    return paths + (dataset_shards(settings) if settings.datasets else [])


def dataset_shards(settings: ObjectiveSettings) -> list[Path]:
    """Decode the clips of every dataset that are not there yet, and return the shards."""
    from rewardlab.data import open_dataset

    contents = {name: open_dataset(name, demonstrations=settings.demonstrations) for name in settings.datasets}
    for name, found in contents.items():
        if found.problems:
            left = counted(len(found.problems), "problem")
            note = f"{name}: {left}, left out; `rewardlab data check {name}` lists them"
            print(one_line(note), file=sys.stderr)
    own = {name: f"{name}/" * (len(contents) > 1) for name in contents}  # ids are unique in their dataset only
    episodes = [replace(each, id=own[name] + each.id) for name, found in contents.items() for each in found.episodes]
    successes = Successes.among(episodes)
    videos = [episode.clip.source.digest for episode in episodes]
    rollouts, tasks = zip(*(successes.place(episode) for episode in episodes), strict=True) if episodes else ((), ())

    def draw(groups: dict[str, int]) -> dict[str, bool]:
        if len(groups) < 2:
            raise DataError(
                f"objectives contrast tasks, and {', '.join(settings.datasets)} holds {len(groups)} that share no "
                "video; name data with two or more"
            )
        drawn = sorted(groups, key=lambda task: float(rng_for(settings.seed, "unseen", task).random()))
        chosen = drawn[: max(1, round(settings.holdout * len(groups)))]
        return {task: task in chosen for task in groups}

    held = split_by_task(list(zip(tasks, videos, strict=True)), draw)
    unseen = frozenset(task for task, out in zip(tasks, held, strict=True) if out)
    names = split_by_task(list(zip(rollouts, videos, strict=True)), lambda groups: {name: name for name in groups})
    placed = list(zip(episodes, names, tasks, strict=True))
    some = [placed[start : start + _SHARD] for start in range(0, len(placed), _SHARD)]
    items = {f"{number:05d}": part for number, part in enumerate(some)}
    return _make_files(settings, "clips", "decoding shards", partial(_decode, settings, successes, unseen), items)


def _make_files(
    settings: ObjectiveSettings,
    folder: str,
    what: str,
    work: Callable[[tuple[Path, Item]], None],
    items: dict[str, Item],
) -> list[Path]:
    """Have workers make the files of a folder that are not there yet, by their names, and return all."""
    (settings.out / folder).mkdir(parents=True, exist_ok=True)
    paths = {name: settings.out / folder / f"{name}.npz" for name in items}
    missing = [(path, items[name]) for name, path in paths.items() if not path.exists()]
    there = len(paths) - len(missing)
    with ProgressBar(what, len(paths), there) as view:
        for done, _ in enumerate(map_items(work, missing, settings.workers), start=there + 1):
            view.step(done)
    return list(paths.values())


@dataclass(frozen=True)
class Successes:
    """What successes show: a row that shows the same under another instruction belongs to the success.

    So it is with counterfactual rows: the clip is no failure of its task, and is learned from where the success is.
    """

    by_clip: dict[tuple[str, bytes], tuple[str, str]]  # the video and the frames of it: rollout and task

    @classmethod
    def among(cls, episodes: Sequence[Episode]) -> "Successes":
        won = [episode for episode in episodes if _level_and_success(episode)[1]]
        return cls({_shown(episode): _rollout_and_task(episode) for episode in reversed(won)})

    def place(self, episode: Episode) -> tuple[str, str]:
        """Return the rollout and the task that an episode goes by."""
        return self.by_clip[_shown(episode)] if self.is_repeated_by(episode) else _rollout_and_task(episode)

    def is_repeated_by(self, episode: Episode) -> bool:
        """Tell whether an episode that is no success shows what one shows."""
        return not _level_and_success(episode)[1] and _shown(episode) in self.by_clip


def _shown(episode: Episode) -> tuple[str, bytes]:
    """Return the video of an episode, and which frames of it."""
    return episode.clip.source.digest, episode.clip.order.tobytes()


def _rollout_and_task(episode: Episode) -> tuple[str, str]:
    """Return the rollout and the task of an episode by itself: by its provenance, else its id and instruction."""
    known = episode.provenance
    return known.rollout or episode.id, known.task or episode.instruction


def _decode(
    settings: ObjectiveSettings,
    successes: Successes,
    unseen: frozenset[str],
    item: tuple[Path, Sequence[tuple[Episode, str, str]]],
) -> None:
    """Write the clips of episodes, each with the rollout and the task that it goes by."""
    import cv2

    path, placed = item
    side, facts, progress, pixels = settings.size, [], [], []
    for episode, name, task in placed:
        frames = np.linspace(0, len(episode.clip) - 1, settings.frames).round().astype(np.int64)
        shown = replace(episode.clip, order=episode.clip.order[frames], positions=episode.clip.positions[frames])
        known = episode.label.progress
        level, success = _level_and_success(episode)
        lot = float(rng_for(settings.seed, "part", name).random())
        part = TEST if task in unseen else VALIDATION if lot < _EVALUATED[0] else TEST if lot < _EVALUATED[1] else TRAIN
        seen, many, repeats = task not in unseen, task in settings.multi_step, successes.is_repeated_by(episode)
        won, text = -1 if success is None else int(success), episode.instruction
        facts.append(ClipFact(episode.id, task, (text,), text, part, seen, many, level, won, repeats))
        progress.append((np.array(known)[frames] if known is not None else np.full(len(frames), np.nan)).astype(float))
        # Frames are squeezed to a square, so that nothing at their sides is cut off.
        squares = [cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA) for frame in shown.read()]
        pixels.append(np.stack(squares))
    unknown = np.full((len(facts), settings.frames), np.nan)
    write_shard(path, ClipTable(tuple(facts), np.stack(progress), unknown, np.stack(pixels)))


def _level_and_success(episode: Episode) -> tuple[int, bool | None]:
    """Return the level, 0 where it is unknown, and whether the episode is a success."""
    truth = episode.label
    level = truth.level or (level_of_progress(truth.progress[-1]) if truth.progress else 0)
    return level, truth.success if truth.success is not None else (is_success(level) if level else None)


# Clips from the simulator: pocket's rollouts, rendered from one camera each; no video file comes in between.

KEPT = 24  # frames of a rollout, as pocket keeps them; a clip shows some of these
_MOST_REWARD = 10  # that Meta-World gives to a state
_SEVERAL_STEPS = ("carry", "tool")  # families of tasks in which something is fetched before it is used or placed


def chosen_tasks(settings: ObjectiveSettings) -> tuple[str, ...]:
    """Return the chosen tasks; PlanError where none is left to train on or to evaluate."""
    if not 0 <= settings.fold < FOLDS:
        raise PlanError(f"folds are numbers from 0 to {FOLDS - 1}, got {settings.fold}")
    known = {task: task for task in TASKS}
    asked = TASKS if settings.tasks == ("all",) else settings.tasks
    named = tuple(find(known, task, "Meta-World task") for task in asked)
    if set(named) <= set(unseen_tasks(settings.fold)):
        raise PlanError(f"fold {settings.fold} trains on none of these tasks; name others, or another --fold")
    return named


def simulate(settings: ObjectiveSettings) -> None:
    """Simulate the rollouts that are not there yet: of unseen tasks only those that are evaluated."""
    simulate_all(_pocket(settings), _shards(settings))


def _pocket(settings: ObjectiveSettings) -> PocketSettings:
    shared = {name: vars(settings)[name] for name in ("rollouts", "near_misses", "val_rollouts", "seed", "workers")}
    return pocket_settings(**shared, tasks=chosen_tasks(settings), frames_per_rollout=KEPT, out=settings.out)


def _shards(settings: ObjectiveSettings) -> list[Shard]:
    unseen = unseen_tasks(settings.fold)
    return [shard for shard in shards_of(_pocket(settings)) if shard.part == "check" or shard.task not in unseen]


def render_clips(settings: ObjectiveSettings) -> list[Path]:
    """Render the clips of each task that are not there yet, and return the shards of all."""
    tasks = {task: task for task in chosen_tasks(settings)}
    return _make_files(settings, "clips", "rendering tasks", partial(_render_task, settings), tasks)


def _render_task(settings: ObjectiveSettings, item: tuple[Path, str]) -> None:
    path, task = item
    frames = np.linspace(0, KEPT - 1, settings.frames).round().astype(np.int64)
    clips, progress, env_reward, pixels = [], [], [], []
    for shard in _shards(settings):
        if shard.task != task:
            continue
        rollouts = load_rollouts(settings.out / "rollouts" / shard.name)[: shard.count]
        for index, rollout in enumerate(rollouts, start=shard.number * SHARD_SIZE):
            clips.append(_simulated_fact(settings, shard, index, rollout))
            progress.append(rollout.trajectory.progress[frames])
            env_reward.append([rollout.trajectory.readings[frame].reward / _MOST_REWARD for frame in frames])
            rng = rng_for(settings.seed, "camera", shard.name, index)
            view = CameraView(draw_by_share(CAMERA_SHARES, rng), settings.size)
            pixels.append(render_rollout(rollout.trajectory, frames.tolist(), view, tiled=True))
    known, rewards = (np.array(values, np.float64) for values in (progress, env_reward))
    write_shard(path, ClipTable(tuple(clips), known, rewards, np.stack(pixels)))


def _simulated_fact(settings: ObjectiveSettings, shard: Shard, index: int, rollout: Rollout) -> ClipFact:
    seen = shard.task not in unseen_tasks(settings.fold)
    part = TRAIN if shard.part != "check" else VALIDATION if seen and index % 2 else TEST
    name = f"{shard.part}-{shard.task}-{index:03d}"
    last = rollout.trajectory.readings[-1]
    return ClipFact(
        name,
        shard.task,
        rollout.texts,
        pick(rollout.held_out_texts, rng_for(settings.seed, "asked", name)),
        part,
        seen,
        PROGRESS_SPECS[shard.task].family in _SEVERAL_STEPS,
        last.level,
        int(is_success(last.level)),
        world=METAWORLD,
        captions=tuple(
            caption(shard.task, rollout.trajectory.gripper_pos[: end + 1], rollout.trajectory.object_pos[: end + 1])
            for end in np.linspace(0, KEPT - 1, settings.frames).round().astype(int).tolist()
        ),
    )


# Clips from the tabletop: a task is a verb, or several steps in one instruction. Unseen are the verbs of the fold,
# those that need its kinds, and three steps.

_TEXTS = 4  # ways to say what is asked, drawn from all


def tabletop_clips(settings: ObjectiveSettings) -> list[Path]:
    """Make and render the clips of each verb of the tabletop that are not there yet, and return the shards of all."""
    verbs = {f"{TABLETOP}-{verb}": verb for verb in (*VERBS, *STEPS)}
    return _make_files(settings, "clips", "rendering verbs", partial(_render_verb, settings), verbs)


def _render_verb(settings: ObjectiveSettings, item: tuple[Path, str]) -> None:
    path, verb = item
    trained = seen_vocabulary(settings.fold)
    unseen = verb not in (*usable_verbs(trained), TWO_STEPS)
    vocabulary = EVERYTHING if unseen else trained
    clips, progress, pixels = [], [], []
    counts = {"train": settings.rollouts, "near": settings.near_misses, "check": settings.val_rollouts}
    for part, index in ((part, index) for part, count in counts.items() for index in range(count)):
        if part != "check" and unseen:  # of unseen verbs only those that are evaluated
            continue
        name = f"{part}-{TABLETOP}-{verb}-{index:03d}"
        rng = rng_for(settings.seed, "clip", name)
        quality = "near_miss" if part == "near" else ""
        rollout = make_rollout(int(rng.integers(2**31)), verb, quality, vocabulary)
        steps = video_steps(rollout, settings.frames)
        own = done_so_far(rollout.scene, rollout.states, rollout.goal)[steps]
        level = level_of_progress(float(own[-1]))
        texts = (draw_text(rollout.scene, rollout.goal, "train", rng) for _ in range(_TEXTS))
        clips.append(
            ClipFact(
                name,
                f"{TABLETOP}-{verb}",
                tuple(dict.fromkeys(texts)),
                draw_text(rollout.scene, rollout.goal, "held_out", rng),
                TRAIN if part != "check" else VALIDATION if not unseen and index % 2 else TEST,
                not unseen,
                len(rollout.goal.verbs) > 1,
                level,
                int(is_success(level)),
                world=TABLETOP,
                captions=tuple(describe_change(rollout, rollout.states.at([0, step])) for step in steps.tolist()),
            )
        )
        progress.append(own)
        pixels.append(render_states(rollout.scene, rollout.states, steps, settings.size, tiled=True))
    known = np.array(progress, np.float64)
    write_shard(path, ClipTable(tuple(clips), known, np.full_like(known, np.nan), np.stack(pixels)))


# Perturbing test clips: every perturbation at every severity, in processes.

_SEVERITIES = (1, 2, 3, 4)
_FPS = 10.0  # that a clip claims to have


def perturb_clips(settings: ObjectiveSettings, table: ClipTable) -> list[Path]:
    """Perturb what is not there yet, one file to a perturbation, and return the files of all."""
    names = {p.name: p.name for p in choose_perturbations(settings.perturbations, worlds=False)}
    work = partial(_perturb, settings, stressed_episodes(settings, table))
    return _make_files(settings, "perturbed", "perturbations", work, names)


def stressed_episodes(settings: ObjectiveSettings, table: ClipTable) -> tuple[Episode, ...]:
    """Return the first test clips of each task whose level is known, as episodes."""
    test, taken, episodes = only(table, TEST), dict.fromkeys(table.tasks, 0), []
    for row, clip in enumerate(test.clips):
        if clip.level and taken[clip.task] < settings.perturbed_clips:
            taken[clip.task] += 1
            known = tuple(test.progress[row].tolist()) if np.isfinite(test.progress[row]).all() else None
            truth = Label(clip.level, None if clip.success < 0 else bool(clip.success), known)
            source = whole_clip(in_memory(test.pixels[row]), _FPS)
            episodes.append(Episode(clip.id, clip.asked, source, truth, Provenance("objectives", clip.task)))
    return tuple(episodes)


def _perturb(settings: ObjectiveSettings, episodes: Sequence[Episode], item: tuple[Path, str]) -> None:
    """Write the cells of a perturbation: the severities at which it applies to an episode and keeps a known label."""
    path, name = item
    replay = trial_replay(tuple(episodes), (name,), f"uniform:{settings.frames}", settings.seed)
    cells, frames = [], [np.zeros((0, settings.size, settings.size, 3), np.uint8)]
    for episode, severity in product(episodes, _SEVERITIES):
        try:
            change = replay.change(episode.id, name, severity)
            last = change.episode.frames[-1:]
        except DataError:
            continue
        level = change.episode.label.level
        if level is not None and change.expect == "same":  # only what keeps its label can lose accuracy
            cells.append((episode.id, name, severity, change.episode.instruction, level))
            frames.append(last)
    said = np.frombuffer(json.dumps(cells).encode(), np.uint8)
    with atomic_write(path) as partial_path, partial_path.open("wb") as handle:
        np.savez(handle, cells=said, pixels=np.concatenate(frames))
