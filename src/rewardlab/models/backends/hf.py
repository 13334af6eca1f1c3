"""Qwen2.5-VL, Qwen3-VL and models tuned from them, such as RoboReward, on this machine through transformers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rewardlab.core.episode import LEVELS, Episode
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.backends.checkpoint import (
    check_hardware,
    check_kind,
    choose_device,
    choose_dtype,
    identify_weights,
    loaded,
)
from rewardlab.models.backends.qwen_patches import FAMILIES
from rewardlab.models.backends.qwen_prompt import Part, Picture, Prompt, Writer
from rewardlab.models.contract import Budget, ModelEntry
from rewardlab.models.model_string import one_of, read_options
from rewardlab.models.protocols.answer_parsers import PARSERS
from rewardlab.models.protocols.prompts import roboreward_prompt
from rewardlab.models.vlm import Reply, Turn

if TYPE_CHECKING:
    from rewardlab.models.backends.qwen_network import Answers

_LIKELIEST = 20  # first tokens whose likelihood a reply tells


@dataclass(frozen=True)
class QwenOptions:
    """What stands after the ? of `hf:PATH_OR_ID?answer=generate&dtype=bfloat16`."""

    answer: str = "logits"  # logits: the likelihood of each level after ANSWER:; generate: what it writes
    parser: str = "strict"  # how what it wrote is read
    order: str = "video_first"
    tokens: int = 128  # most tokens it may write
    dtype: str = "auto"
    device: str = "auto"  # auto, cpu, cuda or cuda:N
    attn: str = "sdpa"
    pixels: int = 0  # most pixels per frame; 0 for the published 768 tokens
    reuse: bool = True  # keep features of frames and the reading of prompts that begin alike
    reuse_gb: float = 4.0  # memory for that
    revision: str = "main"  # of a hub id

    def __post_init__(self) -> None:
        one_of("answer", self.answer, ("logits", "generate"))
        one_of("parser", self.parser, tuple(PARSERS))
        one_of("order", self.order, ("video_first", "text_first"))
        check_hardware(self.dtype, self.device)
        one_of("attn", self.attn, ("sdpa", "eager", "flash_attention_2", "flash_attention_3"))
        if self.tokens < 1 or self.pixels < 0 or self.reuse_gb < 0:
            raise PlanError("options tokens, pixels and reuse_gb must not be negative, and tokens at least 1")


class QwenVL:
    """A vision-language model that is asked for the level of the RoboReward rubric; a Talker too."""

    def __init__(self, model: Any, tokenizer: Any, options: QwenOptions) -> None:
        from rewardlab.models.backends.qwen_network import Network

        family = FAMILIES[model.config.model_type]
        ticks = 0.0 if family.timed else float(model.config.vision_config.tokens_per_second)
        self.options = options
        self.tokenizer = tokenizer
        self.writer = Writer(tokenizer, family, options.pixels, ticks)
        self.network: Network = Network(model, family, int(options.reuse_gb * 2**30) if options.reuse else 0)
        self.ends = _end_tokens(model, tokenizer)
        self.levels = self._level_tokens() if options.answer == "logits" else []

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return one level per episode; episodes of the same video share the work on it."""
        pictures: dict[str, Picture] = {}
        for episode in episodes:
            name = _clip_name(episode)
            pictures[name] = pictures.get(name) or self.writer.look(episode.frames, episode.times)
        prompts = [self._prompt(pictures[_clip_name(episode)], episode.instruction) for episode in episodes]
        if self.options.answer == "logits":
            return [_expected(logits) for logits in self._logits(prompts)]
        return [PARSERS[self.options.parser](reply.text) for reply in self._written(prompts, self.options.tokens)]

    def reply(self, turns: Sequence[Turn], most_tokens: int) -> list[Reply | Failure]:
        """Return what the model writes after each turn, greedily, and its likeliest first tokens."""
        prompts = [self.writer.chat(parts, "", shared) for parts, shared in map(self._parts, turns)]
        return [*self._written(prompts, most_tokens)]

    def likelihood(self, turns: Sequence[Turn], continuation: str) -> list[float | Failure]:
        """Return, per turn, the log-probability of the continuation's last token as the user's text goes on with it.

        No chat template ends the turn, as TOPReward is published.
        """
        import torch

        prompts = []
        for turn in turns:
            parts, shared = self._parts(turn)
            prompts.append(self.writer.open_turn([*parts, continuation], shared))
        asked = self.network.ask([prompt.cut(len(prompt) - 1) for prompt in prompts])
        probs = [torch.log_softmax(row, dim=-1) for answers in asked for row in answers.logits]
        return [float(row[int(prompt.ids[-1])]) for row, prompt in zip(probs, prompts)]

    def _prompt(self, picture: Picture, instruction: str) -> Prompt:
        asked = (roboreward_prompt(""), instruction)
        parts: tuple[Part, ...] = (picture, *asked) if self.options.order == "video_first" else (*asked, picture)
        shared = 2 if self.options.order == "video_first" else 3
        if self.options.answer == "generate":
            return self.writer.chat(parts, "", shared)
        prompt = self.writer.chat(parts, f"ANSWER: {LEVELS[0]}", shared)
        return prompt.cut(len(prompt) - 1)

    def _parts(self, turn: Turn) -> tuple[list[Part], int]:
        """Return the parts of a turn as this model shows them, and how many there are up to the last picture."""
        parts: list[Part] = []
        for part in turn.parts:
            if isinstance(part, str):
                parts.append(part)
            else:
                parts.append(self.writer.look(part, np.arange(len(part)) / turn.fps if len(part) > 1 else None))
        pictures = [number for number, part in enumerate(parts, 1) if isinstance(part, Picture)]
        return parts, max(pictures, default=0)

    def _logits(self, prompts: Sequence[Prompt]) -> Iterator[list[float]]:
        """Yield the logits of the five levels per prompt."""
        for answers in self.network.ask(prompts):
            yield from answers.logits[:, self.levels].tolist()

    def _written(self, prompts: Sequence[Prompt], most_tokens: int) -> Iterator[Reply]:
        for answers in self.network.ask(prompts):
            yield from self._write(answers, most_tokens)

    def _write(self, answers: "Answers", most_tokens: int) -> Iterator[Reply]:
        """Yield what the model writes per row: always the likeliest token, until it ends its turn."""
        import torch

        likeliest = torch.log_softmax(answers.logits, dim=-1).topk(min(_LIKELIEST, answers.logits.shape[-1]))
        written: list[list[int]] = []
        for _ in range(most_tokens):
            tokens = answers.logits.argmax(dim=-1)
            written.append(tokens.tolist())
            if all(self.ends.intersection(row) for row in zip(*written)):
                break
            answers = self.network.go_on(answers, tokens)
        for row, probs, first in zip(zip(*written), likeliest.values.tolist(), likeliest.indices.tolist()):
            end = next((place for place, token in enumerate(row) if token in self.ends), len(row))
            top = {self.tokenizer.decode([token]): chance for token, chance in zip(first, probs)}
            yield Reply(self.tokenizer.decode(row[:end], skip_special_tokens=True), top)

    def _level_tokens(self) -> list[int]:
        """Return the token of each level after the text that comes before it."""
        answers = [self.writer.chat((), f"ANSWER: {level}", 0).ids for level in LEVELS]
        if any(not np.array_equal(ids[:-1], answers[0][:-1]) for ids in answers):
            raise ModelError("the tokenizer has no single token for each level 1 to 5; use answer=generate")
        return [int(ids[-1]) for ids in answers]


def _clip_name(episode: Episode) -> str:
    """Identify the shown frames and their times without reading them."""
    clip = episode.clip
    return digest(clip.source.digest, clip.order.tobytes(), clip.positions.tobytes(), clip.fps)


def _expected(logits: list[float]) -> Answer:
    """Return the expected level under the likelihood of the five."""
    values = np.array(logits)
    if not np.isfinite(values).all():
        return Failure("the model's logits are not finite numbers; try dtype=float32")
    probs = np.exp(values - values.max())
    probs /= probs.sum()
    return Score(float(probs @ LEVELS), tuple(probs.tolist()))


def _end_tokens(model: Any, tokenizer: Any) -> set[int]:
    ends = model.generation_config.eos_token_id
    known = ends if isinstance(ends, list) else [ends]
    return {tokenizer.convert_tokens_to_ids("<|im_end|>"), *(end for end in known if end is not None)}


def identify(argument: str) -> str:
    """Check the argument without loading weights, and return what identifies them."""
    place, options = read_options(argument, QwenOptions())
    return identify_weights(place, options.revision, tuple(FAMILIES))


def build(argument: str, budget: Budget) -> QwenVL:
    """Return the model with its weights loaded."""
    place, options = read_options(argument, QwenOptions())
    return loaded(place, lambda found: _load(found, options))


def _load(place: str, options: QwenOptions) -> QwenVL:
    import transformers

    config = transformers.AutoConfig.from_pretrained(place, revision=options.revision)
    check_kind(config.model_type, tuple(FAMILIES), place)
    device = choose_device(options.device)
    kind = transformers.AutoModelForImageTextToText
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, revision=options.revision)
    model = kind.from_pretrained(
        place, revision=options.revision, dtype=choose_dtype(options.dtype, device), attn_implementation=options.attn
    )
    return QwenVL(model.to(device), tokenizer, options)


QWEN = {
    "hf": ModelEntry(
        "Qwen2.5-VL, Qwen3-VL or RoboReward on this machine: hf:FOLDER or hf:ORG/NAME; needs the extra hf",
        build,
        identify=identify,
        one_copy=True,
    ),
}
