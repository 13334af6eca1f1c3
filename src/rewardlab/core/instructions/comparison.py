"""What two instructions have in common: the verb, the object, or neither."""

import re
from dataclasses import dataclass, replace
from functools import cache

from rewardlab.core.errors import NotApplicable
from rewardlab.core.instructions.lexicon import (
    COLOUR_CONTRASTS,
    GROUPS_OF_VAGUE_NOUN,
    LOOKALIKES,
    NOUNS,
    VAGUE_NOUNS,
    VERBS,
    find_noun,
)
from rewardlab.core.instructions.parser import (
    ADVERBS,
    DETERMINERS,
    PRONOUNS,
    Clause,
    Command,
    NounPhrase,
    map_clause_noun_phrases,
    parse,
    words_of,
)

FUNCTION_WORDS = {
    *DETERMINERS,
    *("to", "in", "into", "on", "onto", "of", "from", "out", "up", "down", "and", "then", "with", "under", "at"),
    *("left", "right", "over", "off", "inside", "by", "for", "next", "top", "front", "behind", "near", "using"),
    *PRONOUNS,
    *(word for adverb in ADVERBS for word in adverb.split()),
}
# What these verbs are done with is seldom named, so it may be moved too.
_DONE_WITH_A_TOOL = {"wipe", "clean", "wash", "stir", "cut", "scrub", "dry", "erase", "sweep", "hammer"}
_ACT = re.compile(r"to (?!the )|by \w+ing ")
_TOOLS = {"fabric", "utensil", "paper"}
_VERBS_ONLY = {word for verb in VERBS for word in verb.split()} - {word for noun in NOUNS for word in noun.split()}


def in_common(own: str, other: str, common: str) -> bool:
    """Tell whether this is what two instructions have in common, and that the rest differs."""
    if common == "no object":
        return _differ(own, other)
    first, second = last_act(own), last_act(other)
    if first is None or second is None:
        return False
    one, two = VERBS[first.verb], VERBS[second.verb]
    same_verb = first.verb == second.verb or second.verb in one.synonyms or first.verb in two.synonyms
    same_object = (first.object.adjectives, first.object.noun) == (second.object.adjectives, second.object.noun)
    if common == "verb":
        return same_verb and _differ(first.object.noun, second.object.noun)
    if common == "object":
        leads_elsewhere = (one.result, one.state) != (two.result, two.state) or one.opposite == second.verb
        return same_object and not same_verb and leads_elsewhere
    return same_verb and same_object and _differ(first.where, second.where)


@cache
def last_act(text: str) -> Clause | None:
    """Return what is done last, with the object that it names by a pronoun; None where the parser does not know."""
    try:
        *before, last = parse(text).clauses
    except NotApplicable:
        return None
    return replace(last, object=before[0].object) if before and last.object.noun in PRONOUNS else last


def surely_differ(one: str, other: str) -> bool:
    """Tell whether what one instruction acts on is nothing that the other one names, and the reverse.

    Both must act on known objects. They may share a place, such as the table.
    """
    first, second = _things_of(one), _things_of(other)
    if first is None or second is None:
        return False
    return _apart(first.handled, second.named | second.tools) and _apart(second.handled, first.named | first.tools)


@dataclass(frozen=True)
class _Things:
    """Words for what an instruction acts on, for everything that it names, and for what it may be done with."""

    handled: frozenset[str]
    named: frozenset[str]
    tools: frozenset[str]


@cache
def _things_of(text: str) -> _Things | None:
    """Return the things of an instruction; None where the lexicon does not know all that it acts on."""
    try:
        command = parse(text)
    except NotApplicable:
        return None
    objects = [clause.object for clause in command.clauses if clause.object.noun not in PRONOUNS]
    if not objects or not all(map(_is_known, objects)):
        return None
    # "push the button to open the lid" acts on the lid too
    endings = (phrase.preposition for clause in command.clauses for phrase in clause.prep_phrases)
    acts = " ".join(ending for ending in endings if _ACT.match(ending))
    also = _nouns_in(acts)
    if any(find_noun(word) is None and word not in VAGUE_NOUNS for word in also):
        return None
    with_tool = any(clause.verb in _DONE_WITH_A_TOOL for clause in command.clauses)
    tools = frozenset(noun for noun, known in NOUNS.items() if known.group in _TOOLS) if with_tool else frozenset[str]()
    return _Things(also.union(*map(_words_for, objects)), _named_in(command) | also, tools)


def _is_known(noun_phrase: NounPhrase) -> bool:
    """Tell whether a phrase, or each of those that are joined in it, ends in a known noun."""
    return all(
        find_noun(part) or find_noun(part.split(" ")[-1]) or part.split(" ")[-1].lower() in GROUPS_OF_VAGUE_NOUN
        for part in re.split(",? and |, ", noun_phrase.noun)
    )


def _words_for(noun_phrase: NounPhrase) -> frozenset[str]:
    """Return the words of a noun, and those of the nouns before it: "tea towel"."""
    words = words_of(" ".join((*filter(find_noun, noun_phrase.adjectives), noun_phrase.noun)))
    return frozenset(map(_singular, words - {"and", *DETERMINERS, *COLOUR_CONTRASTS}))


def _named_in(command: Command) -> frozenset[str]:
    named: set[str] = set()

    def collect(noun_phrase: NounPhrase) -> NounPhrase:
        named.update(_words_for(noun_phrase))
        return noun_phrase

    for clause in command.clauses:
        map_clause_noun_phrases(clause, collect)
        for phrase in clause.prep_phrases:  # "until the drawer is closed"
            named.update(word for word in _nouns_in(phrase.preposition) if find_noun(word))
    return frozenset(named)


def _apart(handled: frozenset[str], named: frozenset[str]) -> bool:
    """Tell whether nothing handled may be the same object as, or a part of, anything that is named."""
    if handled & (named | _other_words_for(named)) or named & _other_words_for(handled):
        return False
    vague = [(word, others) for one, others in ((handled, named), (named, handled)) for word in one & VAGUE_NOUNS]
    return not any(_may_name(word, other) for word, others in vague for other in others)


def _may_name(vague: str, other: str) -> bool:
    """Tell whether a vague noun may stand for another noun or for a part of it."""
    groups, known = GROUPS_OF_VAGUE_NOUN.get(vague), find_noun(other)
    return groups is None or known is None or known.group in groups or other in VAGUE_NOUNS


def _differ(one: str, other: str) -> bool:
    """Tell whether two texts name no common object, nor one that is known as a part or a kind of the other's."""
    first, second = _nouns_in(one), _nouns_in(other)
    return bool(first and second) and not (first | second) & VAGUE_NOUNS and not may_name_the_same(one, other)


@cache
def _nouns_in(text: str) -> frozenset[str]:
    words = words_of(text) - FUNCTION_WORDS - _VERBS_ONLY - set(COLOUR_CONTRASTS)
    return frozenset(map(_singular, words))


def _singular(word: str) -> str:
    return word[:-1] if find_noun(word) and word not in NOUNS else word


def may_name_the_same(one: str, other: str) -> bool:
    """Tell whether two nouns may be words for one object."""
    first, second = _nouns_in(one), _nouns_in(other)
    return bool(first & (second | _other_words_for(second)) or second & _other_words_for(first))


@cache
def _other_words_for(nouns: frozenset[str]) -> frozenset[str]:
    """Return the words of synonyms, of kinds, and of what people call the same objects."""
    known = [noun for noun in map(find_noun, nouns) if noun]
    names = [name for noun in known for name in (*noun.synonyms, noun.hypernym)]
    alike = {word for row in LOOKALIKES if row & nouns for word in row}
    return frozenset(({word for name in names for word in name.split()} - {"piece", "of"}) | (alike - nouns))
