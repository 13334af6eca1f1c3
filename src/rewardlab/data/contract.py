"""What a reader and a writer are; Contents, Problem, Rollout, Batch; episodes made one by one under the row limit."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError
from rewardlab.core.limits import ROWS


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a dataset; `place` says where, such as `line 3` or a file and the row in it."""

    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclass(frozen=True)
class Contents:
    """What a dataset folder holds: the valid episodes and every problem.

    `assumed_successes` are the episodes, by id, that state no outcome and succeed because they are demonstrations.
    """

    episodes: tuple[Episode, ...]
    problems: tuple[Problem, ...]
    assumed_successes: frozenset[str] = frozenset()


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
    notes: Callable[[Path], tuple[Problem, ...]] = lambda _folder: ()  # what is odd and stops no run, for `check`
    read_camera: Callable[[Path, str], Contents] | None = None


WrittenRow = dict[str, Any]  # what is written down of a rollout, as JSON holds it


@dataclass(frozen=True, eq=False)
class Rollout:
    """One rollout as each of its cameras saw it, and the names under which it and they are written."""

    name: str
    views: tuple[Episode, ...]
    cameras: tuple[str, ...]

    @property
    def first(self) -> Episode:
        """Return what the first camera saw: instruction, truth and times are the same for all."""
        return self.views[0]


@dataclass(frozen=True)
class Batch:
    """Rollouts that are written together, and the number of the batch."""

    number: int
    rollouts: tuple[Rollout, ...]


@dataclass(frozen=True)
class Writer:
    """A dataset format that can be written.

    `write` writes the files of a batch below a folder and returns one row per rollout; writing a batch again gives the
    same files. `finish` writes what describes the whole from the rows of all batches, and comes last. A batch holds up
    to `batch_frames` frames, or one rollout where that is 0. `joins_cameras` says that all cameras of a rollout belong
    together; else each is a rollout of its own. `one_rate` says that all frames come at one rate.
    """

    name: str
    summary: str
    write: Callable[[Path, Batch], list[WrittenRow]]
    finish: Callable[[Path, Sequence[WrittenRow]], None]
    batch_frames: int = 0
    joins_cameras: bool = False
    one_rate: bool = False


Item = TypeVar("Item")
Found = tuple[str, Callable[[], Item] | DataError]  # a place, and what makes an item of it, or why none can be made


def bounded_items(found: Iterable[Found[Item]], thing: str) -> tuple[tuple[Item, ...], tuple[Problem, ...]]:
    """Return the items that can be made of things, such as rows, and why others cannot, up to the limit of rows."""
    items: list[Item] = []
    problems: list[Problem] = []
    for place, make in found:
        if len(items) + len(problems) == ROWS.value:
            problems.append(Problem(place, f"this {thing} and those after it are not read, {ROWS.describe()}"))
            break
        try:
            if isinstance(make, DataError):
                raise make
            items.append(make())
        except DataError as error:
            problems.append(Problem(place, str(error)))
    return tuple(items), tuple(problems)


def bounded_contents(found: Iterable[Found[Episode]], thing: str) -> Contents:
    """Return the episodes that can be made and why others cannot, up to the limit of rows."""
    return Contents(*bounded_items(found, thing))
