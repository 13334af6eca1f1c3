"""`hf:PATH_OR_ID`: Qwen2.5-VL, Qwen3-VL and models tuned from them, such as RoboReward, through transformers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.trial import Failure
from rewardlab.models.backends.checkpoint import (
    check_hardware,
    check_model_type,
    choose_device,
    choose_dtype,
    identify_checkpoint,
    load_checkpoint,
)
from rewardlab.models.backends.qwen_patches import FAMILIES
from rewardlab.models.backends.qwen_prompt import PromptBuilder, QwenPart, TokenSequence, VisualInput
from rewardlab.models.contract import Budget
from rewardlab.models.model_string import one_of, option
from rewardlab.models.vlm import AnswerFormat, Completion, Image, Part, Prompt, Video, VlmBackend

if TYPE_CHECKING:
    from rewardlab.models.backends.qwen_network import DecoderState

Layout = Callable[[Sequence[QwenPart], Sequence[QwenPart]], TokenSequence]  # parts and prefix to tokens


@dataclass(frozen=True)
class HfOptions:
    """Options of `hf:`."""

    dtype: str = option("auto", "auto, float32, bfloat16 or float16")
    device: str = option("auto", "auto, cpu, cuda or cuda:N", speed=True)
    attn: str = option("sdpa", "sdpa, eager, flash_attention_2 or flash_attention_3")
    pixels: int = option(0, "most pixels per frame; 0 for the published 768 tokens")
    reuse: bool = option(True, "cache features of frames, and keys and values of prefixes", speed=True)
    reuse_gb: float = option(4.0, "GiB of memory for that cache", speed=True)
    revision: str = option("main", "revision of a hub id")

    def __post_init__(self) -> None:
        check_hardware(self.dtype, self.device)
        one_of("attn", self.attn, ("sdpa", "eager", "flash_attention_2", "flash_attention_3"))
        if self.pixels < 0 or self.reuse_gb < 0:
            raise PlanError("options pixels and reuse_gb must not be negative")


@dataclass(frozen=True)
class HfSpec:
    """Which checkpoint to run, and how."""

    checkpoint: str
    options: HfOptions


class QwenVL:
    """A Qwen-VL checkpoint as a VisionLanguageModel; prompts about the same video share the work on it."""

    def __init__(self, model: Any, tokenizer: Any, options: HfOptions) -> None:
        from rewardlab.models.backends.qwen_network import QwenNetwork

        family = FAMILIES[model.config.model_type]
        per_second = 0.0 if family.timestamps else float(model.config.vision_config.tokens_per_second)
        self.tokenizer = tokenizer
        self.builder = PromptBuilder(tokenizer, family, options.pixels, per_second)
        self.network: QwenNetwork = QwenNetwork(model, family, int(options.reuse_gb * 2**30) if options.reuse else 0)
        self.end_tokens = _end_tokens(model, tokenizer)

    def complete(
        self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None = None
    ) -> list[Completion | Failure]:
        """Return what the model writes after each prompt: always the likeliest token."""
        states = self.network.prefill(self._sequences(prompts, self.builder.chat))
        return [completion for state in states for completion in self._generate(state, max_tokens)]

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> list[tuple[float, ...] | Failure]:
        """Return the probabilities of the choices after the opening, from one forward pass; nothing is written."""
        opening, choices = self._choice_tokens(answer)
        sequences = self._sequences(prompts, lambda parts, prefix: self.builder.chat(parts, prefix, opening))
        states = self.network.prefill([sequence.truncated(len(sequence) - 1) for sequence in sequences])
        return [_softmax(row) for state in states for row in state.logits[:, choices].tolist()]

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float | Failure]:
        """Return, per prompt, the log-probability of the continuation's last token as the user's text goes on with it.

        No chat template ends the user's turn, as TOPReward is published.
        """
        import torch

        sequences = self._sequences(
            prompts, lambda parts, prefix: self.builder.open_turn([*parts, continuation], prefix)
        )
        states = self.network.prefill([sequence.truncated(len(sequence) - 1) for sequence in sequences])
        logprobs = [torch.log_softmax(row, dim=-1) for state in states for row in state.logits]
        return [float(row[int(sequence.ids[-1])]) for row, sequence in zip(logprobs, sequences)]

    def _sequences(self, prompts: Sequence[Prompt], layout: Layout) -> list[TokenSequence]:
        """Return the prompts as tokens; a video that several prompts hold is prepared once."""
        prepared: dict[Part, QwenPart] = {}
        for part in (part for prompt in prompts for part in prompt.parts):
            if part not in prepared:
                prepared[part] = part if isinstance(part, str) else self._visual_input(part)
        found = []
        for prompt in prompts:
            parts = [prepared[part] for part in prompt.parts]
            prefix = [part if isinstance(part, str) else prepared[part] for part in prompt.prefix]
            found.append(layout(parts, prefix or _up_to_last_visual(parts)))
        return found

    def _visual_input(self, part: Image | Video) -> VisualInput:
        if isinstance(part, Image):
            return self.builder.visual_input(part.frame[None], None)
        return self.builder.visual_input(part.frames, part.times)

    def _generate(self, state: "DecoderState", max_tokens: int) -> Iterator[Completion]:
        """Yield what the model writes per row, until it ends its turn."""
        written: list[list[int]] = []
        for _ in range(max_tokens):
            tokens = state.logits.argmax(dim=-1)
            written.append(tokens.tolist())
            if all(self.end_tokens.intersection(row) for row in zip(*written)):
                break
            state = self.network.decode(state, tokens)
        for row in zip(*written):
            end = next((place for place, token in enumerate(row) if token in self.end_tokens), None)
            text = self.tokenizer.decode(row[:end], skip_special_tokens=True)
            yield Completion(text, "length" if end is None else "stop")

    def _choice_tokens(self, answer: AnswerFormat) -> tuple[str, list[int]]:
        """Return the opening with a choice, and the token of each choice after it."""
        replies = [self.builder.chat((), (), answer.opening + choice).ids for choice in answer.choices]
        if any(not np.array_equal(ids[:-1], replies[0][:-1]) for ids in replies):
            raise ModelError(
                f"the tokenizer has no single token for each of {', '.join(answer.choices)}; use answer=generate"
            )
        return answer.opening + answer.choices[0], [int(ids[-1]) for ids in replies]


def _up_to_last_visual(parts: Sequence[QwenPart]) -> Sequence[QwenPart]:
    visual = [number for number, part in enumerate(parts, 1) if isinstance(part, VisualInput)]
    return parts[: max(visual, default=0)]


def _softmax(logits: list[float]) -> tuple[float, ...] | Failure:
    values = np.array(logits)
    if not np.isfinite(values).all():
        return Failure("the model's logits are not finite numbers; try dtype=float32")
    probs = np.exp(values - values.max())
    probs /= probs.sum()
    return tuple(probs.tolist())


def _end_tokens(model: Any, tokenizer: Any) -> set[int]:
    ends = model.generation_config.eos_token_id
    known = ends if isinstance(ends, list) else [ends]
    return {tokenizer.convert_tokens_to_ids("<|im_end|>"), *(end for end in known if end is not None)}


def _identify(spec: HfSpec) -> str:
    return identify_checkpoint(spec.checkpoint, spec.options.revision, tuple(FAMILIES))


def _build(spec: HfSpec, budget: Budget) -> QwenVL:
    return load_checkpoint(spec.checkpoint, lambda place: _load(place, spec.options))


def _load(place: str, options: HfOptions) -> QwenVL:
    import transformers

    revision, device = options.revision, choose_device(options.device)
    config = transformers.AutoConfig.from_pretrained(place, revision=revision, trust_remote_code=False)
    check_model_type(config.model_type, tuple(FAMILIES), place)
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, revision=revision, trust_remote_code=False)
    model = transformers.AutoModelForImageTextToText.from_pretrained(
        place,
        revision=revision,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=choose_dtype(options.dtype, device),
        attn_implementation=options.attn,
    )
    return QwenVL(model.to(device), tokenizer, options)


HF = VlmBackend(
    "Qwen2.5-VL, Qwen3-VL or RoboReward on this machine: hf:FOLDER or hf:ORG/NAME; needs the extra hf",
    parse=HfSpec,
    build=_build,
    identify=_identify,
    options=HfOptions(),
    scores_answers=True,
)
