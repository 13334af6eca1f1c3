"""Noise as between two kinds of processor: rendered and decoded pixels differ by a level, computed sums by an ulp.

`pytest --pixel-noise` imports this file and puts its folder on PYTHONPATH, so that every interpreter that a test starts
imports it too. A library is changed when it is imported, and none is imported for it. The noise of a pixel depends on
its value and place, that of a sum on its value: reading again gives the same, and what did not change in a picture
stays equal. Lossless decoding has none: every processor decodes PNG images to the same pixels.
"""

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@lru_cache(maxsize=4)
def _steps(shape: tuple[int, ...]) -> "tuple[NDArray[np.int8], NDArray[np.uint8]]":
    """Return the steps of the values, a third each way, and where in them each place of a picture begins."""
    import numpy as np  # here: every interpreter imports this file, and most need no array

    rng = np.random.default_rng(0)
    return rng.permutation(np.arange(256) % 3 - 1).astype(np.int8), rng.integers(0, 256, shape, dtype=np.uint8)


def noisy_pixels(pixels: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
    """Return a copy in which each value is one less, the same or one more."""
    steps, places = _steps(pixels.shape)
    return (pixels + steps.take(pixels + places)).clip(0, 255).astype(pixels.dtype)


def noisy_sums(sums: "NDArray[np.floating[Any]]") -> "NDArray[np.floating[Any]]":
    """Return each number an ulp lower or higher; whole numbers stay, for they are seldom rounded."""
    import numpy as np

    with np.errstate(invalid="ignore"):
        down = np.frexp(sums)[0] * 1024 % 2 < 1
        moved = np.nextafter(sums, np.where(down, -np.inf, np.inf).astype(sums.dtype))
        return np.where(sums == np.round(sums), sums, moved)


def _change_mujoco(mujoco: ModuleType) -> None:
    read_pixels = mujoco.mjr_readPixels

    def noisy_read(rgb: Any, *more: Any) -> None:
        read_pixels(rgb, *more)
        if rgb is not None:
            rgb[:] = noisy_pixels(rgb)

    mujoco.mjr_readPixels = noisy_read  # type: ignore[attr-defined]


def _change_av(av: ModuleType) -> None:
    reformatter = sys.modules["av.video.reformatter"]
    exact = reformatter.VideoReformatter  # it takes no subclass

    class NoisyReformatter:
        """Converts a frame of a video to RGB with noise."""

        def __init__(self) -> None:
            self.exact = exact()

        def reformat(self, frame: Any, **named: Any) -> Any:
            pixels = self.exact.reformat(frame, **named).to_ndarray()
            return av.VideoFrame.from_ndarray(noisy_pixels(pixels), format=named["format"])

    reformatter.VideoReformatter = NoisyReformatter  # type: ignore[attr-defined]


def _change_cv2(cv2: ModuleType) -> None:
    imdecode = cv2.imdecode

    def noisy_imdecode(data: Any, *more: Any, **named: Any) -> Any:
        pixels = imdecode(data, *more, **named)
        is_jpeg = bytes(data[:2]) == b"\xff\xd8"
        return noisy_pixels(pixels) if is_jpeg and pixels is not None else pixels

    cv2.imdecode = noisy_imdecode  # type: ignore[attr-defined]


def _change_onnxruntime(onnxruntime: ModuleType) -> None:
    session = onnxruntime.InferenceSession
    run = session.run

    def noisy_run(self: Any, *args: Any, **kwargs: Any) -> list[Any]:
        return [noisy_sums(each) if each.dtype.kind == "f" else each for each in run(self, *args, **kwargs)]

    session.run = noisy_run


def _change_progress(task_progress: ModuleType) -> None:
    import numpy as np

    progress_of = task_progress.progress_of
    task_progress.progress_of = lambda *args: float(noisy_sums(np.array(progress_of(*args))))  # type: ignore[attr-defined]


_CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "mujoco": _change_mujoco,
    "av": _change_av,
    "cv2": _change_cv2,
    "onnxruntime": _change_onnxruntime,
    "rewardlab.worlds.metaworld.task_progress": _change_progress,
}


class _NoisyFinder(MetaPathFinder):
    """Finds the libraries where they are, and changes each once it is loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        change = _CHANGES.pop(name, None)  # once: OpenCV imports itself while it is loaded
        spec = PathFinder.find_spec(name, path, target) if change else None
        if change is None or spec is None or spec.loader is None:
            return None
        load, changing = spec.loader.exec_module, change

        def exec_module(module: ModuleType) -> None:
            load(module)
            changing(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


for _name in [name for name in _CHANGES if name in sys.modules]:
    _CHANGES.pop(_name)(sys.modules[_name])
sys.meta_path.insert(0, _NoisyFinder())
