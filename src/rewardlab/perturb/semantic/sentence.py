"""A parsed robot imperative: things, places, clauses, and how they are written out again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rewardlab.perturb.semantic.grammar import capitalised, mend_articles

PRONOUNS = {"it", "them"}
_PARTICLES = {"up", "down", "out", "on", "off", "over"}


@dataclass(frozen=True)
class Thing:
    """A named thing: article, adjectives, noun, and what tells it apart ("of the toilet", "under the shelf")."""

    article: str
    adjectives: tuple[str, ...]
    noun: str
    tail: tuple["Place", ...] = ()

    @property
    def name(self) -> str:
        """Return the thing in words, without what follows the noun."""
        return " ".join(word for word in (self.article, *self.adjectives, self.noun) if word)

    @property
    def text(self) -> str:
        """Return the thing in words."""
        return " ".join([self.name, *(place.text for place in self.tail)])


@dataclass(frozen=True)
class Place:
    """A relation and its thing ("into the pot"), or a direction alone ("to the left")."""

    relation: str
    thing: Thing | None = None

    @property
    def text(self) -> str:
        """Return the place in words."""
        return f"{self.relation} {self.thing.text}" if self.thing else self.relation


@dataclass(frozen=True)
class Clause:
    """One thing to do."""

    verb: str
    thing: Thing
    places: tuple[Place, ...] = ()

    @property
    def where(self) -> str:
        """Return the places in words, with a space in front; empty if there are none."""
        return "".join(f" {place.text}" for place in self.places)

    @property
    def text(self) -> str:
        """Return the clause in words."""
        return self.doing(self.verb)

    def doing(self, verb: str) -> str:
        """Return the clause with another form of its verb: "pick up the cup", but "pick it up"."""
        stem, _, particle = verb.rpartition(" ")
        if self.thing.noun in PRONOUNS and stem and particle in _PARTICLES:
            return f"{stem} {self.thing.text} {particle}{self.where}"
        return f"{verb} {self.thing.text}{self.where}"


@dataclass(frozen=True)
class Command:
    """A parsed instruction: one to a few clauses, the words between them, and how the sentence was written."""

    clauses: tuple[Clause, ...]
    joints: tuple[str, ...]
    capital: bool
    ending: str

    @property
    def text(self) -> str:
        """Return the command in small letters, without the sign at its end."""
        return self.join([clause.text for clause in self.clauses])

    @property
    def text_as_written(self) -> str:
        """Return the command with the capital and the sign that the sentence had."""
        return self.write(self.text)

    @property
    def adjectives(self) -> list[str]:
        """Return all adjectives in reading order."""
        found: list[str] = []

        def note(thing: Thing) -> Thing:
            found.extend(thing.adjectives)
            return thing

        self.with_things(note)
        return found

    def with_clauses(self, change: Callable[[Clause], Clause]) -> "Command":
        """Return the command with every clause changed."""
        return replace(self, clauses=tuple(change(clause) for clause in self.clauses))

    def with_things(self, change: Callable[[Thing], Thing]) -> "Command":
        """Return the command with every thing changed."""
        return self.with_clauses(lambda clause: map_things(clause, change))

    def join(self, parts: Sequence[str]) -> str:
        """Return one text per clause joined by the words that stood between the clauses."""
        return parts[0] + "".join(joint + part for joint, part in zip(self.joints, parts[1:], strict=True))

    def write(self, text: str) -> str:
        """Return a rewritten sentence with the capital and the sign of the original, and with a or an put right."""
        text = mend_articles(text)
        return (capitalised(text) if self.capital else text) + self.ending


def _same_relation(place: Place) -> str:
    return place.relation


def map_things(
    clause: Clause, change: Callable[[Thing], Thing], relation: Callable[[Place], str] = _same_relation
) -> Clause:
    """Return the clause with every thing changed, in reading order, and with other relations where asked."""

    def deep(thing: Thing) -> Thing:
        return replace(change(thing), tail=tuple(map(inside, thing.tail)))

    def inside(place: Place) -> Place:
        return Place(relation(place), deep(place.thing) if place.thing else None)

    return replace(clause, thing=deep(clause.thing), places=tuple(map(inside, clause.places)))
