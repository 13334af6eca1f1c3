"""Semantic perturbations that name another object, colour, direction or action than the video shows."""

from collections.abc import Callable
from dataclasses import replace

from numpy.random import Generator

from rewardlab.core.episode import Episode
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode, SeverityTable, Spec, on_episode
from rewardlab.perturbations.semantic.counterfactual_labels import (
    expect_lower,
    relabel_as_undone,
    require_known_success,
)
from rewardlab.perturbations.semantic.english_inflection import words_of
from rewardlab.perturbations.semantic.instruction_parser import parse
from rewardlab.perturbations.semantic.lexicon import COLOUR_CONTRASTS, COUNTERFACTUAL_OBJECTS, find_noun
from rewardlab.perturbations.semantic.opposite_commands import (
    OppositeCommand,
    exchange_roles,
    opposite_direction,
    opposite_preposition,
    opposite_verb,
)
from rewardlab.perturbations.semantic.syntax_tree import Clause, Command, NounPhrase

_DISTANCES = ("near", "other", "far", "opposite")
_SUBSTITUTES = ("same kind", "other kind", "not there", "impossible")
_TURNED = "what is turned into its opposite"
_FLIPPED = ("side", "place", "verb", "roles")


def _counterfactual(parameter: str, table: SeverityTable) -> Spec:
    return Spec("semantic", parameter, table, "RoboReward counterfactual relabelling", "per_clip", "changes", "lower")


@on_episode("instruction", _counterfactual("how unlike the true colour the named one is", _DISTANCES))
def colour_swap(episode: Episode, distance: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """An object of another colour is asked for than the one that was handled."""
    require_known_success(episode)
    command, draw = parse(episode.instruction), float(rng.random())
    said = words_of(episode.instruction)
    named = [word for word in command.adjectives if word in COLOUR_CONTRASTS]
    others = {word: [other for other in COLOUR_CONTRASTS[word] if other not in said] for word in named}
    colours = [word for word, unsaid in others.items() if unsaid]
    if not colours:
        raise NotApplicable("no object is told apart by its colour")
    colour = colours[int(draw * len(colours))]
    other = others[colour][min(_DISTANCES.index(distance), len(others[colour]) - 1)]
    recoloured = command.map_noun_phrases(lambda noun_phrase: _recolour(noun_phrase, colour, other))
    return expect_lower(episode, recoloured.text_as_written)


def _recolour(noun_phrase: NounPhrase, colour: str, other: str) -> NounPhrase:
    return replace(noun_phrase, adjectives=tuple(other if word == colour else word for word in noun_phrase.adjectives))


@on_episode("instruction", _counterfactual("what is named instead", _SUBSTITUTES))
def object_swap(episode: Episode, choice: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """Another object is asked for than the one that was handled."""
    require_known_success(episode)
    command, draw = parse(episode.instruction), float(rng.random())
    first, *others = command.clauses
    row = _counterfactual_objects(first)[_SUBSTITUTES.index(choice)]
    fresh = [name for name in row if not words_of(name) & words_of(episode.instruction)]
    if not fresh:
        raise NotApplicable(f"every object of {choice} is already named")
    described = tuple(phrase for phrase in first.object.modifiers if phrase.preposition != "of")
    noun_phrase = replace(first.object, noun=fresh[int(draw * len(fresh))], modifiers=described)
    swapped = replace(command, clauses=(replace(first, object=noun_phrase), *others))
    return expect_lower(episode, swapped.text_as_written)


def _counterfactual_objects(clause: Clause) -> tuple[tuple[str, ...], ...]:
    known = find_noun(clause.object.noun)
    group = "something that opens" if known and clause.verb in {"open", "close", "shut"} else known and known.group
    if group not in COUNTERFACTUAL_OBJECTS:
        raise NotApplicable(f"nothing is known to be unlike {clause.object.noun[:40]!r}")
    return COUNTERFACTUAL_OBJECTS[group]


_OPPOSITES: dict[str, Callable[[Command], OppositeCommand]]
_OPPOSITES = {"side": opposite_direction, "place": opposite_preposition, "verb": opposite_verb, "roles": exchange_roles}


@on_episode("instruction", Spec("semantic", _TURNED, _FLIPPED, "contrast sets", "none", "changes", "relabel"))
def relation_flip(episode: Episode, what: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The opposite is asked for: the other side, under for on, close for open, or the two objects exchanged."""
    require_known_success(episode)
    opposite = _OPPOSITES[what](parse(episode.instruction))
    return (relabel_as_undone if opposite.surely_undone else expect_lower)(episode, opposite.command.text_as_written)
