"""LoRA by peft: put on, written, checked, merged; no torch or peft at import."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rewardlab.core.errors import ModelError, PlanError, require_packages
from rewardlab.core.records import read_json

_SCALE = 2  # alpha over rank


@contextmanager
def loaded_peft(user: str) -> Iterator[Any]:
    """Give the module; where it is not installed, a PlanError says that `user` needs it.

    It asks transformers of 5.23 and later by a name that these are giving up, about which nobody here can do anything.
    """
    require_packages(user, "peft", extra="vlm-train")
    import peft

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        yield peft


def add_lora(model: Any, rank: int, layers: str | list[str], user: str) -> Any:
    """Return the model with adapters of a rank at these layers, given by name or by a pattern; needs peft."""
    with loaded_peft(user) as peft:
        config = peft.LoraConfig(r=rank, lora_alpha=_SCALE * rank, target_modules=layers)
        return peft.get_peft_model(model, config)


# What `train vlm --lora` has learned, put onto a model assembled from the same parts.

CONFIG, WEIGHTS, FUSION = "adapter_config.json", "adapter_model.safetensors", "fusion.safetensors"


def require_adapter(folder: Path) -> None:
    """Say what is missing of a folder of adapters before anything is loaded; weights are never pickles."""
    missing = [name for name in (CONFIG, WEIGHTS, FUSION) if not (folder / name).is_file()]
    if missing:
        raise PlanError(f"--adapter {folder} has no {missing[0]}; name the `adapter` folder that `train vlm` wrote")
    try:
        kind = read_json(folder / CONFIG).get("peft_type")
    except (ValueError, AttributeError) as error:
        raise PlanError(f"{folder / CONFIG} is no adapter config: {error}") from None
    if kind != "LORA":
        raise PlanError(f"{folder / CONFIG} says {kind}, expected LORA as `train vlm` writes")


def with_adapter(model: Any, folder: Path) -> Any:
    """Return the model with the adapters merged into its language layers, and the fusion that was trained with them."""
    from safetensors.torch import load_file

    try:
        unknown = model.load_state_dict(load_file(folder / FUSION), strict=False).unexpected_keys
        with loaded_peft("--adapter") as peft:
            merged = peft.PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    except (RuntimeError, ValueError) as error:  # other shapes, other names of layers
        first = str(error).strip().splitlines()[0]
        raise ModelError(f"the adapters of {folder} do not fit these two models: {first}") from None
    if unknown:
        raise ModelError(f"the adapters of {folder} were trained on another model: it has {unknown[0]}")
    return merged
