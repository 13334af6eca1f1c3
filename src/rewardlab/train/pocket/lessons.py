"""Lessons: which frames, which words and which answers make one step of training."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from multiprocessing import get_context

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import LEVEL_STARTS
from rewardlab.core.seeding import rng_for
from rewardlab.train.pocket.pictures import SHOWN, View
from rewardlab.train.pocket.plan import PocketPlan
from rewardlab.worlds.metaworld.things import THINGS

Numbers = NDArray[np.float32]
Whole = NDArray[np.int64]

# How a clip is cut from a rollout, and how often.
_KINDS = {
    "forward": 0.6,
    "mismatch": 0.12,  # what was done, under the instruction of a task with another thing
    "other": 0.1,  # another instruction for the same scene, judged at the end only
    "reverse": 0.05,
    "rewind": 0.04,
    "static": 0.05,
    "hold": 0.04,
}
_ONWARD = ("forward", "static", "hold")  # backwards, only the words say what was to be done
_AHEAD = 24  # lessons that are drawn while the device is busy
_FEWEST = 4  # frames of the shortest clip
# From where the pixels of a clip come, for plain and for robust training.
_PLAIN = {"plain0": 0.5, "plain1": 0.5}
_ROBUST = {"plain0": 0.2, "plain1": 0.2, "world": 0.25, "view": 0.35}


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known about the rollouts, all in the same order as their pictures."""

    tasks: tuple[str, ...]  # of each rollout
    progress: Numbers  # (rollouts, kept)
    texts: tuple[tuple[str, ...], ...]
    others: tuple[tuple[tuple[int, str, int], ...], ...]
    views: tuple[View | None, ...]
    training: Whole  # the rollouts to learn from; the rest are to check by
    index: dict[str, int] = field(default_factory=dict)  # the number of every text

    @cached_property
    def levels(self) -> Whole:
        """Return the level of every kept frame."""
        return levels_of(self.progress)

    @cached_property
    def by_level(self) -> dict[tuple[str, int], Whole]:
        """Return the training rollouts of each task in which some later frame has a level."""
        found: dict[tuple[str, int], list[int]] = {}
        for row in self.training:
            for level in np.unique(self.levels[row, _FEWEST - 1 :]):
                found.setdefault((self.tasks[row], int(level)), []).append(int(row))
        return {key: np.array(rows) for key, rows in found.items()}

    @cached_property
    def task_names(self) -> tuple[str, ...]:
        """Return the tasks to learn from."""
        return tuple(dict.fromkeys(self.tasks[row] for row in self.training))

    @cached_property
    def first_of(self) -> dict[str, Whole]:
        """Return the training rollouts of each task."""
        return {name: np.array([r for r in self.training if self.tasks[r] == name]) for name in self.task_names}


@dataclass(frozen=True, eq=False)
class Lesson:
    """One batch: where its frames are, which text it has, and what should come out; nan and 0 are unknown."""

    source: NDArray[np.object_]  # (B,)
    row: Whole  # (B,)
    order: Whole  # (B, 16)
    text: Whole  # (B,)
    progress: Numbers  # (B, 16)
    level: Whole  # (B, 16)
    own: NDArray[np.bool_]  # (B,): the text asks for what is done or begun, whatever words it uses for it


@dataclass(frozen=True, eq=False)
class _Clip:
    row: int
    order: Whole
    text: str
    progress: Numbers
    level: Whole
    own: bool = False


def levels_of(progress: Numbers) -> Whole:
    """Return the level of every progress, 0 where it is nan."""
    level = 1 + sum((progress >= start).astype(np.int64) for start in LEVEL_STARTS)
    return np.where(np.isnan(progress), 0, level)


def lessons(plan: PocketPlan, variant: str, facts: Facts, start: int) -> Iterator[Lesson]:
    """Yield the lesson of every step; other processes draw them ahead where there are any."""
    draw, end = partial(_lesson, plan, variant), plan.steps_of(variant)
    if plan.workers < 2:
        _begin(facts)
        yield from map(draw, range(start, end))
        return
    with ProcessPoolExecutor(min(plan.workers, 6), get_context("spawn"), _begin, (facts,)) as pool:
        waiting = deque(pool.submit(draw, step) for step in range(start, min(start + _AHEAD, end)))
        for step in range(start + _AHEAD, end + _AHEAD):
            yield waiting.popleft().result()
            if step < end:
                waiting.append(pool.submit(draw, step))


_known: list[Facts] = []  # what this process draws lessons from


def _begin(facts: Facts) -> None:
    _known[:] = [facts]


def _lesson(plan: PocketPlan, variant: str, step: int) -> Lesson:
    rng = rng_for(plan.seed, "lesson", variant, step)
    return draw_lesson(_known[0], plan.batch, rng, robust=variant != "pocket-plain")


def draw_lesson(facts: Facts, size: int, rng: Generator, *, robust: bool) -> Lesson:
    """Draw a batch; it depends on the generator alone."""
    mix = _ROBUST if robust else _PLAIN
    sources = rng.choice(np.array(list(mix), dtype=object), size=size, p=np.array(list(mix.values())))
    clips = [_view(facts, rng) if source == "view" else _clip(facts, rng) for source in sources]
    return Lesson(
        source=sources,
        row=np.array([clip.row for clip in clips]),
        order=np.stack([clip.order for clip in clips]),
        text=np.array([facts.index[clip.text] for clip in clips]),
        progress=np.stack([clip.progress for clip in clips]),
        level=np.stack([clip.level for clip in clips]),
        own=np.array([clip.own for clip in clips]),
    )


def whole_clips(facts: Facts, rows: Whole) -> Lesson:
    """Return these rollouts from start to end under their first phrasing, to check by."""
    order = np.linspace(0, facts.progress.shape[1] - 1, SHOWN).round().astype(np.int64)
    return Lesson(
        source=np.full(len(rows), "plain0", dtype=object),
        row=rows,
        order=np.tile(order, (len(rows), 1)),
        text=np.array([facts.index[facts.texts[row][0]] for row in rows]),
        progress=facts.progress[rows][:, order],
        level=facts.levels[rows][:, order],
        own=np.ones(len(rows), dtype=bool),
    )


def _clip(facts: Facts, rng: Generator) -> _Clip:
    kind = str(rng.choice(np.array(list(_KINDS)), p=np.array(list(_KINDS.values()))))
    task = facts.task_names[int(rng.integers(len(facts.task_names)))]
    if kind == "other":
        found = _other(facts, task, rng)
        if found is not None:
            return found
    row, end = _row_and_end(facts, task, rng, success=kind == "mismatch" and rng.random() < 0.5)
    order, shown = _ORDERS.get(kind, _forward)(end, rng)
    progress = np.full(SHOWN, np.nan, np.float32)
    progress[:shown] = facts.progress[row, order[:shown]]
    text = _pick(facts.texts[row], rng)
    if kind == "mismatch":
        text, progress = _foreign_text(facts, task, rng), np.where(np.isnan(progress), progress, np.float32(0.0))
    return _Clip(row, order, text, progress, levels_of(progress), own=kind in _ONWARD)


def _row_and_end(facts: Facts, task: str, rng: Generator, *, success: bool) -> tuple[int, int]:
    """Return a rollout and the frame where the clip ends, every level as often as any other."""
    present = [level for level in range(1, 6) if (task, level) in facts.by_level]
    level = 5 if success and 5 in present else present[int(rng.integers(len(present)))]
    rows = facts.by_level[task, level]
    row = int(rows[int(rng.integers(len(rows)))])
    ends = np.flatnonzero(facts.levels[row, _FEWEST - 1 :] == level) + _FEWEST - 1
    return row, int(ends[int(rng.integers(len(ends)))])


def _forward(end: int, rng: Generator) -> tuple[Whole, int]:
    shown = SHOWN if rng.random() < 0.8 else int(rng.integers(_FEWEST, SHOWN))  # whatever the level at the end
    return _filled(_walk(0, end, shown, rng)), shown


def _reverse(end: int, rng: Generator) -> tuple[Whole, int]:
    return _walk(0, end, SHOWN, rng)[::-1], SHOWN


def _rewind(end: int, rng: Generator) -> tuple[Whole, int]:
    there = int(rng.integers(6, 11))
    back = int(rng.integers(0, end + 1))
    return np.concatenate([_walk(0, end, there, rng), _walk(back, end, SHOWN - there, rng)[::-1]]), SHOWN


def _static(end: int, rng: Generator) -> tuple[Whole, int]:
    shown = int(rng.integers(1, SHOWN + 1)) if rng.random() < 0.3 else SHOWN
    return np.zeros(SHOWN, np.int64), shown


def _hold(end: int, rng: Generator) -> tuple[Whole, int]:
    there = int(rng.integers(5, 13))
    return _filled(_walk(0, end, there, rng)), SHOWN


_ORDERS = {"reverse": _reverse, "rewind": _rewind, "static": _static, "hold": _hold}


def _walk(start: int, end: int, count: int, rng: Generator) -> Whole:
    """Return frames from start to end, evenly, or now and then at a changing pace."""
    if rng.random() < 0.3 and count > 2:
        inner = np.sort(rng.uniform(start, end, count - 2)).round().astype(np.int64)
        return np.concatenate([[start], inner, [end]])
    return np.linspace(start, end, count).round().astype(np.int64)


def _filled(order: Whole) -> Whole:
    return order[np.minimum(np.arange(SHOWN), len(order) - 1)]


def _other(facts: Facts, task: str, rng: Generator) -> _Clip | None:
    rows = facts.first_of[task]
    row = int(rows[int(rng.integers(len(rows)))])
    if not facts.others[row]:
        return None
    end, text, level = facts.others[row][int(rng.integers(len(facts.others[row])))]
    levels = np.zeros(SHOWN, np.int64)
    levels[-1] = level
    return _Clip(row, _walk(0, end, SHOWN, rng), text, np.full(SHOWN, np.nan, np.float32), levels)


def _view(facts: Facts, rng: Generator) -> _Clip:
    while True:
        row = int(facts.training[int(rng.integers(len(facts.training)))])
        view = facts.views[row]
        if view is not None:
            break
    level = levels_of(view.progress)
    if not level.any():
        level[SHOWN - 1] = view.level
    return _Clip(row, np.arange(SHOWN), view.text, view.progress, level)


def _foreign_text(facts: Facts, task: str, rng: Generator) -> str:
    others = [name for name in facts.task_names if THINGS[name] != THINGS[task]] or [task]
    rows = facts.first_of[others[int(rng.integers(len(others)))]]
    return _pick(facts.texts[int(rows[int(rng.integers(len(rows)))])], rng)


def _pick(texts: tuple[str, ...], rng: Generator) -> str:
    return texts[int(rng.integers(len(texts)))]
