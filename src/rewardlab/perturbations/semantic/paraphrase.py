"""Semantic perturbations that state the same goal in other words: synonyms, hypernyms, other sentence forms."""

from dataclasses import replace

from numpy.random import Generator

from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import Spec, on_instruction
from rewardlab.perturbations.semantic.english_inflection import gerund, participle
from rewardlab.perturbations.semantic.goal_state import definite, describe_goal, locative_of
from rewardlab.perturbations.semantic.instruction_parser import parse, write_if_changed
from rewardlab.perturbations.semantic.lexicon import (
    ADJECTIVE_SYNONYMS,
    BROAD_HYPERNYMS,
    NOUNS,
    PREPOSITION_SYNONYMS,
    VERBS,
)
from rewardlab.perturbations.semantic.syntax_tree import (
    PRONOUNS,
    Clause,
    Command,
    NounPhrase,
    PrepPhrase,
    map_clause_noun_phrases,
)

_RENAMED = ("verb", "verb and object", "all content words", "verb, and things by their kind")
_LEXICAL = "EDA, CheckList, closed robot lexicon"
_STYLES = ("other words", "passive", "indirect request", "goal state")


@on_instruction(Spec("semantic", "what is renamed", _RENAMED, _LEXICAL, "per_clip", "keeps_if"))
def synonym(text: str, what: str, rng: Generator) -> str:
    """Words are replaced by synonyms, at last objects by the kind they belong to."""
    command, draw = parse(text), float(rng.random())
    verbs = command.map_clauses(lambda clause: replace(clause, verb=_other_verb(clause.verb, draw)))
    if what == "verb":
        return write_if_changed(command, verbs.text, "no verb of it has a synonym")
    if what == "verb and object":
        renamed = verbs.map_clauses(lambda clause: replace(clause, object=_other_noun(clause.object, draw)))
        return write_if_changed(command, renamed.text, "its object has no synonym", beyond=verbs.text)
    if what == "all content words":
        renamed = verbs.map_clauses(lambda clause: _rename_all(clause, draw))
        return write_if_changed(command, renamed.text, "only its verb has a synonym", beyond=verbs.text)
    return write_if_changed(command, _by_hypernym(verbs).text, "no object of it has a known kind", beyond=verbs.text)


def _pick(options: tuple[str, ...], draw: float, otherwise: str) -> str:
    return options[int(draw * len(options))] if options else otherwise


def _other_verb(verb: str, draw: float) -> str:
    return _pick(VERBS[verb].synonyms, draw, verb)


def _other_noun(noun_phrase: NounPhrase, draw: float) -> NounPhrase:
    known = NOUNS.get(noun_phrase.noun)
    return replace(noun_phrase, noun=_pick(known.synonyms, draw, noun_phrase.noun)) if known else noun_phrase


def _other_words(noun_phrase: NounPhrase, draw: float) -> NounPhrase:
    adjectives = tuple(ADJECTIVE_SYNONYMS.get(word, word) for word in noun_phrase.adjectives)
    return replace(_other_noun(noun_phrase, draw), adjectives=adjectives)


def _rename_all(clause: Clause, draw: float) -> Clause:
    return map_clause_noun_phrases(clause, lambda noun_phrase: _other_words(noun_phrase, draw), _other_preposition)


def _other_preposition(phrase: PrepPhrase) -> str:
    # Something "in the plate" lies on it, so it is not inside.
    if phrase.preposition in {"in", "into"} and phrase.object and locative_of(phrase.object) != "in":
        return phrase.preposition
    return PREPOSITION_SYNONYMS.get(phrase.preposition, phrase.preposition) if phrase.object else phrase.preposition


def _by_hypernym(command: Command) -> Command:
    named: list[tuple[str, tuple[str, ...]]] = []

    def rename(noun_phrase: NounPhrase) -> NounPhrase:
        known = NOUNS.get(noun_phrase.noun)
        renamed = replace(noun_phrase, noun=known.hypernym) if known and known.hypernym else noun_phrase
        if renamed.noun not in PRONOUNS:
            named.append((renamed.noun, renamed.adjectives))
        return renamed

    renamed_command = command.map_noun_phrases(rename)
    for noun, adjectives in named:
        twins = [others for name, others in named if name == noun]
        shared = len(twins) > 1 or noun in BROAD_HYPERNYMS
        if shared and (not adjectives or twins.count(adjectives) > 1):
            raise NotApplicable(f"{noun!r} would name more than one object: the referent is not unique")
    return renamed_command


@on_instruction(Spec("semantic", "how the goal is told", _STYLES, "LIBERO-PRO, LIBERO-plus", "per_clip"))
def paraphrase(text: str, style: str, rng: Generator) -> str:
    """The goal is told in another way: other words, passive, an indirect request, the state to be reached."""
    command, draw = parse(text), float(rng.random())
    if style == "other words":
        other = command.map_clauses(lambda clause: _reword(clause, draw))
        return write_if_changed(command, other.text, "neither verb nor preposition has a synonym")
    if style == "passive":
        return command.write(_passive(command, _pick(("should be", "must be", "ought to be"), draw, "")))
    if style == "indirect request":
        return _request(command, draw)
    opening = _pick(("by the end, {}", "make it so that {}", "the goal is that {}"), draw, "")
    return command.write(opening.format(describe_goal(command)))


def _reword(clause: Clause, draw: float) -> Clause:
    kept = map_clause_noun_phrases(clause, lambda noun_phrase: noun_phrase, _other_preposition)
    # The object keeps its own description; only where it goes is reworded.
    return replace(clause, verb=_other_verb(clause.verb, draw), prep_phrases=kept.prep_phrases)


def _passive(command: Command, must: str) -> str:
    first, *others = command.clauses
    parts = [f"{definite(first.object).text} {must} {participle(first.verb)}{first.where}"]
    for clause in others:
        subject = "" if clause.object.noun in PRONOUNS else f"{definite(clause.object).text} {must} "
        parts.append(f"{subject}{participle(clause.verb)}{clause.where}")
    return command.join(parts)


def _request(command: Command, draw: float) -> str:
    doing = command.join([clause.with_verb_form(gerund(clause.verb)) for clause in command.clauses])
    asked = _pick(
        (f"could you {command.text}?", f"would you mind {doing}?", f"I would like you to {command.text}"), draw, ""
    )
    return replace(command, ending="" if asked.endswith("?") else command.ending).write(asked)
