"""Typos, scanner errors, case, how numbers are written."""

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate

from numpy.random import Generator

from rewardlab.core.errors import NotApplicable
from rewardlab.core.instructions.lexicon import REAL_WORDS
from rewardlab.core.instructions.spelling import (
    DIGITS,
    LOOKALIKES,
    NEIGHBOURING_KEYS,
    SPELLED_NUMBER,
    SPELLINGS,
    digits_of,
    words_of_number,
)
from rewardlab.perturbations.contract import on_instruction

Letters = list[str]  # one entry per character of the original word; an edit may empty it or lengthen it
EditCount = tuple[int, float]  # so many edits at least, and one for this share of the words
PossibleEdits = Callable[[Letters, int, float], list[Letters]]  # what may become of a word by an edit at one place


# Real instructions have five to ten words: without the counts the weaker severities would all be one edit.
_misspelt = partial(
    on_instruction,
    "semantic",
    parameter="edits at least, and share of words",
    table=((1, 0.05), (2, 0.10), (3, 0.15), (4, 0.25)),
    randomness="per_clip",
    version=2,
)


@_misspelt(based_on="nlpaug KeyboardAug")
def typo_keyboard(text: str, amount: EditCount, rng: Generator) -> str:
    """The operator hits a neighbouring key in some of the words."""
    return _edit(text, amount, rng, _mistype)


@_misspelt(based_on="nlpaug RandomCharAug")
def char_edit(text: str, amount: EditCount, rng: Generator) -> str:
    """The operator swaps, doubles or leaves out letters in some of the words."""
    return _edit(text, amount, rng, _swap_double_or_omit)


@_misspelt(based_on="nlpaug OcrAug")
def ocr_confusion(text: str, amount: EditCount, rng: Generator) -> str:
    """The instruction was scanned from paper and some letters were read as others of like shape."""
    return _edit(text, amount, rng, _misread)


@on_instruction(
    "semantic",
    parameter="letter case and spaces",
    table=("other sentence case", "title case", "upper case", "upper case and stray spaces"),
    based_on="HELM case and space perturbations",
    randomness="per_clip",
)
def case_spacing(text: str, style: str, rng: Generator) -> str:
    """The instruction is typed with other capitals, then with stray spaces."""
    extra = rng.integers(0, 3, size=text.count(" ") + 1)
    if style == "upper case and stray spaces":
        words = text.upper().split(" ")
        if len(words) == 1:
            return f" {words[0]} "
        gaps = [" " * (1 + int(n)) for n in (max(1, extra[0]), *extra[1:])]
        return words[0] + "".join(gap + word for gap, word in zip(gaps, words[1:], strict=False))
    written = {"other sentence case": _other_case, "title case": _title, "upper case": str.upper}[style](text)
    if written == text:
        raise NotApplicable(f"it needs a text that is not yet in {style}, in a script with capitals")
    return written


def _other_case(text: str) -> str:
    if text.lower() == text.upper():
        return text
    lowered = text.strip().rstrip(".!").lower()
    return lowered if lowered != text else lowered[:1].upper() + lowered[1:] + "."


def _title(text: str) -> str:
    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))


def _edit(text: str, amount: EditCount, rng: Generator, possible_edits: PossibleEdits) -> str:
    words = [list(word) for word in text.split(" ")]
    order = rng.permutation(len(words))
    draws = rng.random((len(text) + 1, 2))
    least, share = amount
    wanted = max(least, math.ceil(share * len(words)))
    done = 0
    for index, position, draw in _positions(words, [int(i) for i in order], draws.tolist()):
        written = ((option, _letters_and_digits(option)) for option in possible_edits(words[index], position, draw))
        harmless = next((option for option, word in written if word and word not in REAL_WORDS), None)
        if harmless:
            words[index] = harmless
            done += 1
        if done == wanted:
            break
    if not done:
        raise NotApplicable("it needs a letter that can be mistaken in this way")
    return " ".join("".join(letters) for letters in words)


def _positions(words: list[Letters], order: list[int], draws: list[list[float]]) -> Iterator[tuple[int, int, float]]:
    """Name where to edit, in an order that no severity changes: one place in every word, then a second, and so on."""
    starts = list(accumulate(map(len, words), initial=0))
    ranked: list[list[tuple[float, int, float]]] = []  # of each word, with the draws of each place
    for word, start in zip(words, starts, strict=False):
        # Every second letter, so that two swaps never meet.
        places = [position for position, letter in enumerate(word) if letter.isalpha()][::2]
        ranked.append(sorted((draws[start + p][0], p, draws[start + p][1]) for p in places))
    long_first = sorted(order, key=lambda index: len(ranked[index]) < 2)
    for turn in range(max(map(len, ranked), default=0)):
        for index in long_first:
            if turn < len(ranked[index]):
                yield index, *ranked[index][turn][1:]


def _letters_and_digits(letters: Letters) -> str:
    return "".join(letter for letter in "".join(letters) if letter.isalnum()).lower()


def _rotated(options: list[str], draw: float) -> list[str]:
    start = int(draw * len(options))
    return options[start:] + options[:start]


def _with(word: Letters, position: int, *letters: str) -> Letters:
    return [*word[:position], *letters, *word[position + len(letters) :]]


def _mistype(word: Letters, position: int, draw: float) -> list[Letters]:
    letter = word[position]
    keys = [key.upper() if letter.isupper() else key for key in NEIGHBOURING_KEYS.get(letter.lower(), "")]
    return [_with(word, position, key) for key in _rotated(keys, draw)]


def _misread(word: Letters, position: int, draw: float) -> list[Letters]:
    return [_with(word, position, shape) for shape in _rotated(list(LOOKALIKES.get(word[position], ())), draw)]


def _swap_double_or_omit(word: Letters, position: int, draw: float) -> list[Letters]:
    letter = word[position]
    after = word[position + 1] if position + 1 < len(word) else ""
    outcomes = {"double": _with(word, position, letter + letter)}
    if after.isalpha() and after != letter:
        outcomes["swap"] = _with(word, position, after, letter)
        outcomes["leave out"] = _with(word, position, "")
    return [outcomes[name] for name in _rotated(sorted(outcomes), draw)]


# A semantic perturbation of how numbers and words are spelled.

_FULL_WIDTH = str.maketrans("0123456789", "0123456789")
_DECIMAL = re.compile(r"(?<![\w.,])([0-9]+)\.([0-9]{1,2})(?![\w]|[.,][0-9])")
_EITHER = re.compile(f"{SPELLED_NUMBER.pattern}|{DIGITS.pattern}", re.IGNORECASE)
_SPELLING = re.compile(rf"\b(?:{'|'.join(SPELLINGS)})\b")


@on_instruction(
    "semantic",
    parameter="how numbers are written",
    table=("digits", "words", "both", "locale"),
    based_on="NL-Aug numeric_to_word",
)
def number_form(text: str, form: str, _rng: Generator) -> str:
    """Numbers are written as digits, as words, as both, or in the spelling of another country."""
    if form == "words":
        written = DIGITS.sub(lambda found: words_of_number(found) or found[0], text)
    elif form == "both":
        written = _EITHER.sub(_both_of, text)
    else:
        written = SPELLED_NUMBER.sub(digits_of, text)
    if form == "locale":  # 2.5 as 2,5, whole numbers in the wide digits of East Asian keyboards, and gray as grey
        written = DIGITS.sub(lambda found: found[0].translate(_FULL_WIDTH), _DECIMAL.sub(r"\1,\2", written))
        written = _SPELLING.sub(lambda found: SPELLINGS[found[0]], written)
    if written == text:
        raise NotApplicable(f"it needs a number that is not yet written as {form}")
    return written


def _both_of(found: re.Match[str]) -> str:
    other = words_of_number(found) if found["number"] else digits_of(found)
    return f"{found[0]} ({other})" if other else found[0]
