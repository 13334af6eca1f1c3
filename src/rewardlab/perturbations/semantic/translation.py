"""A semantic perturbation: the instruction in another language, translated whole or not at all."""

import re
from collections.abc import Callable
from dataclasses import replace

from numpy.random import Generator

from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import Spec, on_instruction
from rewardlab.perturbations.semantic.english_inflection import capitalised
from rewardlab.perturbations.semantic.foreign_lexicon import ADJECTIVES, LANGUAGES, NOUNS, SENTENCE_PATTERNS
from rewardlab.perturbations.semantic.goal_state import locative_of
from rewardlab.perturbations.semantic.instruction_parser import parse
from rewardlab.perturbations.semantic.lexicon import KNOWN_WORDS
from rewardlab.perturbations.semantic.syntax_tree import PRONOUNS, Clause, Command, NounPhrase, PrepPhrase

Inflect = Callable[[NounPhrase, str], str]  # a noun phrase in a case ("acc" or "dat"), in words of one language

_SAME_VERB = {"place": "put", "set": "put", "lay": "put", "shut": "close", "rotate": "turn", "take out": "remove"}
_SAME_PREPOSITION = {"into": "in", "inside": "in", "onto": "on", "on top of": "on"}
_GERMAN_ARTICLES = {
    ("the", "acc"): {"m": "den", "f": "die", "n": "das"},
    ("the", "dat"): {"m": "dem", "f": "der", "n": "dem"},
    ("a", "acc"): {"m": "einen", "f": "eine", "n": "ein"},
    ("a", "dat"): {"m": "einem", "f": "einer", "n": "einem"},
}
_GERMAN_PRONOUNS = {"m": "ihn", "f": "sie", "n": "es"}
_SWAHILI_PREFIX = {"3": "mw", "5": "j", "6": "m", "7": "ch", "9": "ny"}
_SWAHILI_LINK = {"3": "wa", "5": "la", "6": "ya", "7": "cha", "9": "ya"}
_LANGUAGES = (("es", "de"), ("zh", "ja"), ("en+es", "en+de"), ("sw",))


@on_instruction(Spec("semantic", "languages to choose from", _LANGUAGES, "NL-Aug mixed_language", "per_clip"))
def language(text: str, languages: tuple[str, ...], rng: Generator) -> str:
    """The instruction is given in another language, or with the nouns in another one."""
    command, draw = parse(text), float(rng.random())
    written = {code: _translate(command, code) for code in languages}
    return written[languages[int(draw * len(languages))]]


def _translate(command: Command, code: str) -> str:
    if code.startswith("en+"):
        return command.write(command.map_noun_phrases(lambda noun_phrase: _rename(noun_phrase, code[3:])).text)
    pattern, clause, phrases = _sentence(command)
    template = _look_up(SENTENCE_PATTERNS, pattern, code)
    text = template.format_map(_fill(clause.object, phrases, code))
    text = re.sub(r"\bde el\b", "del", text) if code == "es" else text
    text = text.replace("zu dem ", "zum ").replace("zu der ", "zur ") if code == "de" else text
    ending = command.ending.replace(".", "。").replace("!", "!") if code in {"zh", "ja"} else command.ending
    return (capitalised(text) if command.capital else text) + ending


def _rename(noun_phrase: NounPhrase, code: str) -> NounPhrase:
    if noun_phrase.noun in PRONOUNS:
        return noun_phrase
    name = _noun(noun_phrase, code)[1]
    if name.lower() in KNOWN_WORDS:
        raise NotApplicable(f"{name!r} in {code} reads as an English word")
    return replace(noun_phrase, noun=name)


def _look_up(table: dict[str, tuple[str, ...]], word: str, code: str) -> str:
    found = table[word.lower()][LANGUAGES.index(code)] if word.lower() in table else ""
    if not found:
        raise NotApplicable(f"{word[:40]!r} is not in the {code} lexicon, and nothing is half translated")
    return found


def _sentence(command: Command) -> tuple[str, Clause, tuple[PrepPhrase, ...]]:
    """Return the name of the sentence pattern, the clause that holds the object, and the named places in order."""
    first, *others = command.clauses
    if not others and first.verb != "pick and place":
        return _pattern(first), first, first.prep_phrases
    last = others[0] if others else first
    fetched = first.verb in {"pick up", "grab", "grasp", "pick", "pick and place"} and not (
        others and first.prep_phrases
    )
    preposition = _preposition(last.prep_phrases[0]) if len(last.prep_phrases) == 1 else ""
    again = not others or (last.object.noun in PRONOUNS and last.verb in {"put", "place", "set", "stack"})
    if len(others) > 1 or not fetched or not again or preposition not in {"in", "on"}:
        raise NotApplicable("the sentence is of no pattern that we can translate")
    return f"fetch {preposition}", first, last.prep_phrases


def _pattern(clause: Clause) -> str:
    verb = _SAME_VERB.get(clause.verb, clause.verb)
    prepositions = [_preposition(phrase) for phrase in clause.prep_phrases]
    if verb in {"pick up", "remove"} and prepositions == ["from"]:
        inside = clause.prep_phrases[0].object and locative_of(clause.prep_phrases[0].object) == "in"
        prepositions = ["out" if inside else "off"]
    return " ".join([verb, *prepositions])


def _preposition(phrase: PrepPhrase) -> str:
    preposition = _SAME_PREPOSITION.get(phrase.preposition, phrase.preposition)
    # What is "in" a plate lies on it.
    return "on" if preposition == "in" and phrase.object and locative_of(phrase.object) == "on" else preposition


def _fill(noun_phrase: NounPhrase, phrases: tuple[PrepPhrase, ...], code: str) -> dict[str, str]:
    """Return the words for the slots of a pattern."""
    inflect = _INFLECTIONS[code]
    named = [phrase.object for phrase in phrases if phrase.object]
    words = {"o": inflect(noun_phrase, "acc"), "e": inflect(noun_phrase, "dat")}
    if named:
        words |= {"t": inflect(named[-1], "acc"), "d": inflect(named[-1], "dat"), "s": inflect(named[0], "dat")}
    gender = _noun(noun_phrase, code)[0]
    words |= {"lege": "stelle" if gender.endswith("+") else "lege", "lo": "lo" if gender == "m" else "la"}
    return words | {"ihn": _GERMAN_PRONOUNS.get(gender[:1], "")}


def _noun(noun_phrase: NounPhrase, code: str) -> tuple[str, str]:
    if noun_phrase.modifiers:
        raise NotApplicable(f"{noun_phrase.text[:40]!r} is of no pattern that we can translate")
    if noun_phrase.determiner not in {"", "the", "a", "an"}:
        raise NotApplicable(f"{noun_phrase.determiner!r} is not in the {code} lexicon, and nothing is half translated")
    word = _look_up(NOUNS, noun_phrase.noun, code)
    gender, _, name = word.partition(" ") if code not in {"zh", "ja"} else ("", "", word)
    return gender, name


def _adjectives(noun_phrase: NounPhrase, code: str) -> list[str]:
    return [_look_up(ADJECTIVES, word, code) for word in noun_phrase.adjectives]


def _spanish(noun_phrase: NounPhrase, case: str) -> str:
    gender, noun = _noun(noun_phrase, "es")
    indefinite = noun_phrase.determiner in {"a", "an"}
    article = {"m": "un", "f": "una", "e": "un"}[gender] if indefinite else {"m": "el", "f": "la", "e": "el"}[gender]
    forms = [word.split("/")[0 if gender == "m" else 1] for word in _adjectives(noun_phrase, "es")]
    return " ".join([article, noun, *forms])


def _german(noun_phrase: NounPhrase, case: str) -> str:
    gender, noun = _noun(noun_phrase, "de")
    kind, sex = "a" if noun_phrase.determiner in {"a", "an"} else "the", gender[0]
    ending = "e" if case == "acc" and sex != "m" else "en"
    ending = "es" if (kind, case, sex) == ("a", "acc", "n") else ending
    return " ".join(
        [_GERMAN_ARTICLES[kind, case][sex], *(stem + ending for stem in _adjectives(noun_phrase, "de")), noun]
    )


def _chinese(noun_phrase: NounPhrase, case: str) -> str:
    return "".join([*_adjectives(noun_phrase, "zh"), _noun(noun_phrase, "zh")[1]])


def _japanese(noun_phrase: NounPhrase, case: str) -> str:
    return "".join([*_adjectives(noun_phrase, "ja"), _noun(noun_phrase, "ja")[1]])


def _swahili(noun_phrase: NounPhrase, case: str) -> str:
    group, noun = _noun(noun_phrase, "sw")
    return " ".join([noun, *(_swahili_agreement(word, group) for word in _adjectives(noun_phrase, "sw"))])


def _swahili_agreement(adjective: str, group: str) -> str:
    if adjective.startswith("@"):
        return f"{_SWAHILI_LINK[group]} {adjective[1:]}"
    return _SWAHILI_PREFIX[group] + adjective


_INFLECTIONS: dict[str, Inflect] = {"es": _spanish, "de": _german, "zh": _chinese, "ja": _japanese, "sw": _swahili}
