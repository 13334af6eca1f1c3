"""Lessons: which frames, which words and which answers make one step of training."""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from multiprocessing import get_context
from typing import TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import LEVEL_STARTS
from rewardlab.core.seeding import pick, rng_for
from rewardlab.models.pocket import WORDS
from rewardlab.models.pocket.frame_window import SHOWN, filled
from rewardlab.models.pocket.wordpiece import load_words
from rewardlab.train.pocket.plan import PocketPlan
from rewardlab.train.pocket.rendered_clips import View
from rewardlab.train.pocket.synthetic_instructions import Seen, made_up
from rewardlab.worlds.metaworld.objects import OPPOSITE_TASKS, TASK_OBJECTS

Numbers = NDArray[np.float32]
Whole = NDArray[np.int64]
Key = TypeVar("Key", bound=Hashable)

# How a clip is cut from a rollout and what it is asked for, and how often.
_KINDS = {
    "forward": 0.5,
    "made_up": 0.22,  # something else that was measured
    "mismatch": 0.06,  # what was done, under the instruction of a task with another thing
    "other": 0.06,  # another instruction for the same scene, judged at the end only
    "undone": 0.03,  # backwards, under the instruction of the contrary task
    "reverse": 0.03,
    "rewind": 0.03,
    "static": 0.04,
    "hold": 0.03,
}
_ONWARD = ("forward", "static", "hold")  # backwards, only the words say what was to be done
_FROM_THE_MIDDLE = ("faucet-open", "faucet-close")  # contraries that begin alike: neither undoes the other
_NEARLY_DONE = 0.9  # progress from which a rollout can be undone
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
    gripper_pos: Numbers  # (rollouts, kept, 3), and so is the thing
    object_pos: Numbers
    texts: tuple[tuple[str, ...], ...]
    others: tuple[tuple[tuple[int, str, int], ...], ...]
    views: tuple[View | None, ...]
    training: Whole  # the rollouts to learn from; the rest are to check by

    @cached_property
    def levels(self) -> Whole:
        """Return the level of every kept frame."""
        return levels_of(self.progress)

    @cached_property
    def by_level(self) -> dict[tuple[str, int], list[int]]:
        """Return the training rollouts of each task in which some later frame has a level."""
        present = ((row, np.unique(self.levels[row, _FEWEST - 1 :])) for row in self.training.tolist())
        return _grouped(((self.tasks[row], int(level)), row) for row, levels in present for level in levels)

    @cached_property
    def by_end(self) -> dict[tuple[str, int], list[int]]:
        """Return the training rollouts of each task that end at a level."""
        return _grouped(((self.tasks[row], int(self.levels[row, -1])), row) for row in self.training.tolist())

    @cached_property
    def by_task(self) -> dict[str, list[int]]:
        """Return the training rollouts of each task."""
        return _grouped((self.tasks[row], row) for row in self.training.tolist())

    @cached_property
    def task_names(self) -> tuple[str, ...]:
        """Return the tasks to learn from."""
        return tuple(self.by_task)


def _grouped(pairs: Iterable[tuple[Key, int]]) -> dict[Key, list[int]]:
    found: dict[Key, list[int]] = {}
    for key, row in pairs:
        found.setdefault(key, []).append(row)
    return found


@dataclass(frozen=True, eq=False)
class Lesson:
    """One batch: where its frames are, which text it has, and what should come out; nan and 0 are unknown."""

    source: NDArray[np.object_]  # (B,)
    row: Whole  # (B,)
    order: Whole  # (B, 16)
    text: Whole  # (B, 48), numbers of word pieces, -1 for none
    progress: Numbers  # (B, 16)
    level: Whole  # (B, 16)
    ways: Numbers  # (B, 16, 7): how far thing and hand have gone since the first frame, and how far they are apart
    own: NDArray[np.bool_]  # (B,): the text asks for what is done or begun, whatever words it uses for it


@dataclass(frozen=True, eq=False)
class _Clip:
    row: int
    order: Whole
    text: str
    progress: Numbers
    level: Whole
    own: bool = False


def without_texts(facts: Facts, unheard: set[str]) -> Facts:
    """Return what is known without the instructions and views that have one of these texts."""
    others = tuple(tuple(other for other in some if other[1] not in unheard) for some in facts.others)
    views = tuple(None if view is None or view.text in unheard else view for view in facts.views)
    return replace(facts, others=others, views=views)


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
    row, order = np.array([clip.row for clip in clips]), np.stack([clip.order for clip in clips])
    return Lesson(
        source=sources,
        row=row,
        order=order,
        text=np.stack([_ids(clip.text) for clip in clips]),
        progress=np.stack([clip.progress for clip in clips]),
        level=np.stack([clip.level for clip in clips]),
        ways=np.where((sources == "view")[:, None, None], np.float32(np.nan), _ways(facts, row, order)),
        own=np.array([clip.own for clip in clips]),
    )


def whole_clips(facts: Facts, rows: Whole) -> Lesson:
    """Return these rollouts from start to end under their first phrasing, to check by."""
    order = np.tile(np.linspace(0, facts.progress.shape[1] - 1, SHOWN).round().astype(np.int64), (len(rows), 1))
    return Lesson(
        source=np.full(len(rows), "plain0", dtype=object),
        row=rows,
        order=order,
        text=np.stack([_ids(facts.texts[row][0]) for row in rows]),
        progress=facts.progress[rows[:, None], order],
        level=facts.levels[rows[:, None], order],
        ways=_ways(facts, rows, order),
        own=np.ones(len(rows), dtype=bool),
    )


def _ways(facts: Facts, row: Whole, order: Whole) -> Numbers:
    order = np.minimum(order, facts.gripper_pos.shape[1] - 1)  # a view may have more frames than were kept
    gripper_pos, object_pos = facts.gripper_pos[row[:, None], order], facts.object_pos[row[:, None], order]
    apart = np.linalg.norm(gripper_pos - object_pos, axis=2, keepdims=True)
    return np.concatenate([object_pos - object_pos[:, :1], gripper_pos - gripper_pos[:, :1], apart], axis=2)


@lru_cache(maxsize=50_000)
def _ids(text: str) -> Whole:
    return load_words(WORDS).ids(text)


def _clip(facts: Facts, rng: Generator) -> _Clip:
    kind = str(rng.choice(np.array(list(_KINDS)), p=np.array(list(_KINDS.values()))))
    task = pick(facts.task_names, rng)
    special = _SPECIAL[kind](facts, task, rng) if kind in _SPECIAL else None
    if special is not None:
        return special
    kind = "forward" if kind in _SPECIAL else kind
    row, end = _row_and_end(facts, task, rng, success=kind == "mismatch" and rng.random() < 0.5)
    order, shown = _ORDERS.get(kind, _forward)(end, rng)
    progress = np.full(SHOWN, np.nan, np.float32)
    progress[:shown] = facts.progress[row, order[:shown]]
    text = pick(facts.texts[row], rng)
    if kind == "mismatch":
        text, progress = _foreign_text(facts, task, rng), np.where(np.isnan(progress), progress, np.float32(0.0))
    return _Clip(row, order, text, progress, levels_of(progress), own=kind in _ONWARD)


def _row_and_end(facts: Facts, task: str, rng: Generator, *, success: bool) -> tuple[int, int]:
    """Return a rollout and the frame where the clip ends, every level as often as any other."""
    present = [level for level in range(1, 6) if (task, level) in facts.by_level]
    level = 5 if success and 5 in present else pick(present, rng)
    if (task, level) in facts.by_end and rng.random() < 0.5:  # as it came to rest, not as it went by
        return pick(facts.by_end[task, level], rng), facts.levels.shape[1] - 1
    row = pick(facts.by_level[task, level], rng)
    ends = np.flatnonzero(facts.levels[row, _FEWEST - 1 :] == level) + _FEWEST - 1
    return row, pick(ends.tolist(), rng)


def _forward(end: int, rng: Generator) -> tuple[Whole, int]:
    shown = SHOWN if rng.random() < 0.8 else int(rng.integers(_FEWEST, SHOWN))  # whatever the level at the end
    return filled(_walk(0, end, shown, rng)), shown


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
    return filled(_walk(0, end, there, rng)), SHOWN


_ORDERS = {"reverse": _reverse, "rewind": _rewind, "static": _static, "hold": _hold}


def _walk(start: int, end: int, count: int, rng: Generator) -> Whole:
    """Return frames from start to end, evenly, or now and then at a changing pace."""
    if rng.random() < 0.3 and count > 2:
        inner = np.sort(rng.uniform(start, end, count - 2)).round().astype(np.int64)
        return np.concatenate([[start], inner, [end]])
    return np.linspace(start, end, count).round().astype(np.int64)


def _other(facts: Facts, task: str, rng: Generator) -> _Clip | None:
    row = pick(facts.by_task[task], rng)
    if not facts.others[row]:
        return None
    end, text, level = pick(facts.others[row], rng)
    levels = np.zeros(SHOWN, np.int64)
    levels[-1] = level
    return _Clip(row, _walk(0, end, SHOWN, rng), text, np.full(SHOWN, np.nan, np.float32), levels)


def _made_up(facts: Facts, task: str, rng: Generator) -> _Clip:
    row, end = _row_and_end(facts, task, rng, success=False)
    start = int(rng.integers(0, max(1, end - _FEWEST))) if rng.random() < 0.3 else 0
    order = _walk(start, end, SHOWN, rng)
    if rng.random() < 0.3:
        order = order[::-1]
    seen = Seen(task, *(path[row, order].astype(np.float64) for path in (facts.gripper_pos, facts.object_pos)))
    text, progress = made_up(seen, plain_words(), rng)
    return _Clip(row, order, text, progress, levels_of(progress))


def _undone(facts: Facts, task: str, rng: Generator) -> _Clip | None:
    """Show a finished task backwards and ask for its contrary, where that is a task to learn from too."""
    contrary = OPPOSITE_TASKS.get(task)
    if contrary not in facts.task_names or task in _FROM_THE_MIDDLE:
        return None
    row, end = _row_and_end(facts, task, rng, success=True)
    if facts.progress[row, end] < _NEARLY_DONE:
        return None
    order = _walk(int(rng.integers(0, end // 2)) if rng.random() < 0.5 else 0, end, SHOWN, rng)[::-1]
    left = (facts.progress[row, order] - LEVEL_STARTS[0]) / (facts.progress[row, end] - LEVEL_STARTS[0])
    progress = 1 - left.clip(0, 1)  # below level 2 the thing is as it was
    return _Clip(row, order, pick(facts.texts[facts.by_task[contrary][0]], rng), progress, levels_of(progress))


_SPECIAL = {"other": _other, "made_up": _made_up, "undone": _undone}


@cache
def plain_words() -> tuple[str, ...]:
    """Return whole words of the vocabulary, to name things by that they do not mean."""
    return tuple(word for word in load_words(WORDS).places if word.isascii() and word.isalpha() and len(word) > 3)


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
    strange = [
        name for name in facts.task_names if TASK_OBJECTS[name] not in (TASK_OBJECTS[task], TASK_OBJECTS["reach"])
    ]
    others = strange or [task]  # the gripper is in every scene, and goes somewhere
    return pick(facts.texts[pick(facts.by_task[pick(others, rng)], rng)], rng)
