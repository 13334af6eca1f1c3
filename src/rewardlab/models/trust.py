"""Trust: what an answer says about how far it may be relied on, read from its probabilities and its notes."""

import json
from typing import Any

from rewardlab.core.trial import Answer, Failure

SUCCESS_LEVEL = 5  # the level of the rubric at which the task is done

# What models write beside their answers, and what it is called here; the later name wins.
_SAID = {"set90": "set", "set": "set", "sd": "disagreement", "novelty": "novelty"}


def trust_of(answer: Answer) -> dict[str, Any]:
    """Return the probability of success, the prediction set, disagreement and shift, each only where it is known."""
    notes = read_notes(answer.raw)
    found: dict[str, Any] = {}
    if not isinstance(answer, Failure) and answer.probabilities is not None:
        found["success_probability"] = answer.probabilities[SUCCESS_LEVEL - 1]
    found |= {said: notes[key] for key, said in _SAID.items() if key in notes}
    guarded = notes.get("trust")
    return found | guarded if isinstance(guarded, dict) else found


def read_notes(raw: str | None) -> dict[str, Any]:
    """Return the JSON object that a model wrote beside its answer; empty where it wrote none."""
    try:
        notes = json.loads(raw or "")
    except (ValueError, RecursionError):
        return {}
    return notes if isinstance(notes, dict) else {}
