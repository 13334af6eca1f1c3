"""Models for the tests of serving."""

import threading
from collections.abc import Sequence

from rewardlab.core.episode import Episode
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo


class Recorder:
    """Answers by the number of frames, and remembers the size of every batch; `gate` holds it back."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        self.batches.append(len(episodes))
        self.entered.release()
        self.gate.wait()
        return [judge(episode) for episode in episodes]


class GatedByFile:
    """Waits until a file is there: the test in another process decides when it answers."""

    def __init__(self, path: str = "") -> None:
        self.path = path

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        from pathlib import Path

        Path(self.path + ".asked").touch()
        waiting = threading.Event()
        while not Path(self.path).exists():
            waiting.wait(0.01)
        return [judge(episode) for episode in episodes]


def judge(episode: Episode) -> Answer:
    """Return a level that follows from the number of frames."""
    if episode.instruction == "refuse":
        return Failure("no robot in sight", "hm")
    count = len(episode.frames)
    level = 1 + count % 5
    probs = tuple(0.8 if each == level else 0.05 for each in range(1, 6))
    info = ScoreInfo(prediction_set=(4, 5), novelty=0.25)
    return Score(float(level), probs, tuple(i / count for i in range(count)), info=info)
