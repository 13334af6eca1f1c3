"""A dataset in another layout, resumable; the catalog of writers."""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import numpy as np

from rewardlab.core.catalog import find
from rewardlab.core.episode import Episode, rearrange
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.old_settings import setting
from rewardlab.core.records import parse_json
from rewardlab.core.seeding import digest, rng_for
from rewardlab.core.storage import atomic_write, writable
from rewardlab.data.contract import Batch, Contents, Problem, Rollout, Writer, WrittenRow
from rewardlab.data.duplicates import OrderedMap, episodes_to_leave_out, find_duplicates
from rewardlab.data.lerobot_writer import LEROBOT
from rewardlab.data.robometer import ROBOMETER
from rewardlab.data.roboreward import ROBOREWARD_WRITER
from rewardlab.data.task_split import Pair, parse_shares, split_by_task

WRITERS: dict[str, Writer] = {writer.name: writer for writer in (ROBOREWARD_WRITER, LEROBOT, ROBOMETER)}


# The settings of `rewardlab data convert`.


@dataclass(frozen=True)
class ConvertPlan:
    """Write a dataset in another layout, maybe fewer of its rollouts, split by task and without copies."""

    source: str = setting("dataset folder or name; DATA@CAMERA or DATA@all chooses cameras", positional=True)
    out: Path = setting("folder to write, which must not be there yet", positional=True)
    to: str = setting(f"layout to write: {', '.join(WRITERS)}", "roboreward")
    fps: float | None = setting("show rollouts at this rate: the latest frame at every tick, and the last one", None)
    sample: int | None = setting("keep so many rollouts, drawn by the seed", None)
    splits: tuple[str, ...] = setting("splits and their shares, such as train=0.8,test=0.2; no task is in two", ())
    duplicates: bool = setting("leave out rollouts whose video and instruction are there already, or nearly", True)
    skip_bad: bool = setting("leave out rollouts with problems instead of stopping", False)
    seed: int = setting("seed of everything that is random", 0)

    def __post_init__(self) -> None:
        find(WRITERS, self.to, "layout")
        if self.fps is not None and not 0 < self.fps < 1000:
            raise PlanError(f"fps must be above 0 and below 1000, got {self.fps}")
        if self.sample is not None and self.sample < 1:
            raise PlanError(f"sample must be at least 1, got {self.sample}")
        self.shares()

    def shares(self) -> dict[str, float]:
        """Return the share of each split, together 1; none where the dataset is not split."""
        return parse_shares(self.splits)


# A rollout at another frame rate: at every tick of a clock the latest frame there is.


def at_rate(episode: Episode, fps: float) -> Episode:
    """Return the rollout at an even rate; its first and its last frame are always shown, truth follows the frames."""
    if episode.clip.is_even and episode.clip.fps == fps and _is_whole(episode):
        return episode
    times = episode.times - episode.times[0]
    ticks = np.arange(round(float(times[-1]) * fps) + 1) / fps
    picks = np.searchsorted(times, ticks + 1e-6 / fps, side="right") - 1
    picks[-1] = len(times) - 1
    shown = rearrange(episode, picks)
    return replace(shown, clip=replace(shown.clip, fps=float(fps)))


def _is_whole(episode: Episode) -> bool:
    return np.array_equal(episode.clip.positions, np.arange(len(episode.clip)))


# A folder that is whole or not there: it is written under another name, batch by batch, and renamed at the end.
#
# A journal says which batches are done, so that a conversion that was stopped goes on where it was.


@dataclass(frozen=True)
class ResumableFolder:
    """The folder to make; `identity` tells this conversion from others."""

    target: Path
    identity: str

    @property
    def partial(self) -> Path:
        """Return where files are until all are there."""
        return self.target.with_name(f".{self.target.name}.converting")

    @property
    def notes(self) -> Path:
        """Return where the journals are, and what else is of use only while files are written."""
        return self.partial / ".conversion"

    def begin(self) -> None:
        """Make the folder, or go on with it; PlanError where the target is there or the folder is another's."""
        if self.target.exists():
            raise PlanError(f"{self.target} is there already; name a folder that is not, or remove it")
        stated = self.notes / "identity.json"
        with writable(self.partial):
            self.notes.mkdir(parents=True, exist_ok=True)
            if not stated.exists():
                with atomic_write(stated) as partial:
                    partial.write_text(self.identity, encoding="utf-8")
        if stated.read_text(encoding="utf-8") != self.identity:
            raise PlanError(f"{self.partial} is what another conversion has left; finish that one, or remove it")

    def write(self, writer: Writer, split: str, batches: Sequence[Batch]) -> None:
        """Write the batches that are not done, then what describes the whole."""
        folder, journal = self.partial / split, self.notes / f"{split}.jsonl"
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            done, keys = _read_journal(journal), [_key(batch) for batch in batches]
            for key, batch in zip(keys, batches):
                if key not in done:
                    done[key] = writer.write(folder, batch)
                    _append(journal, key, done[key])
            writer.finish(folder, [row for key in keys for row in done[key]])

    def complete(self) -> None:
        """Give the folder its name, and remove the notes."""
        with writable(self.target):
            os.rename(self.partial, self.target)
        shutil.rmtree(self.target / self.notes.name)


def _key(batch: Batch) -> str:
    """Return what a batch is made of: where it stands, and the content of every episode."""
    return digest(batch.number, *(view.hash for rollout in batch.rollouts for view in rollout.views))


def _read_journal(path: Path) -> dict[str, list[WrittenRow]]:
    done: dict[str, list[WrittenRow]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            entry = parse_json(line)
            done[entry["batch"]] = entry["rows"]
        except (ValueError, LookupError, TypeError):  # the line that was being written when it was stopped
            continue
    return done


def _append(path: Path, key: str, rows: list[WrittenRow]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps({"batch": key, "rows": rows}, ensure_ascii=False))
        file.flush()
        os.fsync(file.fileno())


# Episodes as they are written: cameras of a rollout together or each on its own, under names of their own.

_NAME_CHARACTERS = 120  # of the name of a file, without its suffix
_UNNAMED = "main"  # a camera without a name of its own
_UNSAFE = re.compile(r"[^\w.-]+")


def rollout_name(episode: Episode) -> str:
    """Return the id of a rollout, without the camera that an episode's id names where there are several."""
    return episode.id.removesuffix(f"@{episode.provenance.camera}") if episode.provenance.camera else episode.id


def grouped_rollouts(episodes: Sequence[Episode], *, joins: bool) -> list[Rollout]:
    """Return what is written as one: all cameras of a rollout where the layout joins them, else each on its own."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(rollout_name(episode) if joins else episode.id, []).append(episode)
    cameras = _written_cameras(list(groups.values()))
    names: Counter[str] = Counter()
    found = []
    for views in groups.values():
        _require_same_cameras(views, cameras)
        name = _file_stem(views[0])
        names[name] += 1
        found.append(Rollout(name if names[name] == 1 else f"{name}-{names[name]}", tuple(views), cameras))
    return found


def _written_cameras(groups: Sequence[Sequence[Episode]]) -> tuple[str, ...]:
    """Return the cameras of the first rollout; one name for all where each was filmed by one camera of its own."""
    first = _cameras(groups[0])
    alone = all(len(views) == 1 for views in groups)
    return first if not alone or all(_cameras(views) == first for views in groups) else _cameras(())


def _cameras(views: Sequence[Episode]) -> tuple[str, ...]:
    return tuple(_safe(view.provenance.camera) or _UNNAMED for view in views) or (_UNNAMED,)


def _require_same_cameras(views: Sequence[Episode], cameras: tuple[str, ...]) -> None:
    alone = len(views) == len(cameras) == 1
    same = alone or _cameras(views) == cameras
    if not same or len(set(cameras)) < len(cameras) or len({len(view.clip) for view in views}) > 1:
        what = f"{rollout_name(views[0])} was not filmed by the cameras of the first rollout, or not for as long"
        raise PlanError(f"{what}; convert one camera by DATA@NAME")


def _file_stem(episode: Episode) -> str:
    """Return the path of a video without its suffix: the subset, and a name made of the episode's id."""
    parts = PurePosixPath(episode.id.replace("#", "-row")).parts
    subset = episode.provenance.subset or (parts[0] if len(parts) > 1 else "episodes")
    rest = "--".join(parts[1:] if len(parts) > 1 and parts[0] == subset else parts)
    stem = re.sub(r"\.mp4(?=$|-row|@)", "", rest)
    short = stem if len(stem) <= _NAME_CHARACTERS else f"{stem[:_NAME_CHARACTERS]}-{digest(stem)[:8]}"
    return f"{_safe(subset) or 'episodes'}/{_safe(short) or 'episode'}"


def _safe(name: str) -> str:
    return _UNSAFE.sub("-", name).strip(".-")


# From a dataset to a folder in another layout: chosen, resampled, without copies, split by task, written.


@dataclass(frozen=True)
class Conversion:
    """What was written: how many rollouts in each split, and what was left out with the reason."""

    folder: Path
    counts: dict[str, int]
    left_out: tuple[Problem, ...] = field(default=())


def convert_dataset(plan: ConvertPlan, contents: Contents, ordered_map: OrderedMap) -> Conversion:
    """Write the dataset of a plan, or go on with what was stopped; nothing half-written has the name of the folder."""
    writer, left_out = WRITERS[plan.to], _problems(plan, contents)
    rollouts, wordless = _with_words(grouped_rollouts(_chosen(plan, contents.episodes), joins=writer.joins_cameras))
    _require_rate(writer, rollouts)
    folder = ResumableFolder(plan.out, _identity(plan, rollouts))
    folder.begin()
    copies, together = _copies(plan, rollouts, folder.notes, ordered_map)
    copied = {copy.place for copy in copies}
    kept = [rollout for rollout in rollouts if rollout.name not in copied]
    splits = _splits(plan, kept, together)
    for split, members in splits.items():
        folder.write(writer, split, list(_batches(writer, members)))
    folder.complete()
    return Conversion(plan.out, {name: len(m) for name, m in splits.items()}, (*left_out, *wordless, *copies))


def _problems(plan: ConvertPlan, contents: Contents) -> tuple[Problem, ...]:
    if contents.problems and not plan.skip_bad:
        first = "".join(f"\n  {problem}" for problem in contents.problems[:5])
        what = f"{plan.source} has {len(contents.problems)} problems; correct them, or leave them out with --skip-bad"
        raise DataError(what + first)
    if not contents.episodes:
        raise DataError(f"{plan.source} holds no usable episode; run `rewardlab data check {plan.source}`")
    return contents.problems


def _chosen(plan: ConvertPlan, episodes: Sequence[Episode]) -> list[Episode]:
    """Return the episodes of the rollouts to keep, at the rate that is asked for."""
    names = list(dict.fromkeys(rollout_name(episode) for episode in episodes))
    if plan.sample is not None and plan.sample < len(names):
        places = sorted(rng_for(plan.seed, "sample").choice(len(names), plan.sample, replace=False).tolist())
        names = [names[place] for place in places]
    wanted = set(names)
    kept = [episode for episode in episodes if rollout_name(episode) in wanted]
    return kept if plan.fps is None else [at_rate(episode, plan.fps) for episode in kept]


def _with_words(rollouts: Sequence[Rollout]) -> tuple[list[Rollout], list[Problem]]:
    """Part the rollouts from those without an instruction, which no layout can hold."""
    kept = [rollout for rollout in rollouts if rollout.first.instruction.strip()]
    names = [rollout.name for rollout in rollouts if not rollout.first.instruction.strip()]
    without = [Problem(name, "has no instruction; write a task.txt beside it") for name in names]
    if not kept:
        raise DataError("no episode has an instruction; write it into a task.txt beside the data")
    return kept, without


def _require_rate(writer: Writer, rollouts: Sequence[Rollout]) -> None:
    clips = [view.clip for rollout in rollouts for view in rollout.views]
    rates = sorted({clip.fps for clip in clips})
    if writer.one_rate and (len(rates) > 1 or not all(clip.is_even for clip in clips)):
        said = ", ".join(f"{rate:g}" for rate in rates[:5])
        raise PlanError(f"{writer.name} has one frame rate, but frames come at {said} per second; give one with --fps")


def _identity(plan: ConvertPlan, rollouts: Sequence[Rollout]) -> str:
    """Return what tells this conversion from others: its settings, and the name of everything that it writes."""
    settings = {name: str(value) for name, value in vars(plan).items() if name not in ("out", "skip_bad")}
    names = digest(*(f"{rollout.name} {view.id}" for rollout in rollouts for view in rollout.views))
    return json.dumps({**settings, "names": names}, indent=1, sort_keys=True)


def _copies(
    plan: ConvertPlan, rollouts: Sequence[Rollout], folder: Path, ordered_map: OrderedMap
) -> tuple[list[Problem], list[Pair]]:
    """Return the rollouts to leave out with the reason, and pairs with one video that must stay in one split."""
    if not plan.duplicates:
        return [], []
    names = {rollout.first.id: rollout.name for rollout in rollouts}
    found = find_duplicates([rollout.first for rollout in rollouts], None, folder, ordered_map)["copies"]
    out = episodes_to_leave_out(found)
    copies = [
        Problem(names[copy["episode"]], f"the video and instruction of {copy['other']} ({copy['kind']} copy)")
        for copy in found
        if copy["episode"] in out
    ]
    return copies, [(copy["episode"], copy["other"]) for copy in found]


def _splits(plan: ConvertPlan, rollouts: Sequence[Rollout], together: Sequence[Pair]) -> dict[str, list[Rollout]]:
    shares = plan.shares()
    if not shares:
        return {"": list(rollouts)}
    episodes = [rollout.first for rollout in rollouts]
    present = {episode.id for episode in episodes}
    pairs = [pair for pair in together if present.issuperset(pair)]
    chosen = split_by_task(episodes, shares, pairs, plan.seed)
    parts = {name: [rollout for rollout in rollouts if chosen[rollout.first.id] == name] for name in shares}
    empty = [name for name, members in parts.items() if not members]
    if empty:
        raise PlanError(
            f"the split {empty[0]!r} would be empty: there are too few tasks; give it more, or leave it out"
        )
    return parts


def _batches(writer: Writer, rollouts: Sequence[Rollout]) -> Iterator[Batch]:
    """Yield the rollouts that share files."""
    waiting: list[Rollout] = []
    number = before = frames = first_frame = 0
    for rollout in rollouts:
        length = len(rollout.first.clip)
        if waiting and frames + length > writer.batch_frames:
            yield Batch(number, before, first_frame, tuple(waiting))
            number, before, first_frame = number + 1, before + len(waiting), first_frame + frames
            waiting, frames = [], 0
        waiting.append(rollout)
        frames += length
    if waiting:
        yield Batch(number, before, first_frame, tuple(waiting))


# The settings of the check of a dataset.


@dataclass(frozen=True)
class CheckPlan:
    """List every problem of a dataset with its place; every frame of every video is decoded."""

    data: str = setting("dataset folder or a shipped name such as sample", positional=True)
