"""What an episode pays: the simulator's truth, or what a model makes of what it watches; once, at the end."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rewardlab.core.episode import Episode, strip_labels
from rewardlab.core.errors import NotApplicable
from rewardlab.core.trial import Answer, Failure
from rewardlab.models import name_model
from rewardlab.models.composite import build_model, validated_answers
from rewardlab.models.contract import Budget, RewardModel
from rewardlab.rl.reward_heads import HEAD, open_head
from rewardlab.rl.rollouts import PolicyEpisode
from rewardlab.rl.watched_clip import Condition, WatchSettings, watch

TRUE = "true"
SUCCESS_FROM = 4.5  # a level rounds to a success from here on
Watched = Episode | Failure  # a clip, or why there is none


@dataclass(frozen=True)
class Payment:
    """What one episode pays, from 0 to 1, and the level behind it; no reward and a reason where a model is silent."""

    reward: float | None
    level: float | None = None
    reason: str = ""

    @property
    def called_success(self) -> bool:
        """Tell whether the reward calls the episode a success."""
        return self.level is not None and self.level >= SUCCESS_FROM


class EpisodeReward(Protocol):
    """Pays episodes; `seconds` is what it has taken so far."""

    seconds: float

    def pay(self, episodes: Sequence[PolicyEpisode]) -> list[Payment]:
        """Return one payment per episode, in order."""


@dataclass
class TrueReward:
    """Pays 1 where the simulator reports success at the end, else 0."""

    seconds: float = 0.0

    def pay(self, episodes: Sequence[PolicyEpisode]) -> list[Payment]:
        """Return the true binary reward of each episode."""
        return [Payment(float(e.success), 5.0 if e.success else float(_level(e))) for e in episodes]


@dataclass
class ModelReward:
    """Pays what a model says of the episodes it watches, from 0 at level 1 to 1 at level 5."""

    model: RewardModel
    sees_truth: bool
    settings: WatchSettings
    condition: Condition
    seed: int
    seconds: float = 0.0

    def pay(self, episodes: Sequence[PolicyEpisode]) -> list[Payment]:
        """Return what the model says of each episode; a silent model pays nothing, and says why."""
        started = time.perf_counter()
        paid = self.judge(watched_clips(episodes, self.settings, self.condition, self.seed))
        self.seconds += time.perf_counter() - started
        return paid

    def judge(self, watched: Sequence[Watched]) -> list[Payment]:
        """Return what the model says of clips that are watched already."""
        clips = [clip for clip in watched if isinstance(clip, Episode)]
        asked = clips if self.sees_truth else [strip_labels(clip) for clip in clips]
        answers = iter(validated_answers(self.model, asked)) if asked else iter(())
        return [_payment(next(answers) if isinstance(clip, Episode) else clip) for clip in watched]


def watched_clips(
    episodes: Sequence[PolicyEpisode], settings: WatchSettings, condition: Condition, seed: int
) -> list[Watched]:
    """Return the episodes as a model watches them in a world."""
    return [_watched(episode, settings, condition, seed) for episode in episodes]


def _watched(episode: PolicyEpisode, settings: WatchSettings, condition: Condition, seed: int) -> Watched:
    try:
        return watch(episode.trajectory, settings, condition, seed)
    except NotApplicable as error:
        return Failure(f"{condition.name} does not apply: {error}")


def open_reward(name: str, heads: Path, settings: WatchSettings, condition: Condition, seed: int) -> EpisodeReward:
    """Return the reward of a name: `true`, `head:KIND@STEP` of the run's own heads, or any model string."""
    if name == TRUE:
        return TrueReward()
    if name.startswith(HEAD):
        return ModelReward(open_head(name, heads), False, settings, condition, seed)
    named = name_model(name)
    return ModelReward(build_model(named, Budget()), named.sees_truth, settings, condition, seed)


def _payment(answer: Answer) -> Payment:
    if isinstance(answer, Failure):
        return Payment(None, reason=answer.reason)
    return Payment((answer.level - 1) / 4, answer.level)


def _level(episode: PolicyEpisode) -> int:
    return episode.trajectory.readings[-1].level
