"""Another object, colour, direction or action than the video shows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from numpy.random import Generator

from rewardlab.core.episode import Episode
from rewardlab.core.errors import NotApplicable
from rewardlab.core.instructions.comparison import may_name_the_same
from rewardlab.core.instructions.lexicon import (
    COLOUR_CONTRASTS,
    COUNTERFACTUAL_OBJECTS,
    OPPOSITE_DIRECTIONS,
    OPPOSITE_PREPOSITIONS,
    VERBS,
    find_noun,
)
from rewardlab.core.instructions.parser import (
    DIRECTIONS,
    PRONOUNS,
    Clause,
    Command,
    NounPhrase,
    PrepPhrase,
    locative_of,
    parse,
    words_of,
)
from rewardlab.perturbations.contract import (
    Episodes,
    PerturbedEpisode,
    expect_lower,
    on_episode,
    relabel_as_undone,
    require_known_success,
)

_TURNING_VERBS = {"press", "turn", "rotate", "twist", "flip", "push", "pull"}
_PUT = {
    *("put", "place", "set", "lay", "insert", "stack", "add", "slide", "drop", "collect", "transfer", "move", "bring"),
    *("carry", "pick and place", "hang"),
}
_INTO = {"in", "into", "inside"}
_ONTO = {"on", "onto", "on top of"}
_ORDERED = _INTO | _ONTO | {"under", "underneath", "above", "below", "behind", "in front of"}
_CAN_BE_MOVED = {"vessel", "food", "fabric", "utensil", "pen", "block", "hardware"}


@dataclass(frozen=True)
class OppositeCommand:
    """The opposite command; `surely_undone` where the video of the command surely shows nothing of it."""

    command: Command
    surely_undone: bool


def opposite_direction(command: Command) -> OppositeCommand:
    """Exchange left and right, up and down, clockwise and counterclockwise wherever they are said."""
    clauses = tuple(
        Clause(clause.verb, _turn_noun_phrase(clause.object), tuple(map(_turn_phrase, clause.prep_phrases)))
        for clause in command.clauses
    )
    if clauses == command.clauses:
        raise NotApplicable("it needs a side or a direction, such as 'left' or 'upwards'")
    if any(phrase.preposition.startswith(("until", "so that")) for clause in clauses for phrase in clause.prep_phrases):
        raise NotApplicable("the direction must not lead to a stated end, as in 'until it is closed'")
    first = command.clauses[0]
    # Another side of the object may stand for another object; only a motion the other way is surely not this one.
    moved = first.verb in _TURNING_VERBS or VERBS[first.verb].result == "somewhere"
    surely_undone = (
        len(clauses) == 1 and moved and clauses[0].object == first.object and _is_direction(first.prep_phrases)
    )
    return OppositeCommand(replace(command, clauses=clauses), surely_undone)


def _is_direction(phrases: tuple[PrepPhrase, ...]) -> bool:
    """Tell whether the phrases are one direction, or a way from one side to the other."""
    prepositions = [phrase.preposition for phrase in phrases]
    if len(phrases) == 1:
        return phrases[0].preposition in DIRECTIONS
    return prepositions == ["from", "to"] and all(_turn_phrase(phrase) != phrase for phrase in phrases)


def _turn_noun_phrase(noun_phrase: NounPhrase) -> NounPhrase:
    adjectives = tuple(OPPOSITE_DIRECTIONS.get(word, word) for word in noun_phrase.adjectives)
    noun = OPPOSITE_DIRECTIONS[noun_phrase.noun] if noun_phrase.noun in {"left", "right"} else noun_phrase.noun
    return NounPhrase(noun_phrase.determiner, adjectives, noun, tuple(map(_turn_phrase, noun_phrase.modifiers)))


def _turn_phrase(phrase: PrepPhrase) -> PrepPhrase:
    preposition = phrase.preposition
    if preposition in DIRECTIONS or preposition in {"to the left of", "to the right of"}:
        preposition = " ".join(OPPOSITE_DIRECTIONS.get(word, word) for word in preposition.split())
        preposition = {"upside up": "upright"}.get(preposition, preposition)
    return PrepPhrase(preposition, _turn_noun_phrase(phrase.object) if phrase.object else None)


def opposite_preposition(command: Command) -> OppositeCommand:
    """Ask for the object under instead of on, outside instead of in, behind instead of in front of."""
    *before, last = command.clauses
    for number, phrase in enumerate(last.prep_phrases):
        flat = phrase.preposition in _INTO and phrase.object and locative_of(phrase.object) == "on"
        opposite = OPPOSITE_PREPOSITIONS.get("on" if flat else phrase.preposition) if phrase.object else None
        if opposite:
            before_it, after_it = last.prep_phrases[:number], last.prep_phrases[number + 1 :]
            phrases = (*before_it, PrepPhrase(opposite, phrase.object), *after_it)
            verb = "put" if last.verb in {"insert", "stack"} else last.verb
            # The object was at least brought there: how much of the way that is, nobody said.
            return OppositeCommand(replace(command, clauses=(*before, Clause(verb, last.object, phrases))), False)
    raise NotApplicable("it needs a location with an opposite, such as 'on the plate'")


def opposite_verb(command: Command) -> OppositeCommand:
    """Ask to close instead of to open, to take out instead of to put in."""
    *before, last = command.clauses
    clause = _opposite_act(last)
    if clause is None:
        raise NotApplicable("it needs a verb with an opposite, such as 'open'")
    return OppositeCommand(replace(command, clauses=(*before, clause)), not before)


def _opposite_act(clause: Clause) -> Clause | None:
    opposite = VERBS[clause.verb].opposite
    if opposite and all(phrase.object is None for phrase in clause.prep_phrases):
        return replace(clause, verb=opposite)
    phrase = clause.prep_phrases[0] if len(clause.prep_phrases) == 1 else None
    if phrase is None or phrase.object is None:
        return None
    preposition, locative = phrase.preposition, locative_of(phrase.object)
    if clause.verb in _PUT:
        inside = locative == "in" if preposition == "to" else preposition in _INTO and locative != "on"
        away = "out of" if inside else "off" if preposition in _INTO | _ONTO or locative == "on" else ""
        return Clause("take", clause.object, (PrepPhrase(away, phrase.object),)) if away else None
    if VERBS[clause.verb].result == "gone" and preposition in {"from", "out of", "off"} and locative != "at":
        return Clause("put", clause.object, (PrepPhrase(f"back {locative}", phrase.object),))
    if VERBS[clause.verb].result == "given" and preposition == "to":
        return Clause("take", clause.object, (PrepPhrase("from", phrase.object),))
    return None


def exchange_roles(command: Command) -> OppositeCommand:
    """Ask for the second object on the first instead of the first on the second."""
    *before, last = command.clauses
    phrase = last.prep_phrases[0] if len(last.prep_phrases) == 1 else None
    if phrase is None or phrase.object is None or phrase.preposition not in _ORDERED:
        raise NotApplicable("it needs an object that is put in, on or under another one")
    fetched = len(before) == 1 and last.object.noun in PRONOUNS
    if before and not fetched:
        raise NotApplicable("it needs a single object that is moved")
    moved = before[0].object if fetched else last.object
    groups = {_movable_group(moved), _movable_group(phrase.object)}
    if "" in groups:
        raise NotApplicable("it needs two objects that are known to be movable")
    if phrase.preposition in _INTO and groups != {"vessel"}:
        raise NotApplicable("it needs two objects that can hold each other")
    placed = replace(last, prep_phrases=(PrepPhrase(phrase.preposition, moved),))
    if fetched:
        clauses: tuple[Clause, ...] = (replace(before[0], object=phrase.object), placed)
    else:
        clauses = (replace(placed, object=phrase.object),)
    return OppositeCommand(replace(command, clauses=clauses), False)


def _movable_group(noun_phrase: NounPhrase) -> str:
    """Return the group of objects that it belongs to; nothing where it cannot be moved."""
    known = find_noun(noun_phrase.noun)
    return known.group if known and known.group in _CAN_BE_MOVED and noun_phrase.noun not in PRONOUNS else ""


_DISTANCES = ("near", "other", "far", "opposite")
_SUBSTITUTES = ("same kind", "other kind", "not there", "impossible")

_swapped_word = partial(
    on_episode,
    "semantic",
    channel="instruction",
    based_on="RoboReward counterfactual relabelling",
    randomness="per_clip",
    label="changes",
    expect="lower",
)


@_swapped_word(parameter="how unlike the true colour the named one is", table=_DISTANCES)
def colour_swap(episode: Episode, distance: str, rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """An object of another colour is asked for than the one that was handled."""
    require_known_success(episode)
    command, draw = parse(episode.instruction), float(rng.random())
    said = words_of(episode.instruction)
    named = [word for word in command.adjectives if word in COLOUR_CONTRASTS]
    others = {word: [other for other in COLOUR_CONTRASTS[word] if other not in said] for word in named}
    colours = [word for word, unsaid in others.items() if unsaid]
    if not colours:
        raise NotApplicable("it needs an object that is named by its colour")
    colour = colours[int(draw * len(colours))]
    other = others[colour][min(_DISTANCES.index(distance), len(others[colour]) - 1)]

    def recolour(noun_phrase: NounPhrase) -> NounPhrase:
        adjectives = tuple(other if word == colour else word for word in noun_phrase.adjectives)
        return replace(noun_phrase, adjectives=adjectives)

    recoloured = command.map_noun_phrases(recolour)
    return expect_lower(episode, command.write(recoloured.text))


@_swapped_word(parameter="what is named instead", table=_SUBSTITUTES, version=2)
def object_swap(episode: Episode, choice: str, rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """Another object is asked for than the one that was handled."""
    require_known_success(episode)
    command, draw = parse(episode.instruction), float(rng.random())
    first, *others = command.clauses
    known = find_noun(first.object.noun)
    group = "something that opens" if known and first.verb in {"open", "close", "shut"} else known and known.group
    if group not in COUNTERFACTUAL_OBJECTS:
        raise NotApplicable(f"the lexicon needs objects that are unlike {first.object.noun[:40]!r}")
    row = COUNTERFACTUAL_OBJECTS[group][_SUBSTITUTES.index(choice)]
    unsaid = (name for name in row if not words_of(name) & words_of(episode.instruction))
    fresh = [name for name in unsaid if not may_name_the_same(name, first.object.noun)]
    if not fresh:
        raise NotApplicable(f"the lexicon needs another object, {choice}, than those already named")
    described = tuple(phrase for phrase in first.object.modifiers if phrase.preposition != "of")
    noun_phrase = replace(first.object, noun=fresh[int(draw * len(fresh))], modifiers=described)
    swapped = replace(command, clauses=(replace(first, object=noun_phrase), *others))
    return expect_lower(episode, command.write(swapped.text))


_OPPOSITES: dict[str, Callable[[Command], OppositeCommand]]
_OPPOSITES = {"side": opposite_direction, "place": opposite_preposition, "verb": opposite_verb, "roles": exchange_roles}


@on_episode(
    "semantic",
    channel="instruction",
    parameter="what is turned into its opposite",
    table=("side", "place", "verb", "roles"),
    based_on="contrast sets",
    label="changes",
    expect="relabel",
    version=2,
)
def relation_flip(episode: Episode, what: str, _rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """The opposite is asked for: the other side, under for on, close for open, or the two objects exchanged."""
    require_known_success(episode)
    command = parse(episode.instruction)
    opposite = _OPPOSITES[what](command)
    return (relabel_as_undone if opposite.surely_undone else expect_lower)(
        episode, command.write(opposite.command.text)
    )
