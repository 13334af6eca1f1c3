"""The reward of an episode: the truth of the simulator, any model, or a head that the study trains."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rewardlab.core.episode import LEVELS, Episode, is_success, strip_labels
from rewardlab.core.errors import NotApplicable, PlanError, RunError
from rewardlab.core.seeding import pick, rng_for
from rewardlab.core.storage import atomic_write
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models import name_model
from rewardlab.models.composite import build_model, validated_answers
from rewardlab.models.contract import Budget, RewardModel
from rewardlab.models.pocket import WEIGHTS
from rewardlab.models.pocket.inference import PocketRewardModel, open_pocket
from rewardlab.rl.rendering import Condition, WatchSettings, clean_clip, watch
from rewardlab.rl.rollouts import Control, PolicyEpisode
from rewardlab.worlds.metaworld.physics import simulate
from rewardlab.worlds.metaworld.policies import POLICIES, make_policy

TRUE = "true"
HEAD = "head:"
Watched = Episode | Failure  # a clip as the reward model sees it, or why there is none
HeadKind = Literal["binary", "progress", "levels"]
Numbers = NDArray[np.float32]


@dataclass(frozen=True)
class RewardValue:
    """The reward of one episode, from 0 to 1, and the level behind it; without a score both are None, with a reason."""

    reward: float | None
    level: float | None = None
    reason: str = ""

    @property
    def called_success(self) -> bool:
        """Tell whether the reward calls the episode a success."""
        return self.level is not None and is_success(self.level)


class EpisodeReward(Protocol):
    """Computes the reward of episodes; `seconds` is the time spent so far."""

    seconds: float

    def compute(self, episodes: Sequence[PolicyEpisode]) -> list[RewardValue]:
        """Return one value per episode, in order."""


@dataclass
class TrueReward:
    """1 where the simulator reports success at the end, else 0."""

    seconds: float = 0.0

    def compute(self, episodes: Sequence[PolicyEpisode]) -> list[RewardValue]:
        """Return the true binary reward of each episode."""
        levels = [5.0 if e.success else float(e.trajectory.readings[-1].level) for e in episodes]
        return [RewardValue(float(e.success), level) for e, level in zip(episodes, levels, strict=True)]


@dataclass
class ModelEpisodeReward:
    """The score of a reward model, from 0 at level 1 to 1 at level 5."""

    model: RewardModel
    sees_truth: bool
    settings: WatchSettings
    condition: Condition
    seed: int
    seconds: float = 0.0

    def compute(self, episodes: Sequence[PolicyEpisode]) -> list[RewardValue]:
        """Render the episodes and return the reward of each; where the model gives no score, the reason."""
        started = time.perf_counter()
        values = self.score(watched_clips(episodes, self.settings, self.condition, self.seed))
        self.seconds += time.perf_counter() - started
        return values

    def score(self, watched: Sequence[Watched]) -> list[RewardValue]:
        """Return the rewards of clips that are rendered already."""
        clips = [clip for clip in watched if isinstance(clip, Episode)]
        shown = clips if self.sees_truth else [strip_labels(clip) for clip in clips]
        answers = iter(validated_answers(self.model, shown) if shown else ())
        found = [next(answers) if isinstance(clip, Episode) else clip for clip in watched]
        return [
            RewardValue(None, reason=answer.reason)
            if isinstance(answer, Failure)
            else RewardValue((answer.level - 1) / 4, answer.level)
            for answer in found
        ]


def watched_clips(
    episodes: Sequence[PolicyEpisode], settings: WatchSettings, condition: Condition, seed: int
) -> list[Watched]:
    """Return the episodes as a reward model sees them under a condition."""
    watched: list[Watched] = []
    for episode in episodes:
        try:
            watched.append(watch(episode.trajectory, settings, condition, seed))
        except NotApplicable as error:
            watched.append(Failure(f"{condition.name} does not apply: {error}"))
    return watched


def open_reward(name: str, heads: Path, settings: WatchSettings, condition: Condition, seed: int) -> EpisodeReward:
    """Return the reward of a name: `true`, `head:KIND@STEP` of the study's own heads, or any model string."""
    if name == TRUE:
        return TrueReward()
    if name.startswith(HEAD):
        return ModelEpisodeReward(open_head(name, heads), False, settings, condition, seed)
    named = name_model(name)
    return ModelEpisodeReward(build_model(named, Budget()), named.sees_truth, settings, condition, seed)


@dataclass(frozen=True)
class HeadSettings:
    """Training of the heads; the weights at each checkpoint are kept, as rewards of graded quality."""

    episodes: int = 80  # of each task
    frames: int = 4
    hidden: int = 64
    steps: int = 600
    batch: int = 64
    rate: float = 1e-3
    checkpoints: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if min(self.episodes, self.hidden, self.steps, self.batch) < 1 or self.frames < 2 or self.rate <= 0:
            raise PlanError("episodes, hidden, steps and batch of heads must be at least 1, frames 2, rate above 0")
        if any(not 0 < step < self.steps for step in self.checkpoints):
            raise PlanError(f"checkpoints of heads lie between 0 and their {self.steps} steps, got {self.checkpoints}")


@dataclass(frozen=True, eq=False)
class LabelledClips:
    """Clips as the heads see them, with what is true of each."""

    tokens: Numbers  # (clips, frames, tokens * width)
    words: Numbers  # (clips, words)
    success: Numbers
    progress: Numbers
    levels: NDArray[np.int64]


class RewardHead(nn.Module):
    """Maps the tokens of some frames and the words of the instruction to one or five logits."""

    def __init__(self, frames: int, tokens: int, words: int, hidden: int, kind: HeadKind) -> None:
        super().__init__()
        self.kind, self.words = kind, words
        self.project = nn.Linear(tokens, hidden)
        self.mlp = nn.Sequential(
            nn.Linear(frames * hidden + words, hidden), nn.SiLU(), nn.Linear(hidden, 5 if kind == "levels" else 1)
        )

    def forward(self, tokens: Tensor, words: Tensor) -> Tensor:
        """Return logits, (clips, 1) or (clips, 5)."""
        frames = nn.functional.silu(self.project(tokens)).flatten(1)
        logits: Tensor = self.mlp(torch.cat([frames, words], dim=1))
        return logits

    def loss(self, logits: Tensor, clips: LabelledClips, rows: Tensor) -> Tensor:
        """Return the loss of its own kind of label."""
        if self.kind == "levels":
            return nn.functional.cross_entropy(logits, torch.as_tensor(clips.levels)[rows] - 1)
        wanted = torch.as_tensor(clips.success if self.kind == "binary" else clips.progress)[rows]
        return nn.functional.binary_cross_entropy_with_logits(logits[:, 0], wanted)


@dataclass(frozen=True, eq=False)
class HeadModel:
    """A RewardModel: the image encoder of pocket, and a head on top of it."""

    encoder: PocketRewardModel
    head: RewardHead
    frames: int

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return 1 or 5 from a head of success, 1 + 4 p from one of progress, else the likeliest level."""
        tokens, words = encode_clips(self.encoder, episodes, self.frames)
        with torch.no_grad():
            logits = self.head(torch.as_tensor(tokens), torch.as_tensor(words))
        return [_score(self.head.kind, row) for row in logits]


def encode_clips(encoder: PocketRewardModel, episodes: Sequence[Episode], frames: int) -> tuple[Numbers, Numbers]:
    """Return the tokens of evenly chosen frames of each clip, and the mean word vector of each instruction."""
    shown = [episode.frames for episode in episodes]
    picked = [clip[np.linspace(0, len(clip) - 1, frames).round().astype(int)] for clip in shown]
    tokens = np.stack([clip.reshape(frames, -1) for clip in encoder.encode_frames(picked)])
    vectors, words = encoder.vocabulary.vectors, list[Numbers]()
    for episode in episodes:
        ids = encoder.vocabulary.piece_ids(episode.instruction)
        known = vectors[ids[ids >= 0]]
        words.append(np.asarray(known.mean(axis=0) if len(known) else np.zeros(vectors.shape[1]), np.float32))
    return tokens.astype(np.float32), np.stack(words)


def collect_clips(
    task: str, settings: HeadSettings, control: Control, watched: WatchSettings, seed: int
) -> LabelledClips:
    """Simulate, render and encode episodes of every quality of one task."""
    encoder, names = open_encoder(), list(POLICIES)
    clips: list[Episode] = []
    for index in range(settings.episodes):
        rng = rng_for(seed, "head", task, index)
        scene = int(rng.integers(2**31))
        policy = make_policy(pick(names, rng), task, scene)
        clips.append(clean_clip(simulate(task, scene, control.steps, policy), watched, seed))
    encoded = [encode_clips(encoder, [clip], settings.frames) for clip in clips]
    tokens, words = (np.concatenate(part) for part in zip(*encoded, strict=True))
    truths = [clip.label for clip in clips]
    success = np.array([bool(truth.success) for truth in truths], np.float32)
    progress = np.array([(truth.progress or (0.0,))[-1] for truth in truths], np.float32)
    return LabelledClips(tokens, words, success, progress, np.array([int(truth.level or 1) for truth in truths]))


def join_clips(parts: Sequence[LabelledClips]) -> LabelledClips:
    """Return the clips of several tasks as one set."""
    names = ("tokens", "words", "success", "progress", "levels")
    return LabelledClips(*(np.concatenate([vars(part)[name] for part in parts]) for name in names))


def train_head(kind: HeadKind, clips: LabelledClips, settings: HeadSettings, folder: Path, seed: int) -> None:
    """Train one head and write its weights at every checkpoint; all kinds see the same clips in the same order."""
    torch.set_num_threads(1)
    torch.manual_seed(int(rng_for(seed, "reward head").integers(2**31)))
    head = RewardHead(settings.frames, clips.tokens.shape[2], clips.words.shape[1], settings.hidden, kind)
    optimizer = torch.optim.AdamW(head.parameters(), lr=settings.rate, weight_decay=1e-2)
    tokens, words = torch.as_tensor(clips.tokens), torch.as_tensor(clips.words)
    keep = {0, *settings.checkpoints}
    for step in range(settings.steps):
        if step in keep:
            _save(head, settings, folder / f"{kind}@{step}.pt")
        rows = torch.randint(len(words), (settings.batch,))
        loss = head.loss(head(tokens[rows], words[rows]), clips, rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _save(head, settings, last_head(kind, folder))


def parse_head(name: str) -> tuple[HeadKind, int | None]:
    """Return kind and step of `head:KIND@STEP`; no step for `head:KIND`, which is the last."""
    kind, _, step = name.removeprefix(HEAD).partition("@")
    if kind not in get_args(HeadKind) or not (step or "0").isdigit():
        raise PlanError(f"a head is head:KIND or head:KIND@STEP with KIND of {get_args(HeadKind)}, got {name!r}")
    return kind, int(step) if step else None  # type: ignore[return-value]


def open_head(name: str, folder: Path) -> HeadModel:
    """Return the head of a name from the folder of the study that trained it."""
    path = folder / f"{name.removeprefix(HEAD)}.pt"
    try:
        state = torch.load(path, weights_only=True)
        tokens = state["head"]["project.weight"].shape[1]
        head = RewardHead(state["frames"], tokens, state["words"], state["hidden"], parse_head(name)[0])
        head.load_state_dict(state["head"])
    except Exception as error:  # torch has many errors for a file that is not what it was
        raise RunError(f"{path} holds no reward head ({error}); remove it to train it again") from error
    return HeadModel(open_encoder(), head, state["frames"])


def last_head(kind: HeadKind, folder: Path) -> Path:
    """Return the file of the final weights of a kind, which is written after all its checkpoints."""
    return folder / f"{kind}.pt"


def open_encoder() -> PocketRewardModel:
    """Return the model whose image encoder is the backbone of every head."""
    return open_pocket(WEIGHTS / "pocket")


def _save(head: RewardHead, settings: HeadSettings, path: Path) -> None:
    shape = {"frames": settings.frames, "words": head.words, "hidden": settings.hidden}
    with atomic_write(path) as partial:
        torch.save({"head": head.state_dict(), **shape}, partial)


def _score(kind: HeadKind, logits: Tensor) -> Score:
    if kind == "levels":
        probs = torch.softmax(logits.double(), dim=0).numpy()
        return Score(float(LEVELS[int(probs.argmax())]), tuple((probs / probs.sum()).tolist()))
    share = float(torch.sigmoid(logits[0]))
    return Score(1 + 4 * (float(share >= 0.5) if kind == "binary" else share))
