"""What the steps of an RLDS dataset hold: from `features.json`, or from a record where that file is missing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewardlab.core.bounded_json import read_json
from rewardlab.core.errors import DataError
from rewardlab.data.dataset_files import require_inside, shown
from rewardlab.data.rlds.record_layout import STEPS, cameras_of_record
from rewardlab.data.rlds.tf_example import Feature

FEATURES = "features.json"
_RGB = 3  # channels
_KNOWN = ("FeaturesDict", "Dataset", "Sequence", "Tensor", "Scalar", "Text", "Image", "ClassLabel", "Optional")


@dataclass(frozen=True)
class StepFeatures:
    """The cameras, all names, and the features of a kind that is not known, each as `name (class)`."""

    cameras: tuple[str, ...]
    names: frozenset[str] | None  # None where no file lists them
    unknown: tuple[str, ...] = ()


def read_features(folder: Path) -> StepFeatures | None:
    """Return what features.json says, or None where it is not there."""
    path = folder / FEATURES
    if not path.is_file():
        return None
    require_inside(folder, path)
    try:
        leaves = list(_leaves(read_json(path), ""))
    except (ValueError, OSError) as error:
        raise DataError(f"{FEATURES}: cannot be read ({error}); copy the dataset again") from None
    cameras = sorted(name for name, kind, spec in leaves if kind == "Image" and _is_rgb(name, spec))
    names = frozenset(name for name, _, _ in leaves)
    if not cameras:
        what = f"no RGB Image among the features of steps, but {_few(sorted(names))}"
        raise DataError(f"{FEATURES}: {what}; expected RLDS episodes with camera frames")
    unknown = tuple(f"{name} ({kind})" for name, kind, _ in leaves if kind not in _KNOWN)
    return StepFeatures(tuple(cameras), names, unknown)


def features_of_record(features: Mapping[str, Feature]) -> StepFeatures:
    """Return what a record shows: its features that begin as JPEG or PNG images do are cameras."""
    cameras = cameras_of_record(features)
    if not cameras:
        what = f"no JPEG or PNG among the features of the record, which are {_few(sorted(features))}"
        raise DataError(f"{what}; expected RLDS episodes with camera frames, {FEATURES} beside them is missing")
    return StepFeatures(cameras, None)


def _leaves(spec: Any, name: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield name, class and description of every feature that holds values."""
    if not isinstance(spec, dict):
        raise ValueError(f"the feature {shown(name)} is not an object")
    kind = str(spec.get("pythonClassName", "")).rpartition(".")[2]
    inner = spec.get("featuresDict")
    if isinstance(inner, dict) and isinstance(inner.get("features"), dict):
        for key, each in inner["features"].items():
            yield from _leaves(each, f"{name}/{key}" if name else key)
    elif kind == "Dataset" and isinstance(spec.get("sequence"), dict):
        yield from _leaves(spec["sequence"].get("feature"), name)
    else:
        yield name, kind, spec


def _is_rgb(name: str, spec: Mapping[str, Any]) -> bool:
    image = spec.get("image")
    image = image if isinstance(image, dict) else {}
    shape = image.get("shape")
    sides = shape.get("dimensions") if isinstance(shape, dict) else None
    channels = str(sides[-1]) if isinstance(sides, list) and sides else str(_RGB)
    return name.startswith(STEPS) and image.get("dtype", "uint8") == "uint8" and channels == str(_RGB)


def _few(names: list[str]) -> str:
    return ", ".join(name[:60] for name in names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
