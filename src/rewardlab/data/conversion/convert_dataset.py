"""From a dataset to a folder in another layout: chosen, resampled, without copies, split by task, written."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.seeding import digest, rng_for
from rewardlab.data.contract import Contents, Problem
from rewardlab.data.conversion.convert_plan import ConvertPlan
from rewardlab.data.conversion.resampling import at_rate
from rewardlab.data.conversion.resumable_folder import ResumableFolder
from rewardlab.data.conversion.rollout_grouping import grouped_rollouts, rollout_name
from rewardlab.data.conversion.task_splits import Pair, split_by_task
from rewardlab.data.duplicates import OrderedMap, episodes_to_leave_out, find_duplicates
from rewardlab.data.writers import WRITERS
from rewardlab.data.writers.contract import Batch, Rollout, Writer


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
        raise DataError(f"{plan.source} holds no usable episode; run `rewardlab check {plan.source}`")
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
