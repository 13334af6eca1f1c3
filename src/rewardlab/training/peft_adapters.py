"""LoRA adapters by peft, which is loaded when a model is given some."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rewardlab.core.errors import PlanError


@contextmanager
def loaded_peft(need: str) -> Iterator[Any]:
    """Give the module; PlanError says the need where it is not installed.

    It asks transformers of 5.23 and later by a name that these are giving up, about which nobody here can do anything.
    """
    try:
        import peft
    except ImportError:
        raise PlanError(f"{need}; install it with pip install 'rewardlab[vlm-train]'") from None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        yield peft
