"""Video files as strangers send them: opened as files and nothing else, and measured before anything is decoded.

PyAV is imported where a video is opened: it is slow to load, and many a command reads rows alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np

from rewardlab.core.episode import Indices, Positions
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, FRAME_PIXELS, VIDEO_MB, VIDEO_PIXELS
from rewardlab.data.dataset_files import open_regular
from rewardlab.data.mp4_tables import require_sane_tables
from rewardlab.data.presentation_times import rate_and_positions

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

_MAGIC = {b"\x1a\x45\xdf\xa3": "matroska", b"RIFF": "avi"}  # how a file begins; all others must be mp4 or mov
_CODECS = ("h264", "hevc", "av1", "libdav1d", "vp8", "vp9", "mpeg4", "mpeg2video", "mjpeg")
_STREAMS = 16  # of all kinds in one file
_EXPECTED = "expected an mp4, mov, mkv, webm or avi file with H.264, HEVC, AV1, VP8, VP9, MPEG-2, MPEG-4 or MJPEG"


class StoredVideo(Protocol):
    """A video that is no file of its own, such as bytes in an array; written out it says where it is."""

    @property
    def digest(self) -> str:
        """Identify the bytes."""

    def open(self) -> BinaryIO:
        """Return the bytes as a file."""


VideoLocation = Path | StoredVideo


@dataclass(frozen=True, eq=False)
class VideoInfo:
    """What the container says and holds, read without decoding; `positions` are when frames come, counted in frames."""

    count: int
    fps: float
    positions: Positions
    stamps: Indices | None  # presentation stamps in the order of time; None where the file lacks some
    width: int
    height: int

    @property
    def frame_bytes(self) -> int:
        """Return the bytes of one decoded frame, RGB."""
        return 3 * self.width * self.height


def read_info(path: VideoLocation) -> VideoInfo:
    """Read size, frame count and times by walking the packets; DataError if the file is broken or too large."""
    with opened(path) as (container, stream):
        width, height = _frame_size(path, stream)
        stamps, hidden = _walk(path, container, stream)
        declared, rate = stream.frames, stream.average_rate or stream.guessed_rate
        count = len(stamps)
        if count == 0 or count + hidden < declared:
            raise DataError(f"{path}: truncated video, {count} of {declared} frames are there; copy the file again")
        if count * width * height > VIDEO_PIXELS.value:
            raise DataError(f"{path}: {count:,} frames of {width} x {height} pixels, {VIDEO_PIXELS.describe()}")
        try:
            fps, positions = rate_and_positions(stamps, stream.time_base, float(rate) if rate else None)
        except ValueError as error:
            raise DataError(f"{path}: the times of the video make no sense, {error}; encode it again") from None
    known = [stamp for stamp in stamps if stamp is not None]
    ordered = np.sort(np.array(known, np.int64)) if len(known) == count else None
    return VideoInfo(count, fps, positions, ordered, width, height)


@contextmanager
def opened(path: VideoLocation) -> Iterator[tuple["InputContainer", "VideoStream"]]:
    """Open the video stream of a file and turn every way it can be broken into one DataError.

    The file is opened here and named to nobody: libav gets its bytes, may open no other file or address, and tries no
    format but the one that the first bytes name.
    """
    from av import FFmpegError

    try:
        with _opened_bytes(path) as file, _container(path, file) as container:
            yield container, _video_stream(path, container)
    except FileNotFoundError:
        raise DataError(f"{path}: the file does not exist; correct file_name or add the video") from None
    except (FFmpegError, OSError) as error:
        raise DataError(f"{path}: cannot be read as a video ({error.strerror}); {_EXPECTED}") from error


def _opened_bytes(path: VideoLocation) -> BinaryIO:
    return open_regular(path) if isinstance(path, Path) else path.open()


def _container(path: VideoLocation, file: BinaryIO) -> "InputContainer":
    size = file.seek(0, 2)
    file.seek(0)
    if size > VIDEO_MB.in_bytes:
        raise DataError(f"{path}: {size / 1e6:,.0f} MB of video, {VIDEO_MB.describe()}")
    format = _MAGIC.get(file.read(4), "mov")
    try:
        if format == "mov":
            require_sane_tables(file)
    except ValueError as error:
        raise DataError(f"{path}: cannot be read as a video, {error}; encode it again") from None
    file.seek(0)
    options = {
        "protocol_whitelist": "none",
        "codec_whitelist": ",".join(_CODECS),
        "max_streams": str(_STREAMS),
        "max_pixels": str(FRAME_PIXELS.value),
    }
    opened_file: InputContainer = _opener()(file, "r", format=format, options=options)
    return opened_file


@cache
def _opener() -> Any:
    """Return what opens a file, whatever bytes it has for text: PyAV before 19 raises where they are no UTF-8."""
    import av

    return partial(av.open, metadata_errors="replace") if int(av.__version__.split(".")[0]) < 19 else av.open


def _video_stream(path: VideoLocation, container: "InputContainer") -> "VideoStream":
    from av.stream import Disposition

    streams = [each for each in container.streams.video if not each.disposition & Disposition.attached_pic]
    if not streams:
        raise DataError(f"{path}: no video stream in the file; {_EXPECTED}")
    stream = streams[0]
    context = stream.codec_context
    if context is None or context.name not in _CODECS:
        raise DataError(f"{path}: coded in {context.name if context else 'nothing known'}; {_EXPECTED}")
    context.options = {"max_pixels": str(FRAME_PIXELS.value)}
    context.thread_type, context.thread_count = "NONE", 1
    return stream


def _frame_size(path: VideoLocation, stream: "VideoStream") -> tuple[int, int]:
    width, height = stream.codec_context.width, stream.codec_context.height
    if width <= 0 or height <= 0:
        raise DataError(f"{path}: frames of {width} x {height} pixels; copy or encode the file again")
    if width * height > FRAME_PIXELS.value:
        raise DataError(f"{path}: frames of {width} x {height} pixels, {FRAME_PIXELS.describe()}")
    return width, height


def _walk(path: VideoLocation, container: "InputContainer", stream: "VideoStream") -> tuple[list[int | None], int]:
    """Return the presentation stamp of every frame, and how many frames an edit list hides."""
    stamps: list[int | None] = []
    hidden, most = 0, CLIP_FRAMES.value
    for packet in container.demux(stream):
        if packet.size and packet.is_discard:
            hidden += 1
        elif packet.size:
            stamps.append(packet.pts)
        if len(stamps) + hidden > most:
            raise DataError(f"{path}: more than {CLIP_FRAMES.value:,} frames, {CLIP_FRAMES.describe()}")
    return stamps, hidden
