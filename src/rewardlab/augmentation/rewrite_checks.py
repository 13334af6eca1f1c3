"""What code can check of a rewritten task description: that it says what the original said, in better spelling."""

from collections.abc import Sequence
from difflib import SequenceMatcher

from rewardlab.augmentation.command_words import ARTICLES, is_known, stem, words_of

_CLOSE = 0.66  # how alike the letters of a misspelt word and its correction are
_SHORT = 3  # letters of a word of which a correction changes the length by one at most
_SMALL = frozenset(
    (
        "a",
        "an",
        "the",
        "of",
        "to",
        "in",
        "on",
        "into",
        "onto",
        "at",
        "from",
        "and",
        "with",
        "it",
        "is",
        "by",
        "for",
        "up",
        "down",
        "out",
        "off",
    )
)
_OPPOSITES = (
    *(("open", "close"), ("left", "right"), ("up", "down"), ("in", "out"), ("into", "onto"), ("on", "off")),
    *(("push", "pull"), ("lock", "unlock"), ("from", "to"), ("plug", "unplug"), ("cover", "uncover")),
)


def rewrite_refusal(text: str, original: str) -> str:
    """Return why a text is no correction of grammar and spelling alone, or nothing."""
    if not text.strip() or "\n" in text.strip():
        return "it is not one line"
    if not text.isprintable() or text.strip()[0] in "\"'`*#":
        return "it is in quotes, marked up or not printable"
    mine, theirs = words_of(text), words_of(original)
    if _flipped(mine, theirs):
        return "it turns the task around"
    stems = {stem(word) for word in mine}
    lost = [word for word in _content(original) if not (stem(word) in stems if is_known(word) else _has(word, mine))]
    added = [word for word in _content(text) if not _has(word, theirs)]
    if lost or added:
        return f"it changes the meaning: {_told('lost', lost)}{_told('added', added)}".rstrip(" ,")
    return ""


def _content(text: str) -> list[str]:
    return [word for word in words_of(text) if word not in _SMALL and word not in ARTICLES]


def _has(word: str, others: Sequence[str]) -> bool:
    """Tell whether a word is there, maybe spelt otherwise; numbers must be the same."""
    if word[0].isdigit():
        return word in others
    return any(_is_close(word, other) for other in others)


def _is_close(word: str, other: str) -> bool:
    longer = 1 if min(len(word), len(other)) <= _SHORT else 2
    return abs(len(word) - len(other)) <= longer and SequenceMatcher(None, word, other).ratio() >= _CLOSE


def _flipped(mine: Sequence[str], theirs: Sequence[str]) -> bool:
    pairs = [pair for both in _OPPOSITES for pair in (both, both[::-1])]
    return any(a in theirs and a not in mine and b in mine and b not in theirs for a, b in pairs)


def _told(what: str, words: Sequence[str]) -> str:
    return f"{what} {' '.join(words)!r}, " if words else ""
