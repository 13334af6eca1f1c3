"""The check of a dataset's videos: every frame of each is decoded, one at a time, and none is kept."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from threading import Lock

from rewardlab.core.errors import DataError
from rewardlab.data.contract import Contents, Problem
from rewardlab.data.video_decoding import VideoFile

_LARGE_PIXELS = 500_000  # of a frame; a decoder holds up to 17 of them
_LARGE = Lock()  # so that videos with large frames are decoded one after the other

# A map that keeps the order, such as one over threads.
OrderedMap = Callable[[Callable[[VideoFile], str | None], Sequence[VideoFile]], Iterable[str | None]]


def check_videos(contents: Contents, ordered_map: OrderedMap) -> Contents:
    """Return the contents without the episodes whose video does not decode, each a problem that names file and frame.

    A change of the file that decodes without any error cannot be seen this way. Frames that come from elsewhere than a
    video file are not looked at.
    """
    sources = (episode.clip.source for episode in contents.episodes)
    videos = {source.path: source for source in sources if isinstance(source, VideoFile)}
    damages = dict(zip(videos, ordered_map(_damage, list(videos.values()))))
    sound, problems = [], list(contents.problems)
    for episode in contents.episodes:
        source = episode.clip.source
        damage = damages[source.path] if isinstance(source, VideoFile) else None
        if damage is None:
            sound.append(episode)
        else:
            problems.append(Problem(f"episode {episode.id}", damage))
    return Contents(tuple(sound), tuple(problems))


def _damage(video: VideoFile) -> str | None:
    """Return what is wrong with the frames of a video, or None."""
    try:
        large = video.info.width * video.info.height > _LARGE_PIXELS
        with _LARGE if large else nullcontext():
            video.check_frames()
    except DataError as error:
        return str(error)
    return None
