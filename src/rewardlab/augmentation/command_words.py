"""Words of commands: the verbs that begin one, words that name no object, and stems by which words are compared."""

import re
import tomllib
from pathlib import Path

_LISTS = tomllib.loads(Path(__file__).with_name("command_words.toml").read_text(encoding="utf-8"))
VERBS = frozenset(_LISTS["verbs"])
ARTICLES = frozenset(_LISTS["articles"])
_NO_OBJECT = frozenset(_LISTS["no_object"])
_SYNONYMS = {word: words[0] for words in _LISTS["synonyms"] for word in words}
_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?")
_ENDINGS = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", "e"), ("s", ""))


_BEFORE_VERBS = ("", "and", "then", "to", "by", "without", "until", "or", "it", "is", "not")


def words_of(text: str) -> list[str]:
    """Return the words and numbers of a text in lower case."""
    return _WORD.findall(text.casefold())


def stem(word: str) -> str:
    """Return a word without its ending, so that `drawers` is `drawer`; numbers stay."""
    for ending, rest in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return (word.removesuffix(ending) + rest).rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word


def is_known(word: str) -> bool:
    """Tell whether a word stands in our lists, and so is spelt right."""
    return word in VERBS or word in _NO_OBJECT


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
