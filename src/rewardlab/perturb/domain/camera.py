"""Domain perturbations in image space: another camera, another lamp, another recorder."""

from io import BytesIO

import av
import cv2
import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Frames
from rewardlab.perturb.contract import Definition, on_frames

_MIRED_GAIN = {
    5000: (1.06, 0.98, 0.86),
    4000: (1.14, 0.94, 0.70),
    3000: (1.25, 0.86, 0.47),
    2200: (1.36, 0.72, 0.22),
}


@on_frames(
    Definition(
        "domain",
        "yaw in degrees and zoom",
        ((2, 1.05), (5, 1.1), (10, 1.15), (15, 1.2)),
        "LIBERO-plus camera",
        label="P*",
        mode="static",
    )
)
def camera_move(frames: Frames, pose: tuple[float, float], rng: Generator) -> Frames:
    """Somebody moved the camera: it looks from the side and from a little closer, for the whole clip."""
    degrees, zoom = pose
    height, width = frames.shape[1:3]
    side = 1 if rng.random() < 0.5 else -1
    matrix = _yaw(np.radians(degrees) * side, zoom, width, height)
    flags = cv2.INTER_LINEAR
    moved = [
        cv2.warpPerspective(f, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE) for f in frames
    ]
    return np.stack(moved)


def _yaw(angle: float, zoom: float, width: int, height: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the homography of a camera of focal length `width` turned by `angle` about the image centre."""
    focal = float(width)
    inner = np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]])
    turn = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
    centre = inner @ turn @ np.linalg.inv(inner)
    shift = np.array([[1, 0, -np.tan(angle) * focal], [0, 1, 0], [0, 0, 1]])  # keep the centre in the centre
    scale = np.array([[zoom, 0, (1 - zoom) * width / 2], [0, zoom, (1 - zoom) * height / 2], [0, 0, 1]])
    return scale @ shift @ centre


@on_frames(
    Definition(
        "domain",
        "colour temperature in kelvin",
        (5000, 4000, 3000, 2200),
        "Planckian jitter",
        label="P*",
        mode="static",
    )
)
def light_temperature(frames: Frames, kelvin: int, rng: Generator) -> Frames:
    """The lamps are warmer than daylight."""
    gain = np.array(_MIRED_GAIN[kelvin])
    table = np.clip(np.arange(256)[:, None] * gain, 0, 255).astype(np.uint8)
    return np.stack([table[frames[..., c], c] for c in range(3)], axis=-1)


@on_frames(Definition("domain", "H.264 rate factor", (30, 37, 44, 51), "mini-Kinetics-C", stage="stream"))
def codec(frames: Frames, crf: int, rng: Generator) -> Frames:
    """The recorder saves bytes: the stream goes through H.264 at a low rate."""
    height, width = frames.shape[1:3]
    even = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    buffer = BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.height, stream.width = even.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": str(crf), "preset": "veryfast", "threads": "1"}
        for frame in even:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    buffer.seek(0)
    with av.open(buffer) as container:
        decoded = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return np.stack(decoded)[:, :height, :width]
