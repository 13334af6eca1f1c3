"""Semantic perturbations that order the words of a wish otherwise, or leave out what tells things apart."""

from dataclasses import replace

from numpy.random import Generator

from rewardlab.core.episode import Episode
from rewardlab.core.errors import NotApplicable
from rewardlab.perturb.contract import Episodes, PerturbedEpisode, Spec, on_episode, with_unknown_truth
from rewardlab.perturb.semantic.goal_state import definite
from rewardlab.perturb.semantic.instruction_parser import parse, reworded
from rewardlab.perturb.semantic.sentence import PRONOUNS, Clause, Command, Place, Thing


@on_episode(
    "instruction",
    Spec(
        "semantic",
        "how the words are ordered",
        ("place first", "cleft", "object first", "shuffled"),
        "NL-Aug yoda and shuffle_within_segments",
        "per_clip",
    ),
)
def word_order(episode: Episode, order: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The same words come in another order; shuffled words need not mean the same any more."""
    if order == "shuffled":
        shuffled = replace(episode, instruction=_shuffle(episode.instruction, rng))
        return with_unknown_truth(shuffled, "undefined")
    command = parse(episode.instruction)
    build = {"place first": _place_first, "cleft": _cleft, "object first": _object_first}[order]
    return PerturbedEpisode(replace(episode, instruction=command.write(build(command))), "same")


def _shuffle(text: str, rng: Generator) -> str:
    words = text.split()
    if len({word.lower() for word in words}) < 3:
        raise NotApplicable("fewer than three different words cannot be shuffled")
    for _ in range(8):
        shuffled = [words[int(i)] for i in rng.permutation(len(words))]
        if shuffled != words:
            return " ".join(shuffled)
    return " ".join(words[1:] + words[:1])


def _place_first(command: Command) -> str:
    *before, last = command.clauses
    if not last.places:
        raise NotApplicable("it names no place or direction that could come first")
    parts = [clause.text for clause in before]
    return command.join([*parts, f"{last.where.strip()}, {replace(last, places=()).text}"])


def _cleft(command: Command) -> str:
    first = definite(command.clauses[0].thing)
    return f"it is {first.text} that you should {_without_object(command)}"


def _without_object(command: Command) -> str:
    if any(clause.thing.noun not in PRONOUNS for clause in command.clauses[1:]):
        raise NotApplicable("it does something to two things: neither can come first for both")
    return command.join([f"{clause.verb}{clause.where}" for clause in command.clauses])


def _object_first(command: Command) -> str:
    _without_object(command)
    doing = command.join([f"{clause.where.strip()} {clause.verb}".strip() for clause in command.clauses])
    return f"{definite(command.clauses[0].thing).text}, {doing} you must"


@on_episode(
    "instruction",
    Spec(
        "semantic",
        "what is left unsaid",
        ("adjectives", "adjectives and places", "names of things", "everything"),
        "CheckList, COLOSSEUM distractors",
        "none",
        "unknown",
        "undefined",
    ),
)
def ambiguous_reference(episode: Episode, unsaid: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The instruction no longer says which thing or where; the answer should become less sure."""
    text = "do it" if unsaid == "everything" else _say_less(parse(episode.instruction), unsaid)
    if text.lower() == episode.instruction.strip().lower():
        raise NotApplicable(f"{text!r} already leaves everything open")
    return with_unknown_truth(replace(episode, instruction=text), "undefined")


def _say_less(command: Command, unsaid: str) -> str:
    plain = command.with_things(_without_adjectives)
    if unsaid == "adjectives":
        return reworded(command, plain.text, "there is no adjective to leave out")
    if unsaid == "adjectives and places":
        bare = plain.with_clauses(lambda clause: Clause(clause.verb, replace(clause.thing, tail=())))
        return reworded(command, bare.text, "there is no place to leave out", beyond=plain.text)
    vague = command.with_clauses(lambda clause: Clause(clause.verb, _IT, _vague_places(clause.places)))
    return reworded(command, vague.text, "it names no thing")


_IT = Thing("", (), "it")


def _without_adjectives(thing: Thing) -> Thing:
    return replace(thing, adjectives=())


def _vague_places(places: tuple[Place, ...]) -> tuple[Place, ...]:
    words = {"from": "from there", "out of": "from there", "off": "from there", "with": "with that"}
    there = "there" if len(places) == 1 else "to there"
    return tuple(Place(words.get(place.relation, there)) if place.thing else place for place in places)
