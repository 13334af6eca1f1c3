"""The chat-completions protocol: what is sent to a server for a prompt, and what its reply says."""

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rewardlab.core.episode import Frames
from rewardlab.core.limits import ANSWER_CHARACTERS
from rewardlab.core.records import parse_json
from rewardlab.models.vlm import AnswerFormat, Image, Prompt

MAX_TOP_LOGPROBS = 20  # log-probabilities per token that OpenAI and vLLM give at most
_JPEG_QUALITY = 95  # high, so that what a perturbation did to the pixels survives
_ROUNDING = 1e-3  # so far above 0 a log-probability may come out
_MAX_LISTED = 200  # tokens in one place, and letters of one token: more than that is no log-probability of anything
_MAX_FINISH = 40  # letters of why a reply ended
_LOG_OF_ZERO = -9999.0  # as vLLM puts it: an infinity is no JSON
_OPENING_ROOM = 200  # letters before a choice in which its opening stands
TOO_LONG = "too long"  # why a reply has no text: it had more of it than is taken in


@dataclass(frozen=True)
class RequestFormat:
    """What differs between servers: log-probabilities per token, the name of the length limit, a fixed temperature."""

    top_logprobs: int = 0
    limit: str = "max_tokens"
    greedy: bool = True  # whether temperature 0 is asked for


@dataclass(frozen=True)
class ChatReply:
    """What a server answered: the text, why it ended, and log-probabilities where it gives them.

    `first` are those of the first token, `digit` those in the place of the choice that was asked for: the digit after
    `ANSWER:`, and so it is called in every ledger. Without a text, `finish` says why there is none.
    """

    text: str | None
    finish: str = ""
    first: dict[str, float] | None = None
    digit: dict[str, float] | None = None


Usage = tuple[int | None, int | None]  # tokens read and written, None where the server does not say


def request_body(model: str, content: str, max_tokens: int, form: RequestFormat) -> bytes:
    """Return the JSON of one request; the content is JSON already."""
    settings: dict[str, Any] = {"model": model, form.limit: max_tokens}
    if form.greedy:
        settings["temperature"] = 0
    if form.top_logprobs:
        settings |= {"logprobs": True, "top_logprobs": form.top_logprobs}
    return f'{json.dumps(settings)[:-1]}, "messages": [{{"role": "user", "content": {content}}}]}}'.encode()


def fallback_format(form: RequestFormat, rejection: str, *, needs_logprobs: bool) -> RequestFormat | None:
    """Return how to ask a server that rejected a request, None where there is no other way."""
    if form.limit == "max_tokens" and "max_completion_tokens" in rejection:
        return replace(form, limit="max_completion_tokens")
    if form.greedy and "temperature" in rejection:
        return replace(form, greedy=False)
    # some servers give 5, some none
    fewer = {MAX_TOP_LOGPROBS: 5} if needs_logprobs else {MAX_TOP_LOGPROBS: 5, 5: 0}
    return replace(form, top_logprobs=fewer[form.top_logprobs]) if form.top_logprobs in fewer else None


def message_content(prompt: Prompt, *, as_video: bool) -> str:
    """Return the parts of a prompt as JSON: frames as JPEG, or videos as mp4.

    It is put together by hand, for images in base64 are nearly all of it and need no escaping.
    """
    content: list[str] = []
    for part in prompt.parts:
        if isinstance(part, str):
            content.append(json.dumps({"type": "text", "text": part}))
        elif isinstance(part, Image):
            content.append(_image_part(part.frame))
        elif as_video and len(part.frames) > 1:
            content.append(_url_part("video_url", "video/mp4", _mp4(part.frames, part.fps)))
        else:
            content += [_image_part(frame) for frame in part.frames]
    return f"[{', '.join(content)}]"


def _url_part(name: str, mime_type: str, data: bytes) -> str:
    return f'{{"type": "{name}", "{name}": {{"url": "data:{mime_type};base64,{b64encode(data).decode()}"}}}}'


def _image_part(frame: Frames) -> str:
    import cv2

    _, data = cv2.imencode(".jpg", cv2.cvtColor(frame, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return _url_part("image_url", "image/jpeg", bytes(data))


def _mp4(frames: Frames, fps: float) -> bytes:
    from rewardlab.core.video_encoding import encode_bytes

    return encode_bytes(frames, fps, crf=18)


def parse_reply(data: bytes, answer: AnswerFormat | None) -> tuple[ChatReply, Usage]:
    """Parse the reply of a server; what is no JSON object, or only an error, is a ValueError."""
    payload = parse_json(data, allow_nonfinite=True)
    if not isinstance(payload, dict):
        raise ValueError(f"expected a JSON object, got {type(payload).__name__}")
    choices = payload.get("choices")
    if not choices and payload.get("error"):
        raise ValueError(f"the server sent an error: {payload['error']}")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    tokens = list(_tokens(choice))
    text, finish = _text(choice.get("message")), choice.get("finish_reason")
    if not isinstance(finish, str) or not finish:
        finish = "unknown" if choices else "no choices"
    if text is not None and len(text) > ANSWER_CHARACTERS.value:
        text, finish = None, TOO_LONG
    first = tokens[0][1] if tokens else None
    reply = ChatReply(text, finish[:_MAX_FINISH], first, _at_choice(tokens, answer) if answer else None)
    return reply, _usage(payload.get("usage"))


def known_reply(record: Any) -> ChatReply | None:
    """Return the reply that a ledger holds; None if it is no reply, or more than is taken in."""
    try:
        reply = ChatReply(**record)
        places = [place for place in (reply.first, reply.digit) if place is not None]
        sound = all(_logprob(value) <= _ROUNDING for place in places for value in place.values())
    except (TypeError, ValueError, AttributeError):
        return None
    texts = isinstance(reply.finish, str) and (reply.text is None or isinstance(reply.text, str))
    return reply if sound and texts and len(reply.text or "") <= ANSWER_CHARACTERS.value else None


def _text(message: Any) -> str | None:
    """Return what the model wrote; a refusal is what it wrote too."""
    if not isinstance(message, dict):
        return None
    content = message.get("content")
    if isinstance(content, list):  # some servers send a list of parts
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    text = content or message.get("refusal")
    return text if isinstance(text, str) else None


def _tokens(choice: dict[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each written token, and it and the likeliest ones in its place; stop where the server sends nonsense."""
    try:
        for entry in choice["logprobs"]["content"]:
            listed = [entry, *entry["top_logprobs"][:_MAX_LISTED]]
            yield _token(entry), {_token(t): _logprob(t["logprob"]) for t in listed}
    except (KeyError, TypeError, ValueError):
        return


def _token(entry: dict[str, Any]) -> str:
    token = str(entry["token"])
    if len(token) > _MAX_LISTED:
        raise ValueError(f"expected a token, got {len(token):,} characters")
    return token


def _logprob(value: Any) -> float:
    if not float(value) <= _ROUNDING:
        raise ValueError(f"expected the logarithm of a probability, got {value}")
    return max(float(value), _LOG_OF_ZERO)


def _at_choice(tokens: list[tuple[str, dict[str, float]]], answer: AnswerFormat) -> dict[str, float] | None:
    """Return the log-probabilities in the place of the first choice that stands after the opening."""
    written, opening = "", answer.written_opening
    for token, top in tokens:
        if token.strip() in answer.choices and opening.search(written[-_OPENING_ROOM:]):
            return top
        written += token
    return None


def _usage(usage: Any) -> Usage:
    if not isinstance(usage, dict):
        return None, None
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    read, wrote = (count if isinstance(count, int) and count >= 0 else None for count in counts)
    return read, wrote
