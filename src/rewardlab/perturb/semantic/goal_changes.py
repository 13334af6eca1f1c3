"""Semantic perturbations that forbid the wish, add to it, or put another one in its place."""

from dataclasses import replace
from functools import cache

from numpy.random import Generator

from rewardlab.core.episode import Episode, Truth
from rewardlab.core.errors import NotApplicable
from rewardlab.perturb.contract import Episodes, PerturbedEpisode, Spec, on_episode, with_unknown_truth
from rewardlab.perturb.semantic.grammar import gerund, words_of
from rewardlab.perturb.semantic.instruction_parser import ARTICLES, parse
from rewardlab.perturb.semantic.lexicon import COLOURS, NOUNS, VAGUE, VERBS, find_noun
from rewardlab.perturb.semantic.sentence import PRONOUNS, Command
from rewardlab.perturb.semantic.swaps import is_fulfilled, less_done, not_done, require_success

_SMALL_THINGS = ("a paper clip", "a coin", "a rubber band", "a postage stamp")
_BIG_STEPS = (
    "fill a bucket with sand",
    "hang a scarf on a hook",
    "set up a chess board",
    "wrap a present in paper",
)
_NONSENSE = (
    "glorp the wug under the snarf",
    "paint the silence with seven loud triangles",
    "unwonder the mimsy borogoves",
)
_FUNCTION_WORDS = {
    *ARTICLES,
    *("to", "in", "into", "on", "onto", "of", "from", "out", "up", "down", "and", "then", "with", "under", "at"),
    *("left", "right", "over", "off", "inside", "by", "for", "next", "top", "front", "behind", "near", "using"),
    *PRONOUNS,
}
_VERBS_ONLY = {word for verb in VERBS for word in verb.split()} - {word for noun in NOUNS for word in noun.split()}


@on_episode(
    "instruction",
    Spec(
        "semantic",
        "how the wish is denied",
        ("explicit", "embedded", "double", "exception"),
        "CheckList negation, NL-Aug negate_strengthen",
        "none",
        "changes",
        "relabel",
    ),
)
def negation(episode: Episode, style: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The wish is forbidden, so what fulfilled it now fails and doing nothing fulfils it; twice denied is the wish."""
    command = parse(episode.instruction)
    denied = replace(episode, instruction=_deny(command, style))
    if style == "double":
        return PerturbedEpisode(denied, "same")
    if is_fulfilled(episode.truth):
        return PerturbedEpisode(replace(denied, truth=Truth(1, False)), "relabel")
    if episode.truth.level == 1 and not episode.truth.success:
        return PerturbedEpisode(replace(denied, truth=Truth(5, True)), "relabel")
    raise NotApplicable("a negated instruction has a known label only where nothing or all of it was done")


def _deny(command: Command, style: str) -> str:
    if style == "explicit":
        return command.write(f"do not {command.text}")
    if style == "embedded":
        doing = command.join([clause.doing(gerund(clause.verb)) for clause in command.clauses])
        return command.write(f"be careful to avoid {doing}")
    if style == "double":
        return command.write(f"do not fail to {command.text}")
    return command.write(f"you may do anything except {command.text}")


@on_episode(
    "instruction",
    Spec(
        "semantic",
        "small and big steps added",
        ((1, 0), (2, 0), (0, 1), (0, 2)),
        "RoboReward near misses",
        "per_clip",
        "changes",
        "relabel",
    ),
)
def added_requirement(episode: Episode, counts: tuple[int, int], rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """Something more is asked for that nobody did."""
    small, big = counts
    things = _unsaid(_SMALL_THINGS, episode, rng)[:small]
    steps = _unsaid(_BIG_STEPS, episode, rng)[:big]
    body = episode.instruction.strip()
    bare = body.rstrip(".!")
    if not bare:
        raise NotApplicable("there is no wish to add to")
    more = f"then {' and '.join(steps)}" if steps else f"and leave {' and '.join(things)} beside the robot"
    text = f"{bare}, {more}{body[len(bare) :]}"
    level = _NEAR_MISS.get(counts)
    if episode.truth.level == 5 and is_fulfilled(episode.truth) and level:
        return PerturbedEpisode(replace(episode, instruction=text, truth=Truth(level, False)), "relabel")
    return less_done(episode, text)


# The rubric: level 4 misses a single minor requirement, level 3 more than one requirement or a major one.
# Two big steps may be worth less than 3, so only the direction is known.
_NEAR_MISS = {(1, 0): 4, (2, 0): 3, (0, 1): 3}


def _unsaid(extras: tuple[str, ...], episode: Episode, rng: Generator) -> list[str]:
    """Return the extras in a drawn order, those that share a thing with the wish last."""
    said = words_of(episode.instruction) - _FUNCTION_WORDS
    drawn = [extras[int(i)] for i in rng.permutation(len(extras))]
    return sorted(drawn, key=lambda extra: bool(said & words_of(extra)))


@on_episode(
    "instruction",
    Spec(
        "semantic",
        "where the other task comes from",
        ("same subset", "whole dataset", "other subset", "nonsense"),
        "Robometer confusion matrix",
        "per_clip",
        "changes",
        "relabel",
        uses_dataset=True,
    ),
)
def task_swap(episode: Episode, pool: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The video is judged against the instruction of another task: nothing of it was done."""
    draw = float(rng.random())
    if pool == "nonsense":
        text = _NONSENSE[int(draw * len(_NONSENSE))]
        return with_unknown_truth(replace(episode, instruction=text), "undefined")
    if pool == "same subset":
        require_success(episode)
    others = sorted({peer.instruction for peer in dataset if _may_lend(peer, episode, pool)})
    start = int(draw * len(others))
    # Walking on from a drawn place asks only a few of many thousand episodes.
    chosen = next((text for text in others[start:] + others[:start] if _surely_differ(text, episode.instruction)), None)
    if chosen is None:
        raise NotApplicable(f"no clearly different task in the {pool}")
    return not_done(episode, chosen)


def _may_lend(peer: Episode, episode: Episode, pool: str) -> bool:
    """Tell whether the wish of another episode may be asked of this one.

    One video may come under several wishes, and a failure may have done another wish of its own scene.
    """
    if peer.clip.source.digest == episode.clip.source.digest:
        return False
    if episode.origin.task and peer.origin.task == episode.origin.task:
        return False
    near = peer.origin.subset == episode.origin.subset
    if pool == "same subset":
        return near
    return not near or (pool == "whole dataset" and is_fulfilled(episode.truth))


def _surely_differ(one: str, other: str) -> bool:
    """Tell whether two wishes name no common thing, nor one that may be a part or a kind of the other's."""
    first, second = _things(one), _things(other)
    if not (_knows(first) and _knows(second)) or (first | second) & VAGUE:
        return False
    return not (first & (second | _kinds(second)) or second & _kinds(first))


@cache
def _things(text: str) -> frozenset[str]:
    words = words_of(text) - _FUNCTION_WORDS - _VERBS_ONLY - set(COLOURS)
    return frozenset(word[:-1] if find_noun(word) and word not in NOUNS else word for word in words)


def _knows(things: frozenset[str]) -> bool:
    return any(find_noun(thing) for thing in things)


def _kinds(things: frozenset[str]) -> set[str]:
    known = [noun for noun in map(find_noun, things) if noun]
    return {word for noun in known for name in (*noun.synonyms, noun.kind) for word in name.split()} - {"piece", "of"}
