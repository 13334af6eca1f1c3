"""The contract of a dataset reader: what it recognises, and what it makes of a folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.episode import Episode


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a dataset; `place` says where, such as `line 3` or a file and the row in it."""

    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclass(frozen=True)
class Contents:
    """What a dataset folder holds: the sound episodes and every problem."""

    episodes: tuple[Episode, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Reader:
    """A dataset format.

    `recognises` looks at file names only. `read` checks what it can without decoding: the frames of an episode come
    from a FrameSource, which opens its file when frames are asked for, so that a large dataset is never in memory.
    `expects` says in a few words what a folder of this format holds. `read_camera` is for formats in which cameras film
    one rollout side by side: it reads what the camera of that name saw, or every camera for `all`, while `read` chooses
    one camera.
    """

    name: str
    summary: str
    expects: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path], Contents]
    notes: Callable[[Path], tuple[Problem, ...]] = lambda folder: ()  # what is odd and stops no run, for `check`
    read_camera: Callable[[Path, str], Contents] | None = None
