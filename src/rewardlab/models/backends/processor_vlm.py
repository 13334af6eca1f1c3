"""Any image-text-to-text model of transformers as a VisionLanguageModel, through its processor and `generate`.

`generate` knows what each model needs beside its inputs: positions, kinds of cache, masks between images. The logits
that it gives before any processing are those of a plain forward pass.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from rewardlab.core.errors import ModelError
from rewardlab.core.trial import Failure
from rewardlab.models.backends.answer_tokens import choice_softmax, choice_tokens, end_tokens, read_completion
from rewardlab.models.backends.image_features import FEATURES, ImageFeatureCache
from rewardlab.models.backends.processor_prompts import PromptRenderer, RenderedPrompt
from rewardlab.models.vlm import AnswerFormat, Completion, Image, Prompt

_MAX_FRAMES = 128  # in one pass, whatever the number of prompts

Reply = TypeVar("Reply")


class ProcessorVlm:
    """A checkpoint of transformers; neighbouring prompts that show frames alike are one batch."""

    def __init__(self, model: Any, renderer: PromptRenderer, reuse_bytes: int) -> None:
        self.model = model
        self.features = ImageFeatureCache(model, reuse_bytes)
        self.renderer = renderer
        self.tokenizer = renderer.processor.tokenizer
        self.end_tokens = end_tokens(model, self.tokenizer.eos_token_id)
        self.context = model.config.get_text_config().to_dict().get("max_position_embeddings") or 2**31
        model.generation_config = _greedy(self.end_tokens, self.tokenizer.pad_token_id)

    def complete(
        self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None = None
    ) -> list[Completion | Failure]:
        """Return what the model writes after each prompt: always the likeliest token."""

        def write(inputs: Any) -> list[Completion]:
            length = inputs["input_ids"].shape[1]
            made = self.model.generate(**inputs, max_new_tokens=min(max_tokens, self.context - length))
            return [read_completion(row, self.end_tokens, self.tokenizer) for row in made[:, length:].tolist()]

        return self._ask([self.renderer.chat(prompt) for prompt in prompts], write)

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> list[tuple[float, ...] | Failure]:
        """Return the probabilities of the choices after the opening, from one forward pass; nothing is written."""
        opening, choices = choice_tokens(answer, self._reply_ids)

        def probs(inputs: Any) -> list[tuple[float, ...] | Failure]:
            return [choice_softmax(row) for row in self._last_token_logits(inputs)[:, choices].tolist()]

        return self._ask([self.renderer.chat(prompt, opening) for prompt in prompts], probs)

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float | Failure]:
        """Return, per prompt, the log-probability of the continuation's last token as the user's text goes on with it.

        No chat template ends the user's turn, as TOPReward is published.
        """

        def logprobs(inputs: Any) -> list[float]:
            rows = self._last_token_logits(inputs).log_softmax(dim=-1)
            return [float(row[token]) for row, token in zip(rows, inputs["input_ids"][:, -1].tolist())]

        return self._ask([self.renderer.open_turn(prompt, continuation) for prompt in prompts], logprobs)

    def _ask(
        self, prompts: Sequence[RenderedPrompt | Failure], answer: Callable[[Any], Sequence[Reply | Failure]]
    ) -> list[Reply | Failure]:
        """Return the answer to each prompt, batch by batch; what could not be rendered is its own answer."""
        import torch

        replies: list[Reply | Failure] = []
        with torch.inference_mode():
            for batch in _batches(prompts):
                replies += [batch] if isinstance(batch, Failure) else self._ask_batch(batch, answer)
        return replies

    def _ask_batch(
        self, batch: Sequence[RenderedPrompt], answer: Callable[[Any], Sequence[Reply | Failure]]
    ) -> Sequence[Reply | Failure]:
        inputs = self.renderer.inputs(batch).to(self.model.device, dtype=self.model.dtype)
        length = inputs["input_ids"].shape[1]
        if length < self.context:
            return answer(self.features.fill_in(inputs, [image for prompt in batch for image in prompt.images]))
        if len(batch) > 1:  # a shorter one may fit
            return [reply for prompt in batch for reply in self._ask_batch([prompt], answer)]
        few = f"{batch[0].frames} frames and text are {length:,} tokens"
        return [Failure(f"{few}, and the model reads {self.context:,} at most; show fewer, as with --frames uniform:4")]

    def _last_token_logits(self, inputs: Any) -> Any:
        """Return the logits (rows, vocabulary) in the place of the last token of each row, which is not read."""
        if not self._ends_as_written:
            name = type(self.renderer.processor).__name__
            raise ModelError(
                f"{name} adds text after the reply, so that no answer can be asked for; use answer=generate"
            )
        ids = inputs["input_ids"]
        read = {name: value[:, :-1] if _is_per_token(name, value, ids) else value for name, value in inputs.items()}
        made = self.model.generate(**read, max_new_tokens=1, return_dict_in_generate=True, output_logits=True)
        return made.logits[0].float()

    def _reply_ids(self, reply: str) -> list[int]:
        rendered = self.renderer.chat(Prompt(("Question?",)), reply)
        if isinstance(rendered, Failure):
            raise ModelError(rendered.reason)
        ids: list[int] = self.tokenizer(rendered.text, add_special_tokens=False)["input_ids"]
        return ids

    @cached_property
    def _ends_as_written(self) -> bool:
        """Tell whether the last token of a prompt is that of its text: some processors add an end of their own."""
        rendered = self.renderer.chat(Prompt((Image(np.zeros((64, 64, 3), np.uint8)), "Question?")), "Reply")
        if isinstance(rendered, Failure):
            raise ModelError(rendered.reason)
        last: int = self.tokenizer(rendered.text, add_special_tokens=False)["input_ids"][-1]
        return int(self.renderer.inputs([rendered])["input_ids"][0, -1]) == last


def _batches(prompts: Sequence[RenderedPrompt | Failure]) -> Iterator[list[RenderedPrompt] | Failure]:
    """Yield neighbours of the same layout together, up to a number of frames, and failures alone."""
    batch: list[RenderedPrompt] = []
    for prompt in prompts:
        if batch and (isinstance(prompt, Failure) or not _joins(batch, prompt)):
            yield batch
            batch = []
        if isinstance(prompt, Failure):
            yield prompt
        else:
            batch.append(prompt)
    if batch:
        yield batch


def _joins(batch: Sequence[RenderedPrompt], prompt: RenderedPrompt) -> bool:
    return prompt.layout == batch[0].layout and (len(batch) + 1) * prompt.frames <= _MAX_FRAMES


def _is_per_token(name: str, value: Any, ids: Any) -> bool:
    return not name.startswith("pixel") and name != FEATURES and value.shape[:2] == ids.shape


def _greedy(ends: set[int], padding: int) -> Any:
    """Return settings of generation without what the checkpoint adds, such as sampling and penalties."""
    from transformers import GenerationConfig

    return GenerationConfig(do_sample=False, eos_token_id=sorted(ends), pad_token_id=padding)
