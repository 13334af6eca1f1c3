"""Semantic perturbations that say the same wish in other words."""

from dataclasses import replace

from numpy.random import Generator

from rewardlab.core.errors import NotApplicable
from rewardlab.perturb.contract import Spec, on_instruction
from rewardlab.perturb.semantic.goal_state import definite, describe_goal, home_of
from rewardlab.perturb.semantic.grammar import gerund, participle
from rewardlab.perturb.semantic.instruction_parser import parse, reworded
from rewardlab.perturb.semantic.lexicon import ADJECTIVE_SYNONYMS, BROAD_KINDS, NOUNS, RELATION_SYNONYMS, VERBS
from rewardlab.perturb.semantic.sentence import PRONOUNS, Clause, Command, Place, Thing, map_things


@on_instruction(
    Spec(
        "semantic",
        "what is renamed",
        ("verb", "verb and object", "all content words", "verb, and things by their kind"),
        "EDA, CheckList, closed robot lexicon",
        "per_clip",
        "keeps_if",
    )
)
def synonym(text: str, what: str, rng: Generator) -> str:
    """Words are replaced by synonyms, at last things by the kind they belong to."""
    command, draw = parse(text), float(rng.random())
    verbs = command.with_clauses(lambda clause: replace(clause, verb=_other_verb(clause.verb, draw)))
    if what == "verb":
        return reworded(command, verbs.text, "no verb of it has a synonym")
    if what == "verb and object":
        renamed = verbs.with_clauses(lambda clause: replace(clause, thing=_other_noun(clause.thing, draw)))
        return reworded(command, renamed.text, "its object has no synonym", beyond=verbs.text)
    if what == "all content words":
        renamed = verbs.with_clauses(lambda clause: _rename_all(clause, draw))
        return reworded(command, renamed.text, "only its verb has a synonym", beyond=verbs.text)
    return reworded(command, _by_kind(verbs).text, "no thing of it has a known kind", beyond=verbs.text)


def _pick(options: tuple[str, ...], draw: float, otherwise: str) -> str:
    return options[int(draw * len(options))] if options else otherwise


def _other_verb(verb: str, draw: float) -> str:
    return _pick(VERBS[verb].synonyms, draw, verb)


def _other_noun(thing: Thing, draw: float) -> Thing:
    known = NOUNS.get(thing.noun)
    return replace(thing, noun=_pick(known.synonyms, draw, thing.noun)) if known else thing


def _other_words(thing: Thing, draw: float) -> Thing:
    adjectives = tuple(ADJECTIVE_SYNONYMS.get(word, word) for word in thing.adjectives)
    return replace(_other_noun(thing, draw), adjectives=adjectives)


def _rename_all(clause: Clause, draw: float) -> Clause:
    return map_things(clause, lambda thing: _other_words(thing, draw), _other_relation)


def _other_relation(place: Place) -> str:
    # Something "in the plate" lies on it, so it is not inside.
    if place.relation in {"in", "into"} and place.thing and home_of(place.thing) != "in":
        return place.relation
    return RELATION_SYNONYMS.get(place.relation, place.relation) if place.thing else place.relation


def _by_kind(command: Command) -> Command:
    named: list[tuple[str, tuple[str, ...]]] = []

    def rename(thing: Thing) -> Thing:
        known = NOUNS.get(thing.noun)
        renamed = replace(thing, noun=known.kind) if known and known.kind else thing
        if renamed.noun not in PRONOUNS:
            named.append((renamed.noun, renamed.adjectives))
        return renamed

    kinds = command.with_things(rename)
    for noun, adjectives in named:
        twins = [others for name, others in named if name == noun]
        shared = len(twins) > 1 or noun in BROAD_KINDS
        if shared and (not adjectives or twins.count(adjectives) > 1):
            raise NotApplicable(f"{noun!r} would name more than one thing: the referent is not unique")
    return kinds


@on_instruction(
    Spec(
        "semantic",
        "how the wish is told",
        ("other words", "passive", "indirect request", "goal state"),
        "LIBERO-PRO, LIBERO-plus",
        "per_clip",
    )
)
def paraphrase(text: str, style: str, rng: Generator) -> str:
    """The wish is told in another way: other words, passive, an indirect request, the state to be reached."""
    command, draw = parse(text), float(rng.random())
    if style == "other words":
        other = command.with_clauses(lambda clause: _reword(clause, draw))
        return reworded(command, other.text, "neither verb nor relation has a synonym")
    if style == "passive":
        return command.write(_passive(command, _pick(("should be", "must be", "ought to be"), draw, "")))
    if style == "indirect request":
        return _request(command, draw)
    opening = _pick(("by the end, {}", "make it so that {}", "the goal is that {}"), draw, "")
    return command.write(opening.format(describe_goal(command)))


def _reword(clause: Clause, draw: float) -> Clause:
    kept = map_things(clause, lambda thing: thing, _other_relation)
    # The thing keeps its own description; only where it goes is reworded.
    return replace(clause, verb=_other_verb(clause.verb, draw), places=kept.places)


def _passive(command: Command, must: str) -> str:
    first, *others = command.clauses
    parts = [f"{definite(first.thing).text} {must} {participle(first.verb)}{first.where}"]
    for clause in others:
        subject = "" if clause.thing.noun in PRONOUNS else f"{definite(clause.thing).text} {must} "
        parts.append(f"{subject}{participle(clause.verb)}{clause.where}")
    return command.join(parts)


def _request(command: Command, draw: float) -> str:
    doing = command.join([clause.doing(gerund(clause.verb)) for clause in command.clauses])
    asked = _pick(
        (f"could you {command.text}?", f"would you mind {doing}?", f"I would like you to {command.text}"), draw, ""
    )
    return replace(command, ending="" if asked.endswith("?") else command.ending).write(asked)
