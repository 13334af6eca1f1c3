"""The rules teacher: commands and levels from words alone, for real demonstrations where no model is at hand.

Nobody looks at the video. A command is an instruction of another clip of the same source, or one that the parser makes
of two: another thing, another verb, another place, or a further step. Its level is that which most such commands have
on simulated successes, and the certainty is their share there (`results/augment/rules.py`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from rewardlab.augmentation.questions import Question
from rewardlab.augmentation.text_checks import words_of
from rewardlab.core.episode import Episode
from rewardlab.core.instructions.comparison import in_common, last_act
from rewardlab.core.instructions.parser import inside_sentence, parse
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Failure

RULES = "rules"
VERSION = 2  # of what `rules` answers: raise it whenever that changes
NO_COMMAND = "none"  # where no rule leads to a score
SCORES = (1, 2, 3, 4)


@dataclass(frozen=True)
class Rule:
    """What is known of a row, the level that most such rows have, and their share: how sure the level is."""

    said: str
    level: int
    certainty: float


_RULES = {
    "no object": Rule("it asks for something else with another thing", 1, 0.99),
    "verb": Rule("it asks for the same with another thing", 1, 0.73),
    "object": Rule("it asks for something else with the same thing", 1, 0.95),
    "verb and object": Rule("it asks for the same with the same thing elsewhere", 1, 0.59),
    "then": Rule("it asks for a further step with another thing", 3, 0.99),
}
_RELATIONS = tuple(name for name in _RULES if name != "then")
# By the fraction of the video that a clip shows:
_CLIPS = {
    0.15: Rule("it shows the first 15 % of a demonstration", 1, 0.99),
    0.4: Rule("it shows the first 40 % of a demonstration", 1, 0.85),
    0.65: Rule("it shows the first 65 % of a demonstration", 2, 0.33),
    0.85: Rule("it shows the first 85 % of a demonstration", 4, 0.5),
}
_CERTAINTY = re.compile(r"\(certainty (\d\.\d+)\)")
_MOST_OTHERS = 200  # instructions of others that are looked at for one clip
_EACH = 3  # commands for each rule, in case that the first are refused


@cache
def relation_of(own: str, other: str) -> str:
    """Return what another instruction has in common with the own one, the name of a rule; empty where no rule knows."""
    return next((name for name in _RELATIONS if in_common(own, other, name)), "")


def two_steps(own: str, other: str) -> str:
    """Return the instruction to do both, one after the other; empty where they may be about the same thing."""
    if relation_of(own, other) != "no object":
        return ""
    return f"{own.strip().rstrip('.!')}, then {inside_sentence(other.strip())}"


@dataclass(frozen=True)
class RulesTeacher:
    """Answers by rule; `instructions` are those of every source."""

    instructions: Mapping[str, Sequence[str]]

    def answer(self, questions: Sequence[Question]) -> list[str | Failure]:
        """Return the answer to each question."""
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> str:
        if question.kind == "rewrite":
            text = " ".join(question.task.split())
            return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
        if question.kind == "validate":
            return _verdict(question)
        commands = self._commands(question.episode, question.task)
        if question.kind == "analysis":
            named = " ".join(text for texts in commands.values() for text in texts)
            return (
                f"1) Scene and objects: {question.task} What its source asks for elsewhere: {named}\n"
                "2) Robot actions step by step: those of a demonstration of the task; nobody looked at the video.\n"
                "3) Final state summary: the task is done."
            )
        if question.kind == "plan":
            lines = [f"{score}: {(commands[score] or [NO_COMMAND])[0]}" for score in SCORES]
            return "\n".join(["5) Final set of suggested commands", *lines, f"5: {question.task}"])
        known = commands[question.score]
        return known[(question.attempt - 1) % len(known)] if known else NO_COMMAND

    def _commands(self, episode: Episode, own: str) -> dict[int, list[str]]:
        """Return commands for each score, those of different rules in turn."""
        rng, found = rng_for(0, "rules", episode.id, own), {name: list[str]() for name in _RULES}
        others = self.instructions.get(source_of(episode), ())
        for place in rng.permutation(len(others))[:_MOST_OTHERS]:
            other = others[int(place)]
            for text in (_in_form(own, made) for made in (other, *_composed(own, other))):
                relation = relation_of(own, text)
                if relation and len(found[relation]) < _EACH and text not in found[relation]:
                    found[relation].append(text)
            if (both := two_steps(own, other)) and len(found["then"]) < _EACH:
                found["then"].append(_in_form(own, both))
        order = [str(name) for name in rng.permutation(list(_RULES))]
        turns = [(name, found[name][turn]) for turn in range(_EACH) for name in order if turn < len(found[name])]
        return {score: [text for name, text in turns if _RULES[name].level == score] for score in SCORES}


def _in_form(own: str, text: str) -> str:
    """Return a command with capital and full stop just where the own instruction has them: neither tells the level."""
    bare = text.strip().rstrip(".!")
    begun = bare[:1].upper() + bare[1:] if own[:1].isupper() else inside_sentence(bare)
    return begun + "." if own.rstrip().endswith((".", "!")) else begun


def source_of(episode: Episode) -> str:
    """Return the name under which a teacher knows the source of an episode."""
    return episode.provenance.subset or episode.provenance.source


def _composed(own: str, other: str) -> list[str]:
    """Return the own instruction with the thing and with the place of another; none where the parser fails."""
    mine, theirs = last_act(own), last_act(other)
    if mine is None or theirs is None or len(parse(own).clauses) > 1:
        return []
    made = [replace(mine, object=theirs.object)]
    if mine.prep_phrases and theirs.prep_phrases and theirs.prep_phrases[-1].object:
        made.append(replace(mine, prep_phrases=theirs.prep_phrases))
    return [parse(own).write(clause.text) for clause in made]


def _rule_of(own: str, text: str) -> Rule | None:
    """Return the rule that grades a command, None where there is none."""
    before, then, _ = text.partition(", then ")
    if then and words_of(before) == words_of(own):
        return _RULES["then"]
    return _RULES.get(relation_of(own, text))


def stated_certainty(rationale: str) -> float:
    """Return how sure a verdict of this teacher says it is."""
    stated = _CERTAINTY.search(rationale)
    return float(stated[1]) if stated else 0.0


def _verdict(question: Question) -> str:
    own, clip = question.episode.instruction, question.episode.clip
    if words_of(question.task) == words_of(own):
        shown = len(clip) / clip.source.count
        nearest = min(_CLIPS, key=lambda fraction: abs(fraction - shown))
        rule = _CLIPS[nearest] if shown < 1 else None  # of a whole video it is not known what was cut off
    else:
        rule = _rule_of(own, question.task)
    if rule is None:
        return "No rule knows what this command has in common with what was done.\nANSWER: FALSE"
    answer = "TRUE" if rule.level == question.score else "FALSE"
    why = f"By rule the level is {rule.level} (certainty {rule.certainty:.2f}), for {rule.said}"
    return f"{why}; nobody looked at the video.\nANSWER: {answer}"
