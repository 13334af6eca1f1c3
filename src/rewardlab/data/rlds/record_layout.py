"""Where a record keeps the frames of a camera: under `steps`, in one feature per step, or as a single picture."""

import re
from collections.abc import Iterator, Mapping, Sequence
from math import isqrt

import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError
from rewardlab.core.limits import FRAME_PIXELS
from rewardlab.data.encoded_images import decode_images, image_size
from rewardlab.data.rlds.tf_example import Feature

STEPS = "steps/"
_NUMBERED = re.compile(r"(\d{1,9})/(.+)/encoded")  # as in 12/image_main/encoded, of BAIR and the like
_MAGIC = (b"\xff\xd8", b"\x89PNG")

Images = Sequence[memoryview]


def cameras_of_record(features: Mapping[str, Feature]) -> tuple[str, ...]:
    """Return the cameras that a record shows; none where it holds no frames that are known."""
    pictures = sorted(name for name, feature in features.items() if _holds_images(feature))
    in_steps = [name for name in pictures if name.startswith(STEPS)]
    numbered = sorted({camera for _, camera, _ in _numbered(features)}, key=lambda name: ("main" not in name, name))
    return tuple(in_steps or numbered or [name for name in pictures if "/" not in name])


def frames_of_camera(features: Mapping[str, Feature], camera: str) -> list[memoryview]:
    """Return the frames of a camera as they are stored, in the order of the steps."""
    if camera in features:
        return features[camera].views()
    found = sorted((step, name) for step, each, name in _numbered(features) if each == camera)
    missing = next((place for place, (step, _) in enumerate(found) if step != place), None)
    if missing is not None:
        raise DataError(f"step {missing} of {camera} is missing; copy the file again")
    return [view for _, name in found for view in features[name].views()]


def frame_size(features: Mapping[str, Feature], camera: str, image: memoryview) -> tuple[int, int]:
    """Return width and height of a frame."""
    return image_size(bytes(image)) if _is_encoded(features, camera, image) else _raw_size(image)


def decode_frames(features: Mapping[str, Feature], camera: str, images: Images) -> Frames:
    """Return the frames: JPEG and PNG decoded, bare bytes of one feature per step as a square of RGB."""
    if not images or _is_encoded(features, camera, images[0]):
        return decode_images((bytes(image) for image in images), len(images))
    sizes = {len(image) for image in images}
    if len(sizes) > 1:
        raise DataError(f"frames of {min(sizes):,} and {max(sizes):,} bytes; store them at one size")
    width, height = _raw_size(images[0])
    return np.stack([np.frombuffer(image, np.uint8).reshape(height, width, 3) for image in images])


def _is_encoded(features: Mapping[str, Feature], camera: str, image: memoryview) -> bool:
    return camera in features or bytes(image[:8]).startswith(_MAGIC)


def _raw_size(image: memoryview) -> tuple[int, int]:
    side = isqrt(len(image) // 3)
    if side == 0 or 3 * side * side != len(image):
        raise DataError(f"a frame of {len(image):,} bytes that is no JPEG, no PNG and no square of RGB pixels")
    if side * side > FRAME_PIXELS.value:
        raise DataError(f"a frame of {side} x {side} pixels, {FRAME_PIXELS.describe()}")
    return side, side


def _numbered(features: Mapping[str, Feature]) -> Iterator[tuple[int, str, str]]:
    """Yield step, camera and name of the features that hold one frame each."""
    for name, feature in features.items():
        match = _NUMBERED.fullmatch(name)
        if match and feature.kind == "bytes":
            yield int(match[1]), match[2], name


def _holds_images(feature: Feature) -> bool:
    first = next(feature.each(), None)
    return first is not None and bytes(first[:8]).startswith(_MAGIC)
