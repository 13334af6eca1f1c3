"""Prompts as a processor of transformers takes them: text with a placeholder per image or video, and their frames."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.core.errors import ModelError
from rewardlab.core.trial import Failure
from rewardlab.models.backends.chat_template import (
    TEMPLATE_ERRORS,
    Messages,
    Piece,
    Placeholders,
    Writing,
    choose_writing,
    keeps_order,
    placeholders,
    shows,
    text_piece,
)
from rewardlab.models.backends.hf_options import HfOptions
from rewardlab.models.vlm import Image, Part, Prompt, Video, merge_texts

# Frames are shown whole, as in a video: tiles of each would fill the context.
_TILING = ("do_image_splitting", "crop_to_patches", "do_pan_and_scan")


@dataclass(frozen=True, eq=False)
class RenderedPrompt:
    """A prompt as text with placeholders, and the images and videos that stand in their places."""

    text: str
    images: tuple[Frames, ...]
    videos: tuple[Video, ...]

    @property
    def layout(self) -> tuple[object, ...]:
        """Return what prompts have in common that go through a processor together: the shapes of all they show."""
        return tuple(image.shape for image in self.images), tuple(video.frames.shape for video in self.videos)

    @property
    def frames(self) -> int:
        """Return how many frames are shown."""
        return len(self.images) + sum(len(video.frames) for video in self.videos)


@dataclass(frozen=True)
class PromptRenderer:
    """Writes prompts for one processor, and makes the inputs of its model of them."""

    processor: Any
    write: Writing
    tokens: Placeholders
    as_video: bool  # frames of a clip are one video, not images
    max_pixels: int
    special_tokens: tuple[str, ...]
    image_settings: Mapping[str, bool]

    def chat(self, prompt: Prompt, reply: str = "") -> RenderedPrompt | Failure:
        """Return the user's turn and the beginning of the reply, as the chat template writes them."""
        replied: Messages = [{"role": "assistant", "content": [text_piece(reply)]}] if reply else []
        return self._render(prompt.parts, replied, goes_on=bool(reply))

    def open_turn(self, prompt: Prompt, continuation: str) -> RenderedPrompt | Failure:
        """Return the user's turn, not ended: what follows goes on with the user's own text."""
        return self._render((*prompt.parts, continuation), [], goes_on=True)

    def inputs(self, prompts: Sequence[RenderedPrompt]) -> Any:
        """Return the inputs of the model for prompts of the same layout, padded on the left."""
        texts, bos = [prompt.text for prompt in prompts], self.processor.tokenizer.bos_token
        shown: dict[str, Any] = {}
        if prompts[0].images:
            shown["images"] = [[_pillow(self._shrunk(frame)) for frame in prompt.images] for prompt in prompts]
            shown["images_kwargs"] = dict(self.image_settings)
        if prompts[0].videos:
            shown["videos"] = [[self._shrunk_video(video) for video in prompt.videos] for prompt in prompts]
            metadata = [[_metadata(video) for video in prompt.videos] for prompt in prompts]
            shown["videos_kwargs"] = {"video_metadata": metadata, "do_sample_frames": False}
        begun = bos is not None and texts[0].startswith(bos)  # by the template
        return self.processor(text=texts, padding=True, return_tensors="pt", add_special_tokens=not begun, **shown)

    def _render(self, parts: Sequence[Part], replied: Messages, *, goes_on: bool) -> RenderedPrompt | Failure:
        """Return the text of the parts and what was replied, if it says what was meant."""
        content = list(self._content(parts))
        texts = [part for part in parts if isinstance(part, str)]
        spelled = next((token for token in self.special_tokens if any(token in text for text in texts)), None)
        if spelled is not None:
            return Failure(f"the prompt spells out {spelled!r}, a special token to the processor of this model")
        try:
            text = self.write([{"role": "user", "content": content}, *replied], goes_on)
        except TEMPLATE_ERRORS as error:
            return Failure(f"the chat template of this model cannot write the prompt: {error}")
        if not keeps_order(text, content, self.tokens):
            return Failure("the chat template of this model puts all frames before the text; ask with the frames first")
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
        """Return the frame within the budget of pixels."""
        height, width = frame.shape[:2]
        if not self.max_pixels or height * width <= self.max_pixels:
            return frame
        from PIL.Image import Resampling

        scale = math.sqrt(self.max_pixels / (height * width))
        size = max(1, int(width * scale)), max(1, int(height * scale))
        return np.asarray(_pillow(frame).resize(size, Resampling.BICUBIC))

    def _shrunk_video(self, video: Video) -> Frames:
        return np.stack([self._shrunk(frame) for frame in video.frames])


def prompt_renderer(processor: Any, place: str, options: HfOptions) -> PromptRenderer:
    """Return what writes prompts for a processor, having tried how its chat template shows images and videos."""
    tokens = placeholders(processor, place)
    write = choose_writing(processor, tokens, place)
    has_video = vars(processor).get("video_processor") is not None and shows("video", write, tokens)
    if options.frames == "video" and not has_video:
        raise ModelError(f"{type(processor).__name__} of {place} shows no video; use frames=images")
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
    """Return when each frame is shown: its number at the mean rate, so that number / rate is its second."""
    from transformers.video_utils import VideoMetadata

    return VideoMetadata(
        total_num_frames=len(video.frames),
        fps=video.fps,
        duration=float(video.times[-1]),
        frames_indices=(video.times * video.fps).tolist(),
    )
