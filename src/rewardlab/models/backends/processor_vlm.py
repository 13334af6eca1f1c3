"""Any image-text-to-text model of transformers, through its processor: chat template, prompts, `generate`.

`generate` prepares what a model needs beside its inputs: positions, caches, masks between images. Its unprocessed
logits are those of a plain forward pass.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from inspect import signature
from typing import Any, TypeVar

import numpy as np
from jinja2 import TemplateError

from rewardlab.core.episode import Frames, fingerprint_frames
from rewardlab.core.errors import ModelError
from rewardlab.core.trial import Failure
from rewardlab.models.backends.checkpoint import HfOptions
from rewardlab.models.vlm import (
    AnswerFormat,
    Completion,
    Image,
    LRUCache,
    Part,
    Prompt,
    Video,
    choice_softmax,
    choice_tokens,
    end_tokens,
    merge_texts,
    read_completion,
)

Piece = dict[str, str]  # {"type": "image"}, {"type": "video"} or {"type": "text", "text": TEXT}
Messages = list[dict[str, Any]]  # a role, and its content in pieces
Placeholders = Mapping[str, str]  # the placeholder tokens of an image and of a video
MessageFormatter = Callable[[Messages, bool], str]  # True: continue the last message; False: begin a reply

TEMPLATE_ERRORS = (TemplateError, TypeError, ValueError, LookupError)  # of chat templates that do not support a message


def text_piece(text: str) -> Piece:
    """Return a text as a piece of content."""
    return {"type": "text", "text": text}


def placeholders(processor: Any, place: str) -> Placeholders:
    """Return the placeholder token of an image and, if the processor has one, of a video."""
    named = vars(processor)
    tokens = {kind: str(named[f"{kind}_token"]) for kind in ("image", "video") if named.get(f"{kind}_token")}
    if "image" not in tokens:
        name = type(processor).__name__
        raise ModelError(f"{name} of {place} has no image token, so a prompt cannot hold frames")
    return tokens


def choose_formatter(processor: Any, tokens: Placeholders, place: str) -> MessageFormatter:
    """Return the first formatter that works: the template on pieces, the template on text, or no template."""

    def from_pieces(messages: Messages, continues: bool) -> str:
        text: str = processor.apply_chat_template(
            messages, add_generation_prompt=not continues, continue_final_message=continues
        )
        return text

    def from_text(messages: Messages, continues: bool) -> str:
        return from_pieces([{**each, "content": _flat(each["content"], tokens)} for each in messages], continues)

    def plain(messages: Messages, continues: bool) -> str:
        return "\n".join(_flat(each["content"], tokens) for each in messages) + ("" if continues else "\n")

    ways = (from_pieces, from_text) if processor.chat_template is not None else (plain,)
    found = next((way for way in ways if shows("image", way, tokens)), None)
    if found is None:
        raise ModelError(f"the chat template of {place} drops the image token {tokens['image']!r}, or the text")
    return found


def shows(kind: str, write: MessageFormatter, tokens: Placeholders) -> bool:
    """Tell whether the placeholder of an image, or a video, is written once, before its text and the reply."""
    content, reply = [{"type": kind}, text_piece("Question?")], text_piece("Reply")
    try:
        text = write([{"role": "user", "content": content}, {"role": "assistant", "content": [reply]}], True)
    except TEMPLATE_ERRORS:
        return False
    token = tokens.get(kind)
    return token is not None and text.count(token) == 1 and keeps_order(text, [*content, reply], tokens)


def keeps_order(text: str, content: Sequence[Piece], tokens: Placeholders) -> bool:
    """Tell whether the pieces appear in a text in their order: some templates put all images first."""
    place = 0
    for piece in content:
        shown = piece["text"].strip() if piece["type"] == "text" else tokens[piece["type"]]
        found = text.find(shown, place)
        if found < 0:
            return False
        place = found + len(shown)
    return True


def _flat(content: Sequence[Piece], tokens: Placeholders) -> str:
    return "".join(piece["text"] if piece["type"] == "text" else tokens[piece["type"]] + "\n" for piece in content)


# Prompts as a processor of transformers takes them: text with a placeholder per image or video, and their frames.

# Settings that split an image into tiles. They are off: tiles of every frame would fill the context.
_TILING = ("do_image_splitting", "crop_to_patches", "do_pan_and_scan")


@dataclass(frozen=True, eq=False)
class RenderedPrompt:
    """A prompt as text with placeholders, and the images and videos that replace them."""

    text: str
    images: tuple[Frames, ...]
    videos: tuple[Video, ...]

    @property
    def layout(self) -> tuple[object, ...]:
        """Return the shapes of all images and videos; prompts of one layout can form a batch."""
        return tuple(image.shape for image in self.images), tuple(video.frames.shape for video in self.videos)

    @property
    def frames(self) -> int:
        """Return the number of frames."""
        return len(self.images) + sum(len(video.frames) for video in self.videos)


@dataclass(frozen=True)
class PromptRenderer:
    """Writes prompts for one processor, and turns them into inputs of its model."""

    processor: Any
    write: MessageFormatter
    tokens: Placeholders
    as_video: bool  # frames of a clip are one video, not images
    max_pixels: int
    special_tokens: tuple[str, ...]
    image_settings: Mapping[str, bool]

    def chat(self, prompt: Prompt, reply: str = "") -> RenderedPrompt | Failure:
        """Return the user's turn and the beginning of the reply, as the chat template writes them."""
        replied: Messages = [{"role": "assistant", "content": [text_piece(reply)]}] if reply else []
        return self._render(prompt.parts, replied, continues=bool(reply))

    def reply_ids(self, reply: str) -> list[int]:
        """Return the tokens of a chat that ends in this reply."""
        rendered = self.chat(Prompt(("Question?",)), reply)
        if isinstance(rendered, Failure):
            raise ModelError(rendered.reason)
        ids: list[int] = self.processor.tokenizer(rendered.text, add_special_tokens=False)["input_ids"]
        return ids

    def open_turn(self, prompt: Prompt, continuation: str) -> RenderedPrompt | Failure:
        """Return the user's turn without its end, so that the model continues the user's text."""
        return self._render((*prompt.parts, continuation), [], continues=True)

    def inputs(self, prompts: Sequence[RenderedPrompt]) -> Any:
        """Return the inputs of the model for prompts of the same layout, padded on the left."""
        texts, bos = [prompt.text for prompt in prompts], self.processor.tokenizer.bos_token
        shown: dict[str, Any] = {}
        if prompts[0].images:
            shown["images"] = [[_pillow(self._shrunk(frame)) for frame in prompt.images] for prompt in prompts]
            shown["images_kwargs"] = dict(self.image_settings)
        if prompts[0].videos:
            shown["videos"] = [
                [np.stack([self._shrunk(frame) for frame in video.frames]) for video in prompt.videos]
                for prompt in prompts
            ]
            metadata = [[_metadata(video) for video in prompt.videos] for prompt in prompts]
            shown["videos_kwargs"] = {"video_metadata": metadata, "do_sample_frames": False}
        has_bos = bos is not None and texts[0].startswith(bos)  # written by the template
        return self.processor(text=texts, padding=True, return_tensors="pt", add_special_tokens=not has_bos, **shown)

    def _render(self, parts: Sequence[Part], replied: Messages, *, continues: bool) -> RenderedPrompt | Failure:
        """Return the parts and the reply as text; a Failure if the template cannot write them in their order."""
        content = list(self._content(parts))
        texts = [part for part in parts if isinstance(part, str)]
        spelled = next((token for token in self.special_tokens if any(token in text for text in texts)), None)
        if spelled is not None:
            return Failure(f"the prompt contains {spelled!r}, a special token of this model")
        try:
            text = self.write([{"role": "user", "content": content}, *replied], continues)
        except TEMPLATE_ERRORS as error:
            return Failure(f"the chat template of this model cannot write the prompt: {error}")
        if not keeps_order(text, content, self.tokens):
            return Failure("the chat template of this model puts all frames before the text; put the frames first")
        videos = tuple(part for part in parts if isinstance(part, Video) and self._is_video(part))
        return RenderedPrompt(text, tuple(self._images(parts)), videos)

    def _content(self, parts: Sequence[Part]) -> Iterator[Piece]:
        merged: Iterator[Part] = merge_texts(parts)
        for part in merged:
            if isinstance(part, str):
                yield text_piece(part)
            elif isinstance(part, Video) and self._is_video(part):
                yield {"type": "video"}
            else:
                yield from [{"type": "image"}] * (1 if isinstance(part, Image) else len(part.frames))

    def _images(self, parts: Sequence[Part]) -> Iterator[Frames]:
        for part in parts:
            if isinstance(part, Image):
                yield part.frame
            elif isinstance(part, Video) and not self._is_video(part):
                yield from part.frames

    def _is_video(self, part: Video) -> bool:
        return self.as_video and len(part.frames) > 1

    def _shrunk(self, frame: Frames) -> Frames:
        """Return the frame, scaled down to at most `max_pixels`."""
        height, width = frame.shape[:2]
        if not self.max_pixels or height * width <= self.max_pixels:
            return frame
        from PIL.Image import Resampling

        scale = math.sqrt(self.max_pixels / (height * width))
        size = max(1, int(width * scale)), max(1, int(height * scale))
        return np.asarray(_pillow(frame).resize(size, Resampling.BICUBIC))


def prompt_renderer(processor: Any, place: str, options: HfOptions) -> PromptRenderer:
    """Return the renderer of a processor, after a test of how its chat template writes images and videos."""
    tokens = placeholders(processor, place)
    write = choose_formatter(processor, tokens, place)
    has_video = vars(processor).get("video_processor") is not None and shows("video", write, tokens)
    if options.frames == "video" and not has_video:
        raise ModelError(f"{type(processor).__name__} of {place} does not support video; use frames=images")
    tokenizer, settings = processor.tokenizer, processor.image_processor.to_dict()
    tokenizer.padding_side = "left"  # so that each row ends where its reply begins
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    return PromptRenderer(
        processor,
        write,
        tokens,
        as_video=has_video and options.frames != "images",
        max_pixels=options.pixels,
        special_tokens=tuple(sorted({*special, *tokens.values()})),
        image_settings={name: False for name in _TILING if name in settings},
    )


def _pillow(frame: Frames) -> Any:
    from PIL.Image import fromarray

    return fromarray(np.ascontiguousarray(frame))


def _metadata(video: Video) -> Any:
    """Return the times of the frames, as indices at the mean rate: index / rate is the second of a frame."""
    from transformers.video_utils import VideoMetadata

    return VideoMetadata(
        total_num_frames=len(video.frames),
        fps=video.fps,
        duration=float(video.times[-1]),
        frames_indices=(video.times * video.fps).tolist(),
    )


# A cache of image features, for models of transformers that take them in place of pixels.
#
# The library itself encodes images before it reads a prompt and passes the features as `mm_encoder_outputs`; which
# models take them is in the signature of their forward pass. Features are reused only if `pixel_values` has one row per
# image and the vision tower takes no other input: only then are they certain to be the same in every batch.

FEATURES = "mm_encoder_outputs"


class ImageFeatureCache:
    """Features from a model's vision tower, up to `max_bytes` of them; 0 turns the cache off."""

    def __init__(self, model: Any, max_bytes: int) -> None:
        self.model = model
        self.cache: LRUCache[Any] = LRUCache(max_bytes)
        self.reuse = max_bytes > 0 and FEATURES in signature(model.forward).parameters
        self.stacked = False  # some vision towers return one tensor for all images, others a list

    def replace_pixels(self, inputs: Mapping[str, Any], images: Sequence[Frames]) -> dict[str, Any]:
        """Return the inputs of a batch with these images, features in place of pixels if they can be reused."""
        import torch
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        if not self._can_reuse(inputs, len(images)):
            return dict(inputs)
        pixels = inputs["pixel_values"]
        keys = [fingerprint_frames(image) for image in images]
        missing = {key: row for row, key in enumerate(keys) if self.cache.get(key) is None}
        found = {key: self.cache.get(key) for key in keys if key not in missing}
        if missing:
            encoded = self._encode(pixels[list(missing.values())])
            if encoded is None or len(encoded) != len(missing):
                self.reuse = False
                return dict(inputs)
            for key, features in zip(missing, encoded, strict=True):
                found[key] = features
                self.cache.put(key, features, features.nbytes)
        others = {name: value for name, value in inputs.items() if name != "pixel_values"}
        features = [found[key] for key in keys]
        output = BaseModelOutputWithPooling(pooler_output=torch.stack(features) if self.stacked else features)
        return others | {FEATURES: {"image": output}}

    def _can_reuse(self, inputs: Mapping[str, Any], images: int) -> bool:
        if not self.reuse or "pixel_values" not in inputs:
            return False
        taken = signature(self.model.base_model.get_image_features).parameters
        alone = [name for name in inputs if name in taken] == ["pixel_values"]
        return alone and inputs["pixel_values"].ndim == 4 and len(inputs["pixel_values"]) == images

    def _encode(self, pixels: Any) -> list[Any] | None:
        """Return the features of each picture, copies, since views would keep the whole batch alive.

        None where the model reads more of its tower than pooled features, as Llama 4 and Ovis2 do.
        """
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        output = self.model.base_model.get_image_features(pixel_values=pixels, return_dict=True)
        more = {each.name for each in fields(output)} - {each.name for each in fields(BaseModelOutputWithPooling)}
        if more or output.get("pooler_output") is None:
            return None
        found = output.pooler_output
        self.stacked = not isinstance(found, list | tuple)
        return [features.clone() for features in found]


_MAX_FRAMES = 128  # in one pass, whatever the number of prompts

Reply = TypeVar("Reply")


class ProcessorVlm:
    """A checkpoint of transformers; adjacent prompts of one layout are a batch."""

    def __init__(self, model: Any, renderer: PromptRenderer, reuse_bytes: int) -> None:
        from transformers import GenerationConfig

        self.model = model
        self.features = ImageFeatureCache(model, reuse_bytes)
        self.renderer = renderer
        self.tokenizer = renderer.processor.tokenizer
        self.end_tokens = end_tokens(model, self.tokenizer.eos_token_id)
        self.context = model.config.get_text_config().to_dict().get("max_position_embeddings") or 2**31
        model.generation_config = GenerationConfig(  # not the checkpoint's, which may sample or penalise
            do_sample=False, eos_token_id=sorted(self.end_tokens), pad_token_id=self.tokenizer.pad_token_id
        )
        self._check_images()

    def complete(
        self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None = None
    ) -> list[Completion | Failure]:
        """Return what the model writes after each prompt, by greedy decoding."""
        del answer  # log-probabilities of its choices come from answer_probs

        def write(inputs: Any) -> list[Completion]:
            length = inputs["input_ids"].shape[1]
            made = self.model.generate(**inputs, max_new_tokens=min(max_tokens, self.context - length))
            return [read_completion(row, self.end_tokens, self.tokenizer) for row in made[:, length:].tolist()]

        return self._ask([self.renderer.chat(prompt) for prompt in prompts], write)

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> list[tuple[float, ...] | Failure]:
        """Return the probabilities of the choices after the opening, from one forward pass without generation."""
        opening, choices = choice_tokens(answer, self.renderer.reply_ids)

        def probs(inputs: Any) -> list[tuple[float, ...] | Failure]:
            return [choice_softmax(row) for row in self._last_token_logits(inputs)[:, choices].tolist()]

        return self._ask([self.renderer.chat(prompt, opening) for prompt in prompts], probs)

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float | Failure]:
        """Return, per prompt, the log-probability of the continuation's last token, as part of the user's text.

        No chat template ends the user's turn, as TOPReward is published.
        """

        def logprobs(inputs: Any) -> list[float]:
            rows = self._last_token_logits(inputs).log_softmax(dim=-1)
            return [float(row[token]) for row, token in zip(rows, inputs["input_ids"][:, -1].tolist(), strict=True)]

        return self._ask([self.renderer.open_turn(prompt, continuation) for prompt in prompts], logprobs)

    def _ask(
        self, prompts: Sequence[RenderedPrompt | Failure], answer: Callable[[Any], Sequence[Reply | Failure]]
    ) -> list[Reply | Failure]:
        """Return the answer to each prompt, batch by batch; the answer to a Failure is the Failure."""
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
            return answer(self.features.replace_pixels(inputs, [image for prompt in batch for image in prompt.images]))
        if len(batch) > 1:  # a shorter one may fit
            return [reply for prompt in batch for reply in self._ask_batch([prompt], answer)]
        size = f"{batch[0].frames} frames and text are {length:,} tokens"
        return [Failure(f"{size}, and the model reads {self.context:,} at most; use fewer, as with --frames uniform:4")]

    def _last_token_logits(self, inputs: Any) -> Any:
        """Return the logits (rows, vocabulary) that predict the last token of each row, which is cut off the inputs."""
        import torch

        if not self._appends_nothing:
            name = type(self.renderer.processor).__name__
            raise ModelError(
                f"{name} adds text after the reply, so its answer probabilities cannot be read; use answer=generate"
            )
        shape = inputs["input_ids"].shape
        read = dict(inputs)
        for name, value in inputs.items():  # some processors give lists beside tensors
            if not name.startswith("pixel") and torch.is_tensor(value) and value.shape[:2] == shape:
                read[name] = value[:, :-1]
        made = self.model.generate(**read, max_new_tokens=1, return_dict_in_generate=True, output_logits=True)
        return made.logits[0].float()

    @cached_property
    def _appends_nothing(self) -> bool:
        """Tell whether the last token of a prompt is that of its text: some processors append others."""
        text, ids = self._try_images(1)
        last: int = self.tokenizer(text, add_special_tokens=False)["input_ids"][-1]
        return int(ids[-1]) == last

    def _check_images(self) -> None:
        """Raise unless four images have twice the image tokens of two: else the model would see other frames.

        One image is no measure: some processors show it in tiles, and several whole.
        """
        settings = self.model.config.to_dict()
        token = settings.get("image_token_id", settings.get("image_token_index"))
        two, four = (int((self._try_images(count)[1] == token).sum()) for count in (2, 4))
        if token is not None and four != 2 * two:
            name = type(self.renderer.processor).__name__
            raise ModelError(
                f"{name} writes {two} image tokens for two images and {four} for four, so it cannot show a clip; "
                "use a model that takes several images"
            )

    def _try_images(self, count: int) -> tuple[str, Any]:
        """Return a prompt with so many images and a reply, as text and as tokens."""
        image = Image(np.zeros((64, 64, 3), np.uint8))
        rendered = self.renderer.chat(Prompt((*[image] * count, "Question?")), "Reply")
        if isinstance(rendered, Failure):
            raise ModelError(rendered.reason)
        return rendered.text, self.renderer.inputs([rendered])["input_ids"][0]


def _batches(prompts: Sequence[RenderedPrompt | Failure]) -> Iterator[list[RenderedPrompt] | Failure]:
    """Yield adjacent prompts of one layout together, up to a number of frames, and failures alone."""
    batch: list[RenderedPrompt] = []
    for prompt in prompts:
        joins = not isinstance(prompt, Failure) and bool(batch) and prompt.layout == batch[0].layout
        if batch and not (joins and (len(batch) + 1) * batch[0].frames <= _MAX_FRAMES):
            yield batch
            batch = []
        if isinstance(prompt, Failure):
            yield prompt
        else:
            batch.append(prompt)
    if batch:
        yield batch
