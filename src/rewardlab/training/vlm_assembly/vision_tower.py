"""The vision tower of an assembled model: loaded, and made ready for frames of few tokens."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from rewardlab.core.bounded_json import read_json
from rewardlab.core.errors import PlanError
from rewardlab.models.backends.checkpoint import check_weights, load_checkpoint
from rewardlab.training.vlm_assembly.dinov2_weights import DINOV2, write_dinov2_folder
from rewardlab.training.vlm_assembly.upstream import Upstream, folder_upstream

Colour = tuple[float, ...]  # of red, green and blue


@dataclass(frozen=True)
class _Family:
    """A kind of tower: its class, whether a class token stands before the patches, how its pixels are normalised."""

    tower: str
    has_class_token: bool
    mean: Colour
    std: Colour


_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_FAMILIES = {
    "dinov2": _Family("Dinov2Model", True, *_IMAGENET),
    "clip": _Family("CLIPVisionModel", True, *_CLIP),
    "clip_vision_model": _Family("CLIPVisionModel", True, *_CLIP),
    "siglip": _Family("SiglipVisionModel", False, *_HALF),
    "siglip_vision_model": _Family("SiglipVisionModel", False, *_HALF),
}


@dataclass(frozen=True, eq=False)
class VisionTower:
    """A loaded tower that gives side x side patches for frames of `pixels` on a side."""

    model: Any
    upstream: Upstream
    pixels: int
    has_class_token: bool
    mean: Colour
    std: Colour


def load_vision_tower(place: str, side: int) -> VisionTower:
    """Return the tower in a folder of transformers or a DINOv2 file; PlanError where it is no image model."""
    path = Path(place).expanduser()
    if path.is_dir():
        return _load_folder(path, side, folder_upstream(path))
    if path.is_file() and path.suffix in (".onnx", ".npz"):
        with TemporaryDirectory() as folder:
            write_dinov2_folder(path, Path(folder))
            return _load_folder(Path(folder), side, DINOV2)
    raise PlanError(f"there is no vision tower {place!r}; name a checkpoint folder, or DINOv2 as .onnx or .npz")


def _load_folder(folder: Path, side: int, upstream: Upstream) -> VisionTower:
    import transformers

    family = _FAMILIES.get(upstream.kind)
    if family is None:
        kinds = ", ".join(kind for kind in _FAMILIES if "_" not in kind)
        raise PlanError(f"a vision tower is one of {kinds}, got {upstream.kind} in {folder}")
    tower = getattr(transformers, family.tower)

    def load(place: str) -> Any:
        model, loading = tower.from_pretrained(
            place, trust_remote_code=False, use_safetensors=True, dtype=torch.float32, output_loading_info=True
        )
        check_weights(loading, place)
        return model

    model = _for_pixels(load_checkpoint(str(folder), load), side)
    mean, std = _normalisation(folder, family)
    return VisionTower(
        model.eval(), upstream, side * model.config.patch_size, family.has_class_token, mean=mean, std=std
    )


def _normalisation(folder: Path, family: _Family) -> tuple[Colour, Colour]:
    """Return mean and deviation of pixels as the folder says, or as the family was published with."""
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        return family.mean, family.std
    try:
        said = read_json(path)
        mean, std = (tuple(map(float, said[name])) for name in ("image_mean", "image_std"))
    except (ValueError, KeyError, TypeError):
        mean, std = (), ()
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise PlanError(f"{path} must state image_mean and image_std, three numbers each, the second above 0")
    return mean, std


def _for_pixels(model: Any, side: int) -> Any:
    """Return the tower for so many patches on a side; Dinov2 resamples its positions itself, others not."""
    config, weights = model.config, model.state_dict()
    name = next((name for name in weights if name.endswith("position_embedding.weight")), None)
    if name is None or config.image_size == side * config.patch_size:
        return model
    config.image_size = side * config.patch_size
    resized = type(model)(config)
    resized.load_state_dict(weights | {name: _resampled(weights[name], side)})
    return resized


def _resampled(positions: Tensor, side: int) -> Tensor:
    """Return a table of positions (with that of a class token, if there is one) for another number of patches."""
    grid = int(len(positions) ** 0.5)
    first, patches = positions[: len(positions) - grid**2], positions[len(positions) - grid**2 :]
    table = patches.T.reshape(1, -1, grid, grid)
    table = nn.functional.interpolate(table, size=(side, side), mode="bicubic", antialias=True, align_corners=False)
    return torch.cat([first, table.flatten(2)[0].T])
