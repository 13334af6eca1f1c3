"""CLIP, SigLIP and SigLIP 2: the reward of a frame is its similarity to the instruction, as in VLM-RM."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab.core.episode import Episode, Frames, fingerprint_frames
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Answer, Score
from rewardlab.models.backends.checkpoint import (
    check_hardware,
    check_kind,
    choose_device,
    choose_dtype,
    identify_weights,
    loaded,
)
from rewardlab.models.backends.level_map import UNCALIBRATED, Floats, LevelMap, read_level_map
from rewardlab.models.backends.lru_cache import Shelf
from rewardlab.models.contract import Budget, ModelEntry
from rewardlab.models.model_string import read_options

KINDS = ("clip", "siglip")  # SigLIP 2 of a fixed resolution calls itself siglip
_FRAMES_AT_ONCE = 64
_KEPT_BYTES = 256 * 2**20  # embeddings kept for frames and texts that come again


@dataclass(frozen=True)
class ContrastiveOptions:
    """What stands after the ? of `contrastive:PATH_OR_ID?baseline=a robot arm on a table&alpha=0.5`."""

    baseline: str = ""  # VLM-RM's description of the scene without the goal; "" for plain similarity
    alpha: float = 0.5  # how much of what does not lie between baseline and goal is left out
    levels: str = ""  # JSON file of a level map; "" for 3 + 2 * similarity, which is only an order
    dtype: str = "auto"
    device: str = "auto"
    revision: str = "main"  # of a hub id

    def __post_init__(self) -> None:
        check_hardware(self.dtype, self.device)
        if not 0 <= self.alpha <= 1:
            raise PlanError(f"option alpha must be from 0 to 1, got {self.alpha:g}")


class Encoder:
    """Turns frames and texts into unit vectors of one space; what comes again is not encoded again."""

    def __init__(self, model: Any, tokenizer: Any, processor: Any) -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.processor = processor
        self.kept: Shelf[Floats] = Shelf(_KEPT_BYTES)

    def frames(self, frames: Frames) -> Floats:
        """Return one unit vector per frame."""
        names = [f"frame {fingerprint_frames(frame)}" for frame in frames]
        return self._vectors(names, list(frames), self._see)

    def texts(self, texts: Sequence[str]) -> Floats:
        """Return one unit vector per text."""
        return self._vectors([f"text {text}" for text in texts], texts, self._read)

    def _vectors(self, names: Sequence[str], things: Sequence[Any], encode: Callable[[Sequence[Any]], Any]) -> Floats:
        import torch

        found = {name: self.kept.take(name) for name in names}
        missing = {name: thing for name, thing in zip(names, things) if found[name] is None}
        for start in range(0, len(missing), _FRAMES_AT_ONCE):
            some = list(missing)[start : start + _FRAMES_AT_ONCE]
            with torch.inference_mode():
                vectors = torch.nn.functional.normalize(encode([missing[name] for name in some]).double(), dim=-1)
            for name, vector in zip(some, vectors.cpu().numpy()):
                found[name] = vector
                self.kept.put(name, vector, vector.nbytes)
        return np.stack([vector for name in names if (vector := found[name]) is not None])

    def _see(self, frames: Sequence[Frames]) -> Any:
        pixels = self.processor(images=list(frames), return_tensors="pt", input_data_format="channels_last")
        pixels["pixel_values"] = pixels["pixel_values"].to(self.model.dtype)
        return self.model.get_image_features(**pixels.to(self.model.device)).pooler_output

    def _read(self, texts: Sequence[str]) -> Any:
        """Encode texts as in training: SigLIP reads lower case, padded to the full length, without a mask."""
        if self.model.config.model_type == "clip":
            tokens = self._tokens(texts, padding=True)
            return self.model.get_text_features(**tokens).pooler_output
        tokens = self._tokens([text.lower() for text in texts], padding="max_length")
        return self.model.get_text_features(tokens["input_ids"]).pooler_output

    def _tokens(self, texts: Sequence[str], padding: bool | str) -> Any:
        """Return the tokens of texts, cut at the model's length; text that spells out a special token stays text."""
        most = self.model.config.text_config.max_position_embeddings
        tokens = self.tokenizer(
            list(texts),
            padding=padding,
            truncation=True,
            max_length=most,
            split_special_tokens=True,
            return_tensors="pt",
        )
        return tokens.to(self.model.device)


@dataclass(frozen=True)
class Contrastive:
    """Rewards each frame by its similarity to the instruction; the last frame decides the level."""

    encoder: Encoder
    baseline: str
    alpha: float
    level_map: LevelMap

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return a level and the reward of every frame, as progress, per episode."""
        return [self._one(episode) for episode in episodes]

    def _one(self, episode: Episode) -> Score:
        seen = self.encoder.frames(episode.frames)
        goal, *baseline = self.encoder.texts([episode.instruction, *([self.baseline] if self.baseline else [])])
        rewards = goal_rewards(seen, goal, baseline[0], self.alpha) if baseline else seen @ goal
        return Score(self.level_map.level(rewards[-1]), progress=tuple(rewards.tolist()))


def goal_rewards(seen: Floats, goal: Floats, baseline: Floats, alpha: float) -> Floats:
    """Return VLM-RM's reward 1 - |a p + (1 - a) s - g|^2 / 2 per unit vector s; p is s laid onto the line b to g.

    Rocamonde et al., Vision-Language Models are Zero-Shot Reward Models for Reinforcement Learning, section 3.2.
    """
    line = goal - baseline
    away = seen - goal
    along = np.outer(away @ line, line) / max(float(line @ line), np.finfo(float).tiny)
    left = alpha * along + (1 - alpha) * away
    rewards: Floats = 1 - np.sum(left**2, axis=1) / 2
    return rewards


def _identify(argument: str) -> str:
    place, options = read_options(argument, ContrastiveOptions())
    weights = identify_weights(place, options.revision, KINDS)
    return digest(weights, repr(_level_map(options)))


def _level_map(options: ContrastiveOptions) -> LevelMap:
    return read_level_map(Path(options.levels).expanduser()) if options.levels else UNCALIBRATED


def _build(argument: str, budget: Budget) -> Contrastive:
    place, options = read_options(argument, ContrastiveOptions())
    level_map = _level_map(options)
    encoder = loaded(place, lambda found: _load(found, options))
    return Contrastive(encoder, options.baseline, options.alpha, level_map)


def _load(place: str, options: ContrastiveOptions) -> Encoder:
    import transformers

    revision, device = options.revision, choose_device(options.device)
    check_kind(transformers.AutoConfig.from_pretrained(place, revision=revision).model_type, KINDS, place)
    dtype = choose_dtype(options.dtype, device)
    model = transformers.AutoModel.from_pretrained(place, revision=revision, dtype=dtype)
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, revision=revision)
    processor = transformers.AutoImageProcessor.from_pretrained(place, revision=revision, backend="pil")
    return Encoder(model.to(device), tokenizer, processor)


CONTRASTIVE = {
    "contrastive": ModelEntry(
        "CLIP, SigLIP or SigLIP 2: similarity of each frame to the instruction; contrastive:FOLDER or ORG/NAME; "
        "levels are an order unless calibrated; needs the extra hf",
        _build,
        identify=_identify,
        one_copy=True,
    ),
}
