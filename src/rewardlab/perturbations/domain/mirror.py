"""The whole world seen in a mirror: left becomes right in the picture and in the words."""

import re
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Episode, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode, on_episode
from rewardlab.perturbations.guards import words_of

_LEFT_TO_RIGHT = {"left": "right", "lefts": "rights", "leftmost": "rightmost", "lefthand": "righthand"}
_LEFT_TO_RIGHT |= {"leftward": "rightward", "leftwards": "rightwards", "clockwise": "counterclockwise"}
_OPPOSITE = _LEFT_TO_RIGHT | {right: left for left, right in _LEFT_TO_RIGHT.items()}
_SIDES = re.compile(rf"\b({'|'.join(_OPPOSITE)})\b", re.IGNORECASE)
# No side at all, or writing, which a mirror makes unreadable.
_NO_SIDE = re.compile(
    r"\b(right (away|now|after|before|amount|order)|all right|left (over|in|behind)|(is|are|be) left)\b", re.I
)
_WRITING = {
    *("letter", "letters", "word", "words", "text", "label", "labels", "read", "write", "spell"),
    *("number", "numbers", "digit", "digits"),
}


@on_episode(
    "domain",
    channel="frames+instruction",
    parameter="axis",
    table=("sideways",) * 4,
    based_on="label consistency",
    label="keeps_if",
)
def mirror(episode: Episode, _axis: str, _rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """Picture and words are mirrored, so left is right in both; a mirror has no strength: all severities are alike."""
    flipped = np.ascontiguousarray(episode.frames[:, :, ::-1])
    words = mirrored_words(episode.instruction)
    return PerturbedEpisode(replace(with_frames(episode, flipped), instruction=words), "same")


def mirrored_words(text: str) -> str:
    """Return an instruction for the world in a mirror; raises NotApplicable where its words allow none."""
    if _NO_SIDE.search(text) or re.search(r"anti-?clockwise|counter-clockwise", text, re.IGNORECASE):
        raise NotApplicable(f"left or right may mean something else than a side in {text!r}")
    if written := _WRITING.intersection(words_of(text)):
        raise NotApplicable(f"the instruction is about writing ({sorted(written)[0]!r}), unreadable in a mirror")

    def other_side(match: re.Match[str]) -> str:
        word = match.group()
        other = _OPPOSITE[word.lower()]
        return other.upper() if word.isupper() else other.capitalize() if word[0].isupper() else other

    return _SIDES.sub(other_side, text)
