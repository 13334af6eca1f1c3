"""A clip that grows step by step, and the reward that a model's answers make of it."""

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from rewardlab.core.episode import Episode, Frames, in_memory, whole_clip
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.trial import Answer, Failure

RewardMode = Literal["final", "frame", "difference"]

_SUCCESS_FROM = 4.5  # a level rounds to a success from here on


@dataclass(frozen=True)
class RewardSettings:
    """What the model is asked, how often, and what its answers pay.

    `final` pays once, at the end of an episode, from 0 at level 1 to 1 at level 5. `frame` pays the progress at every
    step. `difference` pays the discounted difference of progress since the last step (Ng et al., 1999). A success pays
    the bonus once per episode. Between two questions, and where the model abstains, progress stays what it was.
    """

    instruction: str
    mode: RewardMode = "difference"
    success_bonus: float = 0.0
    every: int = 1  # steps between two questions
    discount: float = 1.0  # of `difference`
    fps: float = 10.0
    image_key: str = ""  # the frame in a dict of observations; without it the environment renders
    most_frames: int = 512  # of an episode that are kept; in a longer one every second frame is let go

    def __post_init__(self) -> None:
        if not self.instruction.strip():
            raise PlanError("the wrapper needs an instruction: what the robot is asked to do")
        if self.mode not in get_args(RewardMode):
            raise PlanError(f"mode must be one of {', '.join(get_args(RewardMode))}, got {self.mode!r}")
        if self.every < 1 or self.most_frames < 2 or not 0 < self.discount <= 1 or self.fps <= 0:
            raise PlanError("every must be 1 or more, most_frames 2 or more, discount in (0, 1] and fps above 0")


@dataclass(eq=False)
class RewardStream:
    """One episode as it goes on; everything that is paid for it comes from here."""

    settings: RewardSettings
    progress: float = 0.0
    level: float | None = None  # None as long as the model has not answered
    abstained: int = 0
    _frames: list[Frames] = field(default_factory=list)
    _stride: int = 1
    _steps: int = -1
    _paid_bonus: bool = False
    _before: float = 0.0

    def add(self, frame: Frames) -> None:
        """Take the frame of one step; the first one is that of the reset."""
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[-1] != 3:
            raise DataError(f"a frame must be uint8 of shape (H, W, 3), got {frame.dtype} {frame.shape}")
        self._steps += 1
        if self._steps % self._stride == 0:
            self._frames.append(frame)
        if len(self._frames) > self.settings.most_frames:
            self._frames, self._stride = self._frames[::2], 2 * self._stride

    def is_due(self, *, ended: bool) -> bool:
        """Tell whether the model is asked after this step."""
        return ended or (self.settings.mode != "final" and self._steps % self.settings.every == 0)

    def episode(self) -> Episode:
        """Return the clip so far."""
        fps = self.settings.fps / self._stride
        return Episode("", self.settings.instruction, whole_clip(in_memory(np.stack(self._frames)), fps))

    def take(self, answer: Answer) -> None:
        """Note what the model said; where it gave no answer, what it said before stays."""
        if isinstance(answer, Failure):
            self.abstained += 1
            return
        self.level = answer.level
        self.progress = _share(answer.level) if answer.progress is None else float(answer.progress[-1])

    def pay(self, *, ended: bool) -> float:
        """Return the reward of this step."""
        before, self._before = self._before, self.progress
        if self.settings.mode == "final":
            reward = _share(self.level) if ended and self.level is not None else 0.0
        elif self.settings.mode == "frame":
            reward = self.progress
        else:
            reward = self.settings.discount * self.progress - before
        return reward + self._bonus()

    @property
    def succeeded(self) -> bool:
        """Tell whether the model's last answer is a success."""
        return self.level is not None and self.level >= _SUCCESS_FROM

    def _bonus(self) -> float:
        if self._paid_bonus or not self.succeeded:
            return 0.0
        self._paid_bonus = True
        return self.settings.success_bonus


def _share(level: float) -> float:
    return (level - 1) / 4
