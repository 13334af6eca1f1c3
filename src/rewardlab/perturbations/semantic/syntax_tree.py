"""The syntax tree of a robot imperative: noun phrases, prepositional phrases, clauses, and how they are written out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rewardlab.perturbations.semantic.english_inflection import capitalised, fix_articles

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
    def text_as_written(self) -> str:
        """Return the command with the capital and the punctuation that the sentence had."""
        return self.write(self.text)

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


def _same_preposition(phrase: PrepPhrase) -> str:
    return phrase.preposition


def map_clause_noun_phrases(
    clause: Clause,
    change: Callable[[NounPhrase], NounPhrase],
    preposition: Callable[[PrepPhrase], str] = _same_preposition,
) -> Clause:
    """Return the clause with every noun phrase changed, in reading order, and with other prepositions where asked."""

    def deep(noun_phrase: NounPhrase) -> NounPhrase:
        return replace(change(noun_phrase), modifiers=tuple(map(inside, noun_phrase.modifiers)))

    def inside(phrase: PrepPhrase) -> PrepPhrase:
        return PrepPhrase(preposition(phrase), deep(phrase.object) if phrase.object else None)

    return replace(clause, object=deep(clause.object), prep_phrases=tuple(map(inside, clause.prep_phrases)))
