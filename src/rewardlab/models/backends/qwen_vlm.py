"""Qwen2.5-VL, Qwen3-VL and models tuned from them, such as RoboReward: the fast path, which shares work on frames."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rewardlab.core.trial import Failure
from rewardlab.models.backends.checkpoint import HfOptions
from rewardlab.models.backends.qwen_prompt import FAMILIES, PromptBuilder, QwenPart, TokenSequence, VisualInput
from rewardlab.models.vlm import (
    AnswerFormat,
    Completion,
    Image,
    Part,
    Prompt,
    choice_softmax,
    choice_tokens,
    end_tokens,
    read_completion,
)

if TYPE_CHECKING:
    from rewardlab.models.backends.qwen_network import DecoderState


Given = TypeVar("Given")
Layout = Callable[[Sequence[QwenPart], Sequence[QwenPart]], TokenSequence]  # parts and prefix to tokens


class QwenVL:
    """A Qwen-VL checkpoint as a VisionLanguageModel; prompts about the same video share the work on it."""

    def __init__(self, model: Any, tokenizer: Any, options: HfOptions) -> None:
        from rewardlab.models.backends.qwen_network import QwenNetwork

        family = FAMILIES[model.config.model_type]
        per_second = 0.0 if family.timestamps else float(model.config.vision_config.tokens_per_second)
        self.tokenizer = tokenizer
        self.builder = PromptBuilder(tokenizer, family, options.pixels, per_second)
        self.network: QwenNetwork = QwenNetwork(model, family, options.reuse_bytes)
        self.end_tokens = end_tokens(model, tokenizer.convert_tokens_to_ids("<|im_end|>"))

    def complete(
        self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None = None
    ) -> list[Completion | Failure]:
        """Return what the model writes after each prompt: always the likeliest token."""
        states = self.network.prefill(self._sequences(prompts, self.builder.chat))
        return _in_order((state.prompts, self._generate(state, max_tokens)) for state in states)

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> list[tuple[float, ...] | Failure]:
        """Return the probabilities of the choices after the opening, from one forward pass; nothing is written."""
        opening, choices = choice_tokens(answer, self.builder.reply_ids)
        sequences = self._sequences(prompts, lambda parts, prefix: self.builder.chat(parts, prefix, opening))
        states = self.network.prefill([sequence.truncated(len(sequence) - 1) for sequence in sequences])
        found = [(state.prompts, state.logits[:, choices]) for state in states]  # the next is started while one is read
        return [choice_softmax(row.tolist()) for row in _in_order((numbers, logits.cpu()) for numbers, logits in found)]

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float | Failure]:
        """Return, per prompt, the log-probability of the continuation's last token as the user's text goes on with it.

        No chat template ends the user's turn, as TOPReward is published.
        """
        import torch

        sequences = self._sequences(
            prompts, lambda parts, prefix: self.builder.open_turn([*parts, continuation], prefix)
        )
        states = self.network.prefill([sequence.truncated(len(sequence) - 1) for sequence in sequences])
        rows = _in_order((state.prompts, torch.log_softmax(state.logits, dim=-1)) for state in states)
        return [float(row[int(sequence.ids[-1])]) for row, sequence in zip(rows, sequences)]

    def _sequences(self, prompts: Sequence[Prompt], layout: Layout) -> list[TokenSequence]:
        """Return the prompts as tokens; a video that several prompts hold is prepared once."""
        prepared = self._prepared({part for prompt in prompts for part in prompt.parts})
        found = []
        for prompt in prompts:
            parts = [prepared[part] for part in prompt.parts]
            prefix = [part if isinstance(part, str) else prepared[part] for part in prompt.prefix]
            found.append(layout(parts, prefix or _up_to_last_visual(parts)))
        return found

    def _prepared(self, parts: Iterable[Part]) -> dict[Part, QwenPart]:
        shown = [part for part in parts if not isinstance(part, str)]
        visual = self.builder.visual_inputs(
            [(part.frame[None], None) if isinstance(part, Image) else (part.frames, part.times) for part in shown]
        )
        return {part: part for part in parts if isinstance(part, str)} | dict(zip(shown, visual))

    def _generate(self, state: "DecoderState", max_tokens: int) -> Iterator[Completion]:
        """Yield what the model writes after each prompt, until it ends its turn."""
        written: list[list[int]] = []
        for _ in range(max_tokens):
            tokens = state.logits.argmax(dim=-1)
            written.append(tokens.tolist())
            if all(self.end_tokens.intersection(row) for row in zip(*written)):
                break
            state = self.network.decode(state, tokens)
        for row in zip(*written):
            yield read_completion(row, self.end_tokens, self.tokenizer)


def _in_order(answers: Iterable[tuple[Sequence[int], Iterable[Given]]]) -> list[Given]:
    """Return what was given for some prompts and then for others in the order of all prompts."""
    found = {number: value for numbers, values in answers for number, value in zip(numbers, values, strict=True)}
    return [found[number] for number in range(len(found))]


def _up_to_last_visual(parts: Sequence[QwenPart]) -> Sequence[QwenPart]:
    visual = [number for number, part in enumerate(parts, 1) if isinstance(part, VisualInput)]
    return parts[: max(visual, default=0)]
