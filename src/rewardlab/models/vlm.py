"""Talking with a vision-language model, wherever it runs: what is shown, and what comes back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rewardlab.core.episode import Frames
from rewardlab.core.trial import Failure

Part = str | Frames  # text, or a video or image: uint8 (T, H, W, 3), T = 1 for an image


@dataclass(frozen=True, eq=False)
class Turn:
    """One message to the model: text and pictures in the order in which it sees them."""

    parts: tuple[Part, ...]
    fps: float = 1.0  # frames per second of the videos among the parts


@dataclass(frozen=True)
class Reply:
    """What the model wrote; `top` are log-probabilities of the likeliest first tokens, where they are known."""

    text: str
    top: dict[str, float] | None = None


class Talker(Protocol):
    """A vision-language model that writes, and may say how likely it finds a text."""

    def reply(self, turns: Sequence[Turn], most_tokens: int) -> list[Reply | Failure]:
        """Return what the model writes after each turn, at most so many tokens of it."""

    def likelihood(self, turns: Sequence[Turn], continuation: str) -> list[float | Failure]:
        """Return, per turn, the log-probability of the last token of the continuation if the model wrote it."""
