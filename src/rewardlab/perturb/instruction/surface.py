"""Semantic perturbations: the same wish in other words, or another wish for the same video."""

from dataclasses import replace

from numpy.random import Generator

from rewardlab.core.episode import Episode, Truth
from rewardlab.perturb.contract import Change, Definition, Peers, drop, on_episode, on_instruction

_NEIGHBOURS = {
    "q": "wa", "w": "qes", "e": "wrd", "r": "etf", "t": "ryg", "y": "tuh", "u": "yij", "i": "uok", "o": "ipl",
    "p": "ol", "a": "qsz", "s": "awdx", "d": "sefc", "f": "drgv", "g": "fthb", "h": "gyjn", "j": "hukm",
    "k": "jil", "l": "kop", "z": "asx", "x": "zsdc", "c": "xdfv", "v": "cfgb", "b": "vghn", "n": "bhjm", "m": "njk",
}  # fmt: skip

_FILLERS = (
    ("please", ""),
    ("if you do not mind, please", ""),
    ("hello there, I need a hand with something.", "thank you"),
    (
        "good morning, robot. I hope that this is a good moment. there is one thing to do:",
        "take your time, and thank you",
    ),
)


@on_instruction(
    Definition("semantic", "share of words mistyped", (0.05, 0.1, 0.15, 0.25), "nlpaug KeyboardAug", mode="static")
)
def typo_keyboard(text: str, share: float, rng: Generator) -> str:
    """The operator hits a neighbouring key in some of the words."""
    words = text.split(" ")
    typable = [i for i, word in enumerate(words) if any(c.lower() in _NEIGHBOURS for c in word)]
    if not typable:
        raise drop(f"no word of {text!r} is made of letters of a Latin keyboard")
    order = rng.permutation(typable)
    draws = rng.random((len(words), 2))
    for index in order[: max(1, round(share * len(words)))]:
        words[index] = _mistype(words[index], draws[index, 0], draws[index, 1])
    return " ".join(words)


def _mistype(word: str, where: float, which: float) -> str:
    places = [i for i, c in enumerate(word) if c.lower() in _NEIGHBOURS]
    place = places[int(where * len(places))]
    keys = _NEIGHBOURS[word[place].lower()]
    return word[:place] + keys[int(which * len(keys))] + word[place + 1 :]


@on_instruction(Definition("semantic", "words around the instruction", _FILLERS, "HELM filler words"))
def polite_filler(text: str, around: tuple[str, str], rng: Generator) -> str:
    """The operator is polite, then chatty; the wish is the same."""
    before, after = around
    return f"{before} {text}, {after}" if after else f"{before} {text}"


@on_episode(
    "instruction",
    Definition(
        "semantic",
        "where the other task comes from",
        ("same subset", "same subset", "whole dataset", "whole dataset"),
        "Robometer confusion matrix",
        expect="relabel",
        label="C",
        mode="static",
        uses_peers=True,
    ),
)
def task_swap(episode: Episode, pool: str, rng: Generator, peers: Peers) -> Change:
    """The video is judged against the instruction of another task: nothing of it was done."""
    subset = episode.origin.subset
    near = [peer for peer in peers if pool == "whole dataset" or peer.origin.subset == subset]
    others = sorted({peer.instruction for peer in near if peer.origin.task != episode.origin.task})
    others = [text for text in others if not _share_words(text, episode.instruction)]
    if not others:
        raise drop(f"no clearly different task in the {pool}")
    text = others[int(rng.integers(len(others)))]
    return Change(replace(episode, instruction=text, truth=Truth(1, False)), "relabel")


def _share_words(one: str, other: str) -> bool:
    """Tell whether two instructions name a common thing; then one may have been done along with the other."""
    common = set(one.lower().split()) & set(other.lower().split())
    return bool(
        common - {"the", "a", "an", "to", "in", "into", "on", "of", "from", "out", "up", "and", "it", "put", "place"}
    )
