"""Judging with pocket: frames to tokens once each, then words and tokens to progress and levels."""

import json
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from rewardlab.core.episode import Episode, Frames
from rewardlab.core.errors import DataError, ModelError
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.pocket import files_of
from rewardlab.models.pocket.frame_window import SHOWN, filled
from rewardlab.models.pocket.wordpiece import Words, load_words

Floats = NDArray[np.float32]

_KEPT = 4096  # frames whose tokens are remembered
_AT_ONCE = 64  # frames given to the eyes together
_FLAT = 1.0  # spread of pixel values under which a frame shows nothing


@dataclass(frozen=True)
class Settings:
    """What was fixed after training: the side of a picture, and how sure the model may be."""

    size: int
    temperature: float
    conformal: float  # a level belongs to the set of 90 % if its probability is at least this


@dataclass(eq=False)
class Pocket:
    """A RewardModel on two graphs: `eyes` see one frame at a time, `head` reads 16 of them and the instruction."""

    settings: Settings
    words: Words
    eyes: Any
    head: Any
    seen: "OrderedDict[bytes, Floats]" = field(default_factory=OrderedDict, repr=False)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return level, probabilities and progress per frame; a clip that shows nothing or has no words is refused."""
        frames = [episode.frames for episode in episodes]
        blank = [all(_shows_nothing(frame) for frame in clip) for clip in frames]
        reasons = [_unfit(nothing, episode.instruction) for nothing, episode in zip(blank, episodes)]
        fit = [place for place, reason in enumerate(reasons) if reason is None]
        answers: list[Answer] = [Failure(reason or "") for reason in reasons]
        if fit:
            tokens = self._tokens([frames[place][_chosen(len(frames[place]))] for place in fit])
            texts = [episodes[place].instruction for place in fit]
            for place, score in zip(fit, self._judge(tokens, texts, [len(frames[place]) for place in fit])):
                answers[place] = score
        return answers

    def watch(self, instruction: str) -> "Watch":
        """Return a judge of frames that come one at a time."""
        return Watch(self, instruction)

    def _judge(self, tokens: list[Floats], texts: list[str], lengths: list[int]) -> list[Score]:
        """Read the clips; after every frame the head says what it would say if the clip ended there."""
        held = np.stack([filled(clip) for clip in tokens])  # what follows a clip does not reach back into it
        ids = np.stack([self.words.ids(text) for text in texts])
        known = (ids >= 0).astype(np.float32)
        vectors = self.words.vectors[ids] * known[..., None]
        progress, logits = self.head.run(None, {"tokens": held, "words": vectors, "known": known})
        return [
            self._score(progress[i][: len(clip)], logits[i][len(clip) - 1], self.words.known(text), length)
            for i, (clip, text, length) in enumerate(zip(tokens, texts, lengths))
        ]

    def _score(self, progress: Floats, logits: Floats, known: float, length: int) -> Score:
        probs = softmax(logits.astype(np.float64) / self.settings.temperature)
        if known < 0.5:  # hardly a word is English: be as unsure as that
            probs = 2 * known * probs + (1 - 2 * known) / len(probs)
        level = int(np.searchsorted(probs.cumsum(), 0.5)) + 1
        likely = [place + 1 for place, chance in enumerate(probs) if chance >= self.settings.conformal]
        spread = np.interp(np.arange(length), _chosen(length), 1 / (1 + np.exp(-progress.astype(np.float64))))
        return Score(
            float(min(level, 5)),
            tuple(probs.tolist()),
            tuple(spread.tolist()),
            json.dumps({"set90": likely or [level]}),
        )

    def _tokens(self, clips: list[Frames]) -> list[Floats]:
        """Return the tokens of every frame; a frame seen before, in whatever clip, is not looked at again."""
        small = [[_resized(frame, self.settings.size) for frame in clip] for clip in clips]
        names = [[blake2b(frame.tobytes(), digest_size=16).digest() for frame in clip] for clip in small]
        new = {name: frame for many, clip in zip(names, small) for name, frame in zip(many, clip)}
        found = {name: self.seen[name] for name in new if name in self.seen}
        missing = [name for name in new if name not in found]
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            (tokens,) = self.eyes.run(None, {"frames": np.stack([new[name] for name in some])})
            found.update(zip(some, tokens))
        self._remember(found)
        return [np.stack([found[name] for name in many]) for many in names]

    def _remember(self, found: dict[bytes, Floats]) -> None:
        for name, tokens in found.items():
            self.seen[name] = tokens
            self.seen.move_to_end(name)
        while len(self.seen) > _KEPT:
            self.seen.popitem(last=False)


class Watch:
    """Judges frames as they come: after each, what `score` would say of the clip so far, for up to 16 frames.

    A longer clip keeps the first frame and an even choice of the others, which `score` would choose a little otherwise.
    """

    def __init__(self, model: Pocket, instruction: str) -> None:
        self.model = model
        self.instruction = instruction
        self._tokens: list[Floats] = []
        self._every, self._count = 1, 0
        self._blank = True  # nothing was to be seen so far

    def see(self, frame: Frames) -> Answer:
        """Take one frame, uint8 (H, W, 3), and judge the clip that ends with it."""
        if frame.ndim != 3 or frame.shape[-1] != 3 or frame.dtype != np.uint8:
            raise DataError(f"a frame must be uint8 of shape (H, W, 3), got {frame.dtype} {frame.shape}")
        self._blank = self._blank and _shows_nothing(frame)
        (tokens,) = self.model._tokens([frame[None]])
        now = [*self._tokens, tokens[0]]
        if self._count % self._every == 0:
            self._tokens = now
        if len(self._tokens) == SHOWN:  # the next would be one too many
            self._tokens, self._every = self._tokens[::2], 2 * self._every
        self._count += 1
        reason = _unfit(self._blank, self.instruction)
        if reason is not None:
            return Failure(reason)
        clip = np.stack(now)
        return self.model._judge([clip], [self.instruction], [len(clip)])[0]


def open_pocket(place: Path) -> Pocket:
    """Load a variant; OMP_NUM_THREADS says how many threads it may use, else it uses every core."""
    words, eyes, head, settings = files_of(place)
    facts = json.loads(settings.read_text())
    kept = {key: facts[key] for key in Settings.__dataclass_fields__}
    return Pocket(Settings(**kept), load_words(words), _session(str(eyes)), _session(str(head)))


def _session(path: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a family of errors of its own
        raise ModelError(f"{path} cannot be loaded ({error}); install rewardlab again") from error


def _shows_nothing(frame: Frames) -> bool:
    return float(frame.std()) < _FLAT


def _unfit(blank: bool, instruction: str) -> str | None:
    """Say why a clip cannot be judged, or nothing."""
    if not any(letter.isalnum() for letter in instruction):
        return "the instruction is empty; pocket needs to know what was asked for"
    if blank:
        return "every frame is one colour; there is nothing to judge"
    return None


def _chosen(length: int) -> NDArray[np.int64]:
    """Return which frames of a clip are looked at: all of up to 16, else 16 evenly from the first to the last."""
    return np.linspace(0, length - 1, min(length, SHOWN)).round().astype(np.int64)


def _resized(frame: Frames, size: int) -> Frames:
    if frame.shape[:2] == (size, size):
        return frame
    smaller = frame.shape[0] > size or frame.shape[1] > size
    return np.asarray(cv2.resize(frame, (size, size), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR))
