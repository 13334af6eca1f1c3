"""Limits on everything that comes from outside: each has a default and an environment variable that changes it.

Worker processes inherit the environment, so a limit holds in every process of a run.
"""

import os
import re
from dataclasses import dataclass

from rewardlab.core.errors import PlanError


@dataclass(frozen=True)
class Limit:
    """The most of something that is taken in; `variable` is the environment variable that sets another number."""

    variable: str
    default: int
    meaning: str

    @property
    def value(self) -> int:
        """Return the number that holds in this process."""
        text = os.environ.get(self.variable, "").strip()
        if not text:
            return self.default
        if not re.fullmatch("0*[1-9][0-9]{0,17}", text):
            raise PlanError(f"{self.variable} must be a whole number above 0, got {text[:40]!r}")
        return int(text)

    @property
    def in_bytes(self) -> int:
        """Return the number that holds in bytes, for a limit in MB."""
        return self.value * 1_000_000

    def describe(self, unit: str = "") -> str:
        """Return the limit and how to raise it, to end a sentence with."""
        return f"at most {self.value:,}{unit} are taken in; set {self.variable} to take more"


CLIP_MB = Limit("REWARDLAB_MAX_CLIP_MB", 200, "decoded frames of one clip that are held at once, in MB")
CLIP_FRAMES = Limit("REWARDLAB_MAX_CLIP_FRAMES", 100_000, "frames of one video")
FRAME_PIXELS = Limit("REWARDLAB_MAX_FRAME_PIXELS", 1920 * 1200, "pixels of one frame of a video")
VIDEO_PIXELS = Limit("REWARDLAB_MAX_VIDEO_PIXELS", 20_000_000_000, "pixels of all frames of one video together")
VIDEO_MB = Limit("REWARDLAB_MAX_VIDEO_MB", 500, "a video file, in MB")
RECORD_MB = Limit("REWARDLAB_MAX_RECORD_MB", 1_000, "one episode of a TFRecord file, in MB")
TABLE_MB = Limit("REWARDLAB_MAX_TABLE_MB", 1_000, "columns read of one Parquet file of a dataset, in MB of memory")
ROWS = Limit("REWARDLAB_MAX_ROWS", 1_000_000, "rows of a dataset")
ROW_BYTES = Limit("REWARDLAB_MAX_ROW_BYTES", 4_000_000, "bytes of one row of a dataset")
INSTRUCTION_CHARACTERS = Limit("REWARDLAB_MAX_INSTRUCTION_CHARACTERS", 10_000, "characters of an instruction")
ANSWER_CHARACTERS = Limit("REWARDLAB_MAX_ANSWER_CHARACTERS", 100_000, "characters of what a model says in one answer")
BODY_MB = Limit("REWARDLAB_MAX_BODY_MB", 8, "body of a server's answer, in MB")
REQUEST_MB = Limit("REWARDLAB_MAX_REQUEST_MB", 64, "body of a request to `rewardlab serve`, in MB")
REQUEST_SECONDS = Limit("REWARDLAB_MAX_REQUEST_SECONDS", 30, "seconds within which a request must have arrived")
SERVER_MB = Limit("REWARDLAB_MAX_SERVER_MB", 1_000, "requests and sessions that `rewardlab serve` holds at once, in MB")
VERDICT_BYTES = Limit("REWARDLAB_MAX_VERDICT_BYTES", 16_384, "bytes of a request to `rewardlab data verify`")
JSON_MB = Limit("REWARDLAB_MAX_JSON_MB", 64, "a JSON file of a run, in MB")
TRIALS_MB = Limit("REWARDLAB_MAX_TRIALS_MB", 1_000, "trials in one Parquet file of a run, in MB of memory")
JSON_DEPTH = Limit("REWARDLAB_MAX_JSON_DEPTH", 64, "objects and lists inside each other in JSON")
NUMBER_DIGITS = Limit("REWARDLAB_MAX_NUMBER_DIGITS", 40, "digits of a whole number in JSON")

LIMITS = tuple(each for each in vars().values() if isinstance(each, Limit))
