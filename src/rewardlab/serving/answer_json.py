"""Answers as JSON: what the model said, how far it may be trusted, and which model it was."""

from typing import Any

from rewardlab.core.trial import Answer, Failure
from rewardlab.models.trust import trust_of
from rewardlab.serving.served_model import ServedModel


def answer_json(answer: Answer, served: ServedModel) -> dict[str, Any]:
    """Return one answer; a failure has a reason and no level, so that nothing stands in for it."""
    if isinstance(answer, Failure):
        said: dict[str, Any] = {"failure": answer.reason}
    else:  # not by `asdict`, which copies every number of the progress by itself
        said = {"level": answer.level, "probabilities": answer.probabilities, "progress": answer.progress}
    return {
        **said,
        "raw": answer.raw,
        "trust": trust_of(answer),
        "model": served.name,
        "fingerprint": served.fingerprint,
    }
