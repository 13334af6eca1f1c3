"""`hf:PATH_OR_ID`: any image-text-to-text model of transformers on this machine, with a fast path for Qwen-VL."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.trial import Failure
from rewardlab.models.backends.checkpoint import HfOptions, identify_checkpoint, load_checkpoint, load_for_scoring
from rewardlab.models.backends.qwen_prompt import FAMILIES, PromptBuilder, QwenPart, TokenSequence, VisualInput
from rewardlab.models.contract import Pairs, all_settings, identity, read_arguments, shown_options
from rewardlab.models.vlm import (
    AnswerFormat,
    Completion,
    Image,
    NamedVlm,
    Part,
    Prompt,
    VisionLanguageModel,
    VlmBackend,
    choice_softmax,
    choice_tokens,
    end_tokens,
    read_completion,
)

if TYPE_CHECKING:
    from rewardlab.models.backends.qwen_network import DecoderState

Given = TypeVar("Given")
Layout = Callable[[Sequence[QwenPart], Sequence[QwenPart]], TokenSequence]  # parts and prefix to tokens

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")
# What a processor is made of: another chat template is another question.
_PROCESSOR_FILES = (
    *_TOKENIZER_FILES,
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
)


def name_hf(argument: str, pairs: Pairs, also: Collection[str] = ()) -> NamedVlm:
    """Return the checkpoint in a folder or behind a hub id; it is not loaded."""
    given: dict[str, Any] = read_arguments("hf", HfOptions, pairs, also)
    content, options = identify_hf(argument, HfOptions(**given))
    settings = {name: value for name, value in all_settings(HfOptions, given).items() if name != "revision"}
    if settings["attn"] == "auto":
        settings["attn"] = "sdpa"  # what auto is, but for models that sdpa refuses: the same model in either spelling
    return NamedVlm(
        identity("hf", settings, content),
        lambda _: load_checkpoint(argument, lambda place: _load(place, options)),
        shown_options(HfOptions, given),
    )


def identify_hf(place: str, options: HfOptions) -> tuple[str, HfOptions]:
    """Return what identifies the files of a checkpoint, and the options with the revision that will be loaded."""

    def other_files(model_type: str, folder: str) -> tuple[str, ...]:
        _check_type(model_type, folder)
        return _TOKENIZER_FILES if _has_fast_path(model_type, options) else _PROCESSOR_FILES

    content, revision = identify_checkpoint(place, options.revision, other_files)
    return content, replace(options, revision=revision)


def _has_fast_path(model_type: str, options: HfOptions) -> bool:
    return model_type in FAMILIES and options.frames == "auto"


def _check_type(model_type: str, place: str) -> None:
    """Say that a checkpoint is no image-text-to-text model; the library, slow to import, knows which types are."""
    if model_type in FAMILIES:
        return
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    if model_type not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        raise PlanError(
            f"expected an image-text-to-text model of transformers, such as llava or qwen3_vl, got {model_type} in "
            f"{place}; a model of text alone sees no frames"
        )


def _load(place: str, options: HfOptions) -> VisionLanguageModel:
    import transformers

    config = transformers.AutoConfig.from_pretrained(place, revision=options.revision, trust_remote_code=False)
    _check_type(config.model_type, place)
    if config.is_encoder_decoder:
        raise ModelError(
            f"{place} is an encoder-decoder, {config.model_type}; hf: needs a model that goes on with a text"
        )
    known = transformers.AutoModelForImageTextToText._model_mapping[type(config)]
    if not issubclass(known, transformers.GenerationMixin):
        raise ModelError(f"{known.__name__} of {place} does not go on with a text token by token, as hf: needs")
    if _has_fast_path(config.model_type, options):
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            place, revision=options.revision, trust_remote_code=False
        )
        return QwenVL(load_for_scoring(place, options), tokenizer, options)
    from rewardlab.models.backends.checkpoint import load_processor
    from rewardlab.models.backends.processor_vlm import ProcessorVlm, prompt_renderer

    processor = load_processor(place, config, options)
    renderer = prompt_renderer(processor, place, options)  # before the weights, which take longer
    return ProcessorVlm(load_for_scoring(place, options), renderer, options.reuse_bytes)


class QwenVL:
    """Qwen2.5-VL, Qwen3-VL or a model tuned from them, such as RoboReward; prompts about one video share work on it."""

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
        """Return what the model writes after each prompt, by greedy decoding."""
        del answer  # log-probabilities of its choices come from answer_probs
        states = self.network.prefill(self._sequences(prompts, self.builder.chat))
        return _in_order((state.prompts, self._generate(state, max_tokens)) for state in states)

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> list[tuple[float, ...] | Failure]:
        """Return the probabilities of the choices after the opening, from one forward pass without generation."""
        opening, choices = choice_tokens(answer, self.builder.reply_ids)
        sequences = self._sequences(prompts, lambda parts, prefix: self.builder.chat(parts, prefix, opening))
        states = self.network.prefill([sequence.truncated(len(sequence) - 1) for sequence in sequences])
        found = [(state.prompts, state.logits[:, choices]) for state in states]  # the next is started while one is read
        return [choice_softmax(row.tolist()) for row in _in_order((numbers, logits.cpu()) for numbers, logits in found)]

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float | Failure]:
        """Return, per prompt, the log-probability of the continuation's last token, as part of the user's text.

        No chat template ends the user's turn, as TOPReward is published.
        """
        import torch

        sequences = self._sequences(
            prompts, lambda parts, prefix: self.builder.open_turn([*parts, continuation], prefix)
        )
        states = self.network.prefill([sequence.truncated(len(sequence) - 1) for sequence in sequences])
        rows = _in_order((state.prompts, torch.log_softmax(state.logits, dim=-1)) for state in states)
        return [float(row[int(sequence.ids[-1])]) for row, sequence in zip(rows, sequences, strict=True)]

    def _sequences(self, prompts: Sequence[Prompt], layout: Layout) -> list[TokenSequence]:
        """Return the prompts as tokens; a video that several prompts hold is prepared once."""
        parts_shown = {part for prompt in prompts for part in prompt.parts}
        shown = [part for part in parts_shown if not isinstance(part, str)]
        visual_inputs = self.builder.visual_inputs(
            [(part.frame[None], None) if isinstance(part, Image) else (part.frames, part.times) for part in shown]
        )
        prepared: dict[Part, QwenPart] = {part: part for part in parts_shown if isinstance(part, str)}
        prepared |= dict(zip(shown, visual_inputs, strict=True))
        found = []
        for prompt in prompts:
            parts = [prepared[part] for part in prompt.parts]
            prefix = [part if isinstance(part, str) else prepared[part] for part in prompt.prefix]
            visual = [number for number, part in enumerate(parts, 1) if isinstance(part, VisualInput)]
            found.append(layout(parts, prefix or parts[: max(visual, default=0)]))
        return found

    def _generate(self, state: "DecoderState", max_tokens: int) -> Iterator[Completion]:
        """Yield what the model writes after each prompt, until it ends its turn."""
        written: list[list[int]] = []
        for _ in range(max_tokens):
            tokens = state.logits.argmax(dim=-1)
            written.append(tokens.tolist())
            if all(self.end_tokens.intersection(row) for row in zip(*written, strict=True)):
                break
            state = self.network.decode(state, tokens)
        for row in zip(*written, strict=True):
            yield read_completion(row, self.end_tokens, self.tokenizer)


def _in_order(answers: Iterable[tuple[Sequence[int], Iterable[Given]]]) -> list[Given]:
    """Return what was given for some prompts and then for others in the order of all prompts."""
    found = {number: value for numbers, values in answers for number, value in zip(numbers, values, strict=True)}
    return [found[number] for number in range(len(found))]


HF = VlmBackend(
    "an image-text-to-text model of transformers on this machine (Qwen-VL, RoboReward, LLaVA, InternVL, Gemma 3, ...): "
    "hf:FOLDER or hf:ORG/NAME; needs the extra hf",
    name_hf,
    (HfOptions,),
    scores_answers=True,
)
