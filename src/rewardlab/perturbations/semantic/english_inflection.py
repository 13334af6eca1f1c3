"""Small rules of English: verb forms, a or an, is or are, where a sentence starts and ends."""

import re
from collections.abc import Callable

_DOUBLED = {
    *("put", "set", "cut", "flip", "stir", "grab", "tip", "uncap", "cap", "drop", "get", "hit", "wrap", "shut"),
    *("spin", "tap", "pat", "let", "tug", "grip", "drag", "slam", "slot", "fit", "mop", "transfer"),
}
_PARTICIPLES = {
    "put": "put", "set": "set", "shut": "shut", "cut": "cut", "hit": "hit", "let": "let", "take": "taken",
    "slide": "slid", "sweep": "swept", "hang": "hung", "throw": "thrown", "bring": "brought", "give": "given",
    "get": "got", "spin": "spun", "stick": "stuck", "make": "made", "lay": "laid", "spread": "spread", "hold": "held",
    "drive": "driven",
}  # fmt: skip
_ARTICLE = re.compile(r"\b([Aa])n? (?=(\w+))")
_SAID_WITH_CONSONANT = ("uni", "use", "usu", "uten", "eu", "one", "once")
_SAID_WITH_VOWEL = ("hour", "honest", "heir")
_WORD = re.compile(r"[A-Z][a-z]*(?![A-Z])\b")


def gerund(verb: str) -> str:
    """Return the -ing form of a verb phrase: "pick up" becomes "picking up"."""
    return _inflect(verb, _ing)


def participle(verb: str) -> str:
    """Return the past participle of a verb phrase: "take out" becomes "taken out"."""
    return _inflect(verb, _past)


def _inflect(verb: str, form: Callable[[str], str]) -> str:
    return " and ".join(form(first) + rest for first, rest in map(_first_word, verb.split(" and ")))


def _first_word(phrase: str) -> tuple[str, str]:
    first, space, rest = phrase.partition(" ")
    return first, space + rest


def _ing(word: str) -> str:
    if word in _DOUBLED:
        return word + word[-1] + "ing"
    return (word[:-1] if word.endswith("e") and not word.endswith("ee") else word) + "ing"


def _past(word: str) -> str:
    if word in _PARTICIPLES:
        return _PARTICIPLES[word]
    if word in _DOUBLED:
        return word + word[-1] + "ed"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ied"
    return word + ("d" if word.endswith("e") else "ed")


def is_plural(noun: str) -> bool:
    """Tell whether a noun takes "are"."""
    last = noun.rpartition(" ")[2].lower()
    return last == "them" or (len(last) > 3 and last.endswith("s") and not last.endswith(("ss", "us", "is")))


def fix_articles(text: str) -> str:
    """Write "a" or "an" as the next word asks for."""
    return _ARTICLE.sub(lambda found: found[1] + ("n " if _starts_with_vowel(found[2].lower()) else " "), text)


def _starts_with_vowel(word: str) -> bool:
    return word.startswith(_SAID_WITH_VOWEL) or (word[0] in "aeiou" and not word.startswith(_SAID_WITH_CONSONANT))


def capitalised(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def inside_sentence(text: str) -> str:
    """Return the text as it reads after other words: trimmed, and without the capital of a sentence start."""
    text = text.strip()
    return text[:1].lower() + text[1:] if _WORD.match(text) and not text.startswith("I ") else text


def as_sentence(text: str) -> str:
    """Return the text trimmed and closed by a full stop, unless it already ends with punctuation."""
    text = text.strip()
    return text if text.endswith((".", "!", "?", "。", "…")) else text.rstrip(",;:") + "."


def words_of(text: str) -> set[str]:
    """Return the words of a text, in lower case."""
    return set(re.findall(r"\w+", text.lower()))
