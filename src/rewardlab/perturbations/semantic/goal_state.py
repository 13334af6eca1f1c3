"""The goal told as the state of the world that reaches it."""

from dataclasses import replace

from rewardlab.perturbations.semantic.english_inflection import is_plural, participle
from rewardlab.perturbations.semantic.instruction_parser import STATIC_PREPOSITIONS
from rewardlab.perturbations.semantic.lexicon import VERBS, Locative, find_noun
from rewardlab.perturbations.semantic.syntax_tree import PRONOUNS, Clause, Command, NounPhrase, PrepPhrase

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
        return _state(replace(clauses[1], object=clauses[0].object))
    return " and ".join(_state(clause) for clause in clauses)


def _is_fetch(first: Clause, second: Clause) -> bool:
    return VERBS[first.verb].result == "held" and second.object.noun in PRONOUNS and not first.prep_phrases


def definite(noun_phrase: NounPhrase) -> NounPhrase:
    """Return the phrase with an article: a bare "banana" is "the banana"."""
    bare = not noun_phrase.determiner and noun_phrase.noun not in PRONOUNS
    return replace(noun_phrase, determiner="the" if bare else noun_phrase.determiner)


def locative_of(noun_phrase: NounPhrase) -> Locative:
    """Return whether other objects are in it, on it or at it."""
    known = find_noun(noun_phrase.noun)
    return known.locative if known else "at"


def _state(clause: Clause) -> str:
    noun_phrase = definite(clause.object)
    is_ = "are" if is_plural(noun_phrase.noun) else "is"
    has = "have" if is_plural(noun_phrase.noun) else "has"
    rule = VERBS[clause.verb]
    last = clause.prep_phrases[-1] if clause.prep_phrases else None
    if rule.state and not last:
        return f"{noun_phrase.text} {rule.state.format(**{'is': is_, 'has': has})}"
    if rule.result == "held" and all(phrase.preposition in {"from", "out of", "off"} for phrase in clause.prep_phrases):
        return f"the robot is holding {noun_phrase.text}" + (f" taken {_where(clause)}" if last else "")
    end = _final_location(clause, last) if last else ""
    if end:
        return f"{noun_phrase.text} {is_} {end}"
    return " ".join(filter(None, [noun_phrase.text, has, "been", participle(clause.verb), _where(clause)]))


def _where(clause: Clause) -> str:
    return " ".join(_definite_phrase(phrase).text for phrase in clause.prep_phrases)


def _definite_phrase(phrase: PrepPhrase) -> PrepPhrase:
    return replace(phrase, object=definite(phrase.object)) if phrase.object else phrase


def _final_location(clause: Clause, last: PrepPhrase) -> str:
    """Return where the object is at the end, or nothing where the verb leaves no trace in space."""
    result, preposition = VERBS[clause.verb].result, last.preposition
    if preposition in _POSES:
        return preposition
    if last.object is None:
        return _MOVED.get(preposition, "") if result == "somewhere" else ""
    name = definite(last.object).text
    if result == "gone" and preposition in {"from", "out of", "off"}:
        return f"no longer {locative_of(last.object)} {name}"
    if result == "given" and preposition == "to":
        return f"{'in' if locative_of(last.object) == 'in' else 'with'} {name}"
    if result != "somewhere":
        return ""
    if preposition == "to":
        return f"{locative_of(last.object)} {name}"
    inner = {"into": "in", "onto": "on"}.get(preposition, preposition)
    return f"{inner} {name}" if inner in STATIC_PREPOSITIONS else ""
