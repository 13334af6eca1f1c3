"""Qwen-VL without weights: families, frames to patches, prompts to tokens and positions.

A video is laid out as Qwen3-VL was trained and as vLLM serves it: `<s seconds>` and one vision block per pair of
frames, without the outer pair of vision marks that transformers 5 leaves around them. Text after an image or a video
goes on from the largest position in it plus one, the published rule, also for Qwen2.5-VL, where transformers from 5.3
on does otherwise.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Frames, fingerprint_frames
from rewardlab.core.seeding import digest
from rewardlab.models.vlm import LRUCache, map_frames, merge_texts

MERGE = 2  # patches along each side that become one token
FRAMES_PER_PATCH = 2
MIN_TOKENS, MAX_TOKENS = 128, 768  # per frame, the published budget (qwen-vl-utils, VIDEO_MIN_TOKEN_NUM and _MAX_)


@dataclass(frozen=True)
class Family:
    """What differs between generations: patch size, normalisation, system prompt, video layout."""

    patch_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    system_prompt: str  # the one its chat template adds; "" for none
    timestamps: bool  # the seconds before each pair of frames, or one vision block for the whole video
    deepstack: bool  # features of inner layers of the vision tower go to the first layers of the language model


_HALF = (0.5, 0.5, 0.5)
FAMILIES = {
    "qwen2_5_vl": Family(
        patch_size=14,
        mean=(0.48145466, 0.4578275, 0.40821073),
        std=(0.26862954, 0.26130258, 0.27577711),
        system_prompt="You are a helpful assistant.",
        timestamps=False,
        deepstack=False,
    ),
    "qwen3_vl": Family(16, _HALF, _HALF, system_prompt="", timestamps=True, deepstack=True),
}


@dataclass(frozen=True, eq=False)
class FramePair:
    """Two frames that the vision tower encodes together; `key` is their hash, `size` what they are resized to."""

    key: str
    frames: Frames  # (2, H, W, 3)
    size: tuple[int, int]


def frame_size(height: int, width: int, family: Family, max_pixels: int) -> tuple[int, int]:
    """Return the size nearest to the frame's in whole tokens and within the budget (the rule of qwen-vl-utils)."""
    side = family.patch_size * MERGE
    most = max_pixels or MAX_TOKENS * side * side
    fewest = min(MIN_TOKENS * side * side, most)
    rows, columns = (max(side, round(length / side) * side) for length in (height, width))
    if rows * columns < fewest:
        scale = math.sqrt(fewest / (height * width))
        rows, columns = (math.ceil(length * scale / side) * side for length in (height, width))
    if rows * columns > most:
        scale = math.sqrt(most / (height * width))
        rows, columns = (max(side, math.floor(length * scale / side) * side) for length in (height, width))
    return rows, columns


def token_grid(pair: FramePair, family: Family) -> tuple[int, int]:
    """Return how many tokens high and wide a pair of frames is."""
    height, width = pair.size
    return height // family.patch_size // MERGE, width // family.patch_size // MERGE


def patchify(pairs: Sequence[FramePair], family: Family, device: Any) -> Any:
    """Return patches of pairs of one size, (patches, 3 * 2 * size * size), in the order in which they are merged."""
    import torch

    shape = len(pairs), *pairs[0].frames.shape
    stacked = torch.empty(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")  # copied twice as fast from there
    np.stack([pair.frames for pair in pairs], out=stacked.numpy())
    frames = stacked.to(device, non_blocking=True).permute(0, 1, 4, 2, 3).flatten(0, 1).float()
    if frames.shape[-2:] != pairs[0].size:
        frames = torch.nn.functional.interpolate(frames, pairs[0].size, mode="bicubic", antialias=True)
        frames = frames.round().clamp(0, 255)
    mean, std = _colours(family, device)
    (rows, columns), size = token_grid(pairs[0], family), family.patch_size
    patches = ((frames - mean) / std).view(len(pairs), FRAMES_PER_PATCH, 3, rows, MERGE, size, columns, MERGE, size)
    # pair, window row, window column, row in it, column in it, then the patch itself: channel, frame, y, x
    return patches.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(len(pairs) * rows * columns * MERGE * MERGE, -1)


@cache
def _colours(family: Family, device: Any) -> tuple[Any, ...]:
    """Return mean and deviation of the colours; on a GPU once, as what is sent there waits for all work before it."""
    import torch

    return tuple(torch.tensor(value, device=device).view(1, 3, 1, 1) * 255 for value in (family.mean, family.std))


Ints = NDArray[np.int64]
Seconds = NDArray[np.float64]
TEXT, IMAGE, VIDEO = 0, 1, 2  # kinds of token
_MAX_CACHED_TEXTS = 4096  # texts whose token ids are kept
_ROW_CACHE_BYTES = 1 << 24  # of segments that were laid out already


@dataclass(frozen=True, eq=False)
class VisualInput:
    """A video or an image in pairs of frames, with the second of each frame; an image has no times."""

    pairs: tuple[FramePair, ...]
    times: Seconds | None


QwenPart = str | VisualInput


@dataclass(frozen=True)
class _SpecialToken:
    """A special token of the chat template; text that spells one out stays text."""

    name: str


@dataclass(frozen=True, eq=False)
class _VisionBlock:
    """Consecutive pairs of frames, `step` positions of time apart."""

    pairs: tuple[FramePair, ...]
    kind: int
    step: float

    def __repr__(self) -> str:
        return f"{self.kind} {self.step} {[pair.key for pair in self.pairs]}"


_Segment = str | _SpecialToken | _VisionBlock
_Tokens = tuple[Ints, Ints, Ints, Ints]  # ids, kinds, positions and content, as in TokenSequence


@dataclass(frozen=True, eq=False)
class TokenSequence:
    """A tokenized prompt: ids, kinds, three positions each, and what stands for the content of each token."""

    ids: Ints  # (L,)
    kinds: Ints  # (L,)
    positions: Ints  # (3, L): time, row, column
    content: Ints  # (L,): the id of text, a negative hash of the pair of frames
    pairs: tuple[FramePair, ...]  # in order of appearance
    prefix_length: int = 0  # so many leading tokens other prompts have in common

    def __len__(self) -> int:
        return len(self.ids)

    def truncated(self, length: int) -> "TokenSequence":
        """Return the first tokens; only text may be cut off."""
        return replace(
            self,
            ids=self.ids[:length],
            kinds=self.kinds[:length],
            positions=self.positions[:, :length],
            content=self.content[:length],
        )

    def common_prefix(self, other: "TokenSequence") -> int:
        """Return how many leading tokens are the same, in content and position."""
        length = min(len(self), len(other))
        differs = (self.content[:length] != other.content[:length]) | np.any(
            self.positions[:, :length] != other.positions[:, :length], axis=0
        )
        return int(np.argmax(differs)) if differs.any() else length

    @property
    def prefix_key(self) -> str:
        """Identify the tokens of the prefix."""
        return digest(self.content[: self.prefix_length].tobytes(), self.positions[:, : self.prefix_length].tobytes())


@dataclass(frozen=True)
class PromptBuilder:
    """Lays out prompts for one checkpoint."""

    tokenizer: Any
    family: Family
    max_pixels: int
    positions_per_second: float  # of time, where a video is one vision block
    id_cache: dict[str | _SpecialToken, Ints] = field(default_factory=dict, compare=False, repr=False)
    row_cache: LRUCache[_Tokens] = field(default_factory=lambda: LRUCache(_ROW_CACHE_BYTES), compare=False, repr=False)

    def visual_input(self, frames: Frames, times: Seconds | None) -> VisualInput:
        """Return frames (T, H, W, 3) in pairs."""
        return self.visual_inputs([(frames, times)])[0]

    def visual_inputs(self, shown: Sequence[tuple[Frames, Seconds | None]]) -> list[VisualInput]:
        """Return several videos or images in pairs of frames; the hash of each pair is made here, once."""
        pairs = [_in_pairs(frames) for frames, _ in shown]
        hashes = iter(map_frames(fingerprint_frames, itertools.chain.from_iterable(pairs)))
        found = []
        for each, (_, times) in zip(pairs, shown, strict=True):
            size = frame_size(each.shape[2], each.shape[3], self.family, self.max_pixels)
            made = tuple(FramePair(digest(next(hashes), *size), pair, size) for pair in each)
            found.append(VisualInput(made, times))
        return found

    def chat(self, parts: Sequence[QwenPart], prefix: Sequence[QwenPart], reply: str = "") -> TokenSequence:
        """Return the user's turn and the beginning of the reply; `prefix` is what many turns begin with."""
        closing = (_SpecialToken("<|im_end|>"), "\n", _SpecialToken("<|im_start|>"), "assistant\n" + reply)
        return self._sequence([*self._turn(parts), *closing], self._turn(prefix))

    def reply_ids(self, reply: str) -> list[int]:
        """Return the tokens of a chat that ends in this reply."""
        ids: list[int] = self.chat((), (), reply).ids.tolist()
        return ids

    def open_turn(self, parts: Sequence[QwenPart], prefix: Sequence[QwenPart]) -> TokenSequence:
        """Return the user's turn without its end, so that the model continues the user's text."""
        return self._sequence(self._turn(parts), self._turn(prefix))

    def _turn(self, parts: Sequence[QwenPart]) -> list[_Segment]:
        start, end = _SpecialToken("<|im_start|>"), _SpecialToken("<|im_end|>")
        segments: list[_Segment] = []
        if self.family.system_prompt:
            segments += [start, "system\n" + self.family.system_prompt, end, "\n"]
        segments += [start, "user\n"]
        for part in parts:
            segments += [part] if isinstance(part, str) else self._vision_segments(part)
        return segments

    def _vision_segments(self, visual: VisualInput) -> Iterator[_Segment]:
        if visual.times is None:
            yield from _marked(_VisionBlock(visual.pairs, IMAGE, 1.0))
        elif not self.family.timestamps:
            times = visual.times
            interval = float(times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 1.0  # mean seconds
            step = self.positions_per_second * FRAMES_PER_PATCH * interval
            yield from _marked(_VisionBlock(visual.pairs, VIDEO, step))
        else:
            for pair, seconds in zip(visual.pairs, _in_pairs(visual.times), strict=True):
                yield f"<{seconds.mean():.1f} seconds>"
                yield from _marked(_VisionBlock((pair,), VIDEO, 1.0))

    def _sequence(self, segments: Sequence[_Segment], prefix: Sequence[_Segment]) -> TokenSequence:
        sequence = self._tokenize(segments)
        return replace(sequence, prefix_length=sequence.common_prefix(self._tokenize(prefix)))

    def _tokenize(self, segments: Sequence[_Segment]) -> TokenSequence:
        rows: list[_Tokens] = []
        start = 0
        merged: Iterator[_Segment] = merge_texts(segments)
        for segment in merged:
            rows.append(self._tokens(segment, start))
            start = int(rows[-1][2].max(initial=start - 1)) + 1
        ids, kinds, content = (np.concatenate([row[i] for row in rows]) for i in (0, 1, 3))
        positions = np.concatenate([row[2] for row in rows], axis=1)
        pairs = tuple(pair for segment in segments if isinstance(segment, _VisionBlock) for pair in segment.pairs)
        return TokenSequence(ids, kinds, positions, content, pairs)

    def _tokens(self, segment: _Segment, start: int) -> _Tokens:
        """Return the tokens of a segment that begins at this position; most come again in the next prompt."""
        key = f"{segment!r} {start}"
        tokens = self.row_cache.get(key)
        if tokens is None:
            if isinstance(segment, _VisionBlock):
                tokens = self._vision_tokens(segment, start)
            else:
                ids = self._ids(segment)
                positions = np.tile(start + np.arange(len(ids)), (3, 1))
                tokens = ids, np.full(len(ids), TEXT), positions, ids
            self.row_cache.put(key, tokens, sum(part.nbytes for part in tokens))
        return tokens

    def _ids(self, text: str | _SpecialToken) -> Ints:
        """Return the ids of a text; most come again in every prompt, so they are cached."""
        if text in self.id_cache:
            return self.id_cache[text]
        if isinstance(text, _SpecialToken):
            ids = np.array([self.tokenizer.convert_tokens_to_ids(text.name)])
        else:
            plain = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)
            ids = np.array(plain["input_ids"], dtype=np.int64)
        if len(self.id_cache) < _MAX_CACHED_TEXTS:
            self.id_cache[text] = ids
        return ids

    def _vision_tokens(self, block: _VisionBlock, start: int) -> _Tokens:
        rows, columns = token_grid(block.pairs[0], self.family)
        time, row, column = np.indices((len(block.pairs), rows, columns)).reshape(3, -1)
        positions = start + np.stack([(time * block.step).astype(np.int64), row, column])
        name = "<|image_pad|>" if block.kind == IMAGE else "<|video_pad|>"
        ids = np.full(time.size, self.tokenizer.convert_tokens_to_ids(name))
        content = np.repeat([-1 - (int(pair.key, 16) >> 2) for pair in block.pairs], rows * columns)
        return ids, np.full(time.size, block.kind), positions, content


def _marked(block: _VisionBlock) -> tuple[_Segment, ...]:
    return _SpecialToken("<|vision_start|>"), block, _SpecialToken("<|vision_end|>")


def _in_pairs(values: NDArray[Any]) -> NDArray[Any]:
    """Return values two by two; the last of an odd number is repeated."""
    if len(values) % FRAMES_PER_PATCH:
        values = np.concatenate([values, values[-1:]])
    return values.reshape(-1, FRAMES_PER_PATCH, *values.shape[1:])
