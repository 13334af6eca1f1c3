"""What a vision-language model offers: prompts, completions, answer formats and their tokens, threads over frames."""

import math
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames
from rewardlab.core.errors import ModelError
from rewardlab.core.trial import Failure, ScoreInfo
from rewardlab.models.contract import Budget, Pairs

UNREADABLE = "unreadable answer"  # every failure to read an answer begins with this, so that its rate can be told

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
    the backend knows them. `info` holds the tokens and the cost of the reply, where a server counts them.
    """

    text: str
    finish: str = "stop"
    choice_logprobs: Mapping[str, float] | None = None
    info: ScoreInfo = ScoreInfo()


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
class NamedVlm:
    """A vision-language model that is not built yet: what identifies it, and how to build it."""

    fingerprint: str  # its settings and the content of its weights
    build: Callable[[Budget], VisionLanguageModel]
    shown: Pairs = ()  # its options that stand in the name of a model
    server: str = ""  # the address it asks, perhaps for money
    isolated: bool = False  # not of this package: asked in a process of its own


@dataclass(frozen=True)
class VlmBackend:
    """A line of VLM_BACKENDS: how `NAME:ARGUMENT?options` becomes a vision-language model.

    `name` gets the text after the colon, the options as they were written, and the names of options that the protocol
    over it reads itself; it checks them and loads nothing. `version` is that of its behaviour, as in ModelEntry.
    """

    summary: str
    name: Callable[[str, Pairs, Collection[str]], NamedVlm]
    options: tuple[Callable[..., object], ...] = ()  # the signature with its options
    scores_answers: bool = False  # tells probabilities of answers that it did not write: no text need be parsed
    version: int = 1


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


def clip_video(episode: Episode) -> Video:
    """Return the clip of an episode as a video."""
    return Video(episode.frames, episode.times, frame_rate(episode.times))


def frame_rate(times: Seconds) -> float:
    """Return the mean frames per second; 1 where there is no duration."""
    seconds = float(times[-1] - times[0])
    return (len(times) - 1) / seconds if seconds > 0 else 1.0


# What the tokens of a reply say, for models that run here: the choices of an answer, their probabilities, its text.


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


# Threads that decode, copy and hash frames, all of which let other threads run; they are started once.

Given = TypeVar("Given")
Made = TypeVar("Made")


def map_frames(work: Callable[[Given], Made], items: Iterable[Given]) -> list[Made]:
    """Return what the work makes of each item, in order; it must not call this itself."""
    return list(_pool(os.getpid()).map(work, items))


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """Return this process's threads; the process id is part of the cache key, since a fork has no threads."""
    return ThreadPoolExecutor(thread_name_prefix="rewardlab frames")


# A cache bounded in bytes.

Value = TypeVar("Value")


class LRUCache(Generic[Value]):
    """Values by the key of their content; the least recently used goes first when room is short."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._entries: OrderedDict[str, tuple[Value, int]] = OrderedDict()

    def get(self, key: str) -> Value | None:
        """Return the value of this key, which now counts as used last; None if it is not here."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key: str, value: Value, size: int) -> None:
        """Store a value of so many bytes, unless it alone is too big for the cache."""
        if key in self._entries:
            self.used_bytes -= self._entries.pop(key)[1]
        if size > self.max_bytes:
            return
        while self.used_bytes + size > self.max_bytes:
            self.used_bytes -= self._entries.popitem(last=False)[1][1]
        self._entries[key] = (value, size)
        self.used_bytes += size

    def items(self) -> Iterator[tuple[str, Value]]:
        """Yield every key and value, the most recently used first."""
        return ((key, value) for key, (value, _) in reversed(self._entries.items()))
