"""`meta/info.json` of a LeRobot dataset: its version, its cameras and where its files are."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewardlab.core.bounded_json import read_json
from rewardlab.core.errors import DataError
from rewardlab.data.dataset_files import path_inside, require_inside, shown
from rewardlab.data.roboreward_row import valid_fps

INFO = Path("meta") / "info.json"
VERSIONS = ("v2.0", "v2.1", "v3.0")
_DEPTH = ("is_depth_map", "video.is_depth_map")  # as LeRobot marks depth maps, now and before
_FIELD = re.compile(r"\{(\w+)(?::0?(\d)d)?\}")  # as in {episode_index:06d}


@dataclass(frozen=True)
class Camera:
    """A feature of frames; `stored` is `video`, or `image` where frames are in the data files."""

    key: str
    stored: str


@dataclass(frozen=True)
class DatasetInfo:
    """What a dataset says of itself; the two paths are templates."""

    folder: Path
    version: str
    fps: float
    robot: str
    chunk_size: int
    data_path: str
    video_path: str
    cameras: tuple[Camera, ...]

    @property
    def is_v3(self) -> bool:
        """Tell whether files hold several episodes."""
        return self.version == "v3.0"

    def data_file(self, values: Mapping[str, int | str]) -> Path:
        """Return the file of rows that the template and these values name."""
        return path_inside(self.folder, fill_template(self.data_path, values), "data_path")

    def video_file(self, values: Mapping[str, int | str]) -> Path:
        """Return the video that the template and these values name."""
        return path_inside(self.folder, fill_template(self.video_path, values), "video_path")


def read_dataset_info(folder: Path) -> DatasetInfo:
    """Read and check `meta/info.json`."""
    require_inside(folder, folder / INFO)
    try:
        info = read_json(folder / INFO)
    except (ValueError, OSError) as error:
        raise DataError(f"{INFO}: cannot be read ({error}); copy the dataset again") from None
    if not isinstance(info, dict):
        raise DataError(f"{INFO}: expected an object, got {type(info).__name__}; copy the dataset again")
    version = _version(info)
    return DatasetInfo(
        folder,
        version,
        valid_fps(str(INFO), info.get("fps")),
        str(info.get("robot_type") or "")[:100],
        _chunk_size(info),
        _text(info, "data_path"),
        _text(info, "video_path") if info.get("video_path") is not None else "",
        _cameras(info),
    )


def fill_template(template: str, values: Mapping[str, int | str]) -> str:
    """Return a path template with its fields filled in; a stranger's template is never given to `str.format`."""

    def fill(match: re.Match[str]) -> str:
        name, width = match.groups()
        if name not in values:
            raise DataError(f"{INFO}: the path {shown(template)} has the unknown field {shown(name)}")
        return str(values[name]).zfill(int(width or 0))

    return _FIELD.sub(fill, template)


def _version(info: Mapping[str, Any]) -> str:
    version = info.get("codebase_version")
    if version not in VERSIONS:
        known = ", ".join(VERSIONS)
        what = f"codebase_version must be one of {known}, got {shown(version)}"
        raise DataError(f"{INFO}: {what}; convert the dataset with the scripts of LeRobot")
    return str(version)


def _chunk_size(info: Mapping[str, Any]) -> int:
    size = info.get("chunks_size", 1000)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise DataError(f"{INFO}: chunks_size must be a whole number above 0, got {shown(size)}")
    return size


def _text(info: Mapping[str, Any], key: str) -> str:
    value = info.get(key)
    if not isinstance(value, str) or not value:
        raise DataError(f"{INFO}: {key} must be the template of a path, got {shown(value)}")
    return value


def _cameras(info: Mapping[str, Any]) -> tuple[Camera, ...]:
    features = info.get("features")
    if not isinstance(features, dict):
        raise DataError(f"{INFO}: features must be an object, got {shown(features)}")
    found = [(key, each) for key, each in features.items() if isinstance(each, dict)]
    return tuple(
        Camera(key, each["dtype"]) for key, each in found if each.get("dtype") in ("video", "image") and _is_rgb(each)
    )


def _is_rgb(feature: Mapping[str, Any]) -> bool:
    about = feature.get("info") or feature.get("video_info") or {}
    return not (isinstance(about, dict) and any(about.get(mark) for mark in _DEPTH))
