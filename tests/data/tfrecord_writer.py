"""TFRecord files of RLDS episodes, written by hand from the specification of the formats."""

import gzip
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from tests.conftest import moving_square

CLASSES = "tensorflow_datasets.core.features"


def crc32c(data: bytes) -> int:
    """The checksum bit by bit, as its definition has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


Values = list[Any]  # of one kind: bytes, float or int


def varint(number: int) -> bytes:
    number %= 1 << 64
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(values: Values) -> bytes:
    if not values:
        return b""
    if isinstance(values[0], bytes):
        return field(1, b"".join(field(1, value) for value in values))
    if isinstance(values[0], float):
        return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
    return field(3, field(1, b"".join(varint(int(value)) for value in values)))


def example(features: dict[str, Values]) -> bytes:
    entries = (field(1, name.encode()) + field(2, feature(values)) for name, values in features.items())
    return field(1, b"".join(field(1, entry) for entry in entries))


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def images(name: str, count: int, suffix: str = ".png", size: int = 16) -> list[bytes]:
    frames = moving_square(name, count=count, size=48)[:, ::3, ::3][:, :size, :size]
    return [cv2.imencode(suffix, frame[..., ::-1])[1].tobytes() for frame in frames]


def episode(name: str, count: int = 4, **features: Values) -> dict[str, Values]:
    """The features of an episode with two cameras; those given replace or add to them, `__` for a slash."""
    ends = [0] * (count - 1) + [1]
    made: dict[str, Values] = {
        "steps/observation/image": images(f"{name} front", count),
        "steps/observation/wrist_image": images(f"{name} wrist", count, ".jpg"),
        "steps/is_first": [1] + [0] * (count - 1),
        "steps/is_last": ends,
        "steps/reward": [float(end) for end in ends],
        "steps/language_instruction": [name.encode()] * count,
        "steps/action": [0.5] * 7 * count,
    }
    return made | {key.replace("__", "/"): values for key, values in features.items()}


def spec(names: dict[str, str]) -> dict[str, Any]:
    """A features.json: the class of every feature by its name."""
    root: dict[str, Any] = {"pythonClassName": f"{CLASSES}.FeaturesDict", "featuresDict": {"features": {}}}
    for name, kind in names.items():
        at = root["featuresDict"]["features"]
        *folders, last = name.split("/")
        for part in folders:
            inner = {"pythonClassName": f"{CLASSES}.FeaturesDict", "featuresDict": {"features": {}}}
            made = (
                {"pythonClassName": f"{CLASSES}.Dataset", "sequence": {"feature": inner}} if part == "steps" else inner
            )
            made = at.setdefault(part, made)
            at = (made["sequence"]["feature"] if part == "steps" else made)["featuresDict"]["features"]
        about = {"image": {"shape": {"dimensions": ["16", "16", "3"]}, "dtype": "uint8"}} if kind == "Image" else {}
        at[last] = {"pythonClassName": f"{CLASSES}.{kind}", **about}
    return root


SPEC = {
    "steps/observation/image": "Image",
    "steps/observation/wrist_image": "Image",
    "steps/is_first": "Scalar",
    "steps/is_last": "Scalar",
    "steps/reward": "Scalar",
    "steps/language_instruction": "Text",
    "steps/action": "Tensor",
}


def write_rlds(
    folder: Path, episodes: list[dict[str, Values]], *, packed: str = "", names: dict[str, str] | None = SPEC
) -> Path:
    """Write NAME/VERSION with one file of records; `packed` is empty, gzip or zlib."""
    place = folder / "toys" / "1.0.0"
    place.mkdir(parents=True, exist_ok=True)
    data = b"".join(record(example(each)) for each in episodes)
    packers: dict[str, Callable[[bytes], bytes]] = {
        "": lambda bare: bare,
        "gzip": lambda bare: gzip.compress(bare, mtime=0),
        "zlib": zlib.compress,
    }
    path = place / "toys-train.tfrecord-00000-of-00001"
    path.write_bytes(packers[packed](data))
    if names is not None:
        (place / "features.json").write_text(json.dumps(spec(names)))
    return path


def decoded(data: bytes) -> np.ndarray:
    return np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))[..., ::-1]
