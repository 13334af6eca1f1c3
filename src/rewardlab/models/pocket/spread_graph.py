"""An ONNX graph whose batches are spread over the cores.

The threads inside onnxruntime make one clip faster, but not many times: its operations are too small. So a batch of
several clips is cut, and every core makes a part of it ready and runs it from beginning to end.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from typing import Any

from numpy.typing import NDArray

from rewardlab.core.errors import ModelError

Array = NDArray[Any]

_THREADS_OF_ONE_RUN = 4  # 16 make one clip no faster, and take half as much again of the processor's time
_SPINNING = "session.intra_op.allow_spinning"


class SpreadGraph:
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
