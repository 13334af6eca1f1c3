"""Chat templates of checkpoints: messages with images and videos as the text that a processor takes.

A template that knows only text gets the placeholders of images in the text; without a template the text stands alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from rewardlab.core.errors import ModelError

Piece = dict[str, str]  # {"type": "image"}, {"type": "video"} or {"type": "text", "text": TEXT}
Messages = list[dict[str, Any]]  # a role, and its content in pieces
Placeholders = Mapping[str, str]  # what stands in the text for an image and for a video
Writing = Callable[[Messages, bool], str]  # True: the text goes on with the last message; False: a reply begins

TEMPLATE_ERRORS = (TemplateError, TypeError, ValueError, LookupError)  # what templates raise at messages unlike theirs


def text_piece(text: str) -> Piece:
    """Return a text as a piece of content."""
    return {"type": "text", "text": text}


def placeholders(processor: Any, place: str) -> Placeholders:
    """Return what stands in a text for an image and, where the processor has them, for a video."""
    named = vars(processor)
    tokens = {kind: named[f"{kind}_token"] for kind in ("image", "video") if named.get(f"{kind}_token")}
    if "image" not in tokens:
        name = type(processor).__name__
        raise ModelError(f"{name} of {place} names no image token, so frames have no place in a prompt")
    return tokens


def choose_writing(processor: Any, tokens: Placeholders, place: str) -> Writing:
    """Return how messages are written: by the template from pieces, else from text, else without a template."""

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
    found = next((way for way in ways if shows("image", way, tokens)), None)
    if found is None:
        raise ModelError(f"the chat template of {place} leaves out the image token {tokens['image']!r}, or the text")
    return found


def shows(kind: str, write: Writing, tokens: Placeholders) -> bool:
    """Tell whether an image, or a video, comes out once, before its text and the reply."""
    content, reply = [{"type": kind}, text_piece("Question?")], text_piece("Reply")
    try:
        text = write([{"role": "user", "content": content}, {"role": "assistant", "content": [reply]}], True)
    except TEMPLATE_ERRORS:
        return False
    token = tokens.get(kind)
    return token is not None and text.count(token) == 1 and keeps_order(text, [*content, reply], tokens)


def keeps_order(text: str, content: Sequence[Piece], tokens: Placeholders) -> bool:
    """Tell whether the pieces stand in a text in their order: some templates put all images first."""
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
