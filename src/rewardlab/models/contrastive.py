"""`contrastive:`: CLIP, SigLIP or a trained pair; similarity of each frame to the instruction."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from rewardlab.core.episode import Episode, Frames, fingerprint_frames
from rewardlab.core.errors import PlanError
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Score
from rewardlab.models.backends import checkpoint
from rewardlab.models.calibration import UNCALIBRATED, Floats, LevelMap, read_level_map
from rewardlab.models.contract import (
    Budget,
    ModelEntry,
    ModelString,
    NamedModel,
    all_settings,
    canonical_name,
    identity,
    read_arguments,
    shown_options,
)
from rewardlab.models.vlm import LRUCache

if TYPE_CHECKING:
    from rewardlab.models.projected_pair import ProjectedPair

CLIP_TYPES = ("clip", "siglip")  # SigLIP 2 of a fixed resolution calls itself siglip


class ClipPair:
    """A model of transformers with its tokenizer and image processor."""

    def __init__(self, model: Any, tokenizer: Any, processor: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.processor = processor

    def image_features(self, frames: Sequence[Frames]) -> Any:
        """Return one vector per frame."""
        return self.embed_pixels(self.pixels(frames))

    def text_features(self, texts: Sequence[str]) -> Any:
        """Return one vector per text."""
        return self.embed_tokens(**self.tokens(texts))

    def pixels(self, frames: Sequence[Frames]) -> Any:
        """Return frames as the model takes them."""
        made = self.processor(images=list(frames), return_tensors="pt", input_data_format="channels_last")
        return made["pixel_values"].to(self.model.device, self.model.dtype)

    def embed_pixels(self, pixels: Any) -> Any:
        """Return one vector per picture."""
        return self.model.get_image_features(pixel_values=pixels).pooler_output

    def embed_tokens(self, input_ids: Any, attention_mask: Any) -> Any:
        """Return one vector per row of tokens; SigLIP reads without a mask, as in its training."""
        mask = {"attention_mask": attention_mask} if self.model.config.model_type == "clip" else {}
        return self.model.get_text_features(input_ids, **mask).pooler_output

    def tokens(self, texts: Sequence[str], *, whole_length: bool = False) -> dict[str, Any]:
        """Return tokens and their mask, cut at the model's length; text that spells out a special token stays text.

        SigLIP reads lower case, padded to the full length, as in its training; so is CLIP where it is asked for.
        """
        siglip = self.model.config.model_type != "clip"
        made = self.tokenizer(
            [text.lower() for text in texts] if siglip else list(texts),
            padding="max_length" if siglip or whole_length else True,
            truncation=True,
            max_length=self.model.config.text_config.max_position_embeddings,
            split_special_tokens=True,
            return_attention_mask=True,
            return_tensors="pt",
        ).to(self.model.device)
        return {"input_ids": made["input_ids"], "attention_mask": made["attention_mask"]}


def load_clip_pair(place: str, revision: str, device: str, dtype: Any) -> ClipPair:
    """Return the pair in a folder or behind a hub id; nothing that it names is run."""
    import transformers

    model = transformers.AutoModel.from_pretrained(
        place, revision=revision, trust_remote_code=False, use_safetensors=True, dtype=dtype, attn_implementation="sdpa"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, revision=revision, trust_remote_code=False)
    processor = transformers.AutoImageProcessor.from_pretrained(
        place, revision=revision, trust_remote_code=False, backend="pil"
    )
    return ClipPair(model.to(device).eval().requires_grad_(False), tokenizer, processor)


PROJECTED = "rewardlab_projected_pair"  # what `rewardlab train objective` writes
MODEL_TYPES = (*CLIP_TYPES, PROJECTED)
_MAX_BATCH = 64
_CACHE_BYTES = 256 * 2**20  # for embeddings of frames and texts that come again


@dataclass(frozen=True)
class ContrastiveOptions:
    """What stands after the ? of `contrastive:PATH_OR_ID?baseline=a robot arm on a table&alpha=0.5`."""

    baseline: Annotated[str, Help("description of the scene without the goal (VLM-RM); empty for plain similarity")] = (
        ""
    )
    alpha: Annotated[
        float, Help("alpha of VLM-RM: 0 keeps the image embedding, 1 projects it onto the line from baseline to goal")
    ] = 0.5
    levels: Annotated[str, Help("JSON file of a level map; empty for 3 + 2 * similarity, which is only an order")] = ""
    dtype: checkpoint.Dtype = "auto"
    device: checkpoint.Device = "auto"
    revision: checkpoint.Revision = "main"

    def __post_init__(self) -> None:
        checkpoint.check_device(self.device)
        if not 0 <= self.alpha <= 1:
            raise PlanError(f"option alpha must be from 0 to 1, got {self.alpha:g}")


class DualEncoder:
    """Embeds frames and texts as unit vectors of one space; what comes again is not encoded again."""

    def __init__(self, pair: "ClipPair | ProjectedPair") -> None:
        self.pair = pair
        self.cache: LRUCache[Floats] = LRUCache(_CACHE_BYTES)

    def embed_frames(self, frames: Frames) -> Floats:
        """Return one unit vector per frame."""
        keys = [f"frame {fingerprint_frames(frame)}" for frame in frames]
        return self._embed(keys, list(frames), self.pair.image_features)

    def embed_texts(self, texts: Sequence[str]) -> Floats:
        """Return one unit vector per text."""
        return self._embed([f"text {text}" for text in texts], texts, self.pair.text_features)

    def _embed(self, keys: Sequence[str], inputs: Sequence[Any], encode: Callable[[Sequence[Any]], Any]) -> Floats:
        import torch

        found = {key: self.cache.get(key) for key in keys}
        missing = {key: value for key, value in zip(keys, inputs, strict=True) if found[key] is None}
        for start in range(0, len(missing), _MAX_BATCH):
            batch = list(missing)[start : start + _MAX_BATCH]
            with torch.inference_mode():
                vectors = torch.nn.functional.normalize(encode([missing[key] for key in batch]).double(), dim=-1)
            for key, vector in zip(batch, vectors.cpu().numpy(), strict=True):
                found[key] = vector
                self.cache.put(key, vector, vector.nbytes)
        return np.stack([vector for key in keys if (vector := found[key]) is not None])


@dataclass(frozen=True)
class Contrastive:
    """Rewards each frame by its similarity to the instruction; the last frame decides the level."""

    encoder: DualEncoder
    baseline: str
    alpha: float
    level_map: LevelMap

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return a level and the reward of every frame, as progress, per episode."""
        return [self._score(episode) for episode in episodes]

    def _score(self, episode: Episode) -> Score:
        states = self.encoder.embed_frames(episode.frames)
        goal, *baseline = self.encoder.embed_texts([episode.instruction, *([self.baseline] if self.baseline else [])])
        rewards = goal_rewards(states, goal, baseline[0], self.alpha) if baseline else states @ goal
        return Score(self.level_map.level(rewards[-1]), progress=tuple(rewards.tolist()))


def goal_rewards(states: Floats, goal: Floats, baseline: Floats, alpha: float) -> Floats:
    """Return VLM-RM's reward 1 - |a p + (1 - a) s - g|^2 / 2 per unit vector s; p is s projected onto the line b to g.

    Rocamonde et al., Vision-Language Models are Zero-Shot Reward Models for Reinforcement Learning, section 3.2.
    """
    line = goal - baseline
    offset = states - goal
    projected = np.outer(offset @ line, line) / max(float(line @ line), np.finfo(float).tiny)
    regularised = alpha * projected + (1 - alpha) * offset
    rewards: Floats = 1 - np.sum(regularised**2, axis=1) / 2
    return rewards


def _name(string: ModelString) -> NamedModel:
    given: dict[str, Any] = read_arguments(string.name, ContrastiveOptions, string.options)
    options = ContrastiveOptions(**given)
    level_map = read_level_map(Path(options.levels).expanduser()) if options.levels else UNCALIBRATED

    def other_files(model_type: str, place: str) -> tuple[str, ...]:
        _check_type(model_type, place)
        folders = ("image_encoder", "text_encoder") if model_type == PROJECTED else ()
        names = ("config.json", "model.safetensors", "tokenizer.json")
        return tuple(f"{folder}/{name}" for folder in folders for name in names)

    content, revision = checkpoint.identify_checkpoint(string.argument, options.revision, other_files)
    settings = all_settings(ContrastiveOptions, given) | {"levels": asdict(level_map), "revision": ""}

    def build(_budget: Budget) -> Contrastive:
        encoder = checkpoint.load_checkpoint(
            string.argument, lambda place: _load(place, replace(options, revision=revision))
        )
        return Contrastive(encoder, options.baseline, options.alpha, level_map)

    name = canonical_name(string, shown_options(ContrastiveOptions, given))
    return NamedModel(name, identity("contrastive", settings, content), False, build, exclusive=True)


def _check_type(model_type: str, place: str) -> None:
    if model_type not in MODEL_TYPES:
        kinds = f"{', '.join(MODEL_TYPES[:-1])} or {MODEL_TYPES[-1]}"
        raise PlanError(f"expected a checkpoint of type {kinds}, got {model_type} in {place}")


def _load(place: str, options: ContrastiveOptions) -> DualEncoder:
    import transformers

    revision, device = options.revision, checkpoint.choose_device(options.device)
    dtype = checkpoint.choose_dtype(options.dtype, device)
    if Path(place).is_dir() and checkpoint.model_type(Path(place)) == PROJECTED:
        from rewardlab.models.projected_pair import load_projected_pair

        return DualEncoder(load_projected_pair(Path(place), device, dtype))
    config = transformers.AutoConfig.from_pretrained(place, revision=revision, trust_remote_code=False)
    _check_type(config.model_type, place)
    return DualEncoder(load_clip_pair(place, revision, device, dtype))


CONTRASTIVE = ModelEntry(
    "CLIP, SigLIP, SigLIP 2 or what train objective made: similarity of each frame to the instruction; "
    "contrastive:FOLDER or ORG/NAME; "
    "levels are an order unless calibrated; needs the extra hf",
    _name,
    (ContrastiveOptions,),
)
