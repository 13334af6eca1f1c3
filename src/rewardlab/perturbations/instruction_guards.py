"""Words of an instruction that forbid a change of the picture."""

import re

from rewardlab.core.errors import NotApplicable

# fmt: off
COLOUR_WORDS = frozenset({
    "amber", "beige", "black", "blue", "bronze", "brown", "copper", "cream", "crimson", "cyan", "gold", "golden",
    "gray", "green", "grey", "indigo", "ivory", "khaki", "lavender", "lilac", "magenta", "maroon", "navy", "olive",
    "orange", "peach", "pink", "purple", "red", "scarlet", "silver", "tan", "teal", "turquoise",
    "violet", "white", "yellow", "colour", "color", "colours", "colors", "coloured", "colored",
})
# fmt: on


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation; parts of `light-blue` count alone."""
    return re.findall(r"[^\W\d_]+", text.lower())


def colours_in(text: str) -> list[str]:
    """Return the colour words of an instruction."""
    return [word for word in words_of(text) if word in COLOUR_WORDS or _stems(word) & COLOUR_WORDS]


def _stems(word: str) -> set[str]:
    """Return what `reddish`, `bluish` or `greenish` may come from."""
    stem = word.removesuffix("ish")
    return {stem, stem[:-1], stem + "e"} if stem != word else set()


def require_no_colour(text: str) -> None:
    """Drop the cell where the instruction tells objects apart by colour."""
    if named := colours_in(text):
        raise NotApplicable(f"the instruction names a colour ({named[0]!r}), and this change alters colours")
