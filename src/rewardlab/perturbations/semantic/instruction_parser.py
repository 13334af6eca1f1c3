"""A parser of English robot instructions: inflection, syntax tree, parsing and writing."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.semantic.lexicon import KNOWN_WORDS, NOUNS, VERBS, Locative, find_noun

_DOUBLE_LAST_LETTER = {
    *("put", "set", "cut", "flip", "stir", "grab", "tip", "uncap", "cap", "drop", "get", "hit", "wrap", "shut"),
    *("spin", "tap", "pat", "let", "tug", "grip", "drag", "slam", "slot", "fit", "mop", "transfer"),
}
_PARTICIPLES = {
    "put": "put", "set": "set", "shut": "shut", "cut": "cut", "hit": "hit", "let": "let", "take": "taken",
    "slide": "slid", "sweep": "swept", "hang": "hung", "throw": "thrown", "bring": "brought", "give": "given",
    "get": "got", "spin": "spun", "stick": "stuck", "make": "made", "lay": "laid", "spread": "spread", "hold": "held",
    "drive": "driven",
}  # fmt: skip
_ARTICLE = re.compile(r"\b([Aa])n? (?=(\w+))")
_CONSONANT_SOUND = ("uni", "use", "usu", "uten", "eu", "one", "once")
_VOWEL_SOUND = ("hour", "honest", "heir")
_CAPITALISED_WORD = re.compile(r"[A-Z][a-z]*(?![A-Z])\b")


def gerund(verb: str) -> str:
    """Return the -ing form of a verb phrase: "pick up" becomes "picking up"."""
    return _inflect(verb, _ing)


def participle(verb: str) -> str:
    """Return the past participle of a verb phrase: "take out" becomes "taken out"."""
    return _inflect(verb, _past)


def _inflect(verb: str, form: Callable[[str], str]) -> str:
    phrases = (phrase.partition(" ") for phrase in verb.split(" and "))
    return " and ".join(form(first) + space + rest for first, space, rest in phrases)


def _ing(word: str) -> str:
    if word in _DOUBLE_LAST_LETTER:
        return word + word[-1] + "ing"
    return (word[:-1] if word.endswith("e") and not word.endswith("ee") else word) + "ing"


def _past(word: str) -> str:
    if word in _PARTICIPLES:
        return _PARTICIPLES[word]
    if word in _DOUBLE_LAST_LETTER:
        return word + word[-1] + "ed"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ied"
    return word + ("d" if word.endswith("e") else "ed")


def is_plural(noun: str) -> bool:
    """Tell whether a noun takes "are"."""
    last = noun.rpartition(" ")[2].lower()
    return last == "them" or (len(last) > 3 and last.endswith("s") and not last.endswith(("ss", "us", "is")))


def fix_articles(text: str) -> str:
    """Write "a" or "an" to match the sound of the next word."""

    def article(found: re.Match[str]) -> str:
        word = found[2].lower()
        vowel = word[0] in "aeiou" and not word.startswith(_CONSONANT_SOUND)
        return found[1] + ("n " if vowel or word.startswith(_VOWEL_SOUND) else " ")

    return _ARTICLE.sub(article, text)


def capitalised(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def inside_sentence(text: str) -> str:
    """Return the text as it reads after other words: trimmed, and without the capital of a sentence start."""
    text = text.strip()
    return text[:1].lower() + text[1:] if _CAPITALISED_WORD.match(text) and not text.startswith("I ") else text


def as_sentence(text: str) -> str:
    """Return the text trimmed and closed by a full stop, unless it already ends with punctuation."""
    text = text.strip()
    return text if text.endswith((".", "!", "?", "。", "…")) else text.rstrip(",;:") + "."


def words_of(text: str) -> set[str]:
    """Return the words of a text, in lower case."""
    return set(re.findall(r"\w+", text.lower()))


# The syntax tree of a robot imperative: noun phrases, prepositional phrases, clauses, and how they are written out.

PRONOUNS = {"it", "them"}
_PARTICLES = {"up", "down", "out", "on", "off", "over"}


@dataclass(frozen=True)
class NounPhrase:
    """A named object: determiner, adjectives, noun, and modifiers ("of the toilet", "under the shelf")."""

    determiner: str
    adjectives: tuple[str, ...]
    noun: str
    modifiers: tuple["PrepPhrase", ...] = ()

    @property
    def name(self) -> str:
        """Return the phrase in words, without what follows the noun."""
        return " ".join(word for word in (self.determiner, *self.adjectives, self.noun) if word)

    @property
    def text(self) -> str:
        """Return the phrase in words."""
        return " ".join([self.name, *(phrase.text for phrase in self.modifiers)])


@dataclass(frozen=True)
class PrepPhrase:
    """A preposition and its object ("into the pot"), or a direction alone ("to the left")."""

    preposition: str
    object: NounPhrase | None = None

    @property
    def text(self) -> str:
        """Return the phrase in words."""
        return f"{self.preposition} {self.object.text}" if self.object else self.preposition


@dataclass(frozen=True)
class Clause:
    """A verb, its direct object, and where the object goes to or comes from."""

    verb: str
    object: NounPhrase
    prep_phrases: tuple[PrepPhrase, ...] = ()

    @property
    def where(self) -> str:
        """Return the prepositional phrases in words, with a space in front; empty if there are none."""
        return "".join(f" {phrase.text}" for phrase in self.prep_phrases)

    @property
    def text(self) -> str:
        """Return the clause in words."""
        return self.with_verb_form(self.verb)

    def with_verb_form(self, verb: str) -> str:
        """Return the clause with another form of its verb: "pick up the cup", but "pick it up"."""
        stem, _, particle = verb.rpartition(" ")
        if self.object.noun in PRONOUNS and stem and particle in _PARTICLES:
            return f"{stem} {self.object.text} {particle}{self.where}"
        return f"{verb} {self.object.text}{self.where}"


@dataclass(frozen=True)
class Command:
    """A parsed instruction: one to a few clauses, the conjunctions between them, and how the sentence was written."""

    clauses: tuple[Clause, ...]
    conjunctions: tuple[str, ...]
    capital: bool
    ending: str

    @property
    def text(self) -> str:
        """Return the command in lower case, without its final punctuation."""
        return self.join([clause.text for clause in self.clauses])

    @property
    def adjectives(self) -> list[str]:
        """Return all adjectives in reading order."""
        found: list[str] = []

        def collect(noun_phrase: NounPhrase) -> NounPhrase:
            found.extend(noun_phrase.adjectives)
            return noun_phrase

        self.map_noun_phrases(collect)
        return found

    def map_clauses(self, change: Callable[[Clause], Clause]) -> "Command":
        """Return the command with every clause changed."""
        return replace(self, clauses=tuple(change(clause) for clause in self.clauses))

    def map_noun_phrases(self, change: Callable[[NounPhrase], NounPhrase]) -> "Command":
        """Return the command with every noun phrase changed."""
        return self.map_clauses(lambda clause: map_clause_noun_phrases(clause, change))

    def join(self, parts: Sequence[str]) -> str:
        """Return one text per clause joined by the conjunctions that stood between the clauses."""
        rest = zip(self.conjunctions, parts[1:], strict=True)
        return parts[0] + "".join(conjunction + part for conjunction, part in rest)

    def write(self, text: str) -> str:
        """Return a rewritten sentence with the original's capital and punctuation, and with a or an corrected."""
        text = fix_articles(text)
        return (capitalised(text) if self.capital else text) + self.ending


def map_clause_noun_phrases(
    clause: Clause,
    change: Callable[[NounPhrase], NounPhrase],
    preposition: Callable[[PrepPhrase], str] = attrgetter("preposition"),
) -> Clause:
    """Return the clause with every noun phrase changed, in reading order; `preposition` may replace prepositions."""

    def map_noun(noun_phrase: NounPhrase) -> NounPhrase:
        return replace(change(noun_phrase), modifiers=tuple(map(map_prep, noun_phrase.modifiers)))

    def map_prep(phrase: PrepPhrase) -> PrepPhrase:
        return PrepPhrase(preposition(phrase), map_noun(phrase.object) if phrase.object else None)

    return replace(clause, object=map_noun(clause.object), prep_phrases=tuple(map(map_prep, clause.prep_phrases)))


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
_LY_BUT_NO_ADVERB = {"jelly", "fly", "butterfly", "curly", "smelly", "belly"}
_LOWERCASE_WORDS = KNOWN_WORDS | DETERMINERS | PRONOUNS
_LOWERCASE_WORDS |= {word for name in (*_PREPOSITIONS, *DIRECTIONS) for word in name.split()}
_PLAIN_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9'’-]*")
_MAX_NAME_WORDS = 5
_MAX_COMMAND_WORDS = 60


def parse(text: str) -> Command:
    """Return the syntax tree of an imperative; NotApplicable if the sentence has another form."""
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
    # Names keep their capitals.
    lowered = (word.lower() if word.lower() in _LOWERCASE_WORDS else word for word in words[1:])
    clauses, conjunctions = _read_clauses([words[0].lower(), *lowered], text)
    return Command(tuple(clauses), tuple(conjunctions), body[0].isupper(), body[len(bare) :])


def write_if_changed(command: Command, text: str, problem: str, weaker: str = "") -> str:
    """Return the new sentence; NotApplicable if it equals the old one, or that of a weaker perturbation."""
    if text in (command.text, weaker):
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
    """Return the longest of these names that the words start with; empty if there is none."""
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
    has_place = VERBS[verb].result != "somewhere" or has_destination
    for preposition, name in named[1:]:
        describes = preposition == "of" or (has_place and preposition in STATIC_PREPOSITIONS)
        phrase = PrepPhrase(preposition, name)
        clause = (
            _describe(clause, phrase) if describes else replace(clause, prep_phrases=(*clause.prep_phrases, phrase))
        )
        has_place = has_place or preposition in STATIC_PREPOSITIONS
    return clause


def _describe(clause: Clause, phrase: PrepPhrase) -> Clause:
    """Attach a phrase to the noun phrase just before it."""
    noun_phrase = clause.prep_phrases[-1].object if clause.prep_phrases else clause.object
    if noun_phrase is None:
        raise NotApplicable(f"cannot parse: {phrase.text!r} has no noun to describe")
    described = replace(noun_phrase, modifiers=(*noun_phrase.modifiers, phrase))
    if not clause.prep_phrases:
        return replace(clause, object=described)
    *before, last = clause.prep_phrases
    return replace(clause, prep_phrases=(*before, replace(last, object=described)))


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
    adverbs = {word for word in lowered if word.endswith("ly")} - _LY_BUT_NO_ADVERB
    bad = adverbs or (_NOT_IN_A_NOUN_PHRASE | DETERMINERS).intersection(lowered)
    has_number = any(word[0].isdigit() for word in rest[1:])
    if not rest or bad or has_number or len(rest) > _MAX_NAME_WORDS:
        raise NotApplicable(f"cannot parse: {_abbreviated(' '.join(words))} does not name one object")
    size = next((n for n in (3, 2) if " ".join(lowered[-n:]) in NOUNS), 1)
    return NounPhrase(determiner, tuple(rest[:-size]), " ".join(rest[-size:]))


def _abbreviated(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def definite(noun_phrase: NounPhrase) -> NounPhrase:
    """Return the phrase with an article: a bare "banana" is "the banana"."""
    bare = not noun_phrase.determiner and noun_phrase.noun not in PRONOUNS
    return replace(noun_phrase, determiner="the" if bare else noun_phrase.determiner)


def locative_of(noun_phrase: NounPhrase) -> Locative:
    """Return the preposition for objects located at it: in, on or at."""
    known = find_noun(noun_phrase.noun)
    return known.locative if known else "at"
