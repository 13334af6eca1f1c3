"""What a vision-language model offers, whatever runs it: complete a prompt, and tell how probable given words are."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.core.trial import Failure
from rewardlab.models.contract import Budget

Spec = TypeVar("Spec")
Other = TypeVar("Other")
Seconds = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Image:
    """One frame, uint8 (H, W, 3)."""

    frame: Frames


@dataclass(frozen=True, eq=False)
class Video:
    """Frames, uint8 (T, H, W, 3), with the second at which each is shown and the mean frame rate.

    Prompts about the same clip hold the same Video object, so that a backend can encode it once.
    """

    frames: Frames
    times: Seconds
    fps: float


Part = str | Image | Video


def merge_texts(parts: Iterable[str | Other]) -> Iterator[str | Other]:
    """Yield the parts with neighbouring texts as one, as a tokenizer sees them."""
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        if text:
            yield text
        text = ""
        yield part
    if text:
        yield text


@dataclass(frozen=True, eq=False)
class Prompt:
    """One user message: text, images and videos in the order in which the model reads them.

    `prefix` are the leading parts that other prompts begin with too, for backends that reuse a KV cache; where it is
    empty, that is all up to the last image or video. Its last text may be the beginning of a longer one in `parts`.
    """

    parts: tuple[Part, ...]
    prefix: tuple[Part, ...] = ()


@dataclass(frozen=True)
class AnswerFormat:
    """A reply that ends in one of a few choices after an opening, such as `ANSWER: 4`."""

    opening: str  # "ANSWER: "
    choices: tuple[str, ...]  # "1", "2", ...; each a single token after the opening

    @property
    def written_opening(self) -> re.Pattern[str]:
        """Return a pattern for the opening at the end of a text, in any case and with any blanks."""
        words = map(re.escape, re.findall(r"\w+|[^\w\s]", self.opening))
        return re.compile(r"\b" + r"\s*".join(words) + r"\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class Completion:
    """What the model wrote; `finish` is "length" where it was cut off.

    `choice_logprobs` are log-probabilities of tokens in the place of the choice that an AnswerFormat asked for, where
    the backend knows them.
    """

    text: str
    finish: str = "stop"
    choice_logprobs: Mapping[str, float] | None = None


@runtime_checkable
class VisionLanguageModel(Protocol):
    """A vision-language model; each method answers once per prompt, in order, with a Failure where it cannot."""

    def complete(
        self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None = None
    ) -> Sequence[Completion | Failure]:
        """Return what the model writes after each prompt, greedily, up to so many tokens."""

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> Sequence[tuple[float, ...] | Failure]:
        """Return, per prompt, the probability of each choice given that the reply is one of them; they sum to 1."""

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> Sequence[float | Failure]:
        """Return, per prompt, the log-probability that the prompt's own text goes on with this token."""


@dataclass(frozen=True)
class NoOptions:
    """A backend without options."""


@dataclass(frozen=True)
class VlmBackend(Generic[Spec]):
    """A line of VLM_BACKENDS: how `NAME:ARGUMENT?options` becomes a vision-language model.

    `parse` checks the argument and the options and loads nothing; what it returns is all that the others get.
    """

    summary: str
    parse: Callable[[str, Any], Spec]  # the text after the colon, and the options read into `options`, or as written
    build: Callable[[Spec, Budget], VisionLanguageModel]
    identify: Callable[[Spec], str]  # what identifies the weights, without loading them
    options: Any = NoOptions()  # a frozen dataclass with the default of every option
    outside: bool = False  # not of this package: asked in a process of its own, and `parse` gets the options as written
    server: bool = False  # it asks another machine, perhaps for money
    scores_answers: bool = False  # tells probabilities of answers that it did not write: no text need be parsed


def is_vlm(thing: object) -> TypeGuard[VisionLanguageModel]:
    """Tell whether an object, not a class, offers what a vision-language model does."""
    return isinstance(thing, VisionLanguageModel) and not isinstance(thing, type)


def choice_probs(logprobs: Mapping[str, float], choices: Sequence[str]) -> tuple[float, ...] | None:
    """Return probabilities of the choices that sum to 1; a token counts for the choice it is without its blanks.

    A choice that is not listed gets 0; None where no choice is listed.
    """
    probs = dict.fromkeys(choices, 0.0)
    for token, logprob in logprobs.items():
        if token.strip() in probs:
            probs[token.strip()] += math.exp(logprob)
    total = sum(probs.values())
    return tuple(prob / total for prob in probs.values()) if total > 0 else None


def frame_rate(times: Seconds) -> float:
    """Return the mean frames per second; 1 where there is no duration."""
    seconds = float(times[-1] - times[0])
    return (len(times) - 1) / seconds if seconds > 0 else 1.0
