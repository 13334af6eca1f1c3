"""Offscreen OpenGL without a display: EGL where there is a GPU, OSMesa on a CPU, chosen once per process.

A GL context is current in one thread at a time, and scenes are changed and put back while they are drawn, so that all
rendering of a process happens in one thread of its own.
"""

import atexit
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import PlanError

HOW_TO_INSTALL = (
    "rendering without a display needs OSMesa on a CPU (Debian: apt-get install libosmesa6) "
    "or EGL on a GPU (Debian: apt-get install libegl1)"
)
_MAX_SIDE = 1024  # pixels of the largest frame
_THREAD = "rewardlab rendering"
Given = ParamSpec("Given")
Made = TypeVar("Made")


def in_rendering_thread(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """Return a function that runs in this process's rendering thread, whoever calls it, one call at a time."""

    @wraps(function)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        if threading.current_thread().name.startswith(_THREAD):
            return function(*args, **kwargs)
        thread, drawing = _rendering_thread(os.getpid())

        def draw() -> Made:
            with drawing:
                return function(*args, **kwargs)

        return thread.submit(draw).result()

    return called


@cache
def _rendering_thread(_process: int) -> tuple[ThreadPoolExecutor, threading.Lock]:
    """Return the thread of this process, and the lock that it holds while it draws.

    The number is the key of the cache, for a fork has no threads.
    """
    return ThreadPoolExecutor(1, _THREAD), threading.Lock()


@cache
def backend() -> str:
    """Return egl or osmesa: what MUJOCO_GL says, else EGL beside a GPU, else OSMesa; PlanError if neither is here."""
    requested = os.environ.get("MUJOCO_GL", "").lower()
    load_triton()
    if requested in ("egl", "osmesa"):
        return requested
    if _has_gpu() and _loads("libEGL.so.1"):
        return "egl"
    if _loads("libOSMesa.so.8", "libOSMesa.so.6"):
        return "osmesa"
    raise PlanError(f"no way to render was found: {HOW_TO_INSTALL}")


@cache
def load_triton() -> None:
    """Load the compiler of torch's CUDA builds, before OSMesa is loaded: in the other order the process crashes.

    Each brings an LLVM. MuJoCo loads OSMesa as soon as it is imported if MUJOCO_GL asks for it.
    """
    with suppress(ImportError):
        import_module("triton")


def make_current() -> None:
    """Make this process's one GL context the current one; a forked process makes its own."""
    _context(os.getpid()).make_current()


@cache
def _context(_process: int) -> Any:
    """Return the context of this process; the number is the key of the cache, so that no fork shares a context."""
    name = backend()
    try:
        make: Callable[[int, int], Any] = import_module(f"mujoco.{name}").GLContext
        context = make(_MAX_SIDE, _MAX_SIDE)
    except (ImportError, AttributeError, RuntimeError) as error:
        raise PlanError(f"{name} cannot be used here ({error}); {HOW_TO_INSTALL}") from error
    atexit.register(_free_context)
    return context


def _free_context() -> None:
    """Free the context while its library is still there, and after the last drawing: Ctrl-C ends no waiting here.

    Joining the thread would not do: Python counts a thread as ended whose join was interrupted.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _rendering_thread(os.getpid())[1].acquire()
    _context.cache_clear()


def _loads(*names: str) -> bool:
    """Tell whether one of these libraries is here; asking the loader also finds those on LD_LIBRARY_PATH."""
    for name in names:
        with suppress(OSError):
            ctypes.CDLL(name)
            return True
    return False


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*")) or any(Path("/dev/dri").glob("renderD*"))


# Where a camera sees a point. MuJoCo's free camera looks at a target from some degrees around and above it.


def seen_at(
    points: NDArray[np.float64],
    target: Sequence[float] | NDArray[np.float64],
    pose: tuple[float, float, float],
    fov: float,
) -> NDArray[np.float64]:
    """Return where points (..., 3) are in a square picture (..., 2): from -1 to 1, to the right and downwards.

    The pose is the azimuth and the elevation in degrees and the distance in metres.
    """
    around, above = np.radians(pose[:2])
    ahead = np.array([np.cos(above) * np.cos(around), np.cos(above) * np.sin(around), np.sin(above)])
    right = np.array([np.sin(around), -np.cos(around), 0.0])
    way = points - (np.asarray(target) - pose[2] * ahead)
    axes = np.stack([right, -np.cross(right, ahead)], axis=-1)
    return np.asarray(way @ axes / (way @ ahead * np.tan(np.radians(fov / 2)))[..., None])
