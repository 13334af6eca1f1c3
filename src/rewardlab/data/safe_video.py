"""Open and measure a video safely: container, mp4 limits, frame times, orientation.

PyAV is imported where a video is opened: it is slow to load, and many a command reads rows alone.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Frames, Indices, Positions
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, FRAME_PIXELS, VIDEO_MB, VIDEO_PIXELS
from rewardlab.data.safe_files import open_regular

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream


_TABLE = re.compile(rb"stsz|stz2|trun|stts|ctts|elst|cmov")
_HEADER_BYTES = 64_000_000  # all of a file but its media data
_SOUND_SAMPLES = 50  # samples of all tracks together, sound among them, for each frame that is allowed


def require_sane_tables(file: BinaryIO) -> None:
    """Raise ValueError, in a few words, where an mp4 promises more samples than any sound clip has."""
    samples, edits, most = 0, 1, CLIP_FRAMES.value * _SOUND_SAMPLES
    for header in _headers(file):
        for match in _TABLE.finditer(header):
            kind, promised = match.group(), _promised(header, match.start())
            if kind == b"cmov":
                raise ValueError("its tables are compressed")
            if kind == b"elst":
                edits = max(edits, promised)
            elif kind in (b"stts", b"ctts"):
                samples = max(samples, promised)
            else:
                samples += promised
    if samples * edits > most:
        raise ValueError(f"its tables promise {samples * edits:,} samples; more than {CLIP_FRAMES.value:,} frames need")


def _headers(file: BinaryIO) -> Iterator[bytes]:
    """Yield everything but the media data, in pieces that belong together."""
    size = file.seek(0, 2)
    place = held = 0
    while place < size:
        file.seek(place)
        head = file.read(16)
        length = int.from_bytes(head[:4], "big")
        if length == 1:
            length = int.from_bytes(head[8:16], "big")
        if not 8 <= length <= size - place:  # a length that makes no sense: the box is all that is left
            length = size - place
        if head[4:8] != b"mdat":
            held += length
            if held > _HEADER_BYTES:
                raise ValueError(f"its tables are larger than {_HEADER_BYTES:,} bytes")
            file.seek(place)
            yield file.read(length)
        place += length
    file.seek(0)


def _promised(header: bytes, place: int) -> int:
    """Return how many samples or entries the table at a place promises."""
    kind = header[place : place + 4]
    if kind in (b"stsz", b"stz2"):
        return int.from_bytes(header[place + 12 : place + 16], "big")
    entries = int.from_bytes(header[place + 8 : place + 12], "big")
    if kind not in (b"stts", b"ctts"):
        return entries
    table = header[place + 12 : place + 12 + 8 * entries]
    counts = np.frombuffer(table, ">u4", len(table) // 8 * 2)[::2]
    return int(counts.sum(dtype=np.uint64))


# When the frames of a video are shown: at one rate, or each at its own time (variable frame rate).

DEFAULT_FPS = 10.0  # for a video that says nothing about time
_LARGEST_TICK = 2**53  # above it a float no longer counts ticks one by one


def rate_and_positions(
    stamps: Sequence[int | None], time_base: SupportsFloat | None, stated: float | None
) -> tuple[float, Positions]:
    """Return the rate, and when each frame is shown counted in frames at that rate; the first is shown at 0.

    Evenly spaced frames have whole positions and the stated rate, or their own where that one is wrong; for others the
    rate is their mean and the positions are fractions. ValueError says that the stamps make no sense.
    """
    every = np.arange(len(stamps))
    known = sorted(stamp for stamp in stamps if stamp is not None)
    if len(known) < max(len(stamps), 2) or not time_base or known[-1] == known[0]:
        return stated or DEFAULT_FPS, every
    if known[-1] - known[0] > _LARGEST_TICK:
        raise ValueError(f"its frames are {known[-1] - known[0]} ticks apart")
    tick = float(time_base)
    times = np.array([stamp - known[0] for stamp in known], np.float64) * tick
    if stated and _is_even(times, stated, tick):
        return stated, every
    mean = (len(times) - 1) / float(times[-1])
    return mean, every if _is_even(times, mean, tick) else times * mean


def _is_even(times: NDArray[np.float64], rate: float, tick: float) -> bool:
    """Tell whether times are those of a constant rate, up to what rounding to ticks does to them."""
    tolerance = min(max(1.05 * tick, 0.02 / rate), 0.25 / rate)
    return bool(np.abs(times - np.arange(len(times)) / rate).max() <= tolerance)


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
        width, height = stream.codec_context.width, stream.codec_context.height
        if width <= 0 or height <= 0:
            raise DataError(f"{path}: frames of {width} x {height} pixels; copy or encode the file again")
        if width * height > FRAME_PIXELS.value:
            raise DataError(f"{path}: frames of {width} x {height} pixels, {FRAME_PIXELS.describe()}")
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
        file = open_regular(path) if isinstance(path, Path) else path.open()
        with file, _container(path, file) as container:
            yield container, _video_stream(path, container)
    except FileNotFoundError:
        raise DataError(f"{path}: the file does not exist; correct file_name or add the video") from None
    except (FFmpegError, OSError) as error:
        raise DataError(f"{path}: cannot be read as a video ({error.strerror}); {_EXPECTED}") from error


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
    options = {"protocol_whitelist": "none", "codec_whitelist": ",".join(_CODECS)}
    options |= {"max_streams": str(_STREAMS), "max_pixels": str(FRAME_PIXELS.value)}
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


# The orientation of a video: phones record sideways and say in the file how to turn the picture.

_ONE = 1 << 16  # the display matrix has fixed-point numbers


@dataclass(frozen=True)
class Orientation:
    """How a recorded picture is shown: rows and columns swapped, then mirrored in one direction or both."""

    swapped: bool = False
    sideways: bool = False
    upside_down: bool = False

    def turn(self, pixels: Frames) -> Frames:
        """Return a picture (H, W, 3) the way up that it is shown."""
        shown = pixels.swapaxes(0, 1) if self.swapped else pixels
        return shown[:: -1 if self.upside_down else 1, :: -1 if self.sideways else 1]


def read_orientation(frame: "VideoFrame", path: object) -> Orientation:
    """Return what the display matrix says; it is that of the whole video.

    Ask for the first frame only: asking makes a frame refer to itself, so that it stays until Python collects it.
    """
    from av.buffer import Buffer

    matrix = frame.side_data.get("DISPLAYMATRIX")
    if not isinstance(matrix, Buffer):
        return Orientation()
    # A point (x, y) of the picture is shown at (a x + c y, b x + d y).
    a, b, _, c, d = np.frombuffer(bytes(matrix), np.int32)[:5].tolist()
    if (abs(a), b, c, abs(d)) == (_ONE, 0, 0, _ONE):
        return Orientation(False, a < 0, d < 0)
    if (a, abs(b), abs(c), d) == (0, _ONE, _ONE, 0):
        return Orientation(True, c < 0, b < 0)
    raise DataError(
        f"{path}: its display matrix stretches the picture, or turns it by no multiple of 90 degrees; encode it again"
    )
