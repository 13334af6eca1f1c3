"""Semantic perturbations by text that adds nothing: politeness, and facts that have nothing to do with the goal."""

from collections.abc import Sequence

from numpy.random import Generator

from rewardlab.core.seeding import pick
from rewardlab.perturbations.contract import Spec, on_instruction
from rewardlab.perturbations.semantic.english_inflection import as_sentence, capitalised, inside_sentence, words_of

_COURTESIES = ("if you do not mind", "when you have a moment", "if it is not too much trouble")
_GREETINGS = ("Hello there, I need a hand with something.", "Good morning, I have a small request.")
_THANKS = (
    ("Take your time.", "I really appreciate it.", "Thank you so much."),
    ("There is no hurry at all.", "You are a great help.", "Many thanks in advance."),
)
# Nothing here is in the picture, and nothing here can be a condition of the goal.
_FACTS = (
    "It is raining outside.",
    "The radio is playing softly.",
    "Today is a Tuesday.",
    "The building was painted last year.",
    "Lunch is at noon.",
    "The corridor is empty.",
)
_OTHER_OBJECTS = (
    "A bicycle stands in the yard.",
    "Somebody left a violin in the hallway.",
    "The printer on the second floor is out of ink.",
    "A newspaper arrived this morning.",
    "My neighbour bought a tractor.",
    "The library has a new globe.",
)
_AMOUNTS = ("one word", "a clause", "a sentence", "four sentences")
_COUNTED = "unrelated facts, and facts about other objects"
_COUNTS = ((1, 0), (2, 0), (2, 1), (2, 4))


@on_instruction(Spec("semantic", "how much is said around the goal", _AMOUNTS, "HELM filler words", "per_clip"))
def polite_filler(text: str, amount: str, rng: Generator) -> str:
    """The operator is polite, then chatty; the goal is the same."""
    courtesy = pick(_COURTESIES, rng)
    greeting = pick(_GREETINGS, rng)
    thanks = pick(_THANKS, rng)
    request = f"please {inside_sentence(text)}"
    if amount == "one word":
        return request
    if amount == "a clause":
        return f"{courtesy}, {request}"
    asked = as_sentence(f"{greeting} {capitalised(courtesy)}, {request}")
    return asked if amount == "a sentence" else " ".join([asked, *thanks])


@on_instruction(Spec("semantic", _COUNTED, _COUNTS, "CheckList INV, reWordBench", "per_clip"))
def irrelevant_detail(text: str, counts: tuple[int, int], rng: Generator) -> str:
    """Facts that have nothing to do with the goal are told along with it."""
    facts = _unrelated(_FACTS, text, rng)[: counts[0]]
    others = _unrelated(_OTHER_OBJECTS, text, rng)[: counts[1]]
    return " ".join([as_sentence(text), *facts, *others])


def _unrelated(sentences: Sequence[str], text: str, rng: Generator) -> list[str]:
    """Return the sentences in a drawn order; those that share a long word with the text come last."""
    said = {word for word in words_of(text) if len(word) > 3}
    drawn = [sentences[int(i)] for i in rng.permutation(len(sentences))]
    return sorted(drawn, key=lambda sentence: bool(said & words_of(sentence)))
