"""A reward model that kills the process it is in, unless it is told to be asleep."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from rewardlab.core.episode import Episode
from rewardlab.core.trial import Answer, Score


@dataclass(frozen=True)
class KillsItsProcess:
    """Kills its process when it is asked."""

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return a level, or nothing ever again."""
        if os.environ.get("TINY_KILLER") != "asleep":
            os.kill(os.getpid(), signal.SIGKILL)
        return [Score(3.0) for _ in episodes]
