"""Clips as strangers send them: videos, images and NumPy arrays, told by their first bytes and never unpickled."""

import tempfile
import zipfile
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import numpy as np

from rewardlab.core.episode import Episode, Frames, hold_frames, in_memory, whole_clip
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, CLIP_MB
from rewardlab.data.encoded_images import decode_images
from rewardlab.data.video_decoding import VideoFile, frame_policy, sample_frames
from rewardlab.http_server.refused_request import RefusedRequest
from rewardlab.models.backends.remote_protocol import array_of_npy

_NPY, _ZIP, _PNG, _JPEG = b"\x93NUMPY", b"PK\x03\x04", b"\x89PNG", b"\xff\xd8"
_UNNAMED = "the clip"


@dataclass(frozen=True)
class ClipDecoder:
    """Makes episodes of what requests hold; `policy` says which frames of a video are shown."""

    policy: str = "uniform:16"
    root: Path | None = None

    def uploaded(self, data: memoryview, instruction: str, fps: float) -> Episode:
        """Return the episode of a video, an image or an array that came with the request."""
        if _begins_with(data, _NPY, _ZIP, _PNG, _JPEG):
            return Episode("", instruction, whole_clip(in_memory(decode_frames(data)), fps))
        with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
            file.write(data)
            file.flush()
            return self._video(Path(file.name), instruction, _UNNAMED)

    def referenced(self, reference: str, instruction: str, fps: float) -> Episode:
        """Return the episode of a file below the root; nothing else on this machine can be named."""
        path = self._inside_root(reference)
        if path.suffix not in (".npy", ".npz"):
            return self._video(path, instruction, reference)
        if path.stat().st_size > CLIP_MB.in_bytes:
            raise DataError(f"{reference}: too large, in MB {CLIP_MB.describe()}")
        return Episode("", instruction, whole_clip(in_memory(decode_frames(path.read_bytes())), fps))

    def _inside_root(self, reference: str) -> Path:
        if self.root is None:
            raise RefusedRequest(403, "this server takes no references; start it with --root FOLDER, or send the clip")
        root = self.root.resolve()
        try:
            path = (root / reference).resolve()
            inside = path.is_relative_to(root)
            found = inside and path.is_file()
        except (OSError, ValueError, RuntimeError):  # a name too long, with a zero in it, or links in a circle
            raise RefusedRequest(422, "the reference is no name of a file") from None
        if not inside:
            raise RefusedRequest(403, "the reference leads out of the folder that this server may read")
        if not found:
            raise RefusedRequest(404, "there is no such file below the folder that this server may read")
        return path

    def _video(self, path: Path, instruction: str, shown_name: str) -> Episode:
        try:
            whole = Episode("", instruction, VideoFile(path).clip())
            sampled = sample_frames(whole, frame_policy(self.policy))
            return replace(sampled, clip=hold_frames(sampled.clip, np.unique(sampled.clip.order)))
        except DataError as error:
            raise DataError(str(error).replace(str(path), shown_name)) from error


def decode_frames(data: bytes | memoryview) -> Frames:
    """Return the frames, uint8 (T, H, W, 3), of a .npy or .npz file, or the one frame of a JPEG or PNG image."""
    if _begins_with(data, _PNG, _JPEG):
        return decode_images([bytes(data)], 1)
    if not _begins_with(data, _NPY, _ZIP):
        raise DataError(f"expected frames as .npy, .npz, JPEG or PNG, got {len(data):,} bytes that are none of these")
    try:
        array = array_of_npy(_only_entry(data) if _begins_with(data, _ZIP) else data)
    except ValueError as error:
        raise DataError(f"the frames cannot be read as a NumPy array ({str(error)[:200]})") from error
    return require_frames(array[None] if array.ndim == 3 and array.shape[-1] == 3 else array)


def require_frames(frames: Frames) -> Frames:
    """Return the frames if they are some, and no more than are taken in; else DataError."""
    pixels = in_memory(frames).pixels
    if len(pixels) > CLIP_FRAMES.value:
        raise DataError(f"{len(pixels):,} frames are more than a clip may hold, {CLIP_FRAMES.describe()}")
    if pixels.nbytes > CLIP_MB.in_bytes:
        raise DataError(f"{pixels.nbytes / 1e6:,.0f} MB are more than a clip may hold, in MB {CLIP_MB.describe()}")
    return pixels


def is_array_file(data: bytes | memoryview) -> bool:
    """Tell whether this is a .npy file, whose frames are a view of its bytes: nothing has to be unpacked."""
    return _begins_with(data, _NPY)


def _begins_with(data: bytes | memoryview, *beginnings: bytes) -> bool:
    return bytes(data[:8]).startswith(beginnings)


def _only_entry(data: bytes | memoryview) -> bytes:
    """Return the .npy file of an .npz archive with one array, unpacked no further than the limit on a clip."""
    most = CLIP_MB.in_bytes
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) != 1:
                raise DataError(f"an .npz archive with one array of frames was expected, got {len(entries)} arrays")
            with archive.open(entries[0]) as file:
                found = file.read(most + 1)
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, RuntimeError, NotImplementedError) as error:
        raise DataError(f"the .npz archive cannot be read ({str(error)[:200]})") from error
    except Exception as error:  # the decompressors have errors of their own, such as zlib.error
        raise DataError(f"the .npz archive cannot be unpacked ({type(error).__name__})") from error
    if len(found) > most:
        raise DataError(f"the .npz archive unpacks to more than a clip may hold, in MB {CLIP_MB.describe()}")
    return found
