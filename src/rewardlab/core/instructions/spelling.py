"""How words are misspelt and numbers written: neighbouring keys, letters of like shape, digits and number words."""

import re

NEIGHBOURING_KEYS = {
    "q": "wa", "w": "qes", "e": "wrd", "r": "etf", "t": "ryg", "y": "tuh", "u": "yij", "i": "uok", "o": "ipl",
    "p": "ol", "a": "qsz", "s": "awdx", "d": "sefc", "f": "drgv", "g": "fthb", "h": "gyjn", "j": "hukm",
    "k": "jil", "l": "kop", "z": "asx", "x": "zsdc", "c": "xdfv", "v": "cfgb", "b": "vghn", "n": "bhjm", "m": "njk",
}  # fmt: skip
LOOKALIKES: dict[str, tuple[str, ...]] = {
    "o": ("0",), "l": ("1", "I"), "i": ("1", "l"), "e": ("c",), "c": ("e",), "m": ("rn",), "w": ("vv",),
    "d": ("cl",), "s": ("5",), "g": ("9", "q"), "b": ("6", "h"), "h": ("b",), "t": ("f",), "f": ("t",), "u": ("v",),
    "z": ("2",), "n": ("ri",), "q": ("g",), "a": ("o",),
    "O": ("0",), "I": ("l",), "B": ("8",), "S": ("5",), "G": ("6",), "D": ("O",), "Z": ("2",), "E": ("F",),
    "P": ("F",), "C": ("G",), "T": ("7",),
}  # fmt: skip

_NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_SUFFIXES = {1: "st", 2: "nd", 3: "rd"}
# "one" is a number only before a thing ("one block"), and "second" an order only after "the".
SPELLED_NUMBER = re.compile(
    rf"(?<![\w-])(?:(?<=the )(?P<ordinal>{'|'.join(_ORDINALS)})(?= [a-z])"
    rf"|(?P<word>{'|'.join(word for word in _NUMBER_WORDS if word != 'one')})"
    r"|(?<!the )(?<!this )(?<!that )(?<!each )(?<!other )(?<!which )(?P<one>one)(?= (?!of\b|from\b|in\b|on\b)[a-z]))"
    r"(?![\w-])",
    re.IGNORECASE,
)
DIGITS = re.compile(r"(?<![\w.,])(?P<number>[0-9]+)(?P<suffix>st|nd|rd|th)?(?![\w]|[.,][0-9])")
SPELLINGS = {"gray": "grey", "grey": "gray", "color": "colour", "colour": "color", "center": "centre"}


def digits_of(found: re.Match[str]) -> str:
    """Return the digits of a number that SPELLED_NUMBER found."""
    if found["ordinal"]:
        number = _ORDINALS.index(found["ordinal"].lower()) + 1
        return f"{number}{_SUFFIXES.get(number, 'th')}"
    return str(_NUMBER_WORDS.index((found["word"] or found["one"]).lower()))


def words_of_number(found: re.Match[str]) -> str:
    """Return the words of a number that DIGITS found; empty where there are none here."""
    number = int(found["number"]) if len(found["number"]) <= 2 else len(_NUMBER_WORDS)
    if found["suffix"]:
        return _ORDINALS[number - 1] if 1 <= number <= len(_ORDINALS) else ""
    return _NUMBER_WORDS[number] if number < len(_NUMBER_WORDS) else ""
