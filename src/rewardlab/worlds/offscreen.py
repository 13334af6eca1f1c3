"""Offscreen OpenGL without a display: EGL where there is a GPU, OSMesa on a CPU, chosen once per process."""

import atexit
import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from rewardlab.core.errors import PlanError

HOW_TO_INSTALL = (
    "rendering without a display needs OSMesa on a CPU (Debian: apt-get install libosmesa6) "
    "or EGL on a GPU (Debian: apt-get install libegl1)"
)
_MAX_SIDE = 1024  # pixels of the largest frame


@cache
def backend() -> str:
    """Return egl or osmesa: what MUJOCO_GL says, else EGL beside a GPU, else OSMesa; PlanError if neither is here."""
    requested = os.environ.get("MUJOCO_GL", "").lower()
    if requested in ("egl", "osmesa"):
        return requested
    if _has_gpu() and _loads("libEGL.so.1"):
        return "egl"
    if _loads("libOSMesa.so.8", "libOSMesa.so.6"):
        return "osmesa"
    raise PlanError(f"no way to render was found: {HOW_TO_INSTALL}")


def make_current() -> None:
    """Make this process's one GL context the current one; a forked process makes its own."""
    _context(os.getpid()).make_current()


@cache
def _context(process: int) -> Any:
    """Return the context of this process; the number is the key of the cache, so that no fork shares a context."""
    name = backend()
    try:
        make: Callable[[int, int], Any] = import_module(f"mujoco.{name}").GLContext
        context = make(_MAX_SIDE, _MAX_SIDE)
    except (ImportError, AttributeError, RuntimeError) as error:
        raise PlanError(f"{name} cannot be used here ({error}); {HOW_TO_INSTALL}") from error
    atexit.register(_context.cache_clear)  # frees it while its library is still there
    return context


def _loads(*names: str) -> bool:
    """Tell whether one of these libraries is here; asking the loader also finds those on LD_LIBRARY_PATH."""
    for name in names:
        with suppress(OSError):
            ctypes.CDLL(name)
            return True
    return False


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*")) or any(Path("/dev/dri").glob("renderD*"))
