"""DINOv2 ViT-S/14 as ONNX, or as converted by `rewardlab.training.pocket.pretrained_eyes`, as a folder of transformers.

The names are those of the published checkpoint facebook/dinov2-small, which every version of transformers reads.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from rewardlab.core.errors import PlanError
from rewardlab.training.pocket.pretrained_eyes import HEADS, LAYERS, PATCH, WIDTH, Dinov2, convert, load_eyes
from rewardlab.training.vlm_assembly.upstream import Upstream

DINOV2 = Upstream("DINOv2 ViT-S/14 (facebook/dinov2-small)", "apache-2.0", "dinov2")
_BLOCK = {
    "norm1": "norm1",
    "norm2": "norm2",
    "projection": "attention.output.dense",
    "up": "mlp.fc1",
    "down": "mlp.fc2",
}


def write_dinov2_folder(source: Path, folder: Path) -> None:
    """Write the weights of a .onnx or .npz file as a checkpoint folder."""
    from safetensors.torch import save_file
    from transformers import Dinov2Config

    weights = _published_names(_load(source).state_dict())
    side = int((weights["embeddings.position_embeddings"].shape[1] - 1) ** 0.5)
    config = Dinov2Config(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        patch_size=PATCH,
        image_size=side * PATCH,
    )
    config.save_pretrained(folder)
    save_file({name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors")


def _load(source: Path) -> Dinov2:
    try:
        if source.suffix == ".npz":
            return load_eyes(str(source), "cpu")
        with TemporaryDirectory() as folder:
            converted = Path(folder) / "eyes.npz"
            convert(source, converted)
            return load_eyes(str(converted), "cpu")
    except ImportError:
        raise PlanError(
            "a vision tower as .onnx needs onnx; install it with pip install 'rewardlab[assemble]'"
        ) from None
    except Exception as error:  # a file that is something else may raise anything
        raise PlanError(
            f"{source} is not DINOv2 ViT-S/14: {error}; name a folder of transformers, or see docs/assemble_vlm.md"
        ) from None


def _published_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    first, positions = weights["first"], weights["positions"]
    found = {
        "embeddings.cls_token": first,  # with its position, which is therefore nothing below
        "embeddings.position_embeddings": torch.cat([torch.zeros_like(first), positions], dim=1),
        "embeddings.mask_token": torch.zeros(1, WIDTH),
        "embeddings.patch_embeddings.projection.weight": weights["patches.weight"],
        "embeddings.patch_embeddings.projection.bias": weights["patches.bias"],
        "layernorm.weight": weights["norm.weight"],
        "layernorm.bias": weights["norm.bias"],
    }
    for layer in range(LAYERS):
        ours, theirs = f"blocks.{layer}.", f"encoder.layer.{layer}."
        for kind in ("weight", "bias"):
            for name, published in _BLOCK.items():
                found[f"{theirs}{published}.{kind}"] = weights[f"{ours}{name}.{kind}"]
            for name, part in zip(("query", "key", "value"), weights[f"{ours}qkv.{kind}"].chunk(3)):
                found[f"{theirs}attention.attention.{name}.{kind}"] = part
        for number in (1, 2):
            found[f"{theirs}layer_scale{number}.lambda1"] = weights[f"{ours}scale{number}"]
    return found
