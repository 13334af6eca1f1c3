"""What readers share: choice of camera, task from task.txt or a name, success from sparse rewards; drawing a few."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rewardlab.core.episode import Episode, Label, view_episodes
from rewardlab.core.errors import DataError
from rewardlab.core.limits import INSTRUCTION_CHARACTERS
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import STAGE
from rewardlab.data.contract import Contents, Problem
from rewardlab.data.safe_files import text_lines

ALL_CAMERAS = "all"
CAMERAS = "cameras"  # the place of the note which camera is read where none is named
_CLOSE_UP = re.compile("wrist|hand|gripper|depth", re.IGNORECASE)  # cameras that do not show what was achieved


def choose_cameras(cameras: Sequence[str], wanted: str) -> tuple[str, ...]:
    """Return the cameras to read; a name may be written without the part that all of them share."""
    if not cameras:
        raise DataError("no camera is described; expected frames from at least one, name another dataset")
    if wanted == ALL_CAMERAS:
        return tuple(cameras)
    if not wanted:
        return (next((name for name in cameras if not _CLOSE_UP.search(short_name(name))), cameras[0]),)
    chosen = tuple(name for name in cameras if wanted in (name, short_name(name)))
    if not chosen:
        names = ", ".join(short_name(name) for name in cameras)
        raise DataError(f"no camera {wanted!r}; there are {names}: name one of them, or {ALL_CAMERAS}")
    return chosen[:1]


def short_name(camera: str) -> str:
    """Return the last part of a camera's name, as in `wrist` for `observation.images.wrist`."""
    return re.split(r"[./]", camera)[-1]


def episode_id(name: str, camera: str, cameras: Sequence[str]) -> str:
    """Return the id of what one camera saw of an episode; it names the camera where there are several."""
    return f"{name}@{short_name(camera)}" if len(cameras) > 1 else name


def camera_note(cameras: Sequence[str]) -> tuple[Problem, ...]:
    """Say which camera is read and which others there are, where there are several."""
    if len(cameras) < 2:
        return ()
    (read,) = choose_cameras(cameras, "")
    others = ", ".join(short_name(name) for name in cameras if name != read)
    return (Problem(CAMERAS, f"{short_name(read)} is read; others by DATA@NAME, or DATA@all: {others}"),)


def rollout_name(episode: Episode) -> str:
    """Return the id of a rollout, without the camera that an episode's id names where there are several."""
    return episode.id.removesuffix(f"@{episode.provenance.camera}") if episode.provenance.camera else episode.id


def only_camera(contents: Contents, wanted: str) -> Contents:
    """Return the episodes as this camera saw them, for formats that state the camera, or the views, per episode."""
    if wanted == ALL_CAMERAS:
        return contents
    named = ({episode.provenance.camera, *episode.views} for episode in contents.episodes)
    names = sorted(set[str]().union(*named) - {""})
    kept = tuple(seen for episode in contents.episodes if (seen := _seen_by(episode, wanted)) is not None)
    if not kept:
        raise DataError(f"no episode of a camera {wanted!r}; there are {', '.join(names) or 'no named cameras'}")
    return replace(contents, episodes=kept)


def _seen_by(episode: Episode, camera: str) -> Episode | None:
    if episode.provenance.camera == camera:
        return replace(episode, views={})
    view = view_episodes(episode).get(camera)
    if view is None:
        return None
    # A simulator renders its record as the first camera saw it, and what is published of a source is about that one.
    return replace(view, sim_state=None, provenance=replace(view.provenance, camera=camera, perspective=""))


def join_views(views: Sequence[Contents]) -> Contents:
    """Return the episodes of the first camera, with what the others saw of the same rollouts as further views.

    A rollout that another camera did not film, or not as long, is a problem.
    """
    first, *others = views
    by_name = [{rollout_name(episode): episode for episode in each.episodes} for each in others]
    kept, problems = [], [*dict.fromkeys(problem for each in views for problem in each.problems)]
    for episode in first.episodes:
        seen = [found.get(rollout_name(episode)) for found in by_name]
        there = {each.provenance.camera: each.clip.source for each in seen if each is not None}
        short = [name for name, source in there.items() if source.count != episode.clip.source.count]
        if len(there) == len(others) and not short:
            kept.append(replace(episode, views=there))
        else:
            what = f"{short[0]} filmed another number of frames" if short else "not every one of the cameras filmed it"
            problems.append(Problem(episode.id, f"{what}; name other cameras"))
    return replace(first, episodes=tuple(kept), problems=tuple(problems))


# Instructions, where the format has no place for them: from a `task.txt` beside the data, or from the words of a name.

TASK_FILE = "task.txt"
_LEAST_WORDS = 2  # one word alone, such as `drawer`, says no task
_NO_TASK = {  # words of names that say how a video was taken, not what was done
    *("video", "videos", "clip", "clips", "episode", "episodes", "rollout", "rollouts", "camera", "cam", "view"),
    *("demo", "trial", "run", "take", "test", "train", "val", "data", "recording", "rec", "img", "mov", "dsc", "vid"),
    *("front", "wrist", "side", "top", "left", "right", "success", "failure", "fail", "good", "bad", "final", "copy"),
}


def task_beside(folder: Path, name: str = "") -> str:
    """Return the task of `name` below the folder: from the nearest task.txt, else from the name; empty without one."""
    inside = (Path(name), *Path(name).parents) if name else (Path(),)
    written = next((text for part in inside if (text := _task_file(folder, folder / part / TASK_FILE))), "")
    return written or task_in(name)


def task_in(name: str) -> str:
    """Return the task that the name of a video, or of the folder it is in, says; empty where none does."""
    path = Path(name)
    for text in (path.stem, *(part.name for part in path.parents)):
        words = [word for word in re.split(r"[\W_]+", text.lower()) if word.isalpha()]
        if len([word for word in words if word not in _NO_TASK]) >= _LEAST_WORDS:
            return " ".join(words)
    return ""


def bounded_text(text: str, what: str = "the instruction") -> str:
    """Return an instruction, or another text of a row; DataError where it is too long."""
    if len(text) > INSTRUCTION_CHARACTERS.value:
        raise DataError(f"{what} has {len(text):,} characters, {INSTRUCTION_CHARACTERS.describe()}")
    return text


def wordless_note(episodes: Sequence[Episode]) -> tuple[Problem, ...]:
    """Say how many episodes have no instruction: they are read, and models are asked for nothing."""
    without = [episode.id for episode in episodes if not episode.instruction.strip()]
    if not without:
        return ()
    what = f"no instruction is stored for {without[0]!r} and no name says one, so models are asked in empty words"
    return (Problem(f"{len(without)} of {len(episodes)} episodes", f"{what}; write it into a {TASK_FILE} beside it"),)


def _task_file(folder: Path, path: Path) -> str:
    if not path.is_file():
        return ""
    text = next((text for _, text in text_lines(folder, path)), "").strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{path}: not UTF-8 text; save the file in UTF-8") from None
    return text


# Success, where only the rewards of a rollout tell it.


def label_of_success(success: bool | None) -> Label:
    """Return the truth of a rollout of which only success is known: a success is level 5, a failure has no level."""
    return Label(5 if success else None, success)


def success_of_rewards(rewards: Sequence[float]) -> bool | None:
    """Return True for the reward of a finished task, zero at first and then one value above zero to the end; else None.

    The last step may have none: in RLDS the last observation comes after the last action and its reward. A rollout
    that is never rewarded says nothing: many datasets of demonstrations write zeros throughout.
    """
    start = next((step for step, reward in enumerate(rewards) if reward), 0)
    if start == 0 or rewards[start] < 0:
        return None
    rewarded = rewards[start : max(len(rewards) - 1, start + 1)]
    return True if {*rewarded} == {rewards[start]} and rewards[-1] in (0, rewards[start]) else None


def with_stage_questions(episodes: Sequence[Episode]) -> tuple[Episode, ...]:
    """Return every episode and, behind it, one question per stage: the same video under the stage's own instruction.

    Nothing but the stage is known of such a question, so that it counts in the metrics of stages alone.
    """
    found = []
    for episode in episodes:
        found.append(episode)
        for number, stage in enumerate(episode.label.stages, start=1):
            name = f"{episode.id}{STAGE}{number}"
            found.append(replace(episode, id=name, instruction=stage.instruction, label=Label(stages=(stage,))))
    return tuple(found)


def draw_episodes(episodes: Sequence[Episode], limit: int | None, seed: int) -> tuple[Episode, ...]:
    """Return so many episodes in their order, drawn from every task in turn, and from its levels in turn.

    All without a limit. Tasks begin at different levels, so that few episodes have many tasks and even levels. The same
    seed gives the same episodes, and a higher limit gives those of a lower one and others.
    """
    if limit is None or limit >= len(episodes):
        return tuple(episodes)
    tasks: dict[str, dict[tuple[int, bool], list[int]]] = {}
    for place, episode in enumerate(episodes):
        task, label = episode.provenance.task or episode.instruction, episode.label
        level = (label.level or 0, bool(label.success))
        tasks.setdefault(task, {}).setdefault(level, []).append(place)
    rng, each = rng_for(seed, "limit"), list(tasks.values())
    order: list[tuple[int, int, int, int]] = []
    for first, task_at in enumerate(rng.permutation(len(each))):
        levels = [places for _, places in sorted(each[task_at].items())]
        for at, places in enumerate(levels):
            drawn = rng.permutation(places).tolist()
            order += [(turn, (at - first) % len(levels), first, place) for turn, place in enumerate(drawn)]
    return tuple(episodes[place] for place in sorted(place for *_, place in sorted(order)[:limit]))
