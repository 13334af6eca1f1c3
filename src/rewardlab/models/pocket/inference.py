"""From clips to scores: resize, encode once, pad, predict."""

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import cv2
import numpy as np
import xxhash
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, GrowingClip, show_only
from rewardlab.core.errors import ModelError
from rewardlab.core.records import read_json
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo
from rewardlab.models.pocket import variant_files
from rewardlab.models.pocket.novelty import (
    FEATURES,
    LEVELS,
    NoveltyCalibration,
    knn_ood_score,
    load_training_embeddings,
)
from rewardlab.models.pocket.parallel_onnx import ParallelOnnxSession, Precision, int8_image_encoder, require_precision
from rewardlab.models.pocket.wordpiece import WordPieceVocabulary, load_word_pieces

CLIP_FRAMES = 16
_SET_COVERAGE = 0.9  # that the conformal threshold was fitted for
Scalar = TypeVar("Scalar", bound=np.generic)


def pad_clip(frames: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the first 16 entries; a shorter clip repeats its last one."""
    return frames[np.minimum(np.arange(CLIP_FRAMES), len(frames) - 1)]


# Frame resizing: pocket's image encoder takes square frames of one size.

# Pixels made in one call; OpenCV cuts more among threads of its own, and callers on several cores would wait for those.
_JOINED_PIXELS = 1 << 16


def resize_frames(frames: list[Frames], size: int) -> Frames:
    """Return frames as squares of this side; larger ones of one shape are made small several in a call, as one image.

    Every call lets other threads run Python, and waits until they let this one go on.
    """
    if len({frame.shape for frame in frames}) > 1 or min(frames[0].shape[:2]) < size:
        return np.stack([_resized(frame, size) for frame in frames])
    some = max(1, _JOINED_PIXELS // size**2)
    shrunk = [_shrunk(frames[start : start + some], size) for start in range(0, len(frames), some)]
    return np.concatenate(shrunk).reshape(len(frames), size, size, 3)


def _shrunk(frames: list[Frames], size: int) -> Frames:
    """Return frames one below the other; no pixel is a mean over two of them."""
    tall = (size, size * len(frames))
    return np.asarray(cv2.resize(np.concatenate(frames), tall, interpolation=cv2.INTER_AREA))


def _resized(frame: Frames, size: int) -> Frames:
    if frame.shape[:2] == (size, size):
        return frame
    smaller = frame.shape[0] > size or frame.shape[1] > size
    return np.asarray(cv2.resize(frame, (size, size), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR))


Floats = NDArray[np.float32]
FrameName = tuple[int, int, int]  # height, width and a hash of the pixels

_CACHED_FRAMES = 4096  # frames whose image tokens are kept
_ENCODER_BATCH = 64  # most frames in one run of the graph
_CLIP_BATCH = 64  # most clips
_MAX_SIDE = 1024  # pixels
_FRAME_SEED = secrets.randbits(64)  # of the hashes that name frames: nobody outside can look for two of one name
_BLANK_STD = 1.0  # standard deviation of pixel values under which a frame shows nothing


@dataclass(frozen=True)
class PocketSettings:
    """What was fixed after training: the side of a frame, the calibration, and the conformal threshold."""

    size: int
    calibration: NoveltyCalibration
    conformal: float  # a level belongs to the 90 % prediction set if its probability is at least this


@dataclass(eq=False)
class PocketRewardModel:
    """A RewardModel on two ONNX graphs: one encodes a frame, the other reads 16 encoded frames and the instruction."""

    settings: PocketSettings
    vocabulary: WordPieceVocabulary
    image_encoder: ParallelOnnxSession
    temporal_encoder: ParallelOnnxSession
    precision: Precision = "float32"  # of the image encoder
    token_cache: "OrderedDict[FrameName, Floats]" = field(default_factory=OrderedDict, repr=False)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return level, probabilities and progress per frame; a blank clip or an empty instruction is refused."""
        frames = [show_only(episode, _sampled_indices(len(episode.clip))).frames for episode in episodes]
        blank = [_shows_nothing(episode, sampled) for episode, sampled in zip(episodes, frames)]
        reasons = [_refusal(is_blank, episode.instruction) for is_blank, episode in zip(blank, episodes)]
        accepted = [index for index, reason in enumerate(reasons) if reason is None]
        answers: list[Answer] = [Failure(reason or "") for reason in reasons]
        if accepted:
            tokens = self._frame_tokens([frames[index] for index in accepted])
            texts = [episodes[index].instruction for index in accepted]
            lengths = [len(episodes[index].clip) for index in accepted]
            for index, score in zip(accepted, self.predict(tokens, texts, lengths)):
                answers[index] = score
        return answers

    def stream(self, instruction: str) -> "StreamingScorer":
        """Return a scorer of frames that come one at a time."""
        return StreamingScorer(self, instruction)

    def predict(self, tokens: Sequence[Sequence[Floats]], texts: list[str], lengths: list[int]) -> list[Score]:
        """Return the scores of encoded clips; the graph is causal, so padding after a clip does not reach into it."""
        ids = np.stack([self.vocabulary.piece_ids(text) for text in texts])
        known = (ids >= 0).astype(np.float32)
        vectors = self.vocabulary.vectors[ids] * known[..., None]
        outputs = self.temporal_encoder.run(
            len(texts), lambda some: {"tokens": _padded(tokens[some]), "words": vectors[some], "known": known[some]}
        )
        progress, logits, states = map(np.concatenate, zip(*outputs))
        last = (np.arange(len(tokens)), [len(clip) - 1 for clip in tokens])
        calibration = self.settings.calibration
        novelty = knn_ood_score(states[last], calibration.familiar)
        probs = calibration.probabilities(logits[last].astype(np.float64), novelty)
        return [
            self._score(
                progress[i][: len(clip)], probs[i], float(novelty[i]), self.vocabulary.known_share(text), length
            )
            for i, (clip, text, length) in enumerate(zip(tokens, texts, lengths))
        ]

    def _score(
        self, progress: Floats, probs: NDArray[np.float64], novelty: float, known_share: float, length: int
    ) -> Score:
        if known_share < 0.5:  # hardly a word is English: move towards the uniform distribution
            probs = 2 * known_share * probs + (1 - 2 * known_share) / len(probs)
        level = int(np.searchsorted(probs.cumsum(), 0.5)) + 1
        prediction_set = tuple(index + 1 for index, p in enumerate(probs) if p >= self.settings.conformal)
        sigmoid = 1 / (1 + np.exp(-progress.astype(np.float64)))
        per_frame = np.interp(np.arange(length), _sampled_indices(length), sigmoid)
        return Score(
            float(min(level, 5)),
            tuple(probs.tolist()),
            tuple(per_frame.tolist()),
            info=ScoreInfo(
                prediction_set=prediction_set or (min(level, 5),),
                set_coverage=_SET_COVERAGE,
                novelty=round(novelty, 4),
                precision=None if self.precision == "float32" else self.precision,
            ),
        )

    def encode_frames(self, clips: list[Frames]) -> list[Floats]:
        """Return the image tokens of every frame, clip by clip."""
        return [np.stack(tokens) for tokens in self._frame_tokens(clips)]

    def _frame_tokens(self, clips: list[Frames]) -> list[list[Floats]]:
        """Return the image tokens of each frame; a frame encoded before, in whatever clip, comes from the cache."""
        names = [[_content_name(frame) for frame in clip] for clip in clips]
        frame_of = {name: frame for named, clip in zip(names, clips) for name, frame in zip(named, clip)}
        found = {name: self.token_cache[name] for name in frame_of if name in self.token_cache}
        missing = [name for name in frame_of if name not in found]
        if missing:
            frames = [frame_of[name] for name in missing]
            size = self.settings.size
            outputs = self.image_encoder.run(len(frames), lambda some: {"frames": resize_frames(frames[some], size)})
            found.update(zip(missing, (row for (tokens,) in outputs for row in tokens)))
        self._cache(found)
        return [[found[name] for name in named] for named in names]

    def _cache(self, found: dict[FrameName, Floats]) -> None:
        for name, tokens in found.items():
            self.token_cache[name] = tokens
            self.token_cache.move_to_end(name)
        while len(self.token_cache) > _CACHED_FRAMES:
            self.token_cache.popitem(last=False)


class StreamingScorer:
    """Scores frames as they come: after each, the score that `score` gives the clip so far, for up to 16 frames.

    A longer clip keeps the first frame, the last and an even choice of the others; `score` chooses a little otherwise.
    """

    def __init__(self, model: PocketRewardModel, instruction: str) -> None:
        self.model = model
        self.instruction = instruction
        self._clip = GrowingClip(fps=1.0, most=CLIP_FRAMES)
        self._tokens: dict[int, Floats] = {}  # of the frames that the clip holds, by their number
        self._blank = True  # every frame so far was blank

    def add_frame(self, frame: Frames) -> Answer:
        """Take one frame, uint8 (H, W, 3), and return the score of the clip that ends with it."""
        self._clip.append(frame)
        self._blank = self._blank and _is_blank(frame)
        (tokens,) = self.model.encode_frames([frame[None]])
        self._tokens[self._clip.count - 1] = tokens[0]
        self._tokens = {at: self._tokens[at] for at in self._clip.positions}
        reason = _refusal(self._blank, self.instruction)
        if reason is not None:
            return Failure(reason)
        clip = list(self._tokens.values())
        return self.model.predict([clip], [self.instruction], [len(clip)])[0]


def open_pocket(stem: Path, precision: Precision | None = None) -> PocketRewardModel:
    """Load a variant, in the precision that suits the processor unless one is given.

    OMP_NUM_THREADS says how many threads it may use, else it uses every core.
    """
    word_vectors, image_encoder, temporal_encoder, familiar_states, settings = variant_files(stem)
    values = _read_settings(settings, load_training_embeddings(familiar_states))
    precision = require_precision(stem, precision)
    encoder_file = int8_image_encoder(stem) if precision == "int8" else image_encoder
    frame_graph = ParallelOnnxSession(str(encoder_file), together=CLIP_FRAMES, most=_ENCODER_BATCH)
    clip_graph = ParallelOnnxSession(str(temporal_encoder), together=1, most=_CLIP_BATCH)
    _check_states(temporal_encoder, clip_graph, values.calibration)
    return PocketRewardModel(values, load_word_pieces(word_vectors), frame_graph, clip_graph, precision)


def _check_states(path: Path, graph: ParallelOnnxSession, calibration: NoveltyCalibration) -> None:
    """Raise if the temporal encoder does not give states that can be compared with the familiar ones."""
    shapes = graph.output_shapes()
    if len(shapes) != 3 or shapes[2][-1] != calibration.familiar.shape[1]:
        raise ModelError(
            f"{path} must give progress, levels and states of width {calibration.familiar.shape[1]}, got {shapes}; "
            "was it exported by an older rewardlab? export it again"
        )


def _read_settings(path: Path, familiar: Floats) -> PocketSettings:
    try:
        facts = read_json(path)
        weight, bias = (np.asarray(facts["calibration"][part], dtype=np.float64) for part in ("weight", "bias"))
        found = PocketSettings(
            int(facts["size"]), NoveltyCalibration(weight, bias, familiar), float(facts["conformal"])
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise ModelError(f"{path} holds no settings of a pocket ({type(error).__name__}: {error})") from error
    if not 8 <= found.size <= _MAX_SIDE:
        raise ModelError(f"{path} must have a size from 8 to {_MAX_SIDE}, got {found.size}")
    if weight.shape != (FEATURES, LEVELS) or bias.shape != (LEVELS,) or not np.isfinite([*weight.flat, *bias]).all():
        raise ModelError(
            f"{path} must have a calibration of finite numbers, weight ({FEATURES}, {LEVELS}) and bias ({LEVELS},), "
            f"got {weight.shape} and {bias.shape}"
        )
    return found


def _is_blank(frame: Frames) -> bool:
    _, deviation = cv2.meanStdDev(frame.reshape(-1, 1))  # many times as fast as that of numpy
    return float(deviation[0, 0]) < _BLANK_STD


def _shows_nothing(episode: Episode, sampled: Frames) -> bool:
    """Tell whether every frame is blank; all of them are read only where those that were sampled are."""
    return all(_is_blank(frame) for frame in sampled) and all(_is_blank(frame) for frame in episode.frames)


def _refusal(blank: bool, instruction: str) -> str | None:
    """Return why a clip cannot be scored, or None."""
    if not any(letter.isalnum() for letter in instruction):
        return "the instruction is empty; pocket needs to know what was asked for"
    if blank:
        return "every frame is one colour; there is nothing to judge"
    return None


@lru_cache(maxsize=1024)
def _sampled_indices(length: int) -> NDArray[np.int64]:
    """Return which frames of a clip are encoded: all of up to 16, else 16 evenly from the first to the last."""
    indices = np.linspace(0, length - 1, min(length, CLIP_FRAMES)).round().astype(np.int64)
    indices.setflags(write=False)
    return indices


def _content_name(frame: Frames) -> FrameName:
    """Identify a frame by its shape and its pixels, before it is made small: one that is known need not be."""
    pixels = np.ascontiguousarray(frame)
    return frame.shape[0], frame.shape[1], xxhash.xxh3_128_intdigest(pixels.data, _FRAME_SEED)


def _padded(clips: Sequence[Sequence[Floats]]) -> Floats:
    """Return clips of 16 encoded frames each, every one copied once."""
    rows = [clip[at] for clip in clips for at in pad_clip(np.arange(len(clip)))]
    return np.concatenate(rows).reshape(len(clips), CLIP_FRAMES, *rows[0].shape)
