"""A small parser of robot imperatives: verb, object, and where it goes to or comes from."""

import re
from collections.abc import Sequence
from dataclasses import replace

from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.semantic.lexicon import KNOWN_WORDS, NOUNS, VERBS
from rewardlab.perturbations.semantic.syntax_tree import PRONOUNS, Clause, Command, NounPhrase, PrepPhrase

DETERMINERS = {"the", "a", "an", "this", "that", "some", "all", "both", "each", "every", "my", "your", "its", "their"}
DIRECTIONS = (
    "from left to right", "from right to left", "from top to bottom", "from bottom to top", "from front to back",
    "from the left to the right", "from the right to the left", "to the left", "to the right", "from above",
    "from below", "upside down", "counterclockwise", "clockwise", "upright", "upwards", "downwards", "forward",
    "backward", "in half", "up", "down", "left", "right",
)  # fmt: skip
# Prepositions that say where an object is; the others say where it goes, where it comes from, or with what.
STATIC_PREPOSITIONS = {
    "in", "on", "at", "inside", "outside", "under", "underneath", "below", "above", "over", "behind", "beside", "near",
    "next to", "on top of", "in front of", "to the left of", "to the right of",
}  # fmt: skip
_DYNAMIC_PREPOSITIONS = {
    *("into", "onto", "to", "towards", "toward", "from", "out of", "off", "with", "using", "through"),
    *("around", "against", "across", "along"),
}
_PREPOSITIONS = (*sorted(STATIC_PREPOSITIONS | _DYNAMIC_PREPOSITIONS | {"of"}, key=lambda name: -name.count(" ")),)
_DESTINATION_PREPOSITIONS = {"into", "onto", "to", "towards", "toward", *DIRECTIONS}
_CONJUNCTIONS = ((",", "and", "then"), (",", "then"), (",", "and"), ("and", "then"), ("and",), ("then",), (",",))
_NOT_IN_A_NOUN_PHRASE = {
    *("and", "or", "then", "that", "which", "who", "is", "are", "be", "has", "not", "never", "without", "while"),
    *("until", "if", "when", "by", "for", "as", "so", "but", "except", "again", "twice", "once", "please", "between"),
    *("do", "don't", "very", "there", "here", "you", "i", "he", "she", "they", "we", "than", "also", "before"),
    *("after", "away", "together", "apart", "back", ",", *PRONOUNS),
}
_LOWERCASE_WORDS = KNOWN_WORDS | DETERMINERS | PRONOUNS
_LOWERCASE_WORDS |= {word for name in (*_PREPOSITIONS, *DIRECTIONS) for word in name.split()}
_PLAIN_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9'’-]*")
_MAX_NAME_WORDS = 5
_MAX_COMMAND_WORDS = 60


def parse(text: str) -> Command:
    """Return the syntax tree of an imperative; not applicable where the sentence has another form."""
    body = " ".join(text.split())
    bare = body.rstrip(".!")
    words = re.findall(r"[^\s,]+|,", bare)
    if len(words) > _MAX_COMMAND_WORDS:
        raise NotApplicable(
            f"cannot parse {_abbreviated(text)}: it has {len(words)} words, more than {_MAX_COMMAND_WORDS}"
        )
    odd = next((word for word in words if word != "," and not _PLAIN_WORD.fullmatch(word)), None)
    if odd or not words:
        raise NotApplicable(f"cannot parse {_abbreviated(text)}: {_abbreviated(odd or '')} is not a plain word")
    clauses, conjunctions = _read_clauses([words[0].lower(), *map(_lowercase_if_known, words[1:])], text)
    return Command(tuple(clauses), tuple(conjunctions), body[0].isupper(), body[len(bare) :])


def _lowercase_if_known(word: str) -> str:
    """Return a word of the lexicon in lower case; names keep their capitals."""
    return word.lower() if word.lower() in _LOWERCASE_WORDS else word


def write_if_changed(command: Command, text: str, problem: str, beyond: str = "") -> str:
    """Return the new sentence; not applicable where it says no more than the old one, or than a weaker change."""
    if text in (command.text, beyond):
        raise NotApplicable(f"cannot be reworded: {problem}")
    return command.write(text)


def _read_clauses(words: list[str], text: str) -> tuple[list[Clause], list[str]]:
    clauses: list[Clause] = []
    conjunctions: list[str] = []
    while True:
        verb = _match(words, tuple(VERBS))
        if not verb:
            raise NotApplicable(
                f"cannot parse {_abbreviated(text)}: it does not start with a verb of the robot lexicon"
            )
        words = words[verb.count(" ") + 1 :]
        end, conjunction = _find_conjunction(words)
        clauses.append(_read_clause(verb, words[:end]))
        if not conjunction:
            return clauses, conjunctions
        conjunctions.append(" ".join(("", *conjunction, "")).replace(" ,", ","))
        words = words[end + len(conjunction) :]


def _find_conjunction(words: list[str]) -> tuple[int, tuple[str, ...]]:
    for index in range(1, len(words)):
        for conjunction in _CONJUNCTIONS:
            end = index + len(conjunction)
            if tuple(word.lower() for word in words[index:end]) == conjunction and _match(words[end:], tuple(VERBS)):
                return index, conjunction
    return len(words), ()


def _match(words: list[str], names: Sequence[str]) -> str:
    """Return the longest of these names that the words start with, or nothing."""
    start = [word.lower() for word in words[:6]]
    found = [name for name in names if start[: name.count(" ") + 1] == name.split(" ")]
    return max(found, key=len, default="")


def _read_clause(verb: str, words: list[str]) -> Clause:
    pieces = _split_at_prepositions(words)
    named = [(preposition, _read_noun_phrase(name) if name else None) for preposition, name in pieces]
    noun_phrase = named[0][1]
    if noun_phrase is None:
        raise NotApplicable(f"cannot parse: {verb!r} has no object")
    clause = Clause(verb, noun_phrase)
    # A verb that puts an object somewhere takes one static phrase as its destination; others describe the object.
    has_destination = any(preposition in _DESTINATION_PREPOSITIONS for preposition, _ in named)
    settled = VERBS[verb].result != "somewhere" or has_destination
    for preposition, name in named[1:]:
        describes = preposition == "of" or (settled and preposition in STATIC_PREPOSITIONS)
        phrase = PrepPhrase(preposition, name)
        clause = _describe(clause, phrase) if describes else _extend(clause, phrase)
        settled = settled or preposition in STATIC_PREPOSITIONS
    return clause


def _extend(clause: Clause, phrase: PrepPhrase) -> Clause:
    return replace(clause, prep_phrases=(*clause.prep_phrases, phrase))


def _describe(clause: Clause, phrase: PrepPhrase) -> Clause:
    """Attach a phrase to the noun phrase just before it."""
    if not clause.prep_phrases:
        return replace(clause, object=_with_modifier(clause.object, phrase))
    last = clause.prep_phrases[-1]
    if last.object is None:
        raise NotApplicable(f"cannot parse: {phrase.text!r} describes nothing")
    described = replace(last, object=_with_modifier(last.object, phrase))
    return replace(clause, prep_phrases=(*clause.prep_phrases[:-1], described))


def _with_modifier(noun_phrase: NounPhrase, phrase: PrepPhrase) -> NounPhrase:
    return replace(noun_phrase, modifiers=(*noun_phrase.modifiers, phrase))


def _split_at_prepositions(words: list[str]) -> list[tuple[str, list[str]]]:
    """Cut into ("", object words), (preposition, words), ..."""
    pieces: list[tuple[str, list[str]]] = [("", [])]
    index = 0
    while index < len(words):
        preposition = _preposition_at(words, index)
        if preposition:
            pieces.append((preposition, []))
            index += preposition.count(" ") + 1
        elif pieces[-1][0] in DIRECTIONS:
            raise NotApplicable(f"cannot parse: {_abbreviated(words[index])} after {pieces[-1][0]!r}")
        else:
            pieces[-1][1].append(words[index])
            index += 1
    return pieces


def _preposition_at(words: list[str], index: int) -> str:
    direction = _match(words[index:], DIRECTIONS)
    preposition = _match(words[index:], _PREPOSITIONS)
    if direction and len(direction) > len(preposition):
        after = index + direction.count(" ") + 1
        ends = after == len(words) or _match(words[after:], (*_PREPOSITIONS, *DIRECTIONS))
        if index > 0 and words[index - 1].lower() not in DETERMINERS | set(_PREPOSITIONS) and ends:
            return direction
    return preposition


def _read_noun_phrase(words: list[str]) -> NounPhrase:
    determiner = words[0].lower() if words[0].lower() in DETERMINERS else ""
    rest = words[1:] if determiner else words
    lowered = [word.lower() for word in rest]
    if len(rest) == 1 and lowered[0] in PRONOUNS:
        return NounPhrase("", (), lowered[0])
    bad = any(word in _NOT_IN_A_NOUN_PHRASE | DETERMINERS or _is_adverb(word) for word in lowered)
    measured = any(word[0].isdigit() for word in rest[1:])
    if not rest or bad or measured or len(rest) > _MAX_NAME_WORDS:
        raise NotApplicable(f"cannot parse: {_abbreviated(' '.join(words))} does not name one object")
    size = next((n for n in (3, 2) if " ".join(lowered[-n:]) in NOUNS), 1)
    return NounPhrase(determiner, tuple(rest[:-size]), " ".join(rest[-size:]))


def _is_adverb(word: str) -> bool:
    return word.endswith("ly") and word not in {"jelly", "fly", "butterfly", "curly", "smelly", "belly"}


def _abbreviated(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
