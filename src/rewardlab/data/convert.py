"""`data_convert`: a dataset in another layout, resampled, without copies, split by task; the catalog of writers.

A conversion that was stopped goes on: a journal lists the batches that are done.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import numpy as np

from rewardlab.core.catalog import find
from rewardlab.core.episode import Episode, rearrange, view_episodes
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.seeding import digest, rng_for
from rewardlab.core.settings import Demonstrations, Help, Seed, SkipInvalid, recorded, several
from rewardlab.core.storage import append_to_journal, read_journal, writable, write_file
from rewardlab.data import data_check, open_dataset, refuse_problems
from rewardlab.data.contract import Batch, Problem, Rollout, Writer
from rewardlab.data.duplicates import episodes_to_leave_out, find_duplicates
from rewardlab.data.lerobot_writer import LEROBOT
from rewardlab.data.reading import rollout_name
from rewardlab.data.robometer import ROBOMETER
from rewardlab.data.roboreward import ROBOREWARD_WRITER
from rewardlab.data.task_split import parse_shares, split_by_shares
from rewardlab.data.video import map_threads

WRITERS: dict[str, Writer] = {writer.name: writer for writer in (ROBOREWARD_WRITER, LEROBOT, ROBOMETER)}
_THREADS = 4  # that hash videos; each holds the frames that its decoder refers to
_NAME_CHARACTERS = 120  # of the name of a file, without its suffix
_UNNAMED = "main"  # a camera without a name of its own
_UNSAFE = re.compile(r"[^\w.-]+")


@dataclass(frozen=True)
class Conversion:
    """What was written: how many rollouts in each split, and what was left out with the reason."""

    folder: Path
    counts: dict[str, int]
    left_out: tuple[Problem, ...] = ()


def data_convert(
    data: Annotated[str | Path, Help("dataset folder or name; DATA@CAMERA, DATA@A,B or DATA@all chooses cameras")],
    out: Annotated[Path | str, Help("new folder to write")],
    *,
    to: Annotated[str, Help(f"layout to write: {', '.join(WRITERS)}", metavar="LAYOUT")] = "roboreward",
    fps: Annotated[float | None, Help("resample to X frames per second; the last frame is always kept")] = None,
    sample: Annotated[int | None, Help("keep only N rollouts, drawn by the seed")] = None,
    splits: Annotated[
        str | Sequence[str], Help("fractions such as train=0.8,test=0.2; no task is in two splits", metavar="NAME=X")
    ] = (),
    keep_duplicates: Annotated[bool, Help("keep rollouts that repeat the video and task of another")] = False,
    demonstrations: Demonstrations = False,
    skip_invalid: SkipInvalid = False,
    seed: Seed = 0,
) -> Conversion:
    """Write a dataset in another layout; the same command continues a stopped conversion.

    With `skip_invalid` every frame is decoded first, and damaged rollouts are left out.

    Examples:
        rewardlab data convert sample-sim my_dataset --to lerobot
        rewardlab data convert lerobot:demos@all my_demos --splits train=0.8,test=0.2
    """
    settings = recorded(data_convert, locals())
    writer, shares = find(WRITERS, to, "layout"), parse_shares(several(splits))
    if fps is not None and not 0 < fps < 1000:
        raise PlanError(f"fps must be above 0 and below 1000, got {fps}")
    if sample is not None and sample < 1:
        raise PlanError(f"sample must be at least 1, got {sample}")
    contents = (data_check if skip_invalid else open_dataset)(data, demonstrations=demonstrations)
    if not skip_invalid:
        refuse_problems(data, contents.problems)
    if not contents.episodes:
        raise DataError(f"{data} holds no usable episode; run `rewardlab data check {data}`")
    chosen = _chosen(contents.episodes, sample, fps, seed)
    rollouts, wordless = _with_words(grouped_rollouts(chosen, joins=writer.joins_cameras))
    _require_rate(writer, rollouts)
    folder = ResumableFolder(Path(out), _identity(settings, rollouts))
    folder.begin()
    copies, together = ([], []) if keep_duplicates else _copies(rollouts, folder.notes)
    copied = {copy.place for copy in copies}
    parts = _splits([rollout for rollout in rollouts if rollout.name not in copied], shares, together, seed)
    for split, members in parts.items():
        folder.write(writer, split, list(_batches(writer, members)))
    folder.complete()
    return Conversion(
        folder.target, {name: len(m) for name, m in parts.items()}, (*contents.problems, *wordless, *copies)
    )


def _chosen(episodes: Sequence[Episode], sample: int | None, fps: float | None, seed: int) -> list[Episode]:
    """Return the episodes of the rollouts to keep, at the rate that is asked for."""
    names = list(dict.fromkeys(rollout_name(episode) for episode in episodes))
    if sample is not None and sample < len(names):
        places = sorted(rng_for(seed, "sample").choice(len(names), sample, replace=False).tolist())
        names = [names[place] for place in places]
    wanted = set(names)
    kept = [episode for episode in episodes if rollout_name(episode) in wanted]
    return kept if fps is None else [at_rate(episode, fps) for episode in kept]


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
        said = ", ".join(f"{rate:g}" for rate in rates[:5]) + (f" and {len(rates) - 5} more" if len(rates) > 5 else "")
        raise PlanError(f"{writer.name} has one frame rate, but frames come at {said} per second; give one with --fps")


def _identity(settings: Mapping[str, Any], rollouts: Sequence[Rollout]) -> str:
    """Return what tells this conversion from others: its settings, and the name of everything that it writes."""
    deciding = {name: value for name, value in settings.items() if name not in ("out", "skip_invalid")}
    names = digest(*(f"{rollout.name} {view.id}" for rollout in rollouts for view in rollout.views))
    return json.dumps({**deciding, "names": names}, indent=1, sort_keys=True)


def _copies(rollouts: Sequence[Rollout], folder: Path) -> tuple[list[Problem], list[tuple[str, str]]]:
    """Return the rollouts to leave out with the reason, and pairs with one video that must stay in one split."""
    names = {rollout.first.id: rollout.name for rollout in rollouts}
    on_threads = partial(map_threads, workers=_THREADS)
    found = find_duplicates([rollout.first for rollout in rollouts], None, folder, on_threads)["copies"]
    out = episodes_to_leave_out(found)
    copies = [
        Problem(names[copy["episode"]], f"the video and instruction of {copy['other']} ({copy['kind']} copy)")
        for copy in found
        if copy["episode"] in out
    ]
    return copies, [(copy["episode"], copy["other"]) for copy in found]


def _splits(
    rollouts: Sequence[Rollout], shares: Mapping[str, float], together: Sequence[tuple[str, str]], seed: int
) -> dict[str, list[Rollout]]:
    if not shares:
        return {"": list(rollouts)}
    episodes = [rollout.first for rollout in rollouts]
    present = {episode.id for episode in episodes}
    pairs = [pair for pair in together if present.issuperset(pair)]
    chosen = split_by_shares(episodes, shares, pairs, seed)
    return {name: [rollout for rollout in rollouts if chosen[rollout.first.id] == name] for name in shares}


def _batches(writer: Writer, rollouts: Sequence[Rollout]) -> Iterator[Batch]:
    """Yield the rollouts that share files."""
    waiting: list[Rollout] = []
    number = frames = 0
    for rollout in rollouts:
        length = len(rollout.first.clip)
        if waiting and frames + length > writer.batch_frames:
            yield Batch(number, tuple(waiting))
            number, frames, waiting = number + 1, 0, []
        waiting.append(rollout)
        frames += length
    if waiting:
        yield Batch(number, tuple(waiting))


# Rollouts to write: the cameras of one together or each on its own, and their file names.


def grouped_rollouts(episodes: Sequence[Episode], *, joins: bool) -> list[Rollout]:
    """Return what is written as one: all cameras of a rollout where the layout joins them, else each on its own."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(rollout_name(episode) if joins else episode.id, []).extend(
            _by_camera(episode) if joins else [episode]
        )
    cameras = _cameras(next(iter(groups.values())))
    alone = all(len(views) == 1 for views in groups.values())
    if alone and any(_cameras(views) != cameras for views in groups.values()):
        cameras = (_UNNAMED,)  # each was filmed by one camera of its own
    found: dict[str, Rollout] = {}
    for views in groups.values():
        same = len(views) == len(cameras) == 1 or _cameras(views) == cameras
        if not same or len(set(cameras)) < len(cameras) or len({len(view.clip) for view in views}) > 1:
            what = f"{rollout_name(views[0])} was not filmed by the cameras of the first rollout, or not for as long"
            raise PlanError(f"{what}; convert one camera by DATA@NAME")
        stem = _file_stem(views[0])
        names = chain([stem], (f"{stem}-{number}" for number in count(2)))
        name = next(name for name in names if name not in found)
        found[name] = Rollout(name, tuple(views), cameras)
    return list(found.values())


def _by_camera(episode: Episode) -> list[Episode]:
    """Return the episode as every one of its cameras saw it."""
    views = view_episodes(episode).items()
    others = [replace(view, provenance=replace(view.provenance, camera=name)) for name, view in views]
    return [replace(episode, views={}), *others]


def _cameras(views: Sequence[Episode]) -> tuple[str, ...]:
    return tuple(_safe(view.provenance.camera) or _UNNAMED for view in views)


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


def at_rate(episode: Episode, fps: float) -> Episode:
    """Return the rollout at an even rate; its first and its last frame are always shown, truth follows the frames."""
    clip = episode.clip
    if clip.is_even and clip.fps == fps and np.array_equal(clip.positions, np.arange(len(clip))):
        return episode
    times = episode.times - episode.times[0]
    ticks = np.arange(round(float(times[-1]) * fps) + 1) / fps
    picks = np.searchsorted(times, ticks + 1e-6 / fps, side="right") - 1
    picks[-1] = len(times) - 1
    shown = rearrange(episode, picks)
    return replace(shown, clip=replace(shown.clip, fps=float(fps)))


# The folder that is written: under another name, batch by batch, and renamed at the end, so it is never half there.


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
                write_file(stated, self.identity)
            for rest in self.partial.rglob(".*.tmp"):  # of a conversion that was killed
                rest.unlink(missing_ok=True)
        if stated.read_text(encoding="utf-8") != self.identity:
            raise PlanError(f"{self.partial} is what another conversion has left; finish that one, or remove it")

    def write(self, writer: Writer, split: str, batches: Sequence[Batch]) -> None:
        """Write the batches that are not done, then what describes the whole."""
        folder, journal = self.partial / split, self.notes / f"{split}.jsonl"
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            done = {entry["batch"]: entry["rows"] for entry in read_journal(journal, ("batch", "rows"))}
            # A batch is known by where it stands, and by the content of every episode.
            keys = [digest(b.number, *(view.hash for rollout in b.rollouts for view in rollout.views)) for b in batches]
            for key, batch in zip(keys, batches, strict=True):
                if key not in done:
                    done[key] = writer.write(folder, batch)
                    append_to_journal(journal, {"batch": key, "rows": done[key]})
            writer.finish(folder, [row for key in keys for row in done[key]])

    def complete(self) -> None:
        """Give the folder its name, and remove the notes."""
        with writable(self.target):
            os.rename(self.partial, self.target)
        shutil.rmtree(self.target / self.notes.name)
