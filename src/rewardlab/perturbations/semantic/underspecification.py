"""A semantic perturbation that leaves out what tells objects and locations apart."""

from dataclasses import replace

from numpy.random import Generator

from rewardlab.core.episode import Episode
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode, Spec, on_episode, with_unknown_truth
from rewardlab.perturbations.semantic.instruction_parser import parse, write_if_changed
from rewardlab.perturbations.semantic.syntax_tree import Clause, Command, NounPhrase, PrepPhrase

_BASED_ON = "CheckList, COLOSSEUM distractors"
_UNSAID = ("adjectives", "adjectives and places", "names of things", "everything")


@on_episode("instruction", Spec("semantic", "what is left unsaid", _UNSAID, _BASED_ON, "none", "unknown", "undefined"))
def ambiguous_reference(episode: Episode, unsaid: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The instruction no longer says which object or where; the answer should become less sure."""
    text = "do it" if unsaid == "everything" else _say_less(parse(episode.instruction), unsaid)
    if text.lower() == episode.instruction.strip().lower():
        raise NotApplicable(f"{text!r} already leaves everything open")
    return with_unknown_truth(replace(episode, instruction=text), "undefined")


def _say_less(command: Command, unsaid: str) -> str:
    plain = command.map_noun_phrases(_without_adjectives)
    if unsaid == "adjectives":
        return write_if_changed(command, plain.text, "there is no adjective to leave out")
    if unsaid == "adjectives and places":
        bare = plain.map_clauses(lambda clause: Clause(clause.verb, replace(clause.object, modifiers=())))
        return write_if_changed(command, bare.text, "there is no location to leave out", beyond=plain.text)
    vague = command.map_clauses(lambda clause: Clause(clause.verb, _IT, _vague_phrases(clause.prep_phrases)))
    return write_if_changed(command, vague.text, "it names no object")


_IT = NounPhrase("", (), "it")


def _without_adjectives(noun_phrase: NounPhrase) -> NounPhrase:
    return replace(noun_phrase, adjectives=())


def _vague_phrases(phrases: tuple[PrepPhrase, ...]) -> tuple[PrepPhrase, ...]:
    words = {"from": "from there", "out of": "from there", "off": "from there", "with": "with that"}
    there = "there" if len(phrases) == 1 else "to there"
    return tuple(PrepPhrase(words.get(phrase.preposition, there)) if phrase.object else phrase for phrase in phrases)
