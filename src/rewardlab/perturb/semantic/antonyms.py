"""Opposites of a command, and whether doing the command leaves its opposite wholly undone."""

from dataclasses import dataclass, replace

from rewardlab.core.errors import NotApplicable
from rewardlab.perturb.semantic.goal_state import home_of
from rewardlab.perturb.semantic.instruction_parser import DIRECTIONS
from rewardlab.perturb.semantic.lexicon import PLACE_OPPOSITES, SIDES, VERBS, find_noun
from rewardlab.perturb.semantic.sentence import PRONOUNS, Clause, Command, Place, Thing

_TURNED = {"press", "turn", "rotate", "twist", "flip", "push", "pull"}
_PUT = {
    *("put", "place", "set", "lay", "insert", "stack", "add", "slide", "drop", "collect", "transfer", "move", "bring"),
    *("carry", "pick and place", "hang"),
}
_INTO = {"in", "into", "inside"}
_ONTO = {"on", "onto", "on top of"}
_ORDERED = _INTO | _ONTO | {"under", "underneath", "above", "below", "behind", "in front of"}
_CAN_BE_MOVED = {"vessel", "food", "fabric", "utensil", "pen", "block", "hardware"}


@dataclass(frozen=True)
class Flip:
    """The opposite command; `undone` where the video of the command surely shows nothing of it."""

    command: Command
    undone: bool


def flip_sides(command: Command) -> Flip:
    """Exchange left and right, up and down, clockwise and counterclockwise wherever they are said."""
    clauses = tuple(_flip_clause(clause) for clause in command.clauses)
    if clauses == command.clauses:
        raise NotApplicable("it names no side and no direction")
    first = command.clauses[0]
    # Another side of the thing may stand for another thing; only a motion the other way is surely not this one.
    moved = first.verb in _TURNED or VERBS[first.verb].result == "somewhere"
    undone = len(clauses) == 1 and moved and clauses[0].thing == first.thing and _is_way(first.places)
    return Flip(replace(command, clauses=clauses), undone)


def _is_way(places: tuple[Place, ...]) -> bool:
    """Tell whether the places are one direction, or a way from one side to the other."""
    relations = [place.relation for place in places]
    if len(places) == 1:
        return places[0].relation in DIRECTIONS
    return relations == ["from", "to"] and all(_flip_place(place) != place for place in places)


def _flip_clause(clause: Clause) -> Clause:
    return replace(clause, thing=_flip_thing(clause.thing), places=tuple(map(_flip_place, clause.places)))


def _flip_thing(thing: Thing) -> Thing:
    adjectives = tuple(SIDES.get(word, word) for word in thing.adjectives)
    noun = SIDES[thing.noun] if thing.noun in {"left", "right"} else thing.noun
    return Thing(thing.article, adjectives, noun, tuple(map(_flip_place, thing.tail)))


def _flip_place(place: Place) -> Place:
    relation = place.relation
    if relation in DIRECTIONS or relation in {"to the left of", "to the right of"}:
        relation = " ".join(SIDES.get(word, word) for word in relation.split())
        relation = {"upside up": "upright"}.get(relation, relation)
    return Place(relation, _flip_thing(place.thing) if place.thing else None)


def flip_place(command: Command) -> Flip:
    """Ask for the thing under instead of on, outside instead of in, behind instead of in front of."""
    *before, last = command.clauses
    for number, place in enumerate(last.places):
        opposite = _opposite_place(place)
        if opposite:
            places = (*last.places[:number], Place(opposite, place.thing), *last.places[number + 1 :])
            verb = "put" if last.verb in {"insert", "stack"} else last.verb
            # The thing was at least brought there: how much of the way that is, nobody said.
            return Flip(replace(command, clauses=(*before, Clause(verb, last.thing, places))), False)
    raise NotApplicable("it names no place that has an opposite")


def _opposite_place(place: Place) -> str:
    if place.thing is None:
        return ""
    flat = place.relation in _INTO and home_of(place.thing) == "on"
    return PLACE_OPPOSITES.get("on" if flat else place.relation, "")


def flip_verb(command: Command) -> Flip:
    """Ask to close instead of to open, to take out instead of to put in."""
    *before, last = command.clauses
    clause = _opposite_act(last)
    if clause is None:
        raise NotApplicable("its verb has no opposite")
    return Flip(replace(command, clauses=(*before, clause)), not before)


def _opposite_act(clause: Clause) -> Clause | None:
    opposite = VERBS[clause.verb].opposite
    if opposite and all(place.thing is None for place in clause.places):
        return replace(clause, verb=opposite)
    place = clause.places[0] if len(clause.places) == 1 else None
    if place is None or place.thing is None:
        return None
    relation, home = place.relation, home_of(place.thing)
    if clause.verb in _PUT:
        inside = home == "in" if relation == "to" else relation in _INTO and home != "on"
        away = "out of" if inside else "off" if relation in _INTO | _ONTO or home == "on" else ""
        return Clause("take", clause.thing, (Place(away, place.thing),)) if away else None
    if VERBS[clause.verb].result == "gone" and relation in {"from", "out of", "off"} and home != "at":
        return Clause("put", clause.thing, (Place(f"back {home}", place.thing),))
    if VERBS[clause.verb].result == "given" and relation == "to":
        return Clause("take", clause.thing, (Place("from", place.thing),))
    return None


def exchange_roles(command: Command) -> Flip:
    """Ask for the second thing on the first instead of the first on the second."""
    *before, last = command.clauses
    place = last.places[0] if len(last.places) == 1 else None
    if place is None or place.thing is None or place.relation not in _ORDERED:
        raise NotApplicable("it does not put one thing to another")
    fetched = len(before) == 1 and last.thing.noun in PRONOUNS
    if before and not fetched:
        raise NotApplicable("it does something to two things")
    moved = before[0].thing if fetched else last.thing
    if not (_can_be_moved(moved) and _can_be_moved(place.thing)):
        raise NotApplicable("one of its two things cannot be moved")
    if place.relation in _INTO and not (_is_vessel(moved) and _is_vessel(place.thing)):
        raise NotApplicable("only one of its two things can hold the other")
    if fetched:
        pair = (replace(before[0], thing=place.thing), replace(last, places=(Place(place.relation, moved),)))
        return Flip(replace(command, clauses=pair), False)
    turned = replace(last, thing=place.thing, places=(Place(place.relation, moved),))
    return Flip(replace(command, clauses=(turned,)), False)


def _can_be_moved(thing: Thing) -> bool:
    known = find_noun(thing.noun)
    return known is not None and known.group in _CAN_BE_MOVED and thing.noun not in PRONOUNS


def _is_vessel(thing: Thing) -> bool:
    known = find_noun(thing.noun)
    return known is not None and known.group == "vessel"
