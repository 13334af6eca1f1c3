"""The precision of pocket's image encoder: int8 where that graph is there and the processor has int8 dot products."""

import os
import platform
import re
from pathlib import Path
from typing import Literal

from rewardlab.core.errors import PlanError

Precision = Literal["int8", "float32"]

_VARIABLE = "REWARDLAB_POCKET_INT8"  # environment variable; 0 or 1 takes the choice out of the processor's hands
_CPUINFO = Path("/proc/cpuinfo")
# x86 without these sums int8 products in 16 bits, which overflow: int8 would be wrong there, not only slow.
_DOT_PRODUCTS = frozenset(("avx512_vnni", "avx_vnni", "asimddp"))


def int8_image_encoder(stem: Path) -> Path:
    """Return where a variant has the int8 graph of its image encoder; not every variant has one."""
    return stem.with_name(f"{stem.name}.image_encoder.int8.onnx")


def choose_precision(stem: Path) -> Precision:
    """Return the precision in which a variant runs on this machine; REWARDLAB_POCKET_INT8 set to 0 or 1 forces it."""
    asked, there = os.environ.get(_VARIABLE, "").strip(), int8_image_encoder(stem).exists()
    if asked not in ("", "0", "1"):
        raise PlanError(f"{_VARIABLE} must be 0 or 1, or not set, got {asked[:40]!r}")
    if asked == "1" and not there:
        raise PlanError(f"{_VARIABLE}=1 asks for {int8_image_encoder(stem)}, which is missing; unset it to run float32")
    return "int8" if asked == "1" or (there and asked == "" and has_int8_dot_products()) else "float32"


def has_int8_dot_products() -> bool:
    """Return whether this processor is known to multiply and sum int8 in one instruction."""
    if platform.system() == "Darwin":
        return platform.machine() == "arm64"
    try:
        return lists_int8_dot_products(_CPUINFO.read_text(encoding="utf-8", errors="replace"))
    except OSError:  # neither Linux nor macOS
        return False


def lists_int8_dot_products(cpuinfo: str) -> bool:
    """Return whether every core that a text like /proc/cpuinfo describes has int8 dot products."""
    cores = re.findall(r"^(?:flags|Features)[ \t]*:(.*)$", cpuinfo, re.MULTILINE)
    return bool(cores) and all(_DOT_PRODUCTS & set(core.split()) for core in cores)
