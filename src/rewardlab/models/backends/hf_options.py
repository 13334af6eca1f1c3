"""Options of `hf:`, and the checkpoint they are for."""

from dataclasses import dataclass

from rewardlab.core.errors import PlanError
from rewardlab.models.backends.checkpoint import check_hardware
from rewardlab.models.model_string import one_of, option


@dataclass(frozen=True)
class HfOptions:
    """Options of `hf:`."""

    dtype: str = option("auto", "auto, float32, bfloat16 or float16")
    device: str = option("auto", "auto, cpu, cuda or cuda:N", speed=True)
    attn: str = option("sdpa", "sdpa, eager, flash_attention_2 or flash_attention_3")
    frames: str = option(
        "auto", "how a clip is shown: images, video, or auto: video where the model's processor has it"
    )
    pixels: int = option(0, "most pixels per frame; 0 for what the model was published with")
    reuse: bool = option(True, "cache features of frames and, for Qwen, keys and values of prefixes", speed=True)
    reuse_gb: float = option(4.0, "GiB of memory for that cache", speed=True)
    revision: str = option("main", "revision of a hub id")

    def __post_init__(self) -> None:
        check_hardware(self.dtype, self.device)
        one_of("attn", self.attn, ("sdpa", "eager", "flash_attention_2", "flash_attention_3"))
        one_of("frames", self.frames, ("auto", "images", "video"))
        if self.pixels < 0 or self.reuse_gb < 0:
            raise PlanError("options pixels and reuse_gb must not be negative")

    @property
    def reuse_bytes(self) -> int:
        """Return how many bytes of the cache there may be; 0 for no reuse."""
        return int(self.reuse_gb * 2**30) if self.reuse else 0


@dataclass(frozen=True)
class HfSpec:
    """Which checkpoint to run, and how."""

    checkpoint: str
    options: HfOptions
