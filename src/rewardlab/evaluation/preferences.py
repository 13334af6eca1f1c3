"""Which of two clips is better: pairs of known order, what models answer that compare clips, and what scores say.

`preferences.json` holds pairs, answers and numbers; `comparisons.json` every answer by its question, so that none is
asked twice.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, islice
from typing import TYPE_CHECKING

import numpy as np

from rewardlab.core.episode import Episode, hold_frames, hold_views, strip_labels
from rewardlab.core.errors import StopRun
from rewardlab.core.records import meaning, none_if_nan
from rewardlab.core.run import Run
from rewardlab.core.seeding import digest, rng_for
from rewardlab.core.terminal import ProgressBar
from rewardlab.core.trial import Failure, failure_of
from rewardlab.core.trial_table import TrialTable
from rewardlab.data.video import sample_frames
from rewardlab.metrics.clustered_bootstrap import SHARE, Draws
from rewardlab.metrics.estimates import clusters_of, estimate_means, expected_levels
from rewardlab.metrics.rank_correlation import PreferredPair, human_preference_agreement
from rewardlab.models.contract import Comparer, ComparisonProbs

if TYPE_CHECKING:
    from rewardlab.evaluation.plan import Plan, ScoringContext

PREFERENCES, COMPARISONS = "preferences.json", "comparisons.json"
_EQUAL = 1e-9  # probabilities closer than this are a tie


@dataclass(frozen=True)
class PreferenceShare:
    """A share of pairs, or of triples, with its interval."""

    value: float | None = meaning("the share; equal levels, and ties, count half; null where nothing was scored")
    low: float | None = meaning("lower end of the 95 % interval; null where it is undefined")
    high: float | None = meaning("upper end of the 95 % interval; null where it is undefined")
    scored: int = meaning("pairs of which both clips were scored, or that were answered in both orders")
    asked: int = meaning("pairs for which it is defined")


@dataclass(frozen=True)
class PairAnswer:
    """What a model answered about the clips a and b of one pair, which it was shown in both orders."""

    a_first: tuple[float, ...] = meaning("with a shown first: the probability of a, of b, of a tie; empty without one")
    b_first: tuple[float, ...] = meaning("with b shown first: the same")
    reason: str = meaning("why an answer is missing; empty where none is")

    def __post_init__(self) -> None:
        if not {len(self.a_first), len(self.b_first)} <= {0, 3}:
            raise ValueError("an answer about a pair has three probabilities, or none")


@dataclass(frozen=True)
class PairAnswers:
    """The answers of one model, pair by pair."""

    people: tuple[PairAnswer, ...] = meaning("about the first of `pairs`")
    levels: tuple[PairAnswer, ...] = meaning("about `level_pairs`")


@dataclass(frozen=True)
class PreferenceMeasures:
    """How well a model orders two clips of one instruction."""

    levels: PreferenceShare = meaning("pairs of different true levels of which it prefers the higher")
    people: PreferenceShare = meaning("pairs of which it prefers the clip that a person preferred")
    transitive: PreferenceShare = meaning("triples of clips without a circle, of those with three decided answers")
    consistent: PreferenceShare | None = meaning("pairs with the same answer in both orders; null by scores")
    first_preferred: float | None = meaning("probability that the clip shown first is preferred; null by scores")


@dataclass(frozen=True)
class ModelPreferences:
    """The preferences of one model."""

    scores: PreferenceMeasures = meaning("by its scores: the higher expected level is preferred")
    asked: PreferenceMeasures | None = meaning("by its answers to both clips in one prompt; null where it gives none")


@dataclass(frozen=True)
class BenchmarkPreferences:
    """What `preferences.json` holds: pairs of known order, and how each model orders them."""

    pairs: tuple[PreferredPair, ...] = meaning("pairs of which both episodes are in the run, ties among them")
    agreement: dict[str, PreferenceShare] = meaning("the agreement of each model's scores with people, over `pairs`")
    level_pairs: tuple[PreferredPair, ...] = meaning("pairs of one instruction; the higher true level is preferred")
    answers: dict[str, PairAnswers] = meaning("the answers by model, of models that compare clips")
    models: dict[str, ModelPreferences] = meaning("how each model orders the pairs; empty without --preferences")

    def __post_init__(self) -> None:
        for each in self.answers.values():
            if len(each.levels) != len(self.level_pairs) or len(each.people) > len(self.pairs):
                raise ValueError("there are other numbers of answers than of pairs")


# Pairs: those that people compared, then pairs of one instruction whose true levels are known.


def draw_level_pairs(
    episodes: Sequence[Episode], most: int, seed: int, known: Collection[frozenset[str]] = ()
) -> tuple[PreferredPair, ...]:
    """Return so many pairs of clips of one task and instruction, in turn from all of them; more for a higher number.

    They come as triples where an instruction has three clips, so that circles can be found. Pairs in `known` are left
    out.
    """
    groups: dict[tuple[str, str], list[Episode]] = {}
    for episode in episodes:
        if episode.label.level is not None:
            groups.setdefault((episode.provenance.task, episode.instruction), []).append(episode)
    rng, turns = rng_for(seed, "preferences"), list[Iterator[list[tuple[Episode, Episode]]]]()
    for members in groups.values():
        if len({episode.label.level for episode in members}) > 1:
            turns.append(_triples(_levels_in_turn([members[n] for n in rng.permutation(len(members))])))
    seen, found = set(known), list[PreferredPair]()
    while turns and len(found) < most:
        ended = []
        for turn in turns:
            pairs = next(turn, None)
            if pairs is None:
                ended.append(turn)
            for a, b in pairs or ():
                names = frozenset((a.id, b.id))
                if names not in seen and a.clip.source.digest != b.clip.source.digest:
                    seen.add(names)
                    found.append(_level_pair(f"levels {len(found) + 1}", a, b))
        turns = [turn for turn in turns if turn not in ended]
    return tuple(found[:most])


def _levels_in_turn(members: Sequence[Episode]) -> list[Episode]:
    """Return the clips so that neighbours have different levels where that can be."""
    turns: dict[int | None, int] = {}
    order = []
    for place, episode in enumerate(members):
        turn = turns[episode.label.level] = turns.get(episode.label.level, -1) + 1
        order.append((turn, episode.label.level or 0, place))
    return [members[place] for *_, place in sorted(order)]


def _triples(members: Sequence[Episode]) -> Iterator[list[tuple[Episode, Episode]]]:
    """Yield the pairs of one triple after the other, each clip as often as any; of two clips the pair alone."""
    count = len(members)
    for step in range(1, count // 2 + 1):
        for start in range(count):
            places = dict.fromkeys((start, (start + step) % count, (start + 2 * step) % count))
            clips = [members[place] for place in places]
            if len({clip.label.level for clip in clips}) > 1:
                yield list(combinations(clips, 2))


def _level_pair(name: str, a: Episode, b: Episode) -> PreferredPair:
    gap = (a.label.level or 0) - (b.label.level or 0)
    return PreferredPair(name, a.id, b.id, "tie" if gap == 0 else "a" if gap > 0 else "b")


# Asking: every pair in both orders, of every evaluated model that compares clips.


def compare_clips(
    run: Run, plan: "Plan", context: "ScoringContext", people: Sequence[PreferredPair], levels: Sequence[PreferredPair]
) -> dict[str, PairAnswers]:
    """Return the answers of each evaluated model that compares clips; what was answered before is not asked again."""
    found = {}
    for model in (context.models[name] for name in context.evaluated):
        if model.compare is not None:
            asked = _PairScoring(run, plan, context, model.fingerprint)
            answers = asked.ask(model.compare(plan.model_budget(run.folder)), (*people, *levels))
            found[model.name] = PairAnswers(answers[: len(people)], answers[len(people) :])
    return found


@dataclass(frozen=True)
class _PairScoring:
    """The questions to one model of a run."""

    run: Run
    plan: "Plan"
    context: "ScoringContext"
    fingerprint: str

    def ask(self, comparer: Comparer, pairs: Sequence[PreferredPair]) -> tuple[PairAnswer, ...]:
        """Ask what was not answered before, and keep each batch of answers as soon as it is there."""
        episodes = {episode.id: episode for episode in self.context.dataset}

        @lru_cache(maxsize=4 * self.context.batch)
        def shown(name: str) -> Episode:
            sampled = sample_frames(episodes[name], self.context.policy)
            held = replace(sampled, clip=hold_frames(sampled.clip, np.unique(sampled.clip.order)))
            return strip_labels(hold_views(held, np.unique(sampled.clip.order)))

        orders = [order for pair in pairs for order in ((pair.a, pair.b), (pair.b, pair.a))]
        keys = {order: self._key(episodes[order[0]], episodes[order[1]]) for order in orders}
        known = self._stored()
        again = self.plan.scoring.retry_failures
        open_orders = iter([o for o in orders if keys[o] not in known or (again and isinstance(known[keys[o]], str))])
        done = sum(keys[order] in known for order in orders)
        with ProgressBar("comparing", len(orders), done, quiet=self.plan.execution.quiet) as progress:
            while batch := list(islice(open_orders, self.context.batch)):
                made = _answers(comparer, [(shown(a), shown(b)) for a, b in batch])
                kept = (each.reason if isinstance(each, Failure) else list(each) for each in made)
                known |= zip((keys[order] for order in batch), kept, strict=True)
                self.run.save(COMPARISONS, {"answers": known})
                progress.step(min(progress.done + len(batch), len(orders)))
        return tuple(_pair_answer(known[keys[p.a, p.b]], known[keys[p.b, p.a]]) for p in pairs)

    def _key(self, first: Episode, second: Episode) -> str:
        return digest(self.fingerprint, first.hash, second.hash, self.context.frames)

    def _stored(self) -> dict[str, list[float] | str]:
        content = (self.run.stored(COMPARISONS) or {}).get("answers")
        return dict(content) if isinstance(content, dict) else {}


def _answers(comparer: Comparer, pairs: Sequence[tuple[Episode, Episode]]) -> Sequence[ComparisonProbs | Failure]:
    """Return one answer per pair; where a batch fails as a whole, each pair is asked alone."""
    try:
        found = list(comparer.compare(pairs))
    except StopRun:
        raise
    except Exception as error:  # such as a view that cannot be read
        return (
            [failure_of(error)] if len(pairs) == 1 else [each for pair in pairs for each in _answers(comparer, [pair])]
        )
    return found


def _pair_answer(a_first: list[float] | str, b_first: list[float] | str) -> PairAnswer:
    reason = next((each for each in (a_first, b_first) if isinstance(each, str)), "")
    first = () if isinstance(a_first, str) else tuple(a_first)
    second = () if isinstance(b_first, str) else (b_first[1], b_first[0], b_first[2])
    return PairAnswer(first, second, reason)


# Measuring: what the scores, and the answers, say of the pairs.


def measure_preferences(
    trials: TrialTable,
    draws: Draws,
    pairs: tuple[PreferredPair, ...],
    level_pairs: tuple[PreferredPair, ...],
    answers: dict[str, PairAnswers],
) -> BenchmarkPreferences:
    """Return how each model orders the pairs; `trials` are those on clean episodes, with their clusters."""
    agreement, models = {}, {}
    cluster = dict(zip(trials.text("episode"), clusters_of(trials).tolist(), strict=True))
    for model in trials.codes("model")[1]:
        mine = trials.where(trials.matches("model", model))
        measured = human_preference_agreement(mine, pairs, draws)
        value, low, high = (none_if_nan(x) for x in (measured.value, measured.low, measured.high))
        agreement[model] = PreferenceShare(value, low, high, measured.scored, measured.asked)
        if level_pairs or answers:
            measure = _Measure(cluster, draws, pairs, level_pairs)
            asked = measure.by_answers(answers[model]) if model in answers else None
            models[model] = ModelPreferences(measure.by_scores(mine), asked)
    return BenchmarkPreferences(pairs, agreement, level_pairs, answers, models)


Choice = float | None  # how far a is preferred to b: above 0 where it is; None where nobody knows


@dataclass(frozen=True)
class _Measure:
    """The pairs, and the clusters of their episodes."""

    cluster: dict[str, int]
    draws: Draws
    pairs: tuple[PreferredPair, ...]
    level_pairs: tuple[PreferredPair, ...]

    def by_scores(self, trials: TrialTable) -> PreferenceMeasures:
        """Return the preferences for the higher expected level."""
        used = trials.where(trials.matches("status", "scored"))
        level = dict(zip(used.text("episode"), expected_levels(used).tolist(), strict=True))

        def choices(pairs: Sequence[PreferredPair]) -> list[Choice]:
            return [level[p.a] - level[p.b] if p.a in level and p.b in level else None for p in pairs]

        return self._measures(choices(self.pairs), choices(self.level_pairs))

    def by_answers(self, answers: PairAnswers) -> PreferenceMeasures:
        """Return the preferences of the mean over both orders, and how far they depend on the order."""
        measures = self._measures(*([_mean_choice(each) for each in some] for some in (answers.people, answers.levels)))
        every = list(zip((*self.pairs[: len(answers.people)], *self.level_pairs), self._all(answers), strict=True))
        both = [(pair, answer) for pair, answer in every if answer.a_first and answer.b_first]
        same = [float(_sign(_gap(each.a_first)) == _sign(_gap(each.b_first))) for _, each in both]
        consistent = self._share([(pair.a, value) for (pair, _), value in zip(both, same, strict=True)], len(every))
        first = [share for _, each in both for share in ((1 + _gap(each.a_first)) / 2, (1 - _gap(each.b_first)) / 2)]
        return replace(measures, consistent=consistent, first_preferred=float(np.mean(first)) if first else None)

    @staticmethod
    def _all(answers: PairAnswers) -> tuple[PairAnswer, ...]:
        return (*answers.people, *answers.levels)

    def _measures(self, people: Sequence[Choice], levels: Sequence[Choice]) -> PreferenceMeasures:
        judged = list(zip(self.level_pairs, levels, strict=True))
        stated = list(zip(self.pairs, people, strict=False))  # of those that were asked about
        return PreferenceMeasures(
            levels=self._right(judged),
            people=self._right(stated),
            transitive=self._transitive([*stated, *judged]),
            consistent=None,
            first_preferred=None,
        )

    def _right(self, chosen: Sequence[tuple[PreferredPair, Choice]]) -> PreferenceShare:
        """Return the share of the pairs that are no tie of which the right one is preferred; no preference is half."""
        decided = [(pair, choice) for pair, choice in chosen if pair.preferred != "tie"]
        values = [
            (pair.a, (1 + _sign(choice if pair.preferred == "a" else -choice)) / 2)
            for pair, choice in decided
            if choice is not None
        ]
        return self._share(values, len(decided))

    def _transitive(self, chosen: Sequence[tuple[PreferredPair, Choice]]) -> PreferenceShare:
        """Return the share of triples without a circle; a triple with a tie in it is asked and not scored."""
        beats: dict[tuple[str, str], int | None] = {}
        for pair, choice in chosen:
            sign = None if choice is None else _sign(choice)
            beats[pair.a, pair.b] = sign
            beats[pair.b, pair.a] = None if sign is None else -sign
        near: dict[str, set[str]] = {}
        for a, b in beats:
            near.setdefault(a, set()).add(b)
        triples = [
            (a, b, c) for a in near for b in near[a] if a < b for c in near[a] & near[b] if b < c
        ]  # each once, by the order of the names
        values = []
        for a, b, c in sorted(triples):
            signs = (beats[a, b], beats[b, c], beats[c, a])
            if None not in signs and 0 not in signs:
                values.append((a, float(len(set(signs)) > 1)))  # all alike is a circle
        return self._share(values, len(triples))

    def _share(self, values: Sequence[tuple[str, float]], asked: int) -> PreferenceShare:
        """Return the mean with its interval; a pair is in the cluster of its first clip, as both have one task."""
        numbers = np.array([value for _, value in values])
        clusters = np.array([self.cluster[name] for name, _ in values], dtype=np.int64)
        zeros = np.zeros(len(values), dtype=np.int64)
        means = estimate_means(numbers, clusters, zeros, 1, self.draws, proportion=False, bounds=SHARE)
        value, low, high = (none_if_nan(float(column[0])) for column in (means.value, means.low, means.high))
        return PreferenceShare(value, low, high, len(values), asked)


def _gap(probs: Sequence[float]) -> float:
    """Return how much more probable a is than b."""
    return probs[0] - probs[1]


def _mean_choice(answer: PairAnswer) -> Choice:
    return (_gap(answer.a_first) + _gap(answer.b_first)) / 2 if answer.a_first and answer.b_first else None


def _sign(choice: float) -> int:
    return 0 if abs(choice) < _EQUAL else 1 if choice > 0 else -1
