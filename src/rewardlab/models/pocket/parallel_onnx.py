"""ONNX sessions: precision by processor, batches spread over cores.

The threads inside onnxruntime make one clip faster, but not many times: its operations are too small. So a batch of
several clips is cut, and every core makes a part of it ready and runs it from beginning to end.
"""

import os
import platform
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from rewardlab.core.errors import ModelError, PlanError

Array = NDArray[Any]

_THREADS_OF_ONE_RUN = 4  # 16 make one clip no faster, and take half as much again of the processor's time
_SPINNING = "session.intra_op.allow_spinning"


class ParallelOnnxSession:
    """Runs a graph on rows: up to `together` of them in one run on a few cores, more in parts, one per core.

    No part has more than `most` rows.
    """

    def __init__(self, path: str, together: int, most: int) -> None:
        self.path, self.together, self.most = path, together, most
        self.threads = int(os.environ.get("OMP_NUM_THREADS") or 0) or os.cpu_count() or 1
        self.whole = _session(path, min(self.threads, _THREADS_OF_ONE_RUN))

    @cached_property
    def part(self) -> Any:
        """Return a session that stays in the thread that runs it."""
        return self.whole if self.threads == 1 else _session(self.path, 1)

    def output_shapes(self) -> list[Any]:
        """Return the shapes that the file states."""
        return [output.shape for output in self.whole.get_outputs()]

    def run(self, rows: int, inputs: Callable[[slice], dict[str, Array]]) -> list[list[Array]]:
        """Return the outputs of each part; `inputs` makes some of the rows ready, in the thread that runs them."""
        if rows <= self.together:
            return [self.whole.run(None, inputs(slice(0, rows)))]
        size, run = min(self.most, -(-rows // self.threads)), self.part.run
        parts = [slice(at, at + size) for at in range(0, rows, size)]
        return list(_pool(os.getpid(), self.threads).map(lambda part: run(None, inputs(part)), parts))


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return this process's threads; the number is the key of the cache, for a fork has none."""
    return ThreadPoolExecutor(threads, "rewardlab pocket")


def _session(path: str, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry(_SPINNING, "0")  # threads that wait by spinning take a core from whoever decodes
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a family of errors of its own
        raise ModelError(f"{path} cannot be loaded ({error}); install rewardlab again") from error


# The precision of pocket's image encoder: int8 where that graph is there and the processor has int8 dot products.

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


def require_precision(stem: Path, planned: Precision | None) -> Precision:
    """Return the planned precision, by default the one for this machine; ModelError where int8 would overflow here."""
    here = choose_precision(stem)
    if planned == "int8" and here != "int8":
        raise ModelError(
            f"{stem.name} was named in int8, which this machine does not run; set {_VARIABLE}=0 where the run starts"
        )
    return planned or here


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
