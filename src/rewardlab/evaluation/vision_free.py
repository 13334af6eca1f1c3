"""Vision-free baselines: a constant, the length and the words of the instruction, across tasks.

Each is fitted on some tasks and asked about others. What such a baseline gets right, the data give away.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVELS
from rewardlab.core.seeding import rng_for
from rewardlab.metrics.clustered_bootstrap import draw_clusters, percentile_interval, sum_by

Codes = NDArray[np.int64]
Numbers = NDArray[np.float64]
Predict = Callable[[Codes, Codes], Codes]  # rows to fit on, rows to be asked about -> levels of the latter

SOLVED, LEAKED = 0.5, 0.1  # fractions of the constant's error from which the data are solved, or give something away
_FOLDS, _DRAWS = 5, 1_000
_BUNCHES = 1_000  # more tasks than this are drawn in bunches, so that the draws stay small
_BINS = 16  # of length
_FEWEST = 5  # rows in a bin that say something
_FEWEST_TASKS = 2  # that have a word
_SMOOTHING = 1.0
_WORD = re.compile(r"[\w']+")


@dataclass(frozen=True)
class BaselineScore:
    """How a vision-free baseline does on tasks that it was not fitted on; None where that cannot be told."""

    name: str
    sees: str
    rows: int
    tasks: int
    error: float | None = None  # mean absolute error, in levels
    exact: float | None = None  # fraction of levels that are right
    constant_error: float | None = None  # of the best constant on the same rows
    saved: float | None = None  # fraction of the constant's error that is gone
    low: float | None = None
    high: float | None = None

    @property
    def finding(self) -> str:
        """Return "solved", "leaks", "blind" or "unknown"."""
        if self.saved is None or self.low is None:
            return "unknown"
        if self.saved >= SOLVED:
            return "solved"
        return "leaks" if self.saved >= LEAKED and self.low > 0 else "blind"


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """What is known of rows by their text: the level, the task and the instruction of each."""

    levels: Codes
    tasks: Codes
    texts: Sequence[str]


def vision_free_scores(rows: LabelledRows, lengths: Numbers, seed: int) -> tuple[BaselineScore, ...]:
    """Return how the constant, the length and the words do, each on the rows it applies to; lengths may be nan."""
    levels, everything, timed = rows.levels, np.arange(len(rows.levels)), np.flatnonzero(~np.isnan(lengths))
    words = text_model(levels, rows.texts, rows.tasks)
    return (
        _score("constant", "nothing", rows, everything, constant_model(levels), seed),
        _score("length", "the length of the clip", rows, timed, length_baseline(levels, lengths), seed),
        _score("text", "the words of the instruction", rows, everything, words, seed),
    )


def constant_model(levels: Codes) -> Predict:
    """Predict the level that is least wrong on average."""
    return lambda fit, asked: np.full(len(asked), _least_wrong(levels[fit]))


def length_baseline(levels: Codes, lengths: Numbers) -> Predict:
    """Predict the level that is least wrong for clips about as long."""

    def predict(fit: Codes, asked: Codes) -> Codes:
        edges = np.unique(np.quantile(lengths[fit], np.linspace(0, 1, _BINS + 1)[1:-1]))
        mine, theirs = (np.searchsorted(edges, lengths[rows], side="right") for rows in (fit, asked))
        best = np.full(len(edges) + 1, _least_wrong(levels[fit]))
        for place in range(len(best)):
            inside = levels[fit][mine == place]
            if len(inside) >= _FEWEST:
                best[place] = _least_wrong(inside)
        return best[theirs]

    return predict


def text_model(levels: Codes, texts: Sequence[str], tasks: Codes) -> Predict:
    """Predict the middle of the levels that naive Bayes expects from words and pairs of words.

    Words of one task alone say nothing of others, and are left out.
    """
    known_texts = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    said = np.fromiter((known_texts[text] for text in texts), np.int64, len(texts))  # which text each row has
    text, word, count = _word_pairs(list(known_texts))
    used, by = _distinct_uses(said, tasks, text, word)

    def predict(fit: Codes, asked: Codes) -> Codes:
        counts = np.zeros((len(known_texts), len(LEVELS)))
        np.add.at(counts, (said[fit], levels[fit] - 1), 1)
        per_level = [np.bincount(word, counts[text, k], count) + _SMOOTHING for k in range(len(LEVELS))]
        table = np.stack(per_level, axis=1)
        known = np.bincount(used[np.isin(by, tasks[fit])], minlength=count) >= _FEWEST_TASKS
        says = np.where(known[:, None], np.log(table / table.sum(axis=0)), 0.0)
        total = np.stack([np.bincount(text, says[word, k], len(known_texts)) for k in range(len(LEVELS))], axis=1)
        logs = (total + np.log(counts.sum(axis=0) + _SMOOTHING))[said[asked]]
        probs = np.exp(logs - logs.max(axis=1, keepdims=True))
        middle = np.argmax(np.cumsum(probs, axis=1) >= probs.sum(axis=1, keepdims=True) / 2, axis=1)
        return np.asarray(1 + middle, np.int64)

    return predict


def _distinct_uses(said: Codes, tasks: Codes, text: Codes, word: Codes) -> tuple[Codes, Codes]:
    """Return each word once for each task that has it, and that task."""
    many = int(tasks.max(initial=0)) + 1
    texts, of = np.divmod(np.unique(said * many + tasks), many)  # texts, once for each task that has them
    sizes = np.bincount(text, minlength=int(said.max(initial=0)) + 1)
    starts = np.cumsum(sizes) - sizes
    repeats = sizes[texts]
    inside = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    words = word[np.repeat(starts[texts], repeats) + inside]
    pairs = np.unique(words * many + np.repeat(of, repeats))
    used, by = np.divmod(pairs, many)
    return used, by


def _word_pairs(texts: Sequence[str]) -> tuple[Codes, Codes, int]:
    """Return text and code of every word and every two words in a row, and how many codes there are."""
    codes: dict[str, int] = {}
    found: list[list[int]] = []
    for text in texts:
        words = _WORD.findall(text.casefold())
        pieces = (*words, *(f"{a} {b}" for a, b in pairwise(words)))
        found.append([codes.setdefault(piece, len(codes)) for piece in pieces])
    lengths = [len(each) for each in found]
    word = np.fromiter((code for each in found for code in each), np.int64, sum(lengths))
    return np.repeat(np.arange(len(texts)), lengths), word, max(len(codes), 1)


def _least_wrong(levels: Codes) -> int:
    """Return the level with the least mean absolute error: a median."""
    return int(np.sort(levels)[(len(levels) - 1) // 2])


def _score(name: str, sees: str, rows: LabelledRows, used: Codes, predict: Predict, seed: int) -> BaselineScore:
    tasks = np.unique(rows.tasks[used], return_inverse=True)[1]
    count = int(tasks.max()) + 1 if len(tasks) else 0
    if count < 2:
        return BaselineScore(name, sees, len(used), count)
    fold = (rng_for(seed, "folds of tasks").permutation(count) % min(_FOLDS, count))[tasks]  # whole tasks
    predicted, constant = np.empty(len(used), np.int64), np.empty(len(used), np.int64)
    same = constant_model(rows.levels)
    for number in range(int(fold.max()) + 1):
        asked, fit = fold == number, fold != number
        predicted[asked] = predict(used[fit], used[asked])
        constant[asked] = same(used[fit], used[asked])
    wrong, least = (np.abs(said - rows.levels[used]).astype(np.float64) for said in (predicted, constant))
    measured = float(wrong.mean()), float((wrong == 0).mean()), float(least.mean())
    found = BaselineScore(name, sees, len(used), count, *measured)
    if not least.any():  # all labels are the same: there is nothing to be saved
        return found
    wrong, least = sum_by(tasks, count, wrong), sum_by(tasks, count, least)
    bunch = rng_for(seed, "bunches of tasks").permutation(count) % min(count, _BUNCHES)
    bunches = int(bunch.max()) + 1
    draws = draw_clusters(bunches, _DRAWS, seed)
    saved = 1 - draws.ratios(sum_by(bunch, bunches, wrong)[None], sum_by(bunch, bunches, least)[None])
    low, high = percentile_interval(saved, np.array([float(bunches)]))
    return replace(found, saved=float(1 - wrong.sum() / least.sum()), low=float(low[0]), high=float(high[0]))
