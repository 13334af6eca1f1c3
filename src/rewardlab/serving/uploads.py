"""Clips in untrusted requests: forms, videos, images, arrays."""

import math
import os
import tempfile
import zipfile
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from python_multipart.multipart import MultipartParser, parse_options_header

from rewardlab.core.episode import Episode, Frames, hold_frames, in_memory, whole_clip
from rewardlab.core.errors import DataError, RewardlabError
from rewardlab.core.limits import CLIP_FRAMES, CLIP_MB
from rewardlab.data.images import decode_images, image_size
from rewardlab.data.video import VideoFile, frame_policy, sample_frames
from rewardlab.models.remote import array_of_npy, directory_bytes
from rewardlab.serving.listening import RequestRejected
from rewardlab.serving.memory import MemoryShare

_NPY, _ZIP, _PNG, _JPEG = b"\x93NUMPY", b"PK\x03\x04", b"\x89PNG", b"\xff\xd8"
_UNNAMED = "the clip"


@dataclass(frozen=True)
class ClipDecoder:
    """Makes episodes from requests; `policy` selects the frames of a video, `root` is the folder of references."""

    policy: str
    root: Path | None

    def uploaded(self, data: memoryview, instruction: str, fps: float, memory: MemoryShare) -> Episode:
        """Return the episode of a video, an image or an array that came with the request."""
        if _begins_with(data, _NPY, _ZIP, _PNG, _JPEG):
            return Episode("", instruction, whole_clip(in_memory(decode_frames(data, memory)), fps))
        with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
            file.write(data)
            file.flush()
            return self._video(Path(file.name), instruction, _UNNAMED, memory)

    def referenced(self, reference: str, instruction: str, fps: float, memory: MemoryShare) -> Episode:
        """Return the episode of a file below the root; nothing else on this machine can be named."""
        path = self._inside_root(reference)
        if path.suffix not in (".npy", ".npz"):
            return self._video(path, instruction, reference, memory)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > CLIP_MB.in_bytes:
                raise DataError(f"{reference}: too large: {CLIP_MB.describe(' MB')}")
            memory.take(size)
            data = file.read(size)
        return Episode("", instruction, whole_clip(in_memory(decode_frames(data, memory)), fps))

    def _inside_root(self, reference: str) -> Path:
        if self.root is None:
            raise RequestRejected(403, "this server takes no references; start it with --root FOLDER, or send the clip")
        root = self.root.resolve()
        try:
            path = (root / reference).resolve()
            inside = path.is_relative_to(root)
            found = inside and path.is_file()
        except (OSError, ValueError, RuntimeError):  # a name too long, with a zero in it, or links in a circle
            raise RequestRejected(422, "the reference is no name of a file") from None
        if not inside:
            raise RequestRejected(403, "the reference leads out of the folder that this server may read")
        if not found:
            raise RequestRejected(404, "there is no such file below the folder that this server may read")
        return path

    def _video(self, path: Path, instruction: str, shown_name: str, memory: MemoryShare) -> Episode:
        try:
            whole = Episode("", instruction, VideoFile(path).clip())
            sampled = sample_frames(whole, frame_policy(self.policy))
            kept = np.unique(sampled.clip.order)
            memory.take(len(kept) * sampled.clip.frame_bytes)
            return replace(sampled, clip=hold_frames(sampled.clip, kept))
        except DataError as error:
            raise DataError(str(error).replace(str(path), shown_name)) from error


def decode_frames(data: bytes | memoryview, memory: MemoryShare) -> Frames:
    """Return the frames, uint8 (T, H, W, 3), of a .npy or .npz file, or the one frame of a JPEG or PNG image."""
    if _begins_with(data, _PNG, _JPEG):
        image = bytes(data)
        memory.take(3 * math.prod(image_size(image)))
        return decode_images([image], 1)
    if not _begins_with(data, _NPY, _ZIP):
        raise DataError(f"expected frames as .npy, .npz, JPEG or PNG, got {len(data):,} bytes that are none of these")
    try:
        array = array_of_npy(_only_entry(data, memory) if _begins_with(data, _ZIP) else data)
    except ValueError as error:
        raise DataError(f"the frames cannot be read as a NumPy array ({str(error)[:200]})") from error
    return require_frames(array[None] if array.ndim == 3 and array.shape[-1] == 3 else array)


def require_frames(frames: Frames) -> Frames:
    """Return the frames if there are some, within the limits; else DataError."""
    pixels = in_memory(frames).pixels
    if len(pixels) > CLIP_FRAMES.value:
        raise DataError(f"{len(pixels):,} frames are more than a clip may hold, {CLIP_FRAMES.describe()}")
    if pixels.nbytes > CLIP_MB.in_bytes:
        raise DataError(f"{pixels.nbytes / 1e6:,.0f} MB are more than a clip may hold: {CLIP_MB.describe(' MB')}")
    return pixels


def is_array_file(data: bytes | memoryview) -> bool:
    """Return whether this is a .npy file, whose frames are a view of its bytes: nothing has to be unpacked."""
    return _begins_with(data, _NPY)


def _begins_with(data: bytes | memoryview, *beginnings: bytes) -> bool:
    return bytes(data[:8]).startswith(beginnings)


def _only_entry(data: bytes | memoryview, memory: MemoryShare) -> bytes:
    """Return the .npy file of an .npz archive with one array, unpacked no further than the limit on a clip."""
    most = CLIP_MB.in_bytes
    memory.take(directory_bytes(data))
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) != 1:
                raise DataError(f"an .npz archive with one array of frames was expected, got {len(entries)} arrays")
            if entries[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise DataError("the .npz archive is compressed in another way than np.savez_compressed does")
            if entries[0].file_size > most:
                raise DataError(f"the .npz archive unpacks to more than a clip may hold: {CLIP_MB.describe(' MB')}")
            memory.take(entries[0].file_size)  # it is unpacked no further
            return archive.read(entries[0])
    except RewardlabError:
        raise
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, RuntimeError, NotImplementedError) as error:
        raise DataError(f"the .npz archive cannot be read ({str(error)[:200]})") from error
    except Exception as error:  # the decompressors have errors of their own, such as zlib.error
        raise DataError(f"the .npz archive cannot be unpacked ({type(error).__name__})") from error


Form = dict[str, str | memoryview]  # texts, and files as views of the body, by name


def read_form(body: bytes, content_type: str, *, most: int) -> Form:
    """Return the texts and files of a form by name, at most so many of each."""
    reader = _FormReader(most)
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if boundary is None:
        raise RequestRejected(422, "expected a form, multipart/form-data with a boundary")
    try:
        parser = MultipartParser(boundary, reader.callbacks())
        parser.write(body)
        parser.finalize()
    except (KeyError, AssertionError, ValueError) as error:  # the parser's own errors are ValueErrors
        raise RequestRejected(400, f"the form cannot be read ({type(error).__name__})") from error
    return reader.form


class _FormReader:
    """Collects the parts that the parser finds in a body."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.form: Form = {}
        self.counts = {"files": 0, "fields": 0}
        self._begin()

    def callbacks(self) -> Any:
        """Return what the parser calls, under its names."""
        return {
            "on_part_begin": self._begin,
            "on_part_data": lambda data, start, end: self.data.append(memoryview(data)[start:end]),
            "on_part_end": self._end,
            "on_header_field": lambda data, start, end: self.header_name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self.header_value.extend(data[start:end]),
            "on_header_end": self._end_header,
        }

    def _begin(self) -> None:
        self.data: list[memoryview] = []
        self.disposition = b""
        self.header_name, self.header_value = bytearray(), bytearray()

    def _end_header(self) -> None:
        if self.header_name.lower() == b"content-disposition":
            self.disposition = bytes(self.header_value)
        self.header_name, self.header_value = bytearray(), bytearray()

    def _end(self) -> None:
        options = parse_options_header(self.disposition)[1]
        kind = "files" if b"filename" in options else "fields"
        self.counts[kind] += 1
        if self.counts[kind] > self.most:
            raise RequestRejected(400, f"the form has more than {self.most} {kind}")
        value = self.data[0] if len(self.data) == 1 else memoryview(b"".join(self.data))
        self.form[options[b"name"].decode()] = value if kind == "files" else bytes(value).decode()
