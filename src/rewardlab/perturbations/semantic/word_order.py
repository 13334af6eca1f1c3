"""Semantic perturbations of the order of words and clauses."""

from dataclasses import replace

from numpy.random import Generator

from rewardlab.core.episode import Episode
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode, Spec, on_episode, with_unknown_truth
from rewardlab.perturbations.semantic.goal_state import definite
from rewardlab.perturbations.semantic.instruction_parser import parse
from rewardlab.perturbations.semantic.syntax_tree import PRONOUNS, Command

_ORDERS = ("place first", "cleft", "object first", "shuffled")


@on_episode("instruction", Spec("semantic", "order of the words", _ORDERS, "NL-Aug yoda and shuffle", "per_clip"))
def word_order(episode: Episode, order: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The same words come in another order; shuffled words need not mean the same any more."""
    if order == "shuffled":
        shuffled = replace(episode, instruction=_shuffle(episode.instruction, rng))
        return with_unknown_truth(shuffled, "undefined")
    command = parse(episode.instruction)
    build = {"place first": _phrase_first, "cleft": _cleft, "object first": _object_first}[order]
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


def _phrase_first(command: Command) -> str:
    *before, last = command.clauses
    if not last.prep_phrases:
        raise NotApplicable("it names no location or direction that could come first")
    parts = [clause.text for clause in before]
    return command.join([*parts, f"{last.where.strip()}, {replace(last, prep_phrases=()).text}"])


def _cleft(command: Command) -> str:
    first = definite(command.clauses[0].object)
    return f"it is {first.text} that you should {_without_object(command)}"


def _without_object(command: Command) -> str:
    if any(clause.object.noun not in PRONOUNS for clause in command.clauses[1:]):
        raise NotApplicable("it acts on two objects: neither can come first for both")
    return command.join([f"{clause.verb}{clause.where}" for clause in command.clauses])


def _object_first(command: Command) -> str:
    _without_object(command)
    doing = command.join([f"{clause.where.strip()} {clause.verb}".strip() for clause in command.clauses])
    return f"{definite(command.clauses[0].object).text}, {doing} you must"
