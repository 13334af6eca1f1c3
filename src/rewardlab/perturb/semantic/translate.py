"""A semantic perturbation: the same wish in another language, whole or not at all."""

import re
from collections.abc import Callable
from dataclasses import replace

from numpy.random import Generator

from rewardlab.core.errors import NotApplicable
from rewardlab.perturb.contract import Spec, on_instruction
from rewardlab.perturb.semantic.goal_state import home_of
from rewardlab.perturb.semantic.grammar import capitalised
from rewardlab.perturb.semantic.instruction_parser import parse
from rewardlab.perturb.semantic.lexicon import KNOWN_WORDS
from rewardlab.perturb.semantic.sentence import PRONOUNS, Clause, Command, Place, Thing
from rewardlab.perturb.semantic.translations import ADJECTIVES, LANGUAGES, NOUNS, PATTERNS

Speak = Callable[[Thing, str], str]  # a thing and its case ("acc" or "dat") in words of one language

_SAME_VERB = {"place": "put", "set": "put", "lay": "put", "shut": "close", "rotate": "turn", "take out": "remove"}
_SAME_RELATION = {"into": "in", "inside": "in", "onto": "on", "on top of": "on"}
_GERMAN_ARTICLES = {
    ("the", "acc"): {"m": "den", "f": "die", "n": "das"},
    ("the", "dat"): {"m": "dem", "f": "der", "n": "dem"},
    ("a", "acc"): {"m": "einen", "f": "eine", "n": "ein"},
    ("a", "dat"): {"m": "einem", "f": "einer", "n": "einem"},
}
_GERMAN_PRONOUNS = {"m": "ihn", "f": "sie", "n": "es"}
_SWAHILI_PREFIX = {"3": "mw", "5": "j", "6": "m", "7": "ch", "9": "ny"}
_SWAHILI_LINK = {"3": "wa", "5": "la", "6": "ya", "7": "cha", "9": "ya"}


@on_instruction(
    Spec(
        "semantic",
        "languages to choose from",
        (("es", "de"), ("zh", "ja"), ("en+es", "en+de"), ("sw",)),
        "NL-Aug mixed_language",
        "per_clip",
    )
)
def language(text: str, choices: tuple[str, ...], rng: Generator) -> str:
    """The wish is told in another language, or with the names of things in another one."""
    command, draw = parse(text), float(rng.random())
    written = {choice: _translate(command, choice) for choice in choices}
    return written[choices[int(draw * len(choices))]]


def _translate(command: Command, choice: str) -> str:
    if choice.startswith("en+"):
        return command.write(command.with_things(lambda thing: _rename(thing, choice[3:])).text)
    pattern, clause, places = _sentence(command)
    template = _look_up(PATTERNS, pattern, choice)
    text = template.format_map(_fill(clause.thing, places, choice))
    text = re.sub(r"\bde el\b", "del", text) if choice == "es" else text
    text = text.replace("zu dem ", "zum ").replace("zu der ", "zur ") if choice == "de" else text
    ending = command.ending.replace(".", "。").replace("!", "!") if choice in {"zh", "ja"} else command.ending
    return (capitalised(text) if command.capital else text) + ending


def _rename(thing: Thing, choice: str) -> Thing:
    if thing.noun in PRONOUNS:
        return thing
    name = _noun(thing, choice)[1]
    if name.lower() in KNOWN_WORDS:
        raise NotApplicable(f"{name!r} in {choice} reads as an English word")
    return replace(thing, noun=name)


def _look_up(table: dict[str, tuple[str, ...]], word: str, choice: str) -> str:
    found = table[word.lower()][LANGUAGES.index(choice)] if word.lower() in table else ""
    if not found:
        raise NotApplicable(f"{word[:40]!r} is not in the {choice} lexicon, and nothing is half translated")
    return found


def _sentence(command: Command) -> tuple[str, Clause, tuple[Place, ...]]:
    """Return the name of the sentence pattern, the clause that holds the object, and the named places in order."""
    first, *others = command.clauses
    if not others and first.verb != "pick and place":
        return _pattern(first), first, first.places
    last = others[0] if others else first
    fetched = first.verb in {"pick up", "grab", "grasp", "pick", "pick and place"} and not (others and first.places)
    relation = _relation(last.places[0]) if len(last.places) == 1 else ""
    again = not others or (last.thing.noun in PRONOUNS and last.verb in {"put", "place", "set", "stack"})
    if len(others) > 1 or not fetched or not again or relation not in {"in", "on"}:
        raise NotApplicable("the sentence is of no pattern that we can translate")
    return f"fetch {relation}", first, last.places


def _pattern(clause: Clause) -> str:
    verb = _SAME_VERB.get(clause.verb, clause.verb)
    relations = [_relation(place) for place in clause.places]
    if verb in {"pick up", "remove"} and relations == ["from"]:
        inside = clause.places[0].thing and home_of(clause.places[0].thing) == "in"
        relations = ["out" if inside else "off"]
    return " ".join([verb, *relations])


def _relation(place: Place) -> str:
    relation = _SAME_RELATION.get(place.relation, place.relation)
    # What is "in" a plate lies on it.
    return "on" if relation == "in" and place.thing and home_of(place.thing) == "on" else relation


def _fill(thing: Thing, places: tuple[Place, ...], choice: str) -> dict[str, str]:
    """Return the words for the slots of a pattern."""
    say = _SPEAKERS[choice]
    named = [place.thing for place in places if place.thing]
    words = {"o": say(thing, "acc"), "e": say(thing, "dat")}
    if named:
        words |= {"t": say(named[-1], "acc"), "d": say(named[-1], "dat"), "s": say(named[0], "dat")}
    gender = _noun(thing, choice)[0]
    words |= {"lege": "stelle" if gender.endswith("+") else "lege", "lo": "lo" if gender == "m" else "la"}
    return words | {"ihn": _GERMAN_PRONOUNS.get(gender[:1], "")}


def _noun(thing: Thing, choice: str) -> tuple[str, str]:
    if thing.tail:
        raise NotApplicable(f"{thing.text[:40]!r} is of no pattern that we can translate")
    if thing.article not in {"", "the", "a", "an"}:
        raise NotApplicable(f"{thing.article!r} is not in the {choice} lexicon, and nothing is half translated")
    word = _look_up(NOUNS, thing.noun, choice)
    gender, _, name = word.partition(" ") if choice not in {"zh", "ja"} else ("", "", word)
    return gender, name


def _adjectives(thing: Thing, choice: str) -> list[str]:
    return [_look_up(ADJECTIVES, word, choice) for word in thing.adjectives]


def _spanish(thing: Thing, case: str) -> str:
    gender, noun = _noun(thing, "es")
    indefinite = thing.article in {"a", "an"}
    article = {"m": "un", "f": "una", "e": "un"}[gender] if indefinite else {"m": "el", "f": "la", "e": "el"}[gender]
    forms = [word.split("/")[0 if gender == "m" else 1] for word in _adjectives(thing, "es")]
    return " ".join([article, noun, *forms])


def _german(thing: Thing, case: str) -> str:
    gender, noun = _noun(thing, "de")
    kind, sex = "a" if thing.article in {"a", "an"} else "the", gender[0]
    ending = "e" if case == "acc" and sex != "m" else "en"
    ending = "es" if (kind, case, sex) == ("a", "acc", "n") else ending
    return " ".join([_GERMAN_ARTICLES[kind, case][sex], *(stem + ending for stem in _adjectives(thing, "de")), noun])


def _chinese(thing: Thing, case: str) -> str:
    return "".join([*_adjectives(thing, "zh"), _noun(thing, "zh")[1]])


def _japanese(thing: Thing, case: str) -> str:
    return "".join([*_adjectives(thing, "ja"), _noun(thing, "ja")[1]])


def _swahili(thing: Thing, case: str) -> str:
    group, noun = _noun(thing, "sw")
    return " ".join([noun, *(_agree(word, group) for word in _adjectives(thing, "sw"))])


def _agree(adjective: str, group: str) -> str:
    if adjective.startswith("@"):
        return f"{_SWAHILI_LINK[group]} {adjective[1:]}"
    return _SWAHILI_PREFIX[group] + adjective


_SPEAKERS: dict[str, Speak] = {"es": _spanish, "de": _german, "zh": _chinese, "ja": _japanese, "sw": _swahili}
