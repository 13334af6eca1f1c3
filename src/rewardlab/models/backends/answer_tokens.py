"""What the tokens of a reply say, for models that run here: the choices of an answer, their probabilities, its text."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from rewardlab.core.errors import ModelError
from rewardlab.core.trial import Failure
from rewardlab.models.vlm import AnswerFormat, Completion


def choice_tokens(answer: AnswerFormat, reply_ids: Callable[[str], Sequence[int]]) -> tuple[str, list[int]]:
    """Return the opening with a choice, and the token of each choice after it.

    `reply_ids` gives the tokens of a chat that ends in this reply: only there it shows how a choice is cut.
    """
    replies = [list(reply_ids(answer.opening + choice)) for choice in answer.choices]
    if any(ids[:-1] != replies[0][:-1] for ids in replies) or len({ids[-1] for ids in replies}) < len(replies):
        raise ModelError(
            f"the tokenizer has no single token for each of {', '.join(answer.choices)}; use answer=generate"
        )
    return answer.opening + answer.choices[0], [ids[-1] for ids in replies]


def choice_softmax(logits: Sequence[float]) -> tuple[float, ...] | Failure:
    """Return the probabilities of the choices from their logits."""
    values = np.array(logits)
    if not np.isfinite(values).all():
        return Failure("the model's logits are not finite numbers; try dtype=float32")
    probs = np.exp(values - values.max())
    probs /= probs.sum()
    return tuple(probs.tolist())


def read_completion(written: Sequence[int], end_tokens: Collection[int], tokenizer: Any) -> Completion:
    """Return what was written up to the token that ends the turn; without one it was cut off."""
    end = next((place for place, token in enumerate(written) if token in end_tokens), None)
    text = tokenizer.decode(list(written[:end]), skip_special_tokens=True)
    return Completion(text, "length" if end is None else "stop")


def end_tokens(model: Any, own: int | None) -> set[int]:
    """Return the tokens that end a turn: those of the checkpoint's settings, and its `own` one."""
    ends = model.generation_config.eos_token_id
    return {end for end in (*(ends if isinstance(ends, list) else [ends]), own) if end is not None}
