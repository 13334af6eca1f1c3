"""Checks by code of commands and rewritten tasks that teachers wrote; each returns a reason to reject, or nothing.

The reasons are part of the prompts that repeat a question: other words would make other questions.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

_LISTS = tomllib.loads(Path(__file__).with_name("command_words.toml").read_text(encoding="utf-8"))
VERBS = frozenset(_LISTS["verbs"])
ARTICLES = frozenset(_LISTS["articles"])
_NO_OBJECT = frozenset(_LISTS["no_object"])
_SYNONYMS = {word: words[0] for words in _LISTS["synonyms"] for word in words}
_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?")
_ENDINGS = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", "e"), ("s", ""))
_BEFORE_VERBS = ("", "and", "then", "to", "by", "without", "until", "or", "it", "is", "not")
MOST_WORDS = 24  # the paper's "under 25 words"
_ALIKE = 0.8  # fraction of shared words from which two commands are paraphrases
_META = re.compile(
    r"\b(scores?:? (of )?\d|rubric|rewards?|original (task|command)|video|command|task|instruction|as an ai)\b", re.I
)
_CONTROL = re.compile(r"\b(release|let go of|open|close) the gripper\b|\bnot in contact with the robot\b", re.I)
_QUOTES = "\"'`*#"
_CLOSE = 0.66  # least similarity of a misspelled word and its correction
_SHORT = 3  # letters of a word of which a correction changes the length by one at most
_SMALL = frozenset(_LISTS["small"])
_OPPOSITES = (
    *(("open", "close"), ("left", "right"), ("up", "down"), ("in", "out"), ("into", "onto"), ("on", "off")),
    *(("push", "pull"), ("lock", "unlock"), ("from", "to"), ("plug", "unplug"), ("cover", "uncover")),
)


def words_of(text: str) -> list[str]:
    """Return the words and numbers of a text in lower case."""
    return _WORD.findall(text.casefold())


def stem(word: str) -> str:
    """Return a word without its ending, so that `drawers` is `drawer`; numbers stay."""
    for ending, rest in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return (word.removesuffix(ending) + rest).rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word


def meaning_words(text: str) -> list[str]:
    """Return stems of the words that carry the meaning of a command, in order, verbs of one meaning as one."""
    return [stem(_SYNONYMS.get(word, word)) for word in words_of(text) if word not in ARTICLES]


def named_things(text: str) -> set[str]:
    """Return stems of the words that can name an object: no words of place, no numbers, no verb where a verb stands."""
    found, before = set[str](), ""
    for word in words_of(text):
        is_verb = before in _BEFORE_VERBS and stem(word) in _VERB_STEMS
        if word not in _NO_OBJECT and not word[0].isdigit() and not is_verb:
            found.add(stem(word))
        before = word
    return found


_VERB_STEMS = frozenset(stem(verb) for verb in VERBS)


@dataclass(frozen=True)
class CommandContext:
    """What a command is compared with: the original task, the analysis of the video, the commands of lower scores."""

    original: str
    analysis: str
    score: int
    lower: tuple[str, ...]


def command_rejection(text: str, context: CommandContext) -> str:
    """Return the first reason why a command cannot be used, or nothing."""
    if wrong := form_rejection(text):
        return wrong
    if meta := _META.search(text):
        return f"it speaks of {meta[0]!r}, which is no part of a task"
    named, seen = named_things(text), named_things(f"{context.analysis} {context.original}")
    if unseen := named - seen:
        words = " ".join(word for word in words_of(text) if stem(word) in unseen)
        return f"it is not grounded: nothing that was seen is called {words!r}"
    if not named and not seen:
        return "it names no object"
    if context.score > 1 and _CONTROL.search(text):
        return "it asks for the gripper to be controlled, not for a state of the scene"
    if context.score > 2 and not named & named_things(context.original):
        return f"a command for score {context.score} must name the object of the original task"
    rest = iter(meaning_words(context.original))
    if all(word in rest for word in meaning_words(text)):  # its words are some of the original's, in order
        return "the original task entails it"
    same = next((other for other in (context.original, *context.lower) if is_paraphrase(text, other)), None)
    return "" if same is None else f"it is a paraphrase of {same!r}"


def form_rejection(text: str) -> str:
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


def is_paraphrase(text: str, other: str) -> bool:
    """Tell whether two commands have nearly the same words in the same order; other numbers make another command."""
    both = meaning_words(text), meaning_words(other)
    numbers = [sorted(word for word in words if word[0].isdigit()) for words in both]
    shared = set(both[0]) & set(both[1])
    first, second = (list(dict.fromkeys(word for word in words if word in shared)) for words in both)
    return numbers[0] == numbers[1] and len(shared) >= _ALIKE * len({*both[0], *both[1]}) and first == second


def rewrite_rejection(text: str, original: str) -> str:
    """Return why a text is no correction of grammar and spelling alone, or nothing."""
    if not text.strip() or "\n" in text.strip():
        return "it is not one line"
    if not text.isprintable() or text.strip()[0] in "\"'`*#":
        return "it is in quotes, marked up or not printable"
    mine, theirs = words_of(text), words_of(original)
    pairs = [pair for both in _OPPOSITES for pair in (both, both[::-1])]
    if any(a in theirs and a not in mine and b in mine and b not in theirs for a, b in pairs):
        return "it turns the task around"
    stems, known, small = {stem(word) for word in mine}, VERBS | _NO_OBJECT, _SMALL | ARTICLES
    content = [word for word in theirs if word not in small]  # a word of our lists is spelled correctly
    lost = [word for word in content if not (stem(word) in stems if word in known else _has(word, mine))]
    added = [word for word in mine if word not in small and not _has(word, theirs)]
    changes = [f"{what} {' '.join(words)!r}" for what, words in (("lost", lost), ("added", added)) if words]
    return f"it changes the meaning: {', '.join(changes)}" if changes else ""


def _has(word: str, others: Sequence[str]) -> bool:
    """Tell whether a word occurs, perhaps misspelled; numbers must be equal."""
    if word[0].isdigit():
        return word in others
    return any(
        abs(len(word) - len(other)) <= (1 if min(len(word), len(other)) <= _SHORT else 2)
        and SequenceMatcher(None, word, other).ratio() >= _CLOSE
        for other in others
    )
