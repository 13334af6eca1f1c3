"""A parser of English robot instructions: inflection, syntax tree, parsing and writing."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from rewardlab.core.errors import NotApplicable
from rewardlab.core.instructions.lexicon import COLOUR_CONTRASTS, KNOWN_WORDS, NOUNS, VERBS, Locative, find_noun
from rewardlab.core.instructions.spelling import SPELLED_NUMBER

_DOUBLE_LAST_LETTER = {
    *("put", "set", "cut", "flip", "stir", "grab", "tip", "uncap", "cap", "drop", "get", "hit", "wrap", "shut"),
    *("spin", "tap", "pat", "let", "tug", "grip", "drag", "slam", "slot", "fit", "mop", "transfer", "slip", "zip"),
    *("unzip", "wrap", "unwrap", "unplug", "plug", "stop", "scrub"),
}
_PARTICIPLES = {
    "put": "put", "set": "set", "shut": "shut", "cut": "cut", "hit": "hit", "let": "let", "take": "taken",
    "slide": "slid", "sweep": "swept", "hang": "hung", "throw": "thrown", "bring": "brought", "give": "given",
    "get": "got", "spin": "spun", "stick": "stuck", "make": "made", "lay": "laid", "spread": "spread", "hold": "held",
    "drive": "driven", "draw": "drawn", "unhang": "unhung",
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
    if last == "them" or " and " in noun:
        return True
    return len(last) > 3 and last.endswith("s") and not last.endswith(("ss", "us", "is"))


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
PERSONS = {"you", "me"}  # whom an object is moved to or away from
_QUANTITIES = {"some", "all", "both", "each", "one"}  # "one of the cups": they take no article
_SEPARABLE = {("pick", "up"), ("turn", "on"), ("turn", "off"), ("switch", "on"), ("switch", "off"), ("take", "off")}
_PARTICLES = {"up", "down", "out", "on", "off", "over", "in"}


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
        if self.object.noun in PRONOUNS and stem and particle in _PARTICLES | {"open", "closed", "shut"}:
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
    "backward", "in half", "up", "down", "left", "right", "forwards", "backwards", "upward", "downward",
)  # fmt: skip
# How a verb is done, or the state that it leads to; every other word that ends in "ly" is one too.
ADVERBS = (
    "back", "away", "together", "apart", "out", "open", "closed", "shut", "once", "twice", "again", "all the way",
    "closer", "further", "farther", "sideways", "to the side",
)  # fmt: skip
# Prepositions that say where an object is; the others say where it goes, where it comes from, or with what.
STATIC_PREPOSITIONS = {
    "in", "on", "at", "inside", "outside", "under", "underneath", "below", "above", "over", "behind", "beside", "near",
    "next to", "on top of", "in front of", "to the left of", "to the right of", "close to", "near to",
}  # fmt: skip
_DYNAMIC_PREPOSITIONS = {
    *("into", "onto", "to", "towards", "toward", "from", "out of", "off", "with", "using", "through"),
    *("around", "against", "across", "along", "by", "away from", "closer to", "nearer to", "further from"),
    *("farther from", "further away from", "farther away from", "back in", "back into", "back on", "back onto"),
    *("back to", "down on", "down onto", "down into", "over to", "over into", "off of"),
}
_PREPOSITIONS = (*sorted(STATIC_PREPOSITIONS | _DYNAMIC_PREPOSITIONS | {"of"}, key=lambda name: -name.count(" ")),)
_DESTINATION_PREPOSITIONS = {"into", "onto", "to", "towards", "toward", *DIRECTIONS}
_DESTINATION_PREPOSITIONS |= {name for name in _DYNAMIC_PREPOSITIONS if name.startswith(("back ", "down ", "over "))}
_CONJUNCTIONS = ((",", "and", "then"), (",", "then"), (",", "and"), ("and", "then"), ("and",), ("then",), (",",))
_NOT_IN_A_NOUN_PHRASE = {
    *("and", "or", "then", "that", "which", "who", "is", "are", "be", "has", "not", "never", "without", "while"),
    *("until", "if", "when", "by", "for", "as", "so", "but", "except", "again", "twice", "once", "please", "between"),
    *("do", "don't", "very", "there", "here", "i", "he", "she", "they", "we", "than", "also", "before"),
    *("after", "away", "together", "apart", ",", *PRONOUNS, *PERSONS),
}
_LY_BUT_NO_ADVERB = {"jelly", "fly", "butterfly", "curly", "smelly", "belly"}
_LOWERCASE_WORDS = KNOWN_WORDS | DETERMINERS | PRONOUNS
_LOWERCASE_WORDS |= {word for name in (*_PREPOSITIONS, *DIRECTIONS) for word in name.split()}
# What a clause may end in, kept as it is: a distance, a purpose, a means, a condition.
_MEASURE = r"(?:by )?(?:about )?\d[\d.]* (?:cm|mm|m|inch|inches|degrees)"
_TOWARDS = (
    "to the left|to the right|closer to the robot|further from the robot|away from the robot|towards the robot|up|down"
)
_DISTANCE = re.compile(rf"{_MEASURE}(?: (?:{_TOWARDS}))?(?:(?: ,| and| , and) {_MEASURE}(?: (?:{_TOWARDS}))?)*(?= |$)")
_RELATIVE_CLAUSE = re.compile(r"(?:until|so that|where) (?:it|they|the|you) ?.*")
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
            f"cannot parse {_abbreviated(text)}: it has {len(words)} words, and at most {_MAX_COMMAND_WORDS} are read"
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
                f"cannot parse {_abbreviated(text)}: it must start with a verb that the lexicon knows, such as 'put'"
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
        raise NotApplicable(f"cannot parse: {verb!r} needs an object right after it, as in 'open the drawer'")
    if named[1:] and (verb, named[1][0]) in _SEPARABLE and named[1][1] is None:  # "pick the cup up"
        verb = f"{verb} {named.pop(1)[0]}"
    clause = Clause(verb, noun_phrase)
    # A verb that puts an object somewhere takes one static phrase as its destination; others describe the object.
    has_destination = any(preposition in _DESTINATION_PREPOSITIONS for preposition, _ in named)
    known = find_noun(noun_phrase.noun)
    has_place = VERBS[verb].result != "somewhere" or has_destination or (known and known.group == "control") is True
    for preposition, name in named[1:]:
        before = clause.prep_phrases[-1].object if clause.prep_phrases else clause.object
        described = before is not None and before.noun not in PRONOUNS and name is not None
        describes = preposition == "of" or (has_place and described and preposition in STATIC_PREPOSITIONS)
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
        raise NotApplicable(f"cannot parse: {_abbreviated(phrase.text)} needs a noun in front of it")
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
            pieces.append((preposition.replace(" ,", ","), []))
            index += preposition.count(" ") + 1
        elif pieces[-1][0] in DIRECTIONS or pieces[-1][0] in ADVERBS:
            after = f"{pieces[-1][0]!r} must end its clause"
            raise NotApplicable(f"cannot parse: {_abbreviated(words[index])} follows, but {after}")
        else:
            pieces[-1][1].append(words[index])
            index += 1
    return pieces


def _preposition_at(words: list[str], index: int) -> str:
    preposition = _match(words[index:], _PREPOSITIONS)
    if index == 0 or words[index - 1].lower() in DETERMINERS | set(_PREPOSITIONS):
        return preposition
    if ending := _ending_at(words[index:]):
        return ending
    direction = _match(words[index:], (*DIRECTIONS, *ADVERBS))
    if _is_adverb(words[index]):
        direction = words[index].lower()
    if len(direction) > len(preposition):
        after = index + direction.count(" ") + 1
        if after == len(words) or _preposition_at(words, after):
            return direction
    return preposition


def _ending_at(words: list[str]) -> str:
    """Return what is kept as it is where the words start with it; commas stand alone in it."""
    text = " ".join(words).lower()
    if found := _DISTANCE.match(text) or _RELATIVE_CLAUSE.fullmatch(text):
        return found[0]
    verb = _match(words[1:], tuple(VERBS))
    if text.startswith("to ") and verb:
        after = words[verb.count(" ") + 2 :]
        return text if not after or after[0].lower() in DETERMINERS | PRONOUNS else ""
    means = text.startswith("by ") and any(text.startswith(f"by {gerund(name)} ") for name in VERBS)
    return text if means else ""


def _is_adverb(word: str) -> bool:
    return word.lower().endswith("ly") and word.lower() not in _LY_BUT_NO_ADVERB


def _read_noun_phrase(words: list[str]) -> NounPhrase:
    """Read the name of an object; several objects that are named together are one."""
    lowered = [word.lower() for word in words]
    if len(words) == 1 and lowered[0] in PRONOUNS | PERSONS | _QUANTITIES:
        return NounPhrase("", (), lowered[0])
    count = 2 if lowered[0] in {"all", "both"} and lowered[1:2] == ["the"] else 1
    determiner = " ".join(lowered[:count]) if lowered[0] in DETERMINERS else ""
    rest = words[count:] if determiner else words
    joins = [place for place, word in enumerate(rest) if word.lower() in {"and", ","}]
    if joins and not _join_colours(rest, joins):
        return _read_several(determiner, rest, joins, words)
    rest = _with_joined_colours(rest, joins)
    _require_name(rest, words)
    lowered = [word.lower() for word in rest]
    size = next((n for n in (3, 2) if " ".join(lowered[-n:]) in NOUNS), 1)
    return NounPhrase(determiner, tuple(rest[:-size]), " ".join(rest[-size:]))


def _require_name(name: list[str], words: list[str]) -> None:
    lowered = [word.lower() for word in name]
    bad = any(map(_is_adverb, name)) or (_NOT_IN_A_NOUN_PHRASE | DETERMINERS).intersection(lowered)
    has_number = any(word[0].isdigit() for word in name[1:])
    # "the part sticking"
    goes_on = len(name) > 1 and lowered[-1].endswith("ing") and not find_noun(lowered[-1])
    if not name or bad or goes_on or has_number or len(name) > _MAX_NAME_WORDS:
        raise NotApplicable(f"cannot parse: {_abbreviated(' '.join(words))} must name an object, as in 'the red cup'")


def _join_colours(name: list[str], joins: list[int]) -> bool:
    """Tell whether all that is joined in a name are colours or sides, as in "white and blue shirts"."""
    known = COLOUR_CONTRASTS.keys() | {"left", "right"}
    beside = {name[at].lower() for place in joins for at in (place - 1, place + 1) if 0 <= at < len(name)}
    return beside <= known and joins[-1] + 2 < len(name)


def _with_joined_colours(name: list[str], joins: list[int]) -> list[str]:
    """Return the name with its joined adjectives as one word: "white and blue"."""
    if not joins:
        return name
    first, last = joins[0] - 1, joins[-1] + 2
    return [*name[:first], " ".join(name[first:last]).replace(" ,", ","), *name[last:]]


def _read_several(determiner: str, name: list[str], joins: list[int], words: list[str]) -> NounPhrase:
    starts = [0, *(place + 1 for place in joins)]
    for start, end in zip(starts, [*joins, len(name)], strict=True):
        part = name[start:end]
        article = bool(part) and part[0].lower() in DETERMINERS
        known = bool(part) and (find_noun(part[-1]) is not None or is_plural(part[-1]))
        _require_name(part[article:], words)
        if start and not article and not known:  # perhaps an act: "the cup and rinse"
            _require_name([], words)
    return NounPhrase(determiner, (), " ".join(name).replace(" ,", ","))


def _abbreviated(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def definite(noun_phrase: NounPhrase) -> NounPhrase:
    """Return the phrase with an article: a bare "banana" is "the banana"."""
    counted = bool(noun_phrase.adjectives) and SPELLED_NUMBER.match(f"{noun_phrase.name} ") is not None
    bare = not (noun_phrase.determiner or counted or noun_phrase.noun in PRONOUNS | PERSONS | _QUANTITIES)
    return replace(noun_phrase, determiner="the" if bare else noun_phrase.determiner)


def locative_of(noun_phrase: NounPhrase) -> Locative:
    """Return the preposition for objects located at it: in, on or at."""
    known = find_noun(noun_phrase.noun)
    return known.locative if known else "at"
