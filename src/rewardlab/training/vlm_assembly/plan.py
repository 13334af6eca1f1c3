"""The settings of `rewardlab assemble-vlm`."""

from dataclasses import dataclass
from importlib.util import find_spec
from math import isqrt
from pathlib import Path

from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError
from rewardlab.training.vlm_assembly.trained_adapter import require_adapter


@dataclass(frozen=True)
class AssemblePlan:
    """Put a vision-language model together from a vision tower and a language model, as a folder for hf:."""

    vision: str = setting("folder of Dinov2, CLIP or SigLIP, or DINOv2 ViT-S/14 as .onnx or .npz", "")
    language: str = setting("folder of a causal language model, or a .gguf file", "")
    out: Path = setting("folder to write, which must not exist", Path("vlm"))
    tokens: int = setting("tokens of a frame, a square number: 64 are 8 x 8", 64)
    pool: int = setting("patches on a side of the square that becomes one token; above 1 the model is an Aya Vision", 1)
    adapter: Path | None = setting(
        "folder of adapters that train vlm --lora wrote for these two models, merged in", None
    )
    seed: int = setting("seed of the projector between the two", 0)

    def __post_init__(self) -> None:
        for name, value in (("vision", self.vision), ("language", self.language)):
            if not value:
                raise PlanError(f"name both models by their paths, as --vision PATH --language PATH; {name} is missing")
        if self.tokens < 1 or isqrt(self.tokens) ** 2 != self.tokens:
            raise PlanError(f"tokens must be a square number such as 16, 64 or 256, got {self.tokens}")
        if self.pool < 1:
            raise PlanError(f"pool must be 1, for a token per patch, or more, got {self.pool}")
        for package in ("torch", "transformers"):
            if find_spec(package) is None:
                raise PlanError(f"assemble-vlm needs {package}; install it with pip install 'rewardlab[assemble]'")
        if self.adapter is not None:
            require_adapter(self.adapter)
        if self.out.exists():
            raise PlanError(f"{self.out} is there already; name another folder as --out, or remove it")

    @property
    def side(self) -> int:
        """Return how many tokens a frame is high and wide."""
        return isqrt(self.tokens)
