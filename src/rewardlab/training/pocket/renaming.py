"""Renaming: an instruction with another name for its object, so that a name never seen is nothing new."""

import re

from numpy.random import Generator

from rewardlab.core.seeding import pick
from rewardlab.worlds.metaworld.objects import TASK_OBJECTS
from rewardlab.worlds.metaworld.thing_looks import COLOURS, ThingLook

_GENERIC = ("object", "thing", "part", "piece", "item")
_COLOUR_WORDS = (*COLOURS, "brown", "dark", "gray", "wooden")
# Other words that instructions use for what a task moves.
_SYNONYMS = {
    "ring": ("handle",), "ball": ("basketball",), "cube": ("block",), "lid": ("cover",), "mug": ("cup",),
    "dial": ("knob",), "lock": ("latch",), "drawer": (), "tap": ("faucet", "handle"), "handle": ("bar", "lever"),
    "peg": ("stick", "bar"), "plug": ("peg",), "puck": ("cylinder", "disc", "plate", "piece"), "block": ("cube",),
    "door": ("safe",), "window": (), "lever": (), "nail": (), "thermos": (), "button": (), "machine": ("button",),
}  # fmt: skip


def new_name(look: ThingLook | None, words: tuple[str, ...], rng: Generator) -> str:
    """Return a name for an object: by its colour where that was changed, generic, or a word that means nothing here."""
    kind = rng.random()
    if look is not None and kind < 0.5:
        return f"the {look.moving} {pick(_GENERIC, rng)}"
    return f"the {pick(_GENERIC, rng)}" if kind < 0.65 else f"the {pick(words, rng)}"


def renamed(text: str, task: str, name: str) -> str | None:
    """Return the text with this name in place of the object's; None where the text does not name it."""
    noun = TASK_OBJECTS[task].split()[-1]
    nouns = "|".join((noun, *_SYNONYMS.get(noun, ())))
    pattern = rf"\b(?:the|its|a)\s+(?:(?:{'|'.join(_COLOUR_WORDS)}|small|little|round|big)\s+)*(?:{nouns})\b"
    changed, count = re.subn(pattern, name, text, flags=re.IGNORECASE)
    return changed[0].upper() + changed[1:] if count else None


def names_a_colour(text: str) -> bool:
    """Tell whether a text says how something looks, which may not be so any more."""
    return bool(set(re.findall(r"[a-z]+", text.lower())) & set(_COLOUR_WORDS))
