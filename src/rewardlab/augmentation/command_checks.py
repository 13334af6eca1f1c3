"""What code can check of a command that a teacher wrote: each check returns why it is refused, or nothing."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rewardlab.augmentation.command_words import VERBS, meaning_words, named_things, stem, words_of

MOST_WORDS = 24  # the paper's "under 25 words"
_ALIKE = 0.8  # of the words two commands share: as many make them paraphrases
_META = re.compile(
    r"\b(scores?:? (of )?\d|rubric|rewards?|original (task|command)|video|command|task|instruction|as an ai)\b", re.I
)
_CONTROL = re.compile(r"\b(release|let go of|open|close) the gripper\b|\bnot in contact with the robot\b", re.I)
_QUOTES = "\"'`*#"


@dataclass(frozen=True)
class CommandContext:
    """What a command is held against: the original task, what the analysis saw, and the commands of lower scores."""

    original: str
    analysis: str
    score: int
    lower: tuple[str, ...]


def refusal(text: str, context: CommandContext) -> str:
    """Return the first reason why a command cannot be used, or nothing."""
    return (
        form_refusal(text)
        or _meta_refusal(text)
        or _grounding_refusal(text, context)
        or _target_refusal(text, context)
        or _entailment_refusal(text, context.original)
        or _paraphrase_refusal(text, (context.original, *context.lower))
    )


def form_refusal(text: str) -> str:
    """Return why a text is no single imperative sentence in plain ASCII, or nothing."""
    words = words_of(text)
    if not words:
        return "it is empty"
    if not text.isascii() or not text.isprintable():
        return "it is not one line of plain ASCII" if "\n" in text else "it is not plain ASCII"
    if text[0] in _QUOTES or text[-1] in _QUOTES:
        return "it is in quotes or marked up"
    if len(text.split()) > MOST_WORDS:
        return f"it has {len(text.split())} words, at most {MOST_WORDS} are allowed"
    if words[0] not in VERBS:
        return f"it does not begin with a verb that commands, but with {words[0]!r}"
    return ""


def _meta_refusal(text: str) -> str:
    found = _META.search(text)
    return f"it speaks of {found[0]!r}, which is no part of a task" if found else ""


def _grounding_refusal(text: str, context: CommandContext) -> str:
    """Say which word names what neither the analysis nor the original task mentions."""
    seen = named_things(f"{context.analysis} {context.original}")
    unseen = named_things(text) - seen
    if unseen:
        words = " ".join(word for word in words_of(text) if stem(word) in unseen)
        return f"it is not grounded: nothing that was seen is called {words!r}"
    return "" if named_things(text) or seen else "it names no object"


def _target_refusal(text: str, context: CommandContext) -> str:
    """Hold scores 2 to 4 to the object and against words about the gripper, as the planning prompt asks."""
    if context.score > 1 and _CONTROL.search(text):
        return "it asks for the gripper to be controlled, not for a state of the scene"
    if context.score > 2 and not named_things(text) & named_things(context.original):
        return f"a command for score {context.score} must name the object of the original task"
    return ""


def _entailment_refusal(text: str, original: str) -> str:
    """Say that the original task, done, would do the command as well: its words are some of the original's in order."""
    rest = iter(meaning_words(original))
    entailed = all(word in rest for word in meaning_words(text))
    return "the original task entails it" if entailed else ""


def _paraphrase_refusal(text: str, others: Iterable[str]) -> str:
    for other in others:
        if is_paraphrase(text, other):
            return f"it is a paraphrase of {other!r}"
    return ""


def is_paraphrase(text: str, other: str) -> bool:
    """Tell whether two commands say the same in nearly the same words; other numbers are another command."""
    mine, theirs = meaning_words(text), meaning_words(other)
    if _numbers(mine) != _numbers(theirs):
        return False
    shared = len(set(mine) & set(theirs))
    return shared >= _ALIKE * len(set(mine) | set(theirs)) and _same_order(mine, theirs)


def _same_order(mine: Sequence[str], theirs: Sequence[str]) -> bool:
    """Tell whether the shared words come in the same order: the cup on the plate is not the plate on the cup."""
    shared = set(mine) & set(theirs)
    first, second = (list(dict.fromkeys(word for word in words if word in shared)) for words in (mine, theirs))
    return first == second


def _numbers(words: Iterable[str]) -> list[str]:
    return sorted(word for word in words if word[0].isdigit())
