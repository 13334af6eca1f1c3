"""The check of a dataset's frames: every one of each is decoded, a few at a time, and none is kept."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from threading import Lock

import numpy as np

from rewardlab.core.episode import FrameSource
from rewardlab.core.errors import DataError
from rewardlab.data.contract import Contents, Problem
from rewardlab.data.video_decoding import VideoFile

_LARGE_PIXELS = 500_000  # of a frame; a decoder holds up to 17 of them
_FRAMES_AT_ONCE = 25  # of what is no video file of its own
_LARGE = Lock()  # so that videos with large frames are decoded one after the other

# A map that keeps the order, such as one over threads.
OrderedMap = Callable[[Callable[[FrameSource], str | None], Sequence[FrameSource]], Iterable[str | None]]


def check_videos(contents: Contents, ordered_map: OrderedMap) -> Contents:
    """Return the contents without the episodes whose video does not decode, each a problem that names file and frame.

    A change of the file that decodes without any error cannot be seen this way.
    """
    sources = {id(episode.clip.source): episode.clip.source for episode in contents.episodes}  # episodes may share one
    damages = dict(zip(sources, ordered_map(_damage, list(sources.values()))))
    sound, problems = [], list(contents.problems)
    for episode in contents.episodes:
        damage = damages[id(episode.clip.source)]
        if damage is None:
            sound.append(episode)
        else:
            problems.append(Problem(f"episode {episode.id}", damage))
    return Contents(tuple(sound), tuple(problems))


def _damage(source: FrameSource) -> str | None:
    """Return what is wrong with the frames of a source, or None."""
    try:
        if isinstance(source, VideoFile):
            _check_video(source)
        else:
            _check_pieces(source)
    except DataError as error:
        return str(error)
    return None


def _check_video(video: VideoFile) -> None:
    large = video.info.width * video.info.height > _LARGE_PIXELS
    with _LARGE if large else nullcontext():
        video.check_frames()


def _check_pieces(source: FrameSource) -> None:
    for start in range(0, source.count, _FRAMES_AT_ONCE):
        source.read(np.arange(start, min(start + _FRAMES_AT_ONCE, source.count)))
