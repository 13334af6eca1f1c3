"""Objectives side by side: intervals, ranks and paired tests, kept in comparison.json.

Tasks are drawn again, and seeds within them: all objectives move together, for their seeds have seen the same batches.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import RunError
from rewardlab.core.records import none_if_nan, read_json, record_from_json, record_to_json
from rewardlab.core.seeding import rng_for
from rewardlab.core.storage import atomic_write, write_file
from rewardlab.evaluation.frame_rewards import MEASURES, ClipFacts, Codes, Measured, Numbers, measure_values
from rewardlab.metrics.clustered_bootstrap import Draws, draw_clusters, paired_p_value, percentile_interval, sum_by
from rewardlab.metrics.paired_differences import holm

Groups = Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True)
class ObjectiveCell:
    """One measure of one objective on one group of clips, over all seeds; None where there is nothing to measure."""

    backbone: str
    objective: str
    group: str
    measure: str
    value: float | None
    low: float | None
    high: float | None
    rank_low: int | None  # between which ranks it lies in 95 % of draws; None for controls
    rank_high: int | None
    by_seed: tuple[float | None, ...]
    clips: int
    tasks: int


@dataclass(frozen=True)
class ObjectiveContrast:
    """One objective less the reference on the same clips: the difference in the measure's own unit."""

    backbone: str
    objective: str
    against: str
    group: str
    measure: str
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None  # over all objectives of this backbone, group and measure


@dataclass(frozen=True, eq=False)
class MeasuredTrainings:
    """The measures of every seed of one objective (or control, which has no rank) on one backbone, clip by clip."""

    backbone: str
    objective: str
    seeds: tuple[Mapping[str, Measured], ...]
    control: bool = False


def objective_table(
    trainings: Sequence[MeasuredTrainings], task: Codes, groups: Groups, against: str, draws: int
) -> tuple[tuple[ObjectiveCell, ...], tuple[ObjectiveContrast, ...]]:
    """Return every cell and every contrast of a comparison."""
    cells: list[ObjectiveCell] = []
    contrasts: list[ObjectiveContrast] = []
    for backbone in dict.fromkeys(each.backbone for each in trainings):
        own = [each for each in trainings if each.backbone == backbone]
        for group, kept in groups.items():
            seeds = max(len(each.seeds) for each in own)
            names, cluster = np.unique(task[kept], return_inverse=True)
            chosen = rng_for(0, "seeds of objectives", draws, seeds).integers(0, seeds, (seeds, draws))
            counts = np.stack([(chosen == seed).sum(0) for seed in range(seeds)])
            drawn = _Resamples(cluster.astype(np.int64), draw_clusters(len(names), draws, 0), counts)
            for measure in MEASURES:
                sums = [_sums(each, measure, kept, drawn) for each in own]
                cells += _cells(own, group, measure, sums)
                contrasts += _contrasts(own, (group, measure, against), sums)
    return tuple(cells), tuple(contrasts)


@dataclass(frozen=True, eq=False)
class _Resamples:
    """The clusters of a group of clips, how often each is in a draw, and how often each seed."""

    cluster: Codes
    tasks: Draws
    seeds: Codes  # (seeds, draws)


@dataclass(frozen=True, eq=False)
class _Sums:
    by_seed: Numbers  # the measure of each seed
    drawn: Numbers  # its mean over seeds in each draw
    clips: int
    tasks: int

    @property
    def value(self) -> float:
        return float(self.by_seed.mean())


def _sums(trainings: MeasuredTrainings, measure: str, kept: NDArray[np.bool_], resamples: _Resamples) -> _Sums:
    above, below, counted = [], [], np.zeros(int(kept.sum()), dtype=bool)
    for seed in trainings.seeds:
        a, b = (part[kept] for part in seed.get(measure, (np.zeros(len(kept)), np.zeros(len(kept)))))
        above.append(sum_by(resamples.cluster, resamples.tasks.clusters, a))
        below.append(sum_by(resamples.cluster, resamples.tasks.clusters, b))
        counted |= b > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        by_seed = np.array([a.sum() / b.sum() if b.sum() else np.nan for a, b in zip(above, below, strict=True)])
        ratios = resamples.tasks.ratios(np.array(above), np.array(below))
    weights = (
        resamples.seeds[: len(ratios)] if len(ratios) == len(resamples.seeds) else np.ones(ratios.shape, dtype=np.int64)
    )
    drawn = (ratios * weights).sum(0) / np.maximum(weights.sum(0), 1)
    return _Sums(by_seed, drawn, int(counted.sum()), len(np.unique(resamples.cluster[counted])))


def _cells(own: Sequence[MeasuredTrainings], group: str, measure: str, sums: Sequence[_Sums]) -> list[ObjectiveCell]:
    drawn = [None if each.control else found.drawn for each, found in zip(own, sums, strict=True)]
    rows = []
    for each, found, rank in zip(own, sums, _rank_intervals(measure, drawn), strict=True):
        low, high = percentile_interval(found.drawn[None, :], np.array([found.tasks], dtype=np.float64))
        value, ends = none_if_nan(found.value), (none_if_nan(float(low[0])), none_if_nan(float(high[0])))
        by_seed = tuple(none_if_nan(float(number)) for number in found.by_seed)
        place = each.backbone, each.objective, group, measure
        rows.append(ObjectiveCell(*place, value, *ends, *rank, by_seed, found.clips, found.tasks))
    return rows


def _rank_intervals(measure: str, drawn: Sequence[Numbers | None]) -> list[tuple[int | None, int | None]]:
    ranked = [place for place, one in enumerate(drawn) if one is not None and not np.isnan(one).all()]
    found: list[tuple[int | None, int | None]] = [(None, None)] * len(drawn)
    if len(ranked) < 2:
        return found
    sign = -1 if MEASURES[measure][0] == "higher" else 1
    table = np.array([drawn[place] for place in ranked], dtype=np.float64) * sign
    table = table[:, ~np.isnan(table).any(axis=0)]  # in some draws there may be nothing to measure, for anybody
    if not table.size:
        return found
    ranks = 1 + (table[None, :, :] < table[:, None, :]).sum(axis=1)
    low, high = np.quantile(ranks, (0.025, 0.975), axis=1, method="nearest")
    for place, a, b in zip(ranked, low, high, strict=True):
        found[place] = int(a), int(b)
    return found


def _contrasts(
    own: Sequence[MeasuredTrainings], names: tuple[str, str, str], sums: Sequence[_Sums]
) -> list[ObjectiveContrast]:
    group, measure, against = names
    reference = next((found for each, found in zip(own, sums, strict=True) if each.objective == against), None)
    others = [(e, f) for e, f in zip(own, sums, strict=True) if not e.control and e.objective != against]
    if reference is None:
        return []
    gaps = [found.drawn - reference.drawn for _, found in others]
    values = [paired_p_value(gap, reference.tasks) for gap in gaps]
    made = []
    for (each, found), gap, p, corrected in zip(others, gaps, values, holm(values), strict=True):
        low, high = percentile_interval(gap[None, :], np.array([reference.tasks], dtype=np.float64))
        numbers = (found.value - reference.value, float(low[0]), float(high[0]), p, corrected)
        shown = (none_if_nan(number) for number in numbers)
        made.append(ObjectiveContrast(each.backbone, each.objective, against, group, measure, *shown))
    return made


# The rewards of single clips, from which the table can be made again.

REWARDS = "rewards.npz"
_STEPS = 2**16 - 1
_ARRAYS = ("steps", "ends", "levels", "robustness")  # of each training


@dataclass(frozen=True, eq=False)
class ClipRewards:
    """What one training, or control, gives to the test clips: rewards, levels, and its robustness.

    Rewards are kept, and measured, in 65,536 steps of their own range.
    """

    backbone: str
    objective: str
    steps: NDArray[np.uint16]  # (clips, frames)
    ends: Numbers  # (2,): the rewards of the first and the last step
    levels: Numbers  # (clips,): calibrated, of the last frame
    robustness: Measured
    control: bool = False
    by_time: bool = False  # rewards belong to the time, not to what a frame shows

    def measures(self, facts: ClipFacts) -> dict[str, Measured]:
        """Return every measure of the test clips."""
        low, high = self.ends.tolist()
        rewards = low + self.steps * ((high - low) / _STEPS)
        backwards = rewards if self.by_time else rewards[:, ::-1]
        return {**measure_values(rewards, self.levels, facts, backwards), "robustness_auc": self.robustness}


def in_steps(rewards: Numbers) -> tuple[NDArray[np.uint16], Numbers]:
    """Return rewards in steps of their own range, and its ends."""
    low, high = float(rewards.min()), float(rewards.max())
    return np.round((rewards - low) / ((high - low) or 1.0) * _STEPS).astype(np.uint16), np.array([low, high])


@dataclass(frozen=True, eq=False)
class KeptRewards:
    """The rewards of all trainings for the same test clips, and what is known of these."""

    clips: tuple[str, ...]
    facts: ClipFacts
    groups: Groups
    trainings: tuple[ClipRewards, ...]  # seeds of an objective one after the other
    against: str
    n_resamples: int

    def table(self) -> tuple[tuple[ObjectiveCell, ...], tuple[ObjectiveContrast, ...]]:
        """Return every cell and every contrast."""
        seeds: dict[tuple[str, str, bool], list[dict[str, Measured]]] = {}
        for one in self.trainings:
            seeds.setdefault((one.backbone, one.objective, one.control), []).append(one.measures(self.facts))
        measured = [MeasuredTrainings(*names[:2], tuple(found), names[2]) for names, found in seeds.items()]
        return objective_table(measured, self.facts.task, self.groups, self.against, self.n_resamples)


def write_rewards(folder: Path, kept: KeptRewards) -> None:
    """Write the rewards beside the record of a comparison."""
    names = ("backbone", "objective", "control", "by_time")
    said = {
        **{"clips": kept.clips, "groups": list(kept.groups), "against": kept.against, "n_resamples": kept.n_resamples},
        "trainings": [[vars(one)[name] for name in names] for one in kept.trainings],
    }
    arrays: dict[str, Any] = {name: np.stack([vars(one)[name] for one in kept.trainings]) for name in _ARRAYS}
    arrays |= {f"facts_{name}": values for name, values in vars(kept.facts).items() if values is not None}
    with atomic_write(folder / REWARDS) as partial, partial.open("wb") as handle:
        np.savez_compressed(
            handle,
            said=np.frombuffer(json.dumps(said).encode(), np.uint8),
            groups=np.stack(list(kept.groups.values())),
            **arrays,
        )


def read_rewards(folder: Path) -> KeptRewards:
    """Read the rewards of a comparison; RunError where they were not kept."""
    if not (folder / REWARDS).exists():
        raise RunError(f"{folder} has no {REWARDS}; run `rewardlab study objectives PLAN` to make one")
    with np.load(folder / REWARDS) as table:
        arrays = dict(table)
    said = json.loads(bytes(arrays["said"]).decode())
    facts = {name.removeprefix("facts_"): values for name, values in arrays.items() if name.startswith("facts_")}
    return KeptRewards(
        tuple(said["clips"]),
        ClipFacts(**facts),
        dict(zip(said["groups"], arrays["groups"], strict=True)),
        tuple(
            ClipRewards(backbone, objective, *(arrays[name][row] for name in _ARRAYS), *kinds)
            for row, (backbone, objective, *kinds) in enumerate(said["trainings"])
        ),
        said["against"],
        said["n_resamples"],
    )


# A finished comparison of objectives as one record: what was compared, the table, curves and traces, and how long.

FILE = "comparison.json"


@dataclass(frozen=True)
class ObjectiveEntry:
    """An objective of the comparison: what its loss is, what it needs to know, and what was chosen on each backbone."""

    name: str
    summary: str
    needs: str
    chosen: dict[str, str]  # by backbone: rate and option


@dataclass(frozen=True)
class LearningCurve:
    """The validation agreement of one training over its steps."""

    backbone: str
    objective: str
    seed: int
    steps: tuple[int, ...]
    agreement: tuple[float, ...]


@dataclass(frozen=True)
class RewardTrace:
    """The reward that each objective gives to the frames of one clip, on one backbone, beside the true progress."""

    backbone: str
    clip: str
    instruction: str
    group: str
    success: bool
    progress: tuple[float | None, ...]
    rewards: dict[str, tuple[float, ...]]  # by objective, of the first seed
    stills: str  # a data address of some frames side by side


@dataclass(frozen=True)
class Comparison:
    """Everything that the page of a comparison shows."""

    command: str
    facts: tuple[str, ...]  # of data, budget and evaluation, in sentences
    against: str
    objectives: tuple[ObjectiveEntry, ...]
    controls: tuple[str, ...]
    groups: dict[str, int]  # tasks in each
    cells: tuple[ObjectiveCell, ...]
    contrasts: tuple[ObjectiveContrast, ...]
    curves: tuple[LearningCurve, ...]
    traces: tuple[RewardTrace, ...]
    seconds: dict[str, float]  # of each step, where it was measured


def write_comparison(folder: Path, comparison: Comparison) -> None:
    """Write the record of a comparison."""
    write_file(folder / FILE, json.dumps(record_to_json(comparison), indent=1) + "\n")


def read_comparison(folder: Path) -> Comparison:
    """Read the record of a comparison; RunError where there is none."""
    try:
        return record_from_json(Comparison, read_json(folder / FILE))
    except FileNotFoundError:
        raise RunError(f"{folder} holds no comparison; run `rewardlab study objectives PLAN` first") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{folder / FILE} is no comparison of objectives: {error}") from error
