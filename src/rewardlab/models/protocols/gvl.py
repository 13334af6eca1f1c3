"""Generative Value Learning: the model tells the task completion of frames that are shown in random order."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rewardlab.core.episode import Episode, Frames, Indices, fingerprint_frames, level_of_progress
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import digest, rng_for
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.contract import Budget, ModelEntry
from rewardlab.models.model_string import one_of
from rewardlab.models.protocols.answer_parsers import UNREADABLE
from rewardlab.models.protocols.prompts import gvl_frame, gvl_opening, gvl_question
from rewardlab.models.protocols.talkers import identify_talker, open_talker, split_options
from rewardlab.models.vlm import Part, Reply, Talker, Turn

_PAIR = re.compile(r'"frame_number"\s*:\s*"?(\d+)"?[^{}]*?"task_completion_percentage"\s*:\s*"?(-?\d+(?:\.\d+)?)')


@dataclass(frozen=True)
class GvlOptions:
    """Options of `gvl:`; any other goes to the model it talks with."""

    control: str = "none"  # static: the first frame in place of every frame, to see what the model makes of no change
    seed: int = 0  # of the order in which frames are shown
    tokens: int = 4096  # most tokens of a reply

    def __post_init__(self) -> None:
        one_of("control", self.control, ("none", "static"))
        if self.tokens < 1:
            raise PlanError(f"option tokens must be at least 1, got {self.tokens}")


@dataclass(frozen=True)
class Gvl:
    """Asks a talker for the completion of every shown frame at once; the last frame decides the level."""

    talker: Talker
    options: GvlOptions

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the completion of each frame as progress, and the rubric level of the last one's."""
        shown = [shown_frames(episode, self.options.control) for episode in episodes]
        orders = [self._order(frames) for frames in shown]
        turns = [_turn(e.instruction, frames, order) for e, frames, order in zip(episodes, shown, orders)]
        replies = self.talker.reply(turns, self.options.tokens) if turns else []
        return [_read(reply, order) for reply, order in zip(replies, orders)]

    def _order(self, frames: Frames) -> Indices:
        """Return the frame shown at each place, the same for the same frames."""
        return rng_for(self.options.seed, "gvl", fingerprint_frames(frames)).permutation(len(frames))


def shown_frames(episode: Episode, control: str) -> Frames:
    """Return the frames of an episode, or as many copies of the first for the static control."""
    frames = episode.frames
    return frames[np.zeros(len(frames), dtype=np.int64)] if control == "static" else frames


def _turn(instruction: str, frames: Frames, order: Indices) -> Turn:
    parts: list[Part] = [gvl_opening(instruction), frames[:1], gvl_question(instruction)]
    for number, frame in enumerate(order, 1):
        parts += [gvl_frame(number), frames[frame : frame + 1]]
    return Turn(tuple(parts))


def _read(reply: Reply | Failure, order: Indices) -> Answer:
    if isinstance(reply, Failure):
        return reply
    told = completions(reply.text)
    wrong = sorted(number for number, value in told.items() if not 0 <= value <= 100)
    if sorted(told) != list(range(1, len(order) + 1)) or wrong:
        expected = f"a percentage from 0 to 100 for each of {len(order)} frames"
        return Failure(f"{UNREADABLE}: expected {expected}, got {len(told) - len(wrong)}", reply.text)
    progress = np.empty(len(order))
    progress[order] = [told[number] / 100 for number in range(1, len(order) + 1)]
    return Score(float(level_of_progress(progress[-1])), progress=tuple(progress.tolist()), raw=reply.text)


def completions(text: str) -> dict[int, float]:
    """Return the percentage told for each frame number; where a number comes twice nothing is told for it."""
    pairs = _from_json(text) or [(int(number), float(value)) for number, value in _PAIR.findall(text)]
    numbers = [number for number, _ in pairs]
    return {number: value for number, value in pairs if numbers.count(number) == 1 and math.isfinite(value)}


def _from_json(text: str) -> list[tuple[int, float]]:
    """Return frame numbers and percentages of the JSON list in the text; nothing where there is none."""
    start, end = text.find("["), text.rfind("]")
    try:
        rows = json.loads(text[start : end + 1])
        return [(int(row["frame_number"]), float(row["task_completion_percentage"])) for row in rows]
    except (ValueError, KeyError, TypeError, OverflowError):
        return []


def _identify(argument: str) -> str:
    backend, _ = split_options(argument, GvlOptions())
    return digest(identify_talker(backend), gvl_opening(""), gvl_question(""))


def _build(argument: str, budget: Budget) -> Gvl:
    backend, options = split_options(argument, GvlOptions())
    return Gvl(open_talker(backend, budget), options)


GVL = {
    "gvl": ModelEntry(
        "Generative Value Learning over a model it talks with: gvl:hf:PATH or gvl:openai:MODEL@URL; ?control=static",
        _build,
        identify=_identify,
        one_copy=True,
    ),
}
