"""Semantic perturbations by words that add nothing: politeness, and facts that have nothing to do with the wish."""

from collections.abc import Sequence

from numpy.random import Generator

from rewardlab.core.seeding import pick
from rewardlab.perturb.contract import Spec, on_instruction
from rewardlab.perturb.semantic.grammar import as_sentence, capitalised, inside_sentence, words_of

_COURTESIES = ("if you do not mind", "when you have a moment", "if it is not too much trouble")
_GREETINGS = ("Hello there, I need a hand with something.", "Good morning, I have a small request.")
_THANKS = (
    ("Take your time.", "I really appreciate it.", "Thank you so much."),
    ("There is no hurry at all.", "You are a great help.", "Many thanks in advance."),
)
# Nothing here is in the picture, and nothing here can be a condition of the wish.
_FACTS = (
    "It is raining outside.",
    "The radio is playing softly.",
    "Today is a Tuesday.",
    "The building was painted last year.",
    "Lunch is at noon.",
    "The corridor is empty.",
)
_OTHER_THINGS = (
    "A bicycle stands in the yard.",
    "Somebody left a violin in the hallway.",
    "The printer on the second floor is out of ink.",
    "A newspaper arrived this morning.",
    "My neighbour bought a tractor.",
    "The library has a new globe.",
)


@on_instruction(
    Spec(
        "semantic",
        "how much is said around the wish",
        ("one word", "a clause", "a sentence", "four sentences"),
        "HELM filler words",
        "per_clip",
    )
)
def polite_filler(text: str, amount: str, rng: Generator) -> str:
    """The operator is polite, then chatty; the wish is the same."""
    courtesy = pick(_COURTESIES, rng)
    greeting = pick(_GREETINGS, rng)
    thanks = pick(_THANKS, rng)
    wish = f"please {inside_sentence(text)}"
    if amount == "one word":
        return wish
    if amount == "a clause":
        return f"{courtesy}, {wish}"
    asked = as_sentence(f"{greeting} {capitalised(courtesy)}, {wish}")
    return asked if amount == "a sentence" else " ".join([asked, *thanks])


@on_instruction(
    Spec(
        "semantic",
        "unrelated facts, and facts about other things",
        ((1, 0), (2, 0), (2, 1), (2, 4)),
        "CheckList INV, reWordBench",
        "per_clip",
    )
)
def irrelevant_detail(text: str, counts: tuple[int, int], rng: Generator) -> str:
    """Facts that have nothing to do with the wish are told along with it."""
    facts = _unrelated(_FACTS, text, rng)[: counts[0]]
    others = _unrelated(_OTHER_THINGS, text, rng)[: counts[1]]
    return " ".join([as_sentence(text), *facts, *others])


def _unrelated(sentences: Sequence[str], text: str, rng: Generator) -> list[str]:
    """Return the sentences in a drawn order; those that share a long word with the text come last."""
    said = {word for word in words_of(text) if len(word) > 3}
    drawn = [sentences[int(i)] for i in rng.permutation(len(sentences))]
    return sorted(drawn, key=lambda sentence: bool(said & words_of(sentence)))
