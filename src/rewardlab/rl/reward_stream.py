"""The reward of an episode while it runs, from a model's scores of the clip so far; needs no gymnasium."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from rewardlab.core.episode import Episode, FramePolicy, Frames, GrowingClip, is_success
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import Answer, Failure, familiarity_sentence
from rewardlab.data.video import frame_policy

RewardMode = Literal["final", "frame", "difference"]


@dataclass(eq=False)
class RewardStream:
    """One episode while it runs: frames and scores in, rewards out. `dataclasses.replace(stream)` starts the next one.

    Mode `final` gives one reward at the end of an episode, from 0 at level 1 to 1 at level 5. `frame` gives the
    progress at every step. `difference` gives the discounted difference of progress since the last step (Ng et al.,
    1999). A success adds the bonus once per episode. Between two scores, and where the model gives none, progress stays
    what it was.
    """

    instruction: str
    mode: RewardMode = "difference"
    success_bonus: float = 0.0
    every: int = 1  # steps between two scores
    discount: float = 1.0  # of `difference`
    fps: float = 10.0
    frames: str = "uniform:16"  # which of the frames that are kept the model sees, as `--frames`
    max_frames: int = 512  # of an episode that are kept, the first and the last among them
    progress: float = field(default=0.0, init=False)
    level: float | None = field(default=None, init=False)  # None before the first score
    abstained: int = field(default=0, init=False)
    unfamiliar: bool = field(default=False, init=False)  # the clip of the last score is unlike the model's training
    familiarity: str = field(default="", init=False)  # the same in words, empty where the model cannot tell
    _clip: GrowingClip = field(init=False)
    _policy: FramePolicy = field(init=False)
    _gave_bonus: bool = field(default=False, init=False)
    _before: float = field(default=0.0, init=False)  # progress after the last step

    def __post_init__(self) -> None:
        if not self.instruction.strip():
            raise PlanError("the reward needs an instruction: the task of the robot in words")
        if self.mode not in get_args(RewardMode):
            raise PlanError(f"mode must be one of {', '.join(get_args(RewardMode))}, got {self.mode!r}")
        if self.every < 1 or self.max_frames < 2 or not 0 < self.discount <= 1 or self.fps <= 0:
            raise PlanError("every must be 1 or more, max_frames 2 or more, discount in (0, 1] and fps above 0")
        self._clip = GrowingClip(self.fps, self.max_frames)
        self._policy = frame_policy(self.frames)

    def add(self, frame: Frames) -> None:
        """Add the frame of one step; the first one is that of the reset."""
        self._clip.append(frame)

    def is_due(self, *, ended: bool) -> bool:
        """Tell whether the clip is to be scored after this step."""
        return ended or (self.mode != "final" and (self._clip.count - 1) % self.every == 0)

    def episode(self) -> Episode:
        """Return the clip so far, as the model sees it."""
        return Episode("", self.instruction, self._clip.clip(self._policy))

    def update(self, answer: Answer) -> None:
        """Update level and progress from the model's answer; a Failure leaves both as they are."""
        if isinstance(answer, Failure):
            self.abstained += 1
            return
        self.level, self.unfamiliar = answer.level, answer.info.unfamiliar is True
        self.familiarity = familiarity_sentence(answer.info)
        self.progress = _from_level(answer.level) if answer.progress is None else float(answer.progress[-1])

    def reward(self, *, ended: bool) -> float:
        """Return the reward of this step."""
        before, self._before = self._before, self.progress
        if self.mode == "final":
            reward = _from_level(self.level) if ended and self.level is not None else 0.0
        elif self.mode == "frame":
            reward = self.progress
        else:
            reward = self.discount * self.progress - before
        if self._gave_bonus or not self.succeeded:
            return reward
        self._gave_bonus = True
        return reward + self.success_bonus

    @property
    def succeeded(self) -> bool:
        """Tell whether the last score is a success."""
        return self.level is not None and is_success(self.level)


def _from_level(level: float) -> float:
    return (level - 1) / 4
