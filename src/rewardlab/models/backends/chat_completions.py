"""The chat-completions protocol: what is sent to a server for a turn, and what its answer says."""

import json
import math
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rewardlab.core.episode import LEVELS, Frames
from rewardlab.models.vlm import Turn

MOST_TOP = 20  # log-probabilities per token that OpenAI and vLLM give at most
_JPEG_QUALITY = 95  # high, so that what a perturbation did to the pixels survives
_BEFORE_DIGIT = re.compile(r"\bANSWER\s*:\s*$", re.IGNORECASE)
_ROUNDING = 1e-3  # so far above 0 a log-probability may come out
_DIGITS = {str(level): level for level in LEVELS}


@dataclass(frozen=True)
class Dialect:
    """What differs between servers: log-probabilities per token, how the length is limited, whether chance is off."""

    top: int = 0
    limit: str = "max_tokens"
    greedy: bool = True


@dataclass(frozen=True)
class Said:
    """What a server answered: the text, why it ended, and log-probabilities where it gives them.

    `first` are the likeliest first tokens, `digit` those in the place of the digit after `ANSWER:`.
    """

    text: str | None
    finish: str = ""
    first: dict[str, float] | None = None
    digit: dict[str, float] | None = None


Usage = tuple[int | None, int | None]  # tokens read and written, None where the server does not say


def request_body(model: str, content: str, most_tokens: int, dialect: Dialect) -> bytes:
    """Return the JSON of one request; the content is JSON already."""
    settings: dict[str, Any] = {"model": model, dialect.limit: most_tokens}
    if dialect.greedy:
        settings["temperature"] = 0
    if dialect.top:
        settings |= {"logprobs": True, "top_logprobs": dialect.top}
    return f'{json.dumps(settings)[:-1]}, "messages": [{{"role": "user", "content": {content}}}]}}'.encode()


def adapted(dialect: Dialect, rejection: str, *, needs_top: bool) -> Dialect | None:
    """Return how to ask a server that rejected a request, None where there is no other way."""
    if dialect.limit == "max_tokens" and "max_completion_tokens" in rejection:
        return Dialect(dialect.top, "max_completion_tokens", dialect.greedy)
    if dialect.greedy and "temperature" in rejection:
        return Dialect(dialect.top, dialect.limit, greedy=False)
    fewer = {MOST_TOP: 5} if needs_top else {MOST_TOP: 5, 5: 0}  # some servers give 5, some none
    return Dialect(fewer[dialect.top], dialect.limit, dialect.greedy) if dialect.top in fewer else None


def turn_content(turn: Turn, *, as_video: bool) -> str:
    """Return the parts of a turn as JSON: pictures as JPEG, or videos as mp4.

    It is put together by hand, for pictures in base64 are nearly all of it and need no escaping.
    """
    content: list[str] = []
    for part in turn.parts:
        if isinstance(part, str):
            content.append(json.dumps({"type": "text", "text": part}))
        elif as_video and len(part) > 1:
            content.append(_url_part("video_url", "video/mp4", _video(part, turn.fps)))
        else:
            content += [_url_part("image_url", "image/jpeg", _picture(frame)) for frame in part]
    return f"[{', '.join(content)}]"


def _url_part(name: str, kind: str, data: bytes) -> str:
    return f'{{"type": "{name}", "{name}": {{"url": "data:{kind};base64,{b64encode(data).decode()}"}}}}'


def _picture(frame: Frames) -> bytes:
    import cv2

    _, data = cv2.imencode(".jpg", cv2.cvtColor(frame, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return bytes(data)


def _video(frames: Frames, fps: float) -> bytes:
    from rewardlab.h264 import encode_bytes

    return encode_bytes(frames, fps, crf=18)


def read_said(data: bytes) -> tuple[Said, Usage]:
    """Read the answer of a server; what is no JSON object, or only an error, is a ValueError."""
    payload = json.loads(data)
    if not isinstance(payload, dict):
        raise ValueError(f"expected a JSON object, got {type(payload).__name__}")
    choices = payload.get("choices")
    if not choices and payload.get("error"):
        raise ValueError(f"the server sent an error: {payload['error']}")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    tokens = list(_tokens(choice))
    said = Said(
        _text(choice.get("message")),
        str(choice.get("finish_reason") or ("no choices" if not choices else "unknown")),
        tokens[0][1] if tokens else None,
        _at_digit(tokens),
    )
    return said, _usage(payload.get("usage"))


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
            listed = [entry, *entry["top_logprobs"]]
            yield str(entry["token"]), {str(t["token"]): _logprob(t["logprob"]) for t in listed}
    except (KeyError, TypeError, ValueError):
        return


def _logprob(said: Any) -> float:
    if not float(said) <= _ROUNDING:
        raise ValueError(f"expected the logarithm of a probability, got {said}")
    return float(said)


def _at_digit(tokens: list[tuple[str, dict[str, float]]]) -> dict[str, float] | None:
    written = ""
    for token, top in tokens:
        if token.strip() in _DIGITS and _BEFORE_DIGIT.search(written):
            return top
        written += token
    return None


def _usage(usage: Any) -> Usage:
    if not isinstance(usage, dict):
        return None, None
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    read, wrote = (count if isinstance(count, int) and count >= 0 else None for count in counts)
    return read, wrote


def level_probs(top: dict[str, float]) -> tuple[float, ...] | None:
    """Return probabilities over the levels 1 to 5 from log-probabilities of tokens; one that is not listed gets 0."""
    probs = dict.fromkeys(LEVELS, 0.0)
    for token, logprob in top.items():
        if token.strip() in _DIGITS:
            probs[_DIGITS[token.strip()]] += math.exp(logprob)
    total = sum(probs.values())
    return tuple(chance / total for chance in probs.values()) if total > 0 else None
