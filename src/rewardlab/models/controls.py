"""Controls that other models are compared with: baselines that ignore the task, and oracles that read the label."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated

import numpy as np

from rewardlab.core.episode import LEVELS, Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import digest, pick, rng_for
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.contract import (
    ModelEntry,
    ModelString,
    NamedModel,
    RewardModel,
    canonical_name,
    identity,
    options_of,
    read_arguments,
    shown_options,
)


@dataclass(frozen=True)
class Constant:
    """Says the same level whatever it sees."""

    level: Annotated[int, Help("the level, from 1 to 5")] = 3

    def __post_init__(self) -> None:
        _check("level", self.level, 1, 5)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the one level for every episode."""
        return [_certain(self.level)] * len(episodes)


@dataclass(frozen=True)
class Random:
    """Draws a level from the content of clip and instruction: the same question gets the same answer."""

    seed: Annotated[int, Help("seed of the draws")] = 0

    def __post_init__(self) -> None:
        _check("seed", self.seed, 0, 2**31)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return a uniformly drawn level per episode."""
        return [_certain(int(rng_for(self.seed, _content(episode)).integers(1, 6))) for episode in episodes]


@dataclass(frozen=True)
class Length:
    """Sees only the number of frames: the longer the recording, the further along it takes the robot to be."""

    full: Annotated[int, Help("number of frames at which the task counts as done")] = 100

    def __post_init__(self) -> None:
        _check("full", self.full, 1, 1e6)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return a level and per-frame progress that follow the frame count."""
        progress = [np.minimum(1.0, (episode.clip.positions + 1) / self.full) for episode in episodes]
        return [Score(level=1 + 4 * float(each[-1]), progress=tuple(each.tolist())) for each in progress]


# Level 2, 3, 4 and 5 begin about here. Each level is as frequent as among 250 simulated rollouts of balanced levels:
#   rewardlab collect metaworld --episodes 5 --balance --camera right,left --seed 42 --out rollouts
#   python benchmarks/control_thresholds.py rollouts
THRESHOLDS = {
    "motion": (0.0095, 0.0125, 0.0158, 0.0203),
    "end-motion": (0.000337, 0.000866, 0.00231, 0.0119),
    "change": (0.0289, 0.033, 0.0378, 0.0443),
}
_FRAMES, _SIDE = 8, 32  # at most so many of the shown frames are compared, in grey and so many pixels wide and high
_SHARPNESS = 8  # of a threshold; finite, so that more change is always a higher level
_CACHE: dict[str, dict[str, float]] = {}  # by the shown frames: the three are asked about the same clips in turn
_MOST_CACHED = 256


@dataclass(frozen=True)
class PixelChange:
    """Sees how much the pixels change, neither what moves nor what was asked for; more change is a higher level."""

    measure: str  # one of THRESHOLDS

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the expected level and the probabilities of the levels, by the fixed thresholds."""
        return [self.of_change(pixel_changes(episode)[self.measure]) for episode in episodes]

    def of_change(self, value: float) -> Answer:
        """Return the score of a clip whose pixels change by this much."""
        reached = [value**_SHARPNESS / (value**_SHARPNESS + t**_SHARPNESS) for t in THRESHOLDS[self.measure]]
        return Score(1 + sum(reached), tuple(a - b for a, b in pairwise([1.0, *reached, 0.0])))


def pixel_changes(episode: Episode) -> dict[str, float]:
    """Return the mean change from frame to frame, that of the last two steps, and that from first to last frame.

    Changes are of grey values, from 0 to 1.
    """
    import cv2  # here: it is slow to load

    clip = episode.clip
    key = digest(clip.source.digest, clip.order.tobytes())
    if (found := _CACHE.get(key)) is not None:
        return found
    picks = np.unique(np.linspace(0, len(clip) - 1, _FRAMES).round().astype(np.int64))
    frames = clip.source.read(clip.order[picks])
    small = [cv2.resize(frame, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA) for frame in frames]
    grey = np.mean(small, axis=-1) / 255
    steps = [float(np.abs(after - before).mean()) for before, after in pairwise(grey)] or [0.0]  # of a single frame
    ends, change = steps[-2:], float(np.abs(grey[-1] - grey[0]).mean())
    found = {"motion": sum(steps) / len(steps), "end-motion": sum(ends) / len(ends), "change": change}
    if len(_CACHE) >= _MOST_CACHED:
        _CACHE.clear()
    _CACHE[key] = found
    return found


@dataclass(frozen=True)
class Oracle:
    """Knows the truth; with an error of E it is off by whole levels, by E on average."""

    error: Annotated[float, Help("mean absolute error, in levels")] = 0.0
    seed: Annotated[int, Help("seed of the errors")] = 0

    def __post_init__(self) -> None:
        _check("error", self.error, 0, 2)
        _check("seed", self.seed, 0, 2**31)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the true level, displaced as stated; a Failure where the truth is unknown."""
        return [self._score(episode) for episode in episodes]

    def _score(self, episode: Episode) -> Answer:
        level = episode.label.level
        if level is None:
            return Failure("the true level of this trial is unknown, and an oracle does not guess")
        if not self.error:
            return Score(float(level), _certain(level).probabilities, episode.label.progress)
        rng = rng_for(self.seed, "noisy oracle", _content(episode))
        step = int(np.ceil(self.error))
        if rng.random() < self.error / step:
            level = pick([level + move for move in (-step, step) if level + move in LEVELS], rng)
        return _certain(level)


def _check(option: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise PlanError(f"option {option} must be a number from {low:g} to {high:g}, got {value:g}")


def _certain(level: int) -> Score:
    return Score(float(level), tuple(float(level == k) for k in LEVELS))


def _content(episode: Episode) -> str:
    return digest(episode.clip.source.digest, episode.clip.order.tobytes(), episode.instruction)


def name_simple(string: ModelString, maker: Callable[..., RewardModel], *, sees_truth: bool = False) -> NamedModel:
    """Name a model without weights, whose fields are its settings: `NAME:FIRST@SECOND`, or as options."""
    words = string.argument.split("@") if string.argument else []
    options = list(options_of(maker))
    if len(words) > len(options):
        raise PlanError(f"{string.name} takes {len(options) or 'no'} values after the colon, got {string.argument!r}")
    given = read_arguments(string.name, maker, (*zip(options, words, strict=False), *string.options))
    model = maker(**given)
    shown = tuple(pair for pair in shown_options(maker, given) if pair[0] not in options[: len(words)])
    fingerprint = identity(type(model).__name__, vars(model))
    return NamedModel(canonical_name(string, shown), fingerprint, sees_truth, lambda _: model, deterministic=True)


def _entry(summary: str, maker: Callable[..., RewardModel], *, sees_truth: bool = False) -> ModelEntry:
    name = partial(name_simple, maker=maker, sees_truth=sees_truth)
    return ModelEntry(summary, name, (maker,) if options_of(maker) else (), sees_truth)


CONTROLS: dict[str, ModelEntry] = {
    "constant": _entry("always the same level; constant:5 returns 5", Constant),
    "random": _entry("a level drawn from 1 to 5; random:7 draws with seed 7", Random),
    "length": _entry("sees only the number of frames; length:200 takes 200 frames for done", Length),
    "motion": _entry("sees only how many pixels change, on average over the clip", partial(PixelChange, "motion")),
    "end-motion": _entry("sees only how much the frames change at the end", partial(PixelChange, "end-motion")),
    "change": _entry("sees only how much the last frame differs from the first", partial(PixelChange, "change")),
    "oracle": _entry("reads the true label; the ceiling of every metric", partial(Oracle, 0.0, 0), sees_truth=True),
    "noisy-oracle": _entry(
        "the truth, off by E levels on average; noisy-oracle:0.8, or noisy-oracle:0.8@7 to err with seed 7",
        partial(Oracle, error=0.5),
        sees_truth=True,
    ),
}
