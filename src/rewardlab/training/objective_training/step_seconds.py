"""How long each step of a comparison took, added up over all runs into its folder."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rewardlab.core.bounded_json import read_json
from rewardlab.core.run import atomic_write


@contextmanager
def timed(out: Path, step: str) -> Iterator[None]:
    """Add the seconds of a step to those that are written down; what was there already took none."""
    started = time.monotonic()
    yield
    path = out / "seconds.json"
    seconds = dict(read_seconds(out))
    seconds[step] = round(seconds.get(step, 0.0) + time.monotonic() - started, 2)
    with atomic_write(path) as partial:
        partial.write_text(json.dumps(seconds) + "\n", encoding="utf-8")


def read_seconds(out: Path) -> Mapping[str, float]:
    """Return how long each step has taken so far."""
    path = out / "seconds.json"
    return {name: float(value) for name, value in read_json(path).items()} if path.exists() else {}
