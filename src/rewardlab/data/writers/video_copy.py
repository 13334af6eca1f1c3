"""The video of an episode as a file: copied where the file is exactly what is shown, else encoded anew."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rewardlab.core.episode import Clip, Episode, Frames
from rewardlab.core.limits import CLIP_MB
from rewardlab.core.run import atomic_write
from rewardlab.data.video_decoding import VideoFile
from rewardlab.h264_encoding import encode_pieces


def write_video(episode: Episode, target: Path) -> None:
    """Write what an episode shows as a video, in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    source = copied_file(episode.clip)
    with atomic_write(target) as partial:
        if source is not None:
            shutil.copyfile(source, partial)
        else:
            is_plain = episode.clip.is_even and episode.clip.fps == round(episode.clip.fps)
            encode_pieces(
                frame_pieces(episode.clip), partial, episode.clip.fps, times=None if is_plain else episode.times
            )


def frame_pieces(clip: Clip) -> Iterator[Frames]:
    """Yield the frames that a clip shows, as many at a time as memory may hold."""
    size = clip.frame_bytes or clip.source.read(clip.order[:1]).nbytes
    together = max(1, CLIP_MB.in_bytes // size)
    for start in range(0, len(clip), together):
        yield clip.source.read(clip.order[start : start + together])


def copied_file(clip: Clip) -> Path | None:
    """Return the mp4 file that shows exactly this clip, or None where there is none."""
    source = clip.source
    if not isinstance(source, VideoFile) or not isinstance(source.path, Path) or source.path.suffix.lower() != ".mp4":
        return None
    whole = np.array_equal(clip.order, np.arange(source.count))
    as_filmed = np.array_equal(clip.positions, source.info.positions) and clip.fps == source.info.fps
    return source.path if whole and as_filmed else None
