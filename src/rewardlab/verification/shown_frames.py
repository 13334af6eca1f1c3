"""The frames of a clip as the page shows them: decoded here, so that every codec plays and each step is one frame."""

import json
from pathlib import Path

import cv2
import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_MB
from rewardlab.data.dataset_files import path_inside
from rewardlab.data.video_decoding import VideoFile, frame_policy

MOST_FRAMES = 300  # of a clip that are shown; the first and the last always are
_MOST_PIXELS = 960  # along the longer side, while it plays
_PLAYED_QUALITY, _ENLARGED_QUALITY = 88, 95


def played_frames(folder: Path, name: str) -> bytes:
    """Return a clip as one body: length of the header (4 bytes), header (JSON), and the frames as JPEG."""
    video = VideoFile(path_inside(folder, name, "file_name"))
    info = video.info
    most = max(2, min(MOST_FRAMES, CLIP_MB.in_bytes // info.frame_bytes))
    shown = frame_policy(f"uniform:{most}")(info.positions, info.fps)
    images = [_jpeg(_reduced(frame), _PLAYED_QUALITY) for frame in video.read(shown)]
    header = {
        "frames": [int(place) for place in shown],
        "seconds": [round(float(info.positions[place]) / info.fps, 4) for place in shown],
        "fps": round(info.fps, 3),
        "count": info.count,
        "width": info.width,
        "height": info.height,
        "bytes": [len(image) for image in images],
    }
    head = json.dumps(header).encode()
    return b"".join((len(head).to_bytes(4, "big"), head, *images))


def last_frame(folder: Path, name: str) -> bytes:
    """Return the last frame in full size, as JPEG."""
    video = VideoFile(path_inside(folder, name, "file_name"))
    return _jpeg(video.read(np.array([video.count - 1]))[0], _ENLARGED_QUALITY)


def _reduced(frame: Frames) -> Frames:
    scale = _MOST_PIXELS / max(frame.shape[:2])
    if scale >= 1:
        return frame
    size = (max(1, round(frame.shape[1] * scale)), max(1, round(frame.shape[0] * scale)))
    return np.asarray(cv2.resize(frame, size, interpolation=cv2.INTER_AREA), np.uint8)


def _jpeg(frame: Frames, quality: int) -> bytes:
    done, image = cv2.imencode(".jpg", cv2.cvtColor(frame, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise DataError(f"a frame of shape {frame.shape} cannot be shown; encode the video again")
    return bytes(image)
