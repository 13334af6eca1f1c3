"""The wish told as the state of the world that fulfils it."""

from dataclasses import replace

from rewardlab.perturb.semantic.grammar import is_plural, participle
from rewardlab.perturb.semantic.instruction_parser import STATIC
from rewardlab.perturb.semantic.lexicon import VERBS, Home, find_noun
from rewardlab.perturb.semantic.sentence import PRONOUNS, Clause, Command, Place, Thing

_MOVED = {
    "to the left": "further to the left than before",
    "to the right": "further to the right than before",
    "left": "further to the left than before",
    "right": "further to the right than before",
    "from left to right": "on the right instead of on the left",
    "from right to left": "on the left instead of on the right",
    "from the left to the right": "on the right instead of on the left",
    "from the right to the left": "on the left instead of on the right",
}
_POSES = {"upright", "upside down"}


def describe_goal(command: Command) -> str:
    """Return the end state that a command asks for: "put the pear in the bowl" gives "the pear is in the bowl"."""
    clauses = command.clauses
    # Picking up is only the way to the second clause: what is held is then let go.
    if len(clauses) == 2 and _is_fetch(clauses[0], clauses[1]):
        return _state(replace(clauses[1], thing=clauses[0].thing))
    return " and ".join(_state(clause) for clause in clauses)


def _is_fetch(first: Clause, second: Clause) -> bool:
    return VERBS[first.verb].result == "held" and second.thing.noun in PRONOUNS and not first.places


def definite(thing: Thing) -> Thing:
    """Return the thing with an article: a bare "banana" is "the banana"."""
    bare = not thing.article and thing.noun not in PRONOUNS
    return replace(thing, article="the" if bare else thing.article)


def home_of(thing: Thing) -> Home:
    """Return whether other things are in it, on it or at it."""
    known = find_noun(thing.noun)
    return known.home if known else "at"


def _state(clause: Clause) -> str:
    thing = definite(clause.thing)
    is_ = "are" if is_plural(thing.noun) else "is"
    has = "have" if is_plural(thing.noun) else "has"
    rule = VERBS[clause.verb]
    last = clause.places[-1] if clause.places else None
    if rule.state and not last:
        return f"{thing.text} {rule.state.format(**{'is': is_, 'has': has})}"
    if rule.result == "held" and all(place.relation in {"from", "out of", "off"} for place in clause.places):
        return f"the robot is holding {thing.text}" + (f" taken {_where(clause)}" if last else "")
    end = _end_place(clause, last) if last else ""
    if end:
        return f"{thing.text} {is_} {end}"
    return " ".join(filter(None, [thing.text, has, "been", participle(clause.verb), _where(clause)]))


def _where(clause: Clause) -> str:
    return " ".join(_definite_place(place).text for place in clause.places)


def _definite_place(place: Place) -> Place:
    return replace(place, thing=definite(place.thing)) if place.thing else place


def _end_place(clause: Clause, last: Place) -> str:
    """Return where the thing is at the end, or nothing where the verb leaves no trace in space."""
    result, relation = VERBS[clause.verb].result, last.relation
    if relation in _POSES:
        return relation
    if last.thing is None:
        return _MOVED.get(relation, "") if result == "somewhere" else ""
    name = definite(last.thing).text
    if result == "gone" and relation in {"from", "out of", "off"}:
        return f"no longer {home_of(last.thing)} {name}"
    if result == "given" and relation == "to":
        return f"{'in' if home_of(last.thing) == 'in' else 'with'} {name}"
    if result != "somewhere":
        return ""
    if relation == "to":
        return f"{home_of(last.thing)} {name}"
    inner = {"into": "in", "onto": "on"}.get(relation, relation)
    return f"{inner} {name}" if inner in STATIC else ""
