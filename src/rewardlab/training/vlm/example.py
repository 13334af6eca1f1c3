"""Examples: a clip, the level or caption to answer, and where that comes from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rewardlab.core.episode import Episode
from rewardlab.core.seeding import digest

# From an example and the number of an epoch to the episode with the frames that the model is shown.
ShowFrames = Callable[["Example", int], Episode]


@dataclass(frozen=True, eq=False)
class Example:
    """An episode, not sampled yet, under an instruction; `level` is what it deserves, `source` why that is known.

    Where there is a caption, it is the answer, to another question, and the level is not known.
    """

    episode: Episode
    level: int
    source: str
    caption: str = ""

    @property
    def answer(self) -> int | str:
        """Return what the model should say."""
        return self.caption or self.level

    @property
    def clip_key(self) -> str:
        """Identify the stream of frames: examples that differ in their words alone share it."""
        clip = self.episode.clip
        return digest(clip.source.digest, clip.order.tobytes(), clip.positions.tobytes(), clip.fps)


def show_as_is(example: Example, epoch: int) -> Episode:
    """Return the episode of an example whose frames are sampled already."""
    return example.episode


def clips_of(examples: Sequence[Example]) -> list[list[int]]:
    """Return the places of the examples that share a clip, clip by clip in the order of their first."""
    groups: dict[str, list[int]] = {}
    for place, example in enumerate(examples):
        groups.setdefault(example.clip_key, []).append(place)
    return list(groups.values())
