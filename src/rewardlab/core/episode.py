"""Episode: one rollout with lazily decoded frames, an instruction, and what is known of the truth."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import DataError
from rewardlab.core.seeding import digest

Frames = NDArray[np.uint8]  # (T, H, W, 3), RGB
Indices = NDArray[np.int64]
# When frames are shown, counted in frames of the stream: whole numbers where they come evenly, else fractions.
Positions = NDArray[np.int64] | NDArray[np.float64]
FramePolicy = Callable[[Positions, float], Indices]  # (when each frame comes, fps) -> which ones to show

LEVELS = (1, 2, 3, 4, 5)
SUCCESS_THRESHOLD = 4.5  # levels from here on round to 5, which is success
# Progress at which levels 2, 3, 4 and 5 of the end-of-episode rubric begin.
LEVEL_STARTS = (0.1, 0.4, 0.7, 1.0)


def is_success(level: float) -> bool:
    """Tell whether a level counts as success."""
    return level >= SUCCESS_THRESHOLD


def level_of_progress(progress: float) -> int:
    """Return the rubric level of a final state whose true progress is known."""
    return 1 + sum(progress >= start for start in LEVEL_STARTS)


def level_of_fraction(fraction: float) -> float:
    """Return the level of a predicted fraction of the task, 1 + 4 x fraction: as levels become progress, backwards."""
    return 1 + 4 * min(max(fraction, 0.0), 1.0)


class FrameSource(Protocol):
    """Where the pixels of a clip come from: a file, or memory."""

    @property
    def digest(self) -> str:
        """Identify the content, whatever the file is called."""

    @property
    def count(self) -> int:
        """Return how many frames there are."""

    def read(self, indices: Indices) -> Frames:
        """Return these frames, in this order; an index may come twice."""


@dataclass(frozen=True, eq=False)
class InMemoryFrames:
    """Frames in memory; `kept` names the source frame that each row of `pixels` holds, in rising order."""

    pixels: Frames
    kept: Indices
    count: int
    name: str = ""  # what identifies the content, where that is known without reading it

    @cached_property
    def digest(self) -> str:
        """Identify the content, by its bytes unless it has a name."""
        return self.name or fingerprint_frames(self.pixels)

    def read(self, indices: Indices) -> Frames:
        """Return these frames; the same array, not a copy, when they are all of them in order."""
        missing = np.setdiff1d(indices, self.kept)
        if len(missing):
            raise DataError(
                f"frame {missing[0]} of {self.count} is not in memory; hold it too, or read it from its source"
            )
        rows = np.searchsorted(self.kept, indices)
        if len(rows) == len(self.kept) and np.array_equal(rows, np.arange(len(rows))):
            return self.pixels
        return self.pixels[rows]


@dataclass(frozen=True, eq=False)
class DeferredFrames:
    """Frames of a source that is made when one of them is first read, and kept from then on."""

    digest: str
    count: int
    make: Callable[[], FrameSource]

    @cached_property
    def source(self) -> FrameSource:
        """Make the source."""
        return self.make()

    def read(self, indices: Indices) -> Frames:
        """Return these frames, in this order."""
        return self.source.read(indices)


def in_memory(pixels: Frames) -> InMemoryFrames:
    """Wrap an array of frames as a source, identified by its bytes."""
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[-1] != 3 or pixels.size == 0:
        raise DataError(
            f"frames must be uint8 of shape (T, H, W, 3) with T > 0, got {pixels.dtype} {pixels.shape}; "
            "stack RGB frames with np.stack and convert to uint8"
        )
    return InMemoryFrames(pixels, np.arange(len(pixels)), len(pixels))


def read_in_order(indices: Indices, decode: Callable[[Indices], Frames]) -> Frames:
    """Return frames in this order, an index maybe twice, copied only if need be; `decode` gets each once, rising."""
    rising, places = np.unique(indices, return_inverse=True)
    frames = decode(rising)
    return frames if np.array_equal(places, np.arange(len(rising))) else frames[places]


def fingerprint_frames(pixels: Frames) -> str:
    """Return 16 hex characters that identify these pixels and their shape."""
    hasher = sha256(str(pixels.shape).encode())
    hasher.update(np.ascontiguousarray(pixels).data)
    return hasher.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Clip:
    """A sequence of frames taken from a source.

    `order` is the source frame behind each shown frame; `positions` is when it is shown, counted in frames
    of the stream the camera delivered, so a sampled clip still knows its true timing. Where frames do not come evenly
    (variable frame rate), `fps` is their mean rate and positions are fractions: position / fps is the true time.
    """

    source: FrameSource
    order: Indices
    positions: Positions
    fps: float
    frame_bytes: int = 0  # of one decoded frame; 0 where nobody knows before reading

    def __len__(self) -> int:
        return len(self.order)

    @property
    def is_even(self) -> bool:
        """Tell whether positions are counted in whole frames of a stream with a constant rate."""
        return self.positions.dtype == np.int64

    def read(self) -> Frames:
        """Decode the frames of this clip."""
        return self.source.read(self.order)


def hold_frames(clip: Clip, indices: Indices) -> Clip:
    """Return the clip with these frames of its source (rising, without repeats) in memory, and no others."""
    return replace(clip, source=_held(clip.source, indices))


def hold_views(episode: "Episode", indices: Indices) -> "Episode":
    """Return the episode whose further views keep these frames in memory once one of them is read."""
    views = {
        name: DeferredFrames(source.digest, source.count, partial(_held, source, indices))
        for name, source in episode.views.items()
    }
    return replace(episode, views=views)


def _held(source: FrameSource, indices: Indices) -> InMemoryFrames:
    return InMemoryFrames(source.read(indices), indices, source.count, source.digest)


@dataclass(frozen=True, eq=False)
class ShownFrames:
    """The frames a model is shown and no others; every read is a read-only copy: no model can spoil another's."""

    clip: Clip

    @property
    def digest(self) -> str:
        """Identify what is shown."""
        return digest(self.clip.source.digest, self.clip.order.tobytes())

    @property
    def count(self) -> int:
        return len(self.clip)

    def read(self, indices: Indices) -> Frames:
        """Return a copy of these frames that cannot be written to."""
        return read_only(self.clip.read()[indices])


def whole_clip(source: FrameSource, fps: float) -> Clip:
    """Return the clip that shows every frame of a source once."""
    every = np.arange(source.count)
    return Clip(source, every, every, fps)


@dataclass(frozen=True, eq=False)
class FrameSequence:
    """Single frames in memory, one after the other; every read is a copy that cannot be written to."""

    frames: tuple[Frames, ...]  # each (H, W, 3)

    @cached_property
    def digest(self) -> str:
        """Identify the content by its bytes, as those of one array; computed when it is first needed."""
        return fingerprint_frames(np.stack(self.frames))

    @property
    def count(self) -> int:
        return len(self.frames)

    def read(self, indices: Indices) -> Frames:
        """Return a copy of these frames that cannot be written to."""
        return read_only(np.stack([self.frames[index] for index in indices]))


@dataclass(eq=False)
class GrowingClip:
    """A clip that grows frame by frame, in constant time; it holds at most `most` frames, or all without a limit.

    The first and the last frame are always held, and between them every frame, every second, every fourth and so on.
    """

    fps: float
    most: int | None = None  # 2 or more
    count: int = 0  # frames that were appended
    _held: dict[int, Frames] = field(default_factory=dict)  # by their number in the stream
    _stride: int = 1

    @property
    def positions(self) -> tuple[int, ...]:
        """Return the numbers of the frames that are held."""
        return tuple(self._held)

    @property
    def last(self) -> Frames | None:
        """Return the last frame, None before the first."""
        return self._held[self.count - 1] if self.count else None

    def append(self, frame: Frames) -> None:
        """Add one frame, uint8 (H, W, 3) and of the size of the first."""
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[-1] != 3:
            raise DataError(f"a frame must be uint8 of shape (H, W, 3), got {frame.dtype} {frame.shape}")
        if self.count and frame.shape != self._held[0].shape:
            raise DataError(f"the frames of this clip are {self._held[0].shape}, got {frame.shape}")
        if (self.count - 1) % self._stride:  # it was held only because it was the last
            del self._held[self.count - 1]
        self._held[self.count] = frame
        self.count += 1
        while self.most is not None and len(self._held) > self.most:
            self._stride *= 2
            last = self.count - 1
            self._held = {at: held for at, held in self._held.items() if at % self._stride == 0 or at == last}

    def clip(self, policy: FramePolicy | None = None) -> Clip:
        """Return the clip so far, or what a policy shows of it; frames that are appended later are not part of it."""
        held = np.array(self.positions, np.int64)
        shown = held if policy is None else held[policy(held, self.fps)]
        source = FrameSequence(tuple(self._held[at] for at in shown.tolist()))
        return Clip(source, np.arange(source.count), shown, self.fps)


NOT_BEGUN, UNDER_WAY, DONE = 0, 1, 2  # of a stage


@dataclass(frozen=True)
class Stage:
    """One step of a long task: its instruction, and at each shown frame whether it is not begun, under way or done."""

    instruction: str
    reached: tuple[int, ...]

    @property
    def done(self) -> tuple[bool, ...]:
        """Tell at which of the shown frames the stage is done; one that was undone is not."""
        return tuple(state == DONE for state in self.reached)


@dataclass(frozen=True)
class Preference:
    """Which of two rollouts of one instruction a person preferred; both episodes name the same pair."""

    pair: str
    preferred: Literal["this", "other", "tie"]
    feedback: str = ""  # why, in the person's words


FailureCause = Literal[
    "missed_grasp", "wrong_object", "dropped", "target_not_reached", "collision", "early_end", "other"
]
FAILURE_CAUSES: tuple[FailureCause, ...] = get_args(FailureCause)


@dataclass(frozen=True)
class FailureEvent:
    """Why a rollout failed, and the shown frame from which on that can be seen; None where nobody said when."""

    cause: FailureCause
    frame: int | None = None


@dataclass(frozen=True)
class Label:
    """What is known about the rollout; None where nobody said. `progress` has one value per shown frame.

    `stages` are the steps of a long task in the order in which they are asked for.
    """

    level: int | None = None
    success: bool | None = None
    progress: tuple[float, ...] | None = None
    stages: tuple[Stage, ...] = field(default=(), repr=False)  # part of `Episode.hash` only where there are any
    preference: Preference | None = field(default=None, repr=False)  # about two episodes: it identifies neither
    failure: FailureEvent | None = field(default=None, repr=False)  # part of `Episode.hash` only where it is known


@dataclass(frozen=True)
class Provenance:
    """Where an episode comes from; `task` groups the episodes that must move together in a bootstrap or a split.

    `perspective` is exo or ego, `demonstration` None where nobody said. Of a row that `data augment` made, `stage` says
    how and `rollout` of which episode.
    """

    subset: str = ""
    task: str = ""
    embodiment: str = ""
    camera: str = ""
    license: str = ""
    source: str = ""
    stage: str = ""
    rollout: str = ""
    perspective: str = ""
    demonstration: bool | None = None


class RecordedColumns(Protocol):
    """What else a dataset holds of a rollout, such as actions: no model and no metric reads it, but writers keep it."""

    def features(self) -> dict[str, Any]:
        """Describe each column that has a value for every frame."""

    def frames(self, indices: Indices) -> Any:
        """Return the values of these source frames as an Arrow table."""

    def episode(self) -> dict[str, Any]:
        """Return the values that the whole rollout has, by name."""

    def copy_texts(self, folder: Path) -> None:
        """Copy the files that the values refer to."""


@dataclass(frozen=True, eq=False)
class Episode:
    """One rollout. Models read `instruction`, `frames`, `times`, `views` and nothing else.

    `sim_state` is the record from which a simulator can render the same rollout again, if there is one: its `kind`
    names the simulator, the rest is the simulator's own. `views` are what further cameras saw, by the name of the
    camera: sources with the frames of the same moments, which `clip` picks from as it does from its own. `original` is
    the recording that the frames were made from, where they are no longer its own. `columns` is what else the dataset
    holds of the rollout; it identifies nothing.
    """

    id: str
    instruction: str
    clip: Clip
    label: Label = field(default_factory=Label)
    provenance: Provenance = field(default_factory=Provenance)
    sim_state: Mapping[str, object] | None = None
    views: Mapping[str, FrameSource] = field(default_factory=dict)
    original: FrameSource | None = None
    columns: RecordedColumns | None = None

    @property
    def original_video(self) -> str:
        """Return the digest of the video as it was recorded, whatever was done to its frames since."""
        return (self.original or self.clip.source).digest

    @property
    def frames(self) -> Frames:
        """Decode and return the shown frames, uint8 (T, H, W, 3)."""
        return self.clip.read()

    @property
    def times(self) -> NDArray[np.float64]:
        """Return the second at which each shown frame was recorded."""
        return self.clip.positions / self.clip.fps

    @cached_property
    def hash(self) -> str:
        """Identify the content: video, instruction, timing and truth, not the file name."""
        shown = (self.clip.order.tobytes(), self.clip.positions.tobytes(), self.clip.fps)
        known = repr(self.label).replace("Label", "Truth", 1)  # the text that identifies a label; results hang on it
        views = (f"{name} {source.digest}" for name, source in self.views.items())
        more = (*self.label.stages, *([self.label.failure] if self.label.failure else []))
        return digest(self.clip.source.digest, self.instruction, *shown, known, *map(repr, more), *views)


def view_episodes(episode: Episode) -> dict[str, Episode]:
    """Return the episode as each further camera saw it, by the name of the camera."""
    return {
        name: replace(episode, clip=replace(episode.clip, source=source, frame_bytes=0), views={}, original=None)
        for name, source in episode.views.items()
    }


def episode_from_frames(frames: Frames, instruction: str, *, fps: float = 10.0, label: Label | None = None) -> Episode:
    """Build an episode from an array of frames, for code that has no dataset on disk."""
    source = in_memory(frames)
    return Episode(source.digest, instruction, whole_clip(source, fps), label or Label())


def rearrange(episode: Episode, picks: Indices) -> Episode:
    """Return the episode whose stream is these frames, evenly at the stream's mean rate; per-frame truth follows."""
    return _picked(episode, picks, np.arange(len(picks)))


def show_only(episode: Episode, keep: Indices) -> Episode:
    """Return the episode with only these frames shown, each still at its own time."""
    return _picked(episode, keep, episode.clip.positions[keep])


def _picked(episode: Episode, picks: Indices, positions: Positions) -> Episode:
    label = episode.label
    if label.progress is not None:
        label = replace(label, progress=tuple(label.progress[i] for i in picks))
    if label.stages:
        stages = (replace(stage, reached=tuple(stage.reached[i] for i in picks)) for stage in label.stages)
        label = replace(label, stages=tuple(stages))
    if label.failure is not None:
        label = replace(label, failure=_failure_in(label.failure, picks))
    return replace(
        episode, clip=replace(episode.clip, order=episode.clip.order[picks], positions=positions), label=label
    )


def _failure_in(failure: FailureEvent, picks: Indices) -> FailureEvent | None:
    """Return the failure as these frames show it: not at all where they end before it, at no frame out of order."""
    if failure.frame is None:
        return failure
    if picks.max() < failure.frame:
        return None
    if (np.diff(picks) < 0).any():
        return FailureEvent(failure.cause)
    return FailureEvent(failure.cause, int(np.searchsorted(picks, failure.frame)))


def with_frames(episode: Episode, pixels: Frames) -> Episode:
    """Return the episode with other pixels of its first camera in the same order and at the same times."""
    if len(pixels) != len(episode.clip):
        raise DataError(f"episode {episode.id!r} shows {len(episode.clip)} frames, got {len(pixels)} new ones")
    size = pixels.nbytes // max(len(pixels), 1)
    clip = replace(episode.clip, source=in_memory(pixels), order=np.arange(len(pixels)), frame_bytes=size)
    views = {name: ShownFrames(view.clip) for name, view in view_episodes(episode).items()}
    return replace(episode, clip=clip, views=views, original=episode.original or episode.clip.source)


def strip_labels(episode: Episode) -> Episode:
    """Return what a model may see: the shown frames of all views, their times and the instruction, and no truth."""
    clip = episode.clip
    shown = Clip(ShownFrames(clip), read_only(np.arange(len(clip))), read_only(clip.positions.copy()), clip.fps)
    views = {name: ShownFrames(view.clip) for name, view in view_episodes(episode).items()}
    return Episode("", episode.instruction, shown, views=views, original=episode.original or clip.source)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array itself, which cannot be written to any more."""
    array.flags.writeable = False
    return array
