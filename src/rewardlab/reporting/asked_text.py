"""What a model said when it was asked once, as a person reads it on a terminal, and as JSON."""

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rewardlab.core.trial import Failure, Score
from rewardlab.reporting.findings_text import spent_text
from rewardlab.runner.ask_once import Asked, ScoredClip

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 78
_BARS_SHOWN = 48
_SUCCESS = 4.5  # a level that rounds to 5 is a success


def asked_lines(asked: Asked) -> Iterator[str]:
    """Yield the lines that explain every answer."""
    for clip in asked.clips:
        seconds = f"{clip.duration:.1f} s"
        yield f"{clip.clip}: {clip.shown} of {clip.count} frames shown, {seconds}"
        yield from (f"  {line}" for line in _answer_lines(clip))
    if asked.prompt:
        yield "prompt:"
        yield from _wrapped(asked.prompt)
    cost = f"; {spent_text(asked.spent)}" if asked.spent else ""
    yield f"{asked.model} took {asked.seconds:.2f} s for {len(asked.clips)} clip{'s' * (len(asked.clips) > 1)}{cost}"


def asked_json(asked: Asked) -> str:
    """Return everything as one JSON object."""
    record: dict[str, Any] = {
        "model": asked.model,
        "instruction": asked.instruction,
        "prompt": asked.prompt or None,
        "seconds": asked.seconds,
        "spent": vars(asked.spent) if asked.spent else None,
        "clips": [_clip_json(clip) for clip in asked.clips],
    }
    return json.dumps(record, indent=2)


def sparkline(values: Sequence[float]) -> str:
    """Return numbers from 0 to 1 as a line of bars; what lies outside counts as the end."""
    return "".join(_BARS[min(len(_BARS) - 1, int(min(max(value, 0.0), 1.0) * len(_BARS)))] for value in values)


def _answer_lines(clip: ScoredClip) -> Iterator[str]:
    answer = clip.answer
    if isinstance(answer, Failure):
        yield from _field("no answer", answer.reason)
    else:
        yield f"level     {answer.level:.2f} of 5, {'a success' if answer.level >= _SUCCESS else 'not a success'}"
        if answer.probabilities:
            shares = "  ".join(f"{level}: {share:.2f}" for level, share in enumerate(answer.probabilities, start=1))
            yield f"levels    {shares}"
        if answer.progress:
            line = sparkline(_few(answer.progress))
            yield f"progress  {line}  {answer.progress[0]:.2f} to {answer.progress[-1]:.2f}"
    if answer.raw:
        yield from _field("said", answer.raw)


def _clip_json(clip: ScoredClip) -> dict[str, Any]:
    answer = clip.answer
    record: dict[str, Any] = {"clip": str(clip.clip), "shown": clip.shown, "frames": clip.count, "raw": answer.raw}
    if isinstance(answer, Score):
        return record | {
            "level": answer.level,
            "success": answer.level >= _SUCCESS,
            "probabilities": answer.probabilities,
            "progress": answer.progress,
        }
    return record | {"failure": answer.reason}


def _field(name: str, text: str) -> Iterator[str]:
    """Yield a text of any length under its name, with lines that fit the terminal."""
    head = f"{name:<9} "
    yield from textwrap.wrap(" ".join(text.split()), _WIDTH, initial_indent=head, subsequent_indent=" " * len(head))


def _few(values: Sequence[float]) -> Sequence[float]:
    """Return every value, or as many as a line has room for, the first and the last among them."""
    last = len(values) - 1
    return values if last < _BARS_SHOWN else [values[round(n * last / (_BARS_SHOWN - 1))] for n in range(_BARS_SHOWN)]


def _wrapped(text: str) -> Iterator[str]:
    for line in text.strip().splitlines():
        yield from textwrap.wrap(line, _WIDTH, initial_indent="  ", subsequent_indent="  ") or [""]
