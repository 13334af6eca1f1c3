"""Prompts as a processor of transformers takes them: text with a placeholder per image or video, and their frames.

The chat template is the checkpoint's own. A template that knows only text gets the placeholders in the text, and where
there is no template the text stands alone.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jinja2 import TemplateError

from rewardlab.core.episode import Frames
from rewardlab.core.errors import ModelError
from rewardlab.core.trial import Failure
from rewardlab.models.backends.hf_options import HfOptions
from rewardlab.models.vlm import Image, Part, Prompt, Video

Piece = dict[str, str]  # {"type": "image"}, {"type": "video"} or {"type": "text", "text": TEXT}
Messages = list[dict[str, Any]]  # a role, and its content in pieces
Placeholders = Mapping[str, str]  # what stands in the text for an image and for a video
Writing = Callable[[Messages, bool], str]  # True: the text goes on with the last message; False: a reply begins

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
    placeholders: Placeholders
    as_video: bool  # frames of a clip are one video, not images
    max_pixels: int
    special_tokens: tuple[str, ...]

    def chat(self, prompt: Prompt, reply: str = "") -> RenderedPrompt | Failure:
        """Return the user's turn and the beginning of the reply, as the chat template writes them."""
        content = self._content(prompt.parts)
        replied: Messages = [{"role": "assistant", "content": [_text(reply)]}] if reply else []
        text = self.write([{"role": "user", "content": content}, *replied], bool(reply))
        return self._checked(text, content, prompt)

    def open_turn(self, prompt: Prompt, continuation: str) -> RenderedPrompt | Failure:
        """Return the user's turn, not ended: what follows goes on with the user's own text."""
        content = self._content((*prompt.parts, continuation))
        return self._checked(self.write([{"role": "user", "content": content}], True), content, prompt)

    def inputs(self, prompts: Sequence[RenderedPrompt]) -> Any:
        """Return the inputs of the model for prompts of the same layout, padded on the left."""
        texts, bos = [prompt.text for prompt in prompts], self.processor.tokenizer.bos_token
        given: dict[str, Any] = {}
        if prompts[0].images:
            given["images"] = [[_pillow(self._shrunk(frame)) for frame in prompt.images] for prompt in prompts]
            settings = self.processor.image_processor.to_dict()
            given["images_kwargs"] = {name: False for name in _TILING if name in settings}
        if prompts[0].videos:
            given["videos"] = [[self._shrunk_video(video) for video in prompt.videos] for prompt in prompts]
            metadata = [[_metadata(video) for video in prompt.videos] for prompt in prompts]
            given["videos_kwargs"] = {"video_metadata": metadata, "do_sample_frames": False}
        begun = bos is not None and texts[0].startswith(bos)  # by the template
        return self.processor(text=texts, padding=True, return_tensors="pt", add_special_tokens=not begun, **given)

    def _content(self, parts: Sequence[Part]) -> list[Piece]:
        content: list[Piece] = []
        for part in parts:
            if isinstance(part, str) and content and content[-1]["type"] == "text":
                content[-1] = _text(content[-1]["text"] + part)
            elif isinstance(part, str):
                content.append(_text(part))
            elif isinstance(part, Video) and self._is_video(part):
                content.append({"type": "video"})
            else:
                content += [{"type": "image"}] * (1 if isinstance(part, Image) else len(part.frames))
        return content

    def _checked(self, text: str, content: Sequence[Piece], prompt: Prompt) -> RenderedPrompt | Failure:
        """Return the rendered prompt, if it says what was meant."""
        texts = [piece["text"] for piece in content if piece["type"] == "text"]
        spelled = next((token for token in self.special_tokens if any(token in each for each in texts)), None)
        if spelled is not None:
            return Failure(
                f"the prompt spells out {spelled!r}, which the processor of this model takes for a sign to it"
            )
        if not _keeps_order(text, content, self.placeholders):
            return Failure("the chat template of this model puts all frames before the text; ask with the frames first")
        videos = tuple(part for part in prompt.parts if isinstance(part, Video) and self._is_video(part))
        return RenderedPrompt(text, tuple(self._images(prompt.parts)), videos)

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
    named = vars(processor)
    tokens = {kind: named[f"{kind}_token"] for kind in ("image", "video") if named.get(f"{kind}_token")}
    if "image" not in tokens:
        raise ModelError(
            f"{type(processor).__name__} of {place} names no image token, so frames have no place in a prompt"
        )
    write = _writing(processor, tokens, place)
    has_video = named.get("video_processor") is not None and _shows("video", write, tokens)
    if options.frames == "video" and not has_video:
        raise ModelError(f"{type(processor).__name__} of {place} shows no video; use frames=images")
    tokenizer = processor.tokenizer
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    return PromptRenderer(
        processor,
        write,
        tokens,
        as_video=has_video and options.frames != "images",
        max_pixels=options.pixels,
        special_tokens=tuple(sorted({*special, *tokens.values()})),
    )


def _writing(processor: Any, tokens: Placeholders, place: str) -> Writing:
    """Return how messages are written: by the template from pieces, else from text, else without one."""

    def from_pieces(messages: Messages, goes_on: bool) -> str:
        text: str = processor.apply_chat_template(
            messages, add_generation_prompt=not goes_on, continue_final_message=goes_on
        )
        return text

    def from_text(messages: Messages, goes_on: bool) -> str:
        return from_pieces([{**each, "content": _flat(each["content"], tokens)} for each in messages], goes_on)

    def plain(messages: Messages, goes_on: bool) -> str:
        return "\n".join(_flat(each["content"], tokens) for each in messages) + ("" if goes_on else "\n")

    ways = (from_pieces, from_text) if processor.chat_template is not None else (plain,)
    found = next((way for way in ways if _shows("image", way, tokens)), None)
    if found is None:
        raise ModelError(f"the chat template of {place} leaves out the image token {tokens['image']!r}, or the text")
    return found


def _shows(kind: str, write: Writing, tokens: Placeholders) -> bool:
    """Tell whether an image, or a video, comes out once, before its text and the reply."""
    content = [{"type": kind}, _text("Question?")]
    try:
        text = write([{"role": "user", "content": content}, {"role": "assistant", "content": [_text("Reply")]}], True)
    except (TemplateError, TypeError, ValueError, LookupError):
        return False
    token = tokens.get(kind, "")
    return bool(token) and text.count(token) == 1 and _keeps_order(text, [*content, _text("Reply")], tokens)


def _keeps_order(text: str, content: Sequence[Piece], tokens: Placeholders) -> bool:
    """Tell whether the pieces stand in a text in their order."""
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


def _text(text: str) -> Piece:
    return {"type": "text", "text": text}


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
