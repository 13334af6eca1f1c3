"""Semantic perturbations that name another thing, side or act: what the video shows was not asked for."""

from collections.abc import Callable
from dataclasses import replace

from numpy.random import Generator

from rewardlab.core.episode import Episode, Truth
from rewardlab.core.errors import NotApplicable
from rewardlab.perturb.contract import Episodes, PerturbedEpisode, Spec, on_episode, with_unknown_truth
from rewardlab.perturb.semantic.antonyms import Flip, exchange_roles, flip_place, flip_sides, flip_verb
from rewardlab.perturb.semantic.grammar import words_of
from rewardlab.perturb.semantic.instruction_parser import parse
from rewardlab.perturb.semantic.lexicon import COLOURS, STAND_INS, find_noun
from rewardlab.perturb.semantic.sentence import Clause, Command, Thing

_DISTANCES = ("near", "other", "far", "opposite")
_CHOICES = ("same kind", "other kind", "not there", "impossible")


def is_fulfilled(truth: Truth) -> bool:
    """Tell whether the video is known to show the whole wish done."""
    return truth.success is not False and (truth.level == 5 or (truth.level is None and truth.success is True))


def require_success(episode: Episode) -> None:
    """Drop the episode unless the wish was fulfilled: only then is it known that another wish was not."""
    if not is_fulfilled(episode.truth):
        raise NotApplicable("not known to be a success: a failure may have done just what is asked for now")


def not_done(episode: Episode, text: str) -> PerturbedEpisode:
    """Return the episode under a wish of which nothing was done."""
    return PerturbedEpisode(replace(episode, instruction=text, truth=Truth(1, False)), "relabel")


def less_done(episode: Episode, text: str) -> PerturbedEpisode:
    """Return the episode under a wish that was done less well, nobody knows how well."""
    return with_unknown_truth(replace(episode, instruction=text), "lower")


@on_episode(
    "instruction",
    Spec(
        "semantic",
        "how unlike the true colour the named one is",
        _DISTANCES,
        "RoboReward counterfactual relabelling",
        "per_clip",
        "changes",
        "lower",
    ),
)
def colour_swap(episode: Episode, distance: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """A thing of another colour is asked for than the one that was handled."""
    require_success(episode)
    command, draw = parse(episode.instruction), float(rng.random())
    said = words_of(episode.instruction)
    others = {word: [o for o in COLOURS[word] if o not in said] for word in command.adjectives if word in COLOURS}
    colours = [word for word, unsaid in others.items() if unsaid]
    if not colours:
        raise NotApplicable("no thing is told apart by its colour")
    colour = colours[int(draw * len(colours))]
    other = others[colour][min(_DISTANCES.index(distance), len(others[colour]) - 1)]
    return less_done(episode, command.with_things(lambda thing: _recolour(thing, colour, other)).text_as_written)


def _recolour(thing: Thing, colour: str, other: str) -> Thing:
    return replace(thing, adjectives=tuple(other if word == colour else word for word in thing.adjectives))


@on_episode(
    "instruction",
    Spec(
        "semantic",
        "what is named instead",
        _CHOICES,
        "RoboReward counterfactual relabelling",
        "per_clip",
        "changes",
        "lower",
    ),
)
def object_swap(episode: Episode, choice: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """Another thing is asked for than the one that was handled."""
    require_success(episode)
    command, draw = parse(episode.instruction), float(rng.random())
    first, *others = command.clauses
    row = _stand_ins(first)[_CHOICES.index(choice)]
    fresh = [name for name in row if not words_of(name) & words_of(episode.instruction)]
    if not fresh:
        raise NotApplicable(f"every thing of {choice} is already named")
    described = tuple(place for place in first.thing.tail if place.relation != "of")
    thing = replace(first.thing, noun=fresh[int(draw * len(fresh))], tail=described)
    swapped = replace(command, clauses=(replace(first, thing=thing), *others))
    return less_done(episode, swapped.text_as_written)


def _stand_ins(clause: Clause) -> tuple[tuple[str, ...], ...]:
    known = find_noun(clause.thing.noun)
    group = "something that opens" if known and clause.verb in {"open", "close", "shut"} else known and known.group
    if group not in STAND_INS:
        raise NotApplicable(f"nothing is known to be unlike {clause.thing.noun[:40]!r}")
    return STAND_INS[group]


_FLIPS: dict[str, Callable[[Command], Flip]] = {
    "side": flip_sides,
    "place": flip_place,
    "verb": flip_verb,
    "roles": exchange_roles,
}


@on_episode(
    "instruction",
    Spec(
        "semantic",
        "what is turned into its opposite",
        ("side", "place", "verb", "roles"),
        "contrast sets",
        "none",
        "changes",
        "relabel",
    ),
)
def relation_flip(episode: Episode, what: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The opposite is asked for: the other side, under for on, close for open, or the two things exchanged."""
    require_success(episode)
    flip = _FLIPS[what](parse(episode.instruction))
    return (not_done if flip.undone else less_done)(episode, flip.command.text_as_written)
