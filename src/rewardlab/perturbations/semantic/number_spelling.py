"""A semantic perturbation of how numbers and words are spelled."""

import re
from collections.abc import Callable

from numpy.random import Generator

from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import Spec, on_instruction

_NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_SUFFIXES = {1: "st", 2: "nd", 3: "rd"}
_FULL_WIDTH = str.maketrans("0123456789", "0123456789")
# "one" is a number only before a thing ("one block"), and "second" an order only after "the".
_SPELLED = re.compile(
    rf"(?<![\w-])(?:(?<=the )(?P<ordinal>{'|'.join(_ORDINALS)})(?= [a-z])"
    rf"|(?P<word>{'|'.join(word for word in _NUMBER_WORDS if word != 'one')})"
    r"|(?<!the )(?<!this )(?<!that )(?<!each )(?<!other )(?<!which )(?P<one>one)(?= (?!of\b|from\b|in\b|on\b)[a-z]))"
    r"(?![\w-])",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"(?<![\w.,])(?P<number>[0-9]+)(?P<suffix>st|nd|rd|th)?(?![\w]|[.,][0-9])")
_DECIMAL = re.compile(r"(?<![\w.,])([0-9]+)\.([0-9]{1,2})(?![\w]|[.,][0-9])")

_EITHER = re.compile(f"{_SPELLED.pattern}|{_DIGITS.pattern}", re.IGNORECASE)
_SPELLINGS = {"gray": "grey", "grey": "gray", "color": "colour", "colour": "color", "center": "centre"}
_SPELLING = re.compile(rf"\b(?:{'|'.join(_SPELLINGS)})\b")
_STYLES = ("digits", "words", "both", "locale")


@on_instruction(Spec("semantic", "how numbers are written", _STYLES, "NL-Aug numeric_to_word"))
def number_form(text: str, form: str, rng: Generator) -> str:
    """Numbers are written as digits, as words, as both, or in the spelling of another country."""
    written = _FORMS[form](text)
    if written == text:
        raise NotApplicable(f"there is no number in the text, or it is already written as {form}")
    return written


def _as_digits(text: str) -> str:
    return _SPELLED.sub(_digits_of, text)


def _digits_of(found: re.Match[str]) -> str:
    if found["ordinal"]:
        number = _ORDINALS.index(found["ordinal"].lower()) + 1
        return f"{number}{_SUFFIXES.get(number, 'th')}"
    return str(_NUMBER_WORDS.index((found["word"] or found["one"]).lower()))


def _as_words(text: str) -> str:
    return _DIGITS.sub(lambda found: _words_of(found) or found[0], text)


def _words_of(found: re.Match[str]) -> str:
    number = int(found["number"]) if len(found["number"]) <= 2 else len(_NUMBER_WORDS)
    if found["suffix"]:
        return _ORDINALS[number - 1] if 1 <= number <= len(_ORDINALS) else ""
    return _NUMBER_WORDS[number] if number < len(_NUMBER_WORDS) else ""


def _as_both(text: str) -> str:
    return _EITHER.sub(lambda found: _both_of(found) or found[0], text)


def _both_of(found: re.Match[str]) -> str:
    other = _words_of(found) if found["number"] else _digits_of(found)
    return f"{found[0]} ({other})" if other else ""


def _as_locale(text: str) -> str:
    """Write 2.5 as 2,5, whole numbers in the wide digits of East Asian keyboards, and gray as grey."""
    written = _DIGITS.sub(lambda found: found[0].translate(_FULL_WIDTH), _DECIMAL.sub(r"\1,\2", _as_digits(text)))
    return _SPELLING.sub(lambda found: _SPELLINGS[found[0]], written)


_FORMS: dict[str, Callable[[str], str]]
_FORMS = {"digits": _as_digits, "words": _as_words, "both": _as_both, "locale": _as_locale}
