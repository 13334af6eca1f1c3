"""Prompts of Qwen-VL as token sequences: text, pairs of frames, and the position of each token.

A video is laid out as Qwen3-VL was trained and as vLLM serves it: `<s seconds>` and one vision block per pair of
frames, without the outer pair of vision marks that transformers 5 leaves around them. Text after a picture goes on
from the largest position in it plus one, the published rule, also for Qwen2.5-VL, where transformers from 5.3 on does
otherwise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Frames, fingerprint_frames
from rewardlab.core.seeding import digest
from rewardlab.models.backends.qwen_patches import FRAMES_PER_PATCH, MERGE, Family, Pair, frame_size

Ints = NDArray[np.int64]
TEXT, IMAGE, VIDEO = 0, 1, 2  # kinds of token
_MOST_KNOWN = 4096  # texts whose ids are kept


@dataclass(frozen=True, eq=False)
class Picture:
    """A video or an image in pairs of frames, with the second of each frame; an image has no times."""

    pairs: tuple[Pair, ...]
    times: NDArray[np.float64] | None


Part = str | Picture


@dataclass(frozen=True)
class _Mark:
    """A special token of the template; text that spells one out stays text."""

    name: str


@dataclass(frozen=True, eq=False)
class _Block:
    """Consecutive pairs of frames, `step` positions of time apart."""

    pairs: tuple[Pair, ...]
    kind: int
    step: float


_Piece = str | _Mark | _Block


@dataclass(frozen=True, eq=False)
class Prompt:
    """A token sequence: ids, kinds, three positions each, and what stands for the content of each token."""

    ids: Ints  # (L,)
    kinds: Ints  # (L,)
    positions: Ints  # (3, L): time, row, column
    content: Ints  # (L,): the id of text, a negative hash of the pair of frames
    pairs: tuple[Pair, ...]  # in order of appearance
    shared: int = 0  # so many leading tokens do not depend on what was asked

    def __len__(self) -> int:
        return len(self.ids)

    def cut(self, length: int) -> "Prompt":
        """Return the first tokens; only text may be cut off."""
        cut = (self.ids[:length], self.kinds[:length], self.positions[:, :length], self.content[:length])
        return replace(self, ids=cut[0], kinds=cut[1], positions=cut[2], content=cut[3])

    def common(self, other: "Prompt") -> int:
        """Return how many leading tokens are the same, in content and position."""
        length = min(len(self), len(other))
        differs = (self.content[:length] != other.content[:length]) | np.any(
            self.positions[:, :length] != other.positions[:, :length], axis=0
        )
        return int(np.argmax(differs)) if differs.any() else length

    @property
    def shared_name(self) -> str:
        """Identify the shared tokens."""
        return digest(self.content[: self.shared].tobytes(), self.positions[:, : self.shared].tobytes())


@dataclass(frozen=True)
class Writer:
    """Lays out prompts for one checkpoint."""

    tokenizer: Any
    family: Family
    most_pixels: int
    ticks: float  # positions of time per second, where a video is one block
    known: dict[str | _Mark, Ints] = field(default_factory=dict, compare=False, repr=False)  # ids of texts seen before

    def look(self, frames: Frames, times: NDArray[np.float64] | None) -> Picture:
        """Return frames (T, H, W, 3) as a picture; the hash of each pair is made here, once."""
        size = frame_size(frames.shape[1], frames.shape[2], self.family, self.most_pixels)
        pairs = (Pair(digest(fingerprint_frames(pair), *size), pair, size) for pair in _in_pairs(frames))
        return Picture(tuple(pairs), times)

    def chat(self, parts: Sequence[Part], answer: str, shared: int) -> Prompt:
        """Return the user's turn and the beginning of the answer; the first `shared` parts are common to many."""
        closing: list[_Piece] = [_Mark("<|im_end|>"), "\n", _Mark("<|im_start|>"), "assistant\n" + answer]
        return self._prompt([*self._turn(parts), *closing], self._turn(parts[:shared]))

    def open_turn(self, parts: Sequence[Part], shared: int) -> Prompt:
        """Return the user's turn, not ended: what follows goes on with the user's own text."""
        return self._prompt(self._turn(parts), self._turn(parts[:shared]))

    def _turn(self, parts: Sequence[Part]) -> list[_Piece]:
        pieces: list[_Piece] = []
        if self.family.system:
            pieces += [_Mark("<|im_start|>"), "system\n" + self.family.system, _Mark("<|im_end|>"), "\n"]
        pieces += [_Mark("<|im_start|>"), "user\n"]
        for part in parts:
            pieces += [part] if isinstance(part, str) else self._shown(part)
        return pieces

    def _shown(self, picture: Picture) -> Iterator[_Piece]:
        """Yield the pieces of a video or image."""
        if picture.times is None:
            yield from _framed(_Block(picture.pairs, IMAGE, 1.0))
        elif not self.family.timed:
            step = self.ticks * FRAMES_PER_PATCH * _interval(picture.times)
            yield from _framed(_Block(picture.pairs, VIDEO, step))
        else:
            for pair, seconds in zip(picture.pairs, _in_pairs(picture.times)):
                yield f"<{seconds.mean():.1f} seconds>"
                yield from _framed(_Block((pair,), VIDEO, 1.0))

    def _prompt(self, pieces: Sequence[_Piece], beginning: Sequence[_Piece]) -> Prompt:
        prompt = self._tokens(pieces)
        return replace(prompt, shared=prompt.common(self._tokens(beginning)))

    def _tokens(self, pieces: Sequence[_Piece]) -> Prompt:
        rows: list[tuple[Ints, Ints, Ints, Ints]] = []
        start = 0
        for piece in _joined(pieces):
            rows.append(self._block(piece, start) if isinstance(piece, _Block) else self._text(piece, start))
            start = int(rows[-1][2].max(initial=start - 1)) + 1
        ids, kinds, content = (np.concatenate([row[i] for row in rows]) for i in (0, 1, 3))
        positions = np.concatenate([row[2] for row in rows], axis=1)
        pairs = tuple(pair for piece in pieces if isinstance(piece, _Block) for pair in piece.pairs)
        return Prompt(ids, kinds, positions, content, pairs)

    def _text(self, piece: str | _Mark, start: int) -> tuple[Ints, Ints, Ints, Ints]:
        ids = self.known[piece] if piece in self.known else self._ids(piece)
        positions = np.tile(start + np.arange(len(ids)), (3, 1))
        return ids, np.full(len(ids), TEXT), positions, ids

    def _ids(self, piece: str | _Mark) -> Ints:
        """Return the ids of a text; most are asked for again in every prompt, so they are kept."""
        if isinstance(piece, _Mark):
            ids = np.array([self.tokenizer.convert_tokens_to_ids(piece.name)])
        else:
            plain = self.tokenizer(piece, add_special_tokens=False, split_special_tokens=True)
            ids = np.array(plain["input_ids"], dtype=np.int64)
        if len(self.known) < _MOST_KNOWN:
            self.known[piece] = ids
        return ids

    def _block(self, block: _Block, start: int) -> tuple[Ints, Ints, Ints, Ints]:
        rows, columns = (length // self.family.patch // MERGE for length in block.pairs[0].size)
        shape = (len(block.pairs), rows, columns)
        time, row, column = np.indices(shape).reshape(3, -1)
        positions = start + np.stack([(time * block.step).astype(np.int64), row, column])
        name = "<|image_pad|>" if block.kind == IMAGE else "<|video_pad|>"
        ids = np.full(time.size, self.tokenizer.convert_tokens_to_ids(name))
        content = np.repeat([-1 - (int(pair.key, 16) >> 2) for pair in block.pairs], rows * columns)
        return ids, np.full(time.size, block.kind), positions, content


def _framed(block: _Block) -> tuple[_Piece, ...]:
    return _Mark("<|vision_start|>"), block, _Mark("<|vision_end|>")


def _joined(pieces: Sequence[_Piece]) -> Iterator[_Piece]:
    """Join neighbouring texts, as the tokenizer sees them."""
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            continue
        if text:
            yield text
        text = ""
        yield piece
    if text:
        yield text


def _in_pairs(values: NDArray[Any]) -> NDArray[Any]:
    """Return values two by two; the last of an odd number is repeated."""
    if len(values) % FRAMES_PER_PATCH:
        values = np.concatenate([values, values[-1:]])
    return values.reshape(-1, FRAMES_PER_PATCH, *values.shape[1:])


def _interval(times: NDArray[np.float64]) -> float:
    """Return the mean seconds from one frame to the next; 1 where there is no next."""
    return float(times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 1.0
