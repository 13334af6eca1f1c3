"""From clips to scores: resize, encode once, pad, predict."""

import os
import re
import secrets
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
import xxhash
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, GrowingClip, show_only
from rewardlab.core.errors import ModelError, require_packages
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo
from rewardlab.models.pocket import (
    INT8_VARIABLE,
    Precision,
    choose_precision,
    familiar_images,
    int8_image_encoder,
    read_facts,
    variant_files,
)

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

CLIP_FRAMES = 16
Scalar = TypeVar("Scalar", bound=np.generic)


def pad_clip(frames: NDArray[Scalar], count: int = CLIP_FRAMES) -> NDArray[Scalar]:
    """Return the first `count` entries; a shorter clip repeats its last one."""
    return frames[np.minimum(np.arange(count), len(frames) - 1)]


# Frame resizing: pocket's image encoder takes square frames of one size.

# Output pixels of one call: above this, OpenCV starts its own threads, which compete with those of the callers.
_PIXELS_PER_CALL = 1 << 16


def resize_frames(frames: list[Frames], size: int) -> Frames:
    """Return frames resized to squares of this side; frames of one larger shape are stacked and resized together.

    Every call releases the GIL and waits to get it back, so fewer calls are faster.
    """
    if len({frame.shape for frame in frames}) > 1 or min(frames[0].shape[:2]) < size:
        whole = [frame if frame.shape[:2] == (size, size) else _resized(frame, (size, size)) for frame in frames]
        return np.stack(whole)
    some = max(1, _PIXELS_PER_CALL // size**2)
    parts = [frames[start : start + some] for start in range(0, len(frames), some)]
    # stacked vertically; no output pixel mixes two frames
    shrunk = [_resized(np.concatenate(part), (size, size * len(part))) for part in parts]
    return np.concatenate(shrunk).reshape(len(frames), size, size, 3)


def _resized(frame: Frames, size: tuple[int, int]) -> Frames:
    """Return a frame of this width and height; area interpolation if it shrinks."""
    smaller = frame.shape[1] > size[0] or frame.shape[0] > size[1]
    return np.asarray(cv2.resize(frame, size, interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR))


# Instructions: WordPiece tokenization of English text to piece ids, and a fixed vector for each piece.

MAX_PIECES = 48
PIECES_READ = 32  # of them, where a graph takes any number
_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")
_MAX_PIECE_LENGTH = 40  # characters; the longest piece that is looked up


@dataclass(frozen=True, eq=False)
class WordPieceVocabulary:
    """The ids of word pieces (a piece inside a word begins with ##) and a vector for each."""

    ids: dict[str, int]
    vectors: Floats  # (pieces, width)

    def pieces(self, text: str) -> list[str]:
        """Split a text into pieces by greedy longest match; a word that cannot be split becomes [UNK]."""
        return [piece for word in _words(text) for piece in self._split(word)]

    def piece_ids(self, text: str) -> NDArray[np.int64]:
        """Return the ids of the first 48 pieces, padded with -1."""
        found = [self.ids[piece] for piece in self.pieces(text)[:MAX_PIECES]]
        return np.array(found + [-1] * (MAX_PIECES - len(found)), np.int64)

    def known_share(self, text: str) -> float:
        """Return the share of words that are in the vocabulary as a whole; 0 for a text without words."""
        words = [word for word in _words(text) if word[0].isalpha()]
        return sum(word in self.ids for word in words) / max(len(words), 1)

    def _split(self, word: str) -> list[str]:
        pieces, start = [], 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(min(len(word), start + _MAX_PIECE_LENGTH), start, -1)
            end = next((end for end in ends if mark + word[start:end] in self.ids), None)
            if end is None:
                return ["[UNK]"]
            pieces.append(mark + word[start:end])
            start = end
        return pieces


def _words(text: str) -> list[str]:
    """Return the words and punctuation marks of a text in lower case and without accents."""
    plain = unicodedata.normalize("NFD", text.lower())
    return _WORD.findall("".join(letter for letter in plain if unicodedata.category(letter) != "Mn"))


@cache
def load_word_pieces(path: Path) -> WordPieceVocabulary:
    """Read the table of pieces: `pieces` as text lines, `vectors` quantised to int8, and one `scale` per column."""
    with np.load(path) as table:
        pieces = bytes(table["pieces"]).decode("utf-8").split("\n")
        vectors = table["vectors"].astype(np.float32) * table["scale"]
    return WordPieceVocabulary({piece: index for index, piece in enumerate(pieces)}, vectors)


# Calibration by novelty: probabilities over the levels from a network's logits and how far its state is from training.
#
# Novelty is the mean cosine distance to the five nearest states of training clips, as in out-of-distribution detection
# with deep nearest neighbours (Sun et al., 2022). A linear map of the log-probabilities, which varies with the
# logarithm of the novelty, gives the calibrated logits: it changes little near training states, and lowers confidence
# far from them.

LEVELS = 5
FEATURES = 2 * LEVELS + 1
_NEIGHBOURS = 5
_LEAST_LOG_PROB = -8.0  # clipped here, so that a level of probability 0 does not dominate the linear map
_LEAST_NOVELTY = 1e-4


@dataclass(frozen=True, eq=False)
class NoveltyCalibration:
    """The fitted map from `calibration_features` to logits, and the states of training clips."""

    weight: Doubles  # (FEATURES, LEVELS)
    bias: Doubles  # (LEVELS,)
    familiar: Floats  # (N, width), each of length 1

    def probabilities(self, logits: Doubles, novelty: Doubles) -> Doubles:
        """Return calibrated probabilities (n, 5) of logits (n, 5) whose states have the given novelty (n,)."""
        return mapped_probabilities(calibration_features(logits, novelty), self.weight, self.bias)


def calibration_features(logits: Doubles, novelty: Doubles) -> Doubles:
    """Return the inputs of the linear map: log-probabilities, log novelty, and their products, (n, FEATURES)."""
    log_probs = np.maximum(_log_softmax(logits), _LEAST_LOG_PROB)
    log_novelty = np.log(np.maximum(novelty, _LEAST_NOVELTY))[:, None]
    return np.hstack([log_probs, log_novelty, log_probs * log_novelty])


def mapped_probabilities(features: Doubles, weight: Doubles, bias: Doubles) -> Doubles:
    """Return the probabilities (n, 5) that a linear map gives to features (n, FEATURES)."""
    return _softmax(features @ weight + bias)


# As in scipy.special, which takes longer to load than a clip to score.


def _log_softmax(logits: Doubles) -> Doubles:
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probs: Doubles = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log_probs


def _softmax(logits: Doubles) -> Doubles:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs: Doubles = weights / weights.sum(axis=1, keepdims=True)
    return probs


def knn_ood_score(states: Floats, familiar: Floats) -> Doubles:
    """Return for each state (n, width) the mean cosine distance to its nearest familiar states, 0 to 2."""
    count = min(_NEIGHBOURS, len(familiar))
    # Not by `@`: OpenBLAS would use all cores, and its threads keep busy-waiting, which slows the next batch.
    cosines = np.einsum("nd,fd->nf", unit_length(states), familiar)
    nearest = np.partition(cosines, -count, axis=1)[:, -count:]
    distance: Doubles = 1.0 - nearest.mean(axis=1, dtype=np.float64)
    return distance


def unit_length(states: Floats) -> Floats:
    """Return each state divided by its length."""
    scaled: Floats = (states / np.maximum(np.linalg.norm(states, axis=1, keepdims=True), 1e-12)).astype(np.float32)
    return scaled


def load_training_embeddings(path: Path) -> Floats:
    """Read the states of training clips, float16 (N, width) in a .npy file, and scale each to length 1."""
    return unit_length(_load_rows(path))


def _load_rows(path: Path) -> Floats:
    try:
        states = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ModelError(f"{path} is not a file of training states ({error}); export the model again") from error
    if states.ndim != 2 or not len(states) or states.dtype != np.float16 or not np.isfinite(states).all():
        raise ModelError(f"{path} must hold finite float16 rows of one width, got {states.dtype} {states.shape}")
    return np.asarray(states, np.float32)


# The flag of a clip that is unlike anything in training, by the distance of its mean image token from those of training
# clips, or by its novelty where a variant does not have these. Novelty separates nonsense from robots less well: its
# states have also read the instruction. A variant's JSON file has the distance above which a clip is flagged
# (`unfamiliar_above`) and the share of familiar clips that are flagged by mistake (`false_alarms`).

_LEAST_KNOWN = 0.5  # share of English words under which an instruction is unlike any in training
_STILL_FRAMES = 8  # fewer frames that are the same do not make a still picture: a rollout may begin so
# Mean difference of pixel values under which two frames are the same picture. A still picture differs by up to 0.14
# after H.264, an idle arm in the tabletop world by 0.9 or more.
_SAME_PICTURE = 0.35


def mean_image_token(tokens: Sequence[Floats] | Floats) -> Floats:
    """Return the mean over the frames and places of a clip, (width,)."""
    mean: Floats = np.mean([frame.mean(axis=0) for frame in tokens], axis=0)
    return mean


def image_ood_score(means: Floats, familiar: Floats) -> Doubles:
    """Return how far mean image tokens (n, width) are from their nearest familiar ones (N, width).

    It is the mean distance to the five nearest, in standard deviations of the familiar ones per column.
    """
    count, width = min(_NEIGHBOURS, len(familiar)), familiar.shape[1]
    centre, scale = familiar.mean(axis=0, dtype=np.float64), familiar.std(axis=0, dtype=np.float64) + 1e-6
    here, there = (means - centre) / scale, (familiar - centre) / scale
    squares = (here**2).sum(axis=1)[:, None] + (there**2).sum(axis=1) - 2 * np.einsum("nd,fd->nf", here, there)
    nearest = np.partition(squares, count - 1, axis=1)[:, :count]
    distance: Doubles = np.sqrt(np.maximum(nearest, 0) / width).mean(axis=1)
    return distance


def flag_threshold(familiar: Doubles, false_alarms: float) -> float:
    """Return the distance above which at most this share of familiar clips lies."""
    return float(np.quantile(familiar, 1 - false_alarms, method="higher"))


# ONNX sessions. The threads inside onnxruntime speed up one clip only a little: its operations are too small. So a
# batch of several clips is split, and each thread prepares one part and runs it alone.

_THREADS_OF_ONE_RUN = 4  # 16 make one clip no faster, and use 50 % more CPU time
Array = NDArray[Any]


class ParallelOnnxSession:
    """Runs a graph on rows: up to `together` in one run on a few cores, more in parts of up to `most`, one per core.

    On a GPU parts of `most` rows follow each other.
    """

    def __init__(self, path: str, together: int, most: int, device: str = "cpu") -> None:
        self.path, self.together, self.most = path, together, most
        self.threads = int(os.environ.get("OMP_NUM_THREADS") or 0) or os.cpu_count() or 1
        self.on_gpu = device != "cpu"
        few = min(self.threads, _THREADS_OF_ONE_RUN)
        self.whole = _torch_graph(path, device) if self.on_gpu else _session(path, few)

    @cached_property
    def part(self) -> Any:
        """Return a single-threaded session."""
        return self.whole if self.threads == 1 else _session(self.path, 1)

    def run(self, rows: int, inputs: Callable[[slice], dict[str, Array]]) -> list[list[Array]]:
        """Return the outputs of each part; `inputs` prepares a slice of the rows, in the thread that runs them."""
        if rows <= self.together:
            return [self.whole.run(None, inputs(slice(0, rows)))]
        if self.on_gpu:
            return [self.whole.run(None, inputs(slice(at, at + self.most))) for at in range(0, rows, self.most)]
        size, run = min(self.most, -(-rows // self.threads)), self.part.run
        parts = [slice(at, at + size) for at in range(0, rows, size)]
        return list(_pool(os.getpid(), self.threads).map(lambda part: run(None, inputs(part)), parts))


@cache
def _pool(_process: int, threads: int) -> ThreadPoolExecutor:
    """Return this process's threads; the process id is part of the cache key, since a fork has no threads."""
    return ThreadPoolExecutor(threads, "rewardlab pocket")


def _torch_graph(path: str, device: str) -> Any:
    require_packages("pocket on a GPU", "torch", "onnx", extra="train")
    import torch

    if not torch.cuda.is_available():
        raise ModelError(f"device {device} was asked for, and torch sees no CUDA device here; leave out device")
    from rewardlab.models.pocket.torch_graph import TorchGraph

    return TorchGraph(path, device)


def _session(path: str, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # busy-waiting threads would slow the decoding of videos
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:  # from bytes: the graph may name no other file, whose content the model's identity would not hold
        return onnxruntime.InferenceSession(Path(path).read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises many exception types of its own
        raise ModelError(f"{path} cannot be loaded ({error}); install rewardlab again") from error


# The model.

FrameKey = tuple[int, int, int]  # height, width and a hash of the pixels

_SET_COVERAGE = 0.9  # coverage for which the conformal threshold was fitted
_CACHED_BYTES = 1 << 27  # of image tokens that are kept
_ENCODER_BATCH = 64  # most frames in one run of the graph
_CLIP_BATCH = 64  # most clips
_GPU_BATCH = 512  # most frames in one run on a GPU
_MAX_SIDE = 1024  # pixels
_FRAME_SEED = secrets.randbits(64)  # of the frame hashes: secret, so that nobody can construct a collision
_BLANK_STD = 1.0  # standard deviation of pixel values under which a frame is blank


@dataclass(frozen=True)
class PocketSettings:
    """What was fixed after training: the side of a frame, the calibration, the conformal threshold, and the flag."""

    size: int
    calibration: NoveltyCalibration
    conformal: float  # a level belongs to the 90 % prediction set if its probability is at least this
    unfamiliar_above: float | None = None  # distance from training above which a clip is flagged; None: none is flagged
    familiar_images: Floats | None = None  # mean image tokens of training clips; None: the distance is the novelty


@dataclass(eq=False)
class PocketRewardModel:
    """A RewardModel on two ONNX graphs: one encodes a frame, the other reads encoded frames and the instruction."""

    settings: PocketSettings
    vocabulary: WordPieceVocabulary
    image_encoder: ParallelOnnxSession
    temporal_encoder: ParallelOnnxSession
    precision: Precision = "float32"  # of the image encoder
    token_cache: "OrderedDict[FrameKey, Floats]" = field(default_factory=OrderedDict, repr=False)

    def __repr__(self) -> str:
        name = Path(self.temporal_encoder.path).name.partition(".")[0]
        return f"PocketRewardModel({name}, {self.precision}, {self.frames} frames)"

    @cached_property
    def frames(self) -> int:
        """Return how many frames of a clip it looks at."""
        return int(self.temporal_encoder.whole.get_inputs()[0].shape[1])

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return level, probabilities and progress per frame; a Failure for a blank clip or an empty instruction."""
        frames = [show_only(episode, _sampled_indices(len(episode.clip), self.frames)).frames for episode in episodes]
        reasons = [
            _failure_reason(_all_blank(sampled) and _all_blank(episode.frames), episode.instruction)
            for episode, sampled in zip(episodes, frames, strict=True)
        ]
        accepted = [index for index, reason in enumerate(reasons) if reason is None]
        answers: list[Answer] = [Failure(reason or "") for reason in reasons]
        if accepted:
            tokens = self._frame_tokens([frames[index] for index in accepted])
            texts = [episodes[index].instruction for index in accepted]
            lengths = [len(episodes[index].clip) for index in accepted]
            still = [_is_still(frames[index]) for index in accepted]
            for index, score in zip(accepted, self.predict(tokens, texts, lengths, still), strict=True):
                answers[index] = score
        return answers

    def stream(self, instruction: str) -> "StreamingScorer":
        """Return a scorer of frames that come one at a time."""
        return StreamingScorer(self, instruction)

    def predict(
        self, tokens: Sequence[Sequence[Floats]], texts: list[str], lengths: list[int], still: list[bool]
    ) -> list[Score]:
        """Return the scores of encoded clips; the graph is causal, so padding after a clip does not affect it.

        `still` says which clips show one picture throughout.
        """
        ids = np.stack([self.vocabulary.piece_ids(text) for text in texts])
        known = (ids >= 0).astype(np.float32)
        vectors = self.vocabulary.vectors[ids] * known[..., None]
        fixed = self.temporal_encoder.whole.get_inputs()[1].shape[1]
        pieces = fixed if isinstance(fixed, int) else min(PIECES_READ, max(1, int(known.sum(axis=1).max())))
        outputs = self.temporal_encoder.run(
            len(texts),
            lambda some: {
                "tokens": _padded(tokens[some], self.frames),
                "words": vectors[some, :pieces],
                "known": known[some, :pieces],
            },
        )
        progress, logits, states = map(np.concatenate, zip(*outputs, strict=True))
        last = (np.arange(len(tokens)), [len(clip) - 1 for clip in tokens])
        calibration = self.settings.calibration
        novelty = knn_ood_score(states[last], calibration.familiar)
        probs = calibration.probabilities(logits[last].astype(np.float64), novelty)
        flags = self._flags(tokens, texts, novelty, still)
        return [
            self._score(
                progress[i][: len(clip)], probs[i], replace(flags[i], novelty=round(float(novelty[i]), 4)), length
            )
            for i, (clip, length) in enumerate(zip(tokens, lengths, strict=True))
        ]

    def _flags(
        self, tokens: Sequence[Sequence[Floats]], texts: list[str], novelty: Doubles, still: list[bool]
    ) -> list[ScoreInfo]:
        """Tell of each clip whether its pictures or its words are unlike training, or whether it is a still picture."""
        above, familiar = self.settings.unfamiliar_above, self.settings.familiar_images
        if above is None:
            return [ScoreInfo()] * len(tokens)
        if familiar is None:
            distance = novelty
        else:
            distance = image_ood_score(np.stack([mean_image_token(clip) for clip in tokens]), familiar)
        found = []
        for far, text, unmoved in zip(distance.tolist(), texts, still, strict=True):
            unread = self.vocabulary.known_share(text) < _LEAST_KNOWN
            why = "a still picture" if unmoved else "an instruction of unknown words" if unread else None
            why = None if far > above else why  # the distance is reason enough
            found.append(
                ScoreInfo(
                    unfamiliar=far > above or why is not None,
                    training_distance=round(far, 4),
                    distance_limit=above,
                    unfamiliar_because=why,
                )
            )
        return found

    def _score(self, progress: Floats, probs: Doubles, info: ScoreInfo, length: int) -> Score:
        level = int(np.searchsorted(probs.cumsum(), 0.5)) + 1
        prediction_set = tuple(index + 1 for index, p in enumerate(probs) if p >= self.settings.conformal)
        sigmoid = 1 / (1 + np.exp(-progress.astype(np.float64)))
        per_frame = np.interp(np.arange(length), _sampled_indices(length, self.frames), sigmoid)
        return Score(
            float(min(level, 5)),
            tuple(probs.tolist()),
            tuple(per_frame.tolist()),
            info=replace(
                info,
                prediction_set=prediction_set or (min(level, 5),),
                set_coverage=_SET_COVERAGE,
                precision=None if self.precision == "float32" else self.precision,
            ),
        )

    def encode_frames(self, clips: list[Frames]) -> list[Floats]:
        """Return the image tokens of every frame, clip by clip."""
        return [np.stack(tokens) for tokens in self._frame_tokens(clips)]

    def _frame_tokens(self, clips: list[Frames]) -> list[list[Floats]]:
        """Return the image tokens of each frame; a frame that was encoded before, in any clip, comes from the cache."""
        keys = [[_frame_key(frame) for frame in clip] for clip in clips]
        frame_of = dict(zip(chain.from_iterable(keys), chain.from_iterable(clips), strict=True))
        found = {key: self.token_cache[key] for key in frame_of if key in self.token_cache}
        missing = [key for key in frame_of if key not in found]
        if missing:
            frames = [frame_of[key] for key in missing]
            size = self.settings.size
            outputs = self.image_encoder.run(len(frames), lambda some: {"frames": resize_frames(frames[some], size)})
            found.update(zip(missing, (row for (tokens,) in outputs for row in tokens), strict=True))
        for key, tokens in found.items():
            self.token_cache[key] = tokens
            self.token_cache.move_to_end(key)
        most = _CACHED_BYTES // next(iter(found.values())).nbytes if found else 0
        while len(self.token_cache) > most:
            self.token_cache.popitem(last=False)
        return [[found[key] for key in clip_keys] for clip_keys in keys]


class StreamingScorer:
    """Scores frames as they come: after each, the score that `score` gives the clip so far.

    Of a clip longer than the model looks at it keeps the first frame, the last and evenly spaced others; `score` shows
    it slightly other frames.
    """

    def __init__(self, model: PocketRewardModel, instruction: str) -> None:
        self.model = model
        self.instruction = instruction
        self._clip = GrowingClip(fps=1.0, most=model.frames)
        self._tokens: dict[int, Floats] = {}  # of the frames that the clip holds, by their number
        self._blank = True  # every frame so far was blank
        self._first: Frames | None = None
        self._unmoved = True  # every frame so far was the same picture

    def add_frame(self, frame: Frames) -> Answer:
        """Take one frame, uint8 (H, W, 3), and return the score of the clip that ends with it."""
        self._clip.append(frame)
        self._blank = self._blank and _all_blank(frame[None])
        if self._first is None:
            self._first = frame.copy()
        self._unmoved = self._unmoved and _same_picture(self._first, frame)
        (tokens,) = self.model.encode_frames([frame[None]])
        self._tokens[self._clip.count - 1] = tokens[0]
        self._tokens = {at: self._tokens[at] for at in self._clip.positions}
        reason = _failure_reason(self._blank, self.instruction)
        if reason is not None:
            return Failure(reason)
        clip = list(self._tokens.values())
        still = self._unmoved and len(clip) >= _STILL_FRAMES
        return self.model.predict([clip], [self.instruction], [len(clip)], [still])[0]


def open_pocket(stem: Path, precision: Precision | None = None, device: str = "cpu") -> PocketRewardModel:
    """Load a variant, in the precision of this processor unless one is given; OMP_NUM_THREADS limits its threads.

    On a device other than the processor torch runs it.
    """
    word_vectors, image_encoder, temporal_encoder, familiar_states, settings = variant_files(stem)
    values = _read_settings(settings, load_training_embeddings(familiar_states), familiar_images(stem))
    here = choose_precision(stem)
    if precision == "int8" and here != "int8":  # it would overflow
        raise ModelError(
            f"{stem.name} was requested in int8, which this processor cannot run; "
            f"set {INT8_VARIABLE}=0 on the machine that starts the run"
        )
    precision = precision or here
    encoder_file = int8_image_encoder(stem) if precision == "int8" else image_encoder
    many = _GPU_BATCH if device != "cpu" else _ENCODER_BATCH
    frame_graph = ParallelOnnxSession(str(encoder_file), together=CLIP_FRAMES, most=many, device=device)
    clip_graph = ParallelOnnxSession(str(temporal_encoder), together=1, most=_CLIP_BATCH, device=device)
    shapes, width = [output.shape for output in clip_graph.whole.get_outputs()], values.calibration.familiar.shape[1]
    if len(shapes) != 3 or shapes[2][-1] != width:  # its states could not be compared with the training states
        raise ModelError(
            f"{temporal_encoder} must give progress, levels and states of width {width}, got {shapes}; "
            "was it exported by an older rewardlab? export it again"
        )
    images, width = values.familiar_images, clip_graph.whole.get_inputs()[0].shape[-1]  # of the image tokens
    if images is not None and images.shape[1] != width:
        raise ModelError(
            f"{familiar_images(stem)} must hold mean image tokens of width {width}, got {images.shape[1]}; "
            "export the model again"
        )
    return PocketRewardModel(values, load_word_pieces(word_vectors), frame_graph, clip_graph, precision)


def _read_settings(path: Path, familiar: Floats, images: Path) -> PocketSettings:
    try:
        facts = read_facts(path)
        weight, bias = (np.asarray(facts["calibration"][part], dtype=np.float64) for part in ("weight", "bias"))
        above = facts.get("unfamiliar_above")
        found = PocketSettings(
            int(facts["size"]),
            NoveltyCalibration(weight, bias, familiar),
            float(facts["conformal"]),
            None if above is None else float(above),
            None if above is None or not images.exists() else _load_rows(images),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise ModelError(f"{path} is no settings file of pocket ({type(error).__name__}: {error})") from error
    if not 8 <= found.size <= _MAX_SIDE:
        raise ModelError(f"{path} must have a size from 8 to {_MAX_SIDE}, got {found.size}")
    if above is not None and not np.isfinite(float(above)):
        raise ModelError(f"{path} must have a finite number as unfamiliar_above, got {above}; export the model again")
    finite = np.isfinite([*weight.flat, *bias.flat, found.conformal]).all()
    if weight.shape != (FEATURES, LEVELS) or bias.shape != (LEVELS,) or not finite:
        raise ModelError(
            f"{path} must have a calibration of finite numbers, weight ({FEATURES}, {LEVELS}) and bias ({LEVELS},), "
            f"got {weight.shape} and {bias.shape}"
        )
    return found


def _all_blank(frames: Frames) -> bool:
    """Tell whether every frame (T, H, W, 3) is blank."""
    # OpenCV's deviation is many times as fast as that of numpy
    return all(float(cv2.meanStdDev(frame.reshape(-1, 1))[1][0, 0]) < _BLANK_STD for frame in frames)


def _is_still(frames: Frames) -> bool:
    """Tell whether a clip (T, H, W, 3) of some length shows the same picture in every frame."""
    # from the end: a clip in which something moves mostly differs there
    return len(frames) >= _STILL_FRAMES and all(_same_picture(frames[0], frame) for frame in frames[:0:-1])


def _same_picture(first: Frames, second: Frames) -> bool:
    one, other = np.ascontiguousarray(first), np.ascontiguousarray(second)
    return cv2.norm(one, other, cv2.NORM_L1) < _SAME_PICTURE * one.size


def _failure_reason(blank: bool, instruction: str) -> str | None:
    """Return why a clip cannot be scored, or None."""
    if not any(letter.isalnum() for letter in instruction):
        return "the instruction is empty; pocket scores a clip against an instruction"
    if blank:
        return "every frame is one colour; there is nothing to score"
    return None


@lru_cache(maxsize=1024)
def _sampled_indices(length: int, most: int) -> NDArray[np.int64]:
    """Return which frames of a clip are encoded: all, or `most` of them, evenly from the first to the last."""
    indices = np.linspace(0, length - 1, min(length, most)).round().astype(np.int64)
    indices.setflags(write=False)
    return indices


def _frame_key(frame: Frames) -> FrameKey:
    """Return the cache key of a frame: its shape and a hash of its pixels before resizing."""
    pixels = np.ascontiguousarray(frame)
    return frame.shape[0], frame.shape[1], xxhash.xxh3_128_intdigest(pixels.data, _FRAME_SEED)


def _padded(clips: Sequence[Sequence[Floats]], count: int) -> Floats:
    """Return the clips padded to `count` encoded frames each, copied once."""
    rows = [clip[at] for clip in clips for at in pad_clip(np.arange(len(clip)), count)]
    return np.concatenate(rows).reshape(len(clips), count, *rows[0].shape)
