"""The loops of `pixel_ops` in NumPy and OpenCV, bit for bit the same, for where numba is not installed.

Whole numbers may be summed in any order; floats are added, multiplied and cut in the order of the loops.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Reals = NDArray[np.float32]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

_STRIDE, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # splitmix64
_BLOCK = 1 << 16  # values changed at once, so that what lies between stays in the second cache
_HALF = np.float32(0.5)


@lru_cache(maxsize=4)
def _strides(count: int) -> Words:
    return np.arange(count, dtype=np.uint64) * np.uint64(_STRIDE)


def _random_words(seed: np.uint64, start: int, stop: int) -> Words:
    """Return splitmix64 of the seed and each index from `start` to below `stop`."""
    word = _strides(stop)[start:] + np.asarray(seed, np.uint64)
    shifted = np.empty_like(word)
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        np.right_shift(word, np.uint64(shift), out=shifted)
        np.bitwise_xor(word, shifted, out=word)
        np.multiply(word, np.uint64(factor), out=word)
    np.right_shift(word, np.uint64(31), out=shifted)
    return np.bitwise_xor(word, shifted, out=word)


def _cut(values: Reals, out: Bytes) -> None:
    """Write values of 0 to below 256 rounded down."""
    np.copyto(out, values, casting="unsafe")


def look_up_noise(frames: Bytes, table: Bytes, seeds: Words, out: Bytes) -> None:
    """Replace every value by its place in the table; four values share the 64 bits of a word."""
    steps, size = table.size // 256, frames.shape[1]
    mask, flat = np.uint16(steps - 1), table.reshape(-1)
    whole = size // 4 * 4
    for t in range(frames.shape[0]):
        bits = _random_words(seeds[t], 0, whole // 4).view(np.uint16)  # the lowest bits come first
        last = _random_words(seeds[t], whole, size).astype(np.uint16)
        for start in range(0, size, _BLOCK // 4):
            stop = min(start + _BLOCK // 4, size)
            index = np.concatenate([bits[start:stop], last]) if stop > whole else bits[start:stop]
            place = frames[t, start:stop].astype(np.uint32)
            place *= np.uint32(steps)
            place |= (index & mask).astype(np.uint32)
            flat.take(place.astype(np.intp), out=out[t, start:stop], mode="clip")


def salt_and_pepper(frames: Bytes, fraction: float, seeds: Words, out: Bytes) -> None:
    """Turn values fully off or on by masks of all bits."""
    low = int(fraction * 2**15 + 0.5)
    for t in range(frames.shape[0]):
        size = frames.shape[1]
        bits = _random_words(seeds[t], 0, -(-size // 4)).view(np.uint16)[:size]
        np.bitwise_or(frames[t], np.negative((bits >= 2**16 - low).view(np.uint8)), out=out[t])
        np.bitwise_and(out[t], np.negative((bits >= low).view(np.uint8)), out=out[t])


def multiply_add(frames: Bytes, keep: Reals, add: Reals, out: Bytes) -> None:
    """Write x * keep + add, clipped and rounded down."""
    for t in range(frames.shape[0]):
        for start in range(0, frames.shape[1], _BLOCK):
            part = slice(start, start + _BLOCK)
            value = frames[t, part].astype(np.float32)
            value *= keep[part]
            value += add[part]
            _cut(np.clip(value, np.float32(0), np.float32(255), out=value), out[t, part])


def _planes(pixels: Bytes) -> Iterator[tuple[slice, tuple[Bytes, ...]]]:
    """Yield parts of some pixels, with each channel of them by itself."""
    for start in range(0, len(pixels), _BLOCK):
        part = slice(start, min(start + _BLOCK, len(pixels)))
        yield part, tuple(channel[:, 0] for channel in cv2.split(pixels[part, None]))


def _merge(planes: list[Bytes], out: Bytes) -> None:
    out[...] = cv2.merge(planes).reshape(-1, 3)


def look_up_by_max_channel(frames: Bytes, table: Bytes, out: Bytes) -> None:
    """Replace every value by table[brightest channel of its pixel, x]."""
    flat = table.reshape(-1)
    for part, (r, g, b) in _planes(frames):
        row = np.maximum(r, np.maximum(g, b)).astype(np.intp) << 8
        _merge([flat.take(row | channel, mode="clip") for channel in (r, g, b)], out[part])


def scale_saturation(frames: Bytes, factor: Reals, out: Bytes) -> None:
    """Multiply the distance of each channel from the brightest one by factor[brightest, darkest]."""
    flat = factor.reshape(-1)
    for part, channels in _planes(frames):
        r, g, b = channels
        top = np.maximum(r, np.maximum(g, b))
        stretch = flat.take((top.astype(np.intp) << 8) | np.minimum(r, np.minimum(g, b)), mode="clip")
        level, changed = top.astype(np.float32) + np.float32(1e-3), []
        for channel in channels:
            value = (top - channel).astype(np.float32)
            value *= stretch
            np.subtract(level, value, out=value)
            changed.append(np.maximum(value, np.float32(0), out=value).astype(np.uint8))
        _merge(changed, out[part])


def sum_shifted(source: Bytes, shifts: Integers, weights: Reals, out: Bytes) -> None:
    """Write the weighted sum of shifted copies, four at a time as the loop adds them."""
    (height, width), stride = out.shape, source.shape[1]
    above, below = max(0, -int(shifts[:, 0].min())), max(0, int(shifts[:, 0].max()))
    padded = cv2.copyMakeBorder(source, above, below, 0, 0, cv2.BORDER_REPLICATE).astype(np.float32).reshape(-1)
    starts = ((above + shifts[:, 0]) * stride + shifts[:, 1]).tolist()  # all rows as one, and cut out at the end
    used = np.flatnonzero(weights[::4] + weights[1::4] + weights[2::4] + weights[3::4]) * 4  # others add 0
    mixed, size = np.empty((height, stride), np.uint8), (height - 1) * stride + width
    buffers = np.empty((4, min(_BLOCK // 2, size)), np.float32)
    for start in range(0, size, buffers.shape[1]):
        length = min(buffers.shape[1], size - start)
        total, a, b, c = buffers[:, :length]
        total[...] = 0
        for k in used.tolist():
            first, second, third, fourth = (
                padded[start + place : start + place + length] for place in starts[k : k + 4]
            )
            np.add(np.multiply(first, weights[k], out=a), np.multiply(second, weights[k + 1], out=b), out=a)
            np.add(np.multiply(third, weights[k + 2], out=b), np.multiply(fourth, weights[k + 3], out=c), out=b)
            total += np.add(a, b, out=a)
        total += _HALF
        _cut(total, mixed.reshape(-1)[start : start + length])
    out[...] = mixed[:, :width]


def disk_blur(padded: Bytes, reach: Integers, out: Bytes) -> None:
    """Average over a disk: rows of one length are a difference in a table of sums."""
    radius, (height, width) = len(reach) // 2, out.shape
    wide = padded.shape[1] // 3
    sums = cv2.integral(padded.reshape(len(padded), wide, 3)).reshape(len(padded) + 1, -1)  # wraps, and back again
    scale = np.float32(1) / np.float32(2 * reach.sum() + reach.size)
    edges = [0, *(np.flatnonzero(np.diff(reach)) + 1).tolist(), len(reach)]  # of rows of one length
    bands: dict[int, list[tuple[int, int]]] = {}
    for top, bottom in pairwise(edges):
        bands.setdefault(int(reach[top]), []).append((top, bottom))
    rows = max(1, _BLOCK // max(width, 1))
    for start in range(0, height, rows):
        stop = min(start + rows, height)
        total = np.zeros((stop - start, width), np.int32)
        for length, ((top, bottom), *others) in bands.items():
            band = sums[start + bottom : stop + bottom] - sums[start + top : stop + top]
            for top, bottom in others:
                band += sums[start + bottom : stop + bottom]
                band -= sums[start + top : stop + top]
            left, right = 3 * (radius - length), 3 * (radius + length + 1)
            total += band[:, right : right + width]
            total -= band[:, left : left + width]
        value = total.astype(np.float32)
        value *= scale
        value += _HALF
        _cut(value, out[start:stop])


def interpolate_rows(source: Bytes, places: Reals, out: Bytes) -> None:
    """Write row y as the source at height places[y], between two rows."""
    top = places.astype(np.int64)
    part, below = (places - top.astype(np.float32))[:, None], np.minimum(top + 1, len(source) - 1)
    rows = max(1, _BLOCK // max(out.shape[1], 1))
    for start in range(0, len(out), rows):
        some = slice(start, start + rows)
        first, value = source[top[some]].astype(np.float32), source[below[some]].astype(np.float32)
        value -= first
        value *= part[some]
        value += first
        value += _HALF
        _cut(value, out[some])


def shuffle_neighbours(order: NDArray[np.int32], reach: float, rounds: int, seed: np.uint64) -> None:
    """Swap every entry with a neighbour; each swap sees the ones before, so this stays a loop."""
    height, width = order.shape
    rim, unit = int(np.ceil(reach)), 2 * reach / 2**32
    rows, columns = np.arange(height - rim, rim, -1)[:, None], np.arange(width - rim, rim, -1)[None]
    here = (rows * width + columns).reshape(-1)
    values = order.reshape(-1).tolist()
    for k in range(rounds):
        word = _random_words(seed, 0, (k + 1) * height * width)[k * height * width + here]
        down = np.floor((word & np.uint64(0xFFFFFFFF)) * unit - reach).astype(np.int64)
        right = np.floor((word >> np.uint64(32)) * unit - reach).astype(np.int64)
        for a, b in zip(here.tolist(), (here + down * width + right).tolist(), strict=True):  # one swap after another
            values[a], values[b] = values[b], values[a]
    order[...] = np.array(values, np.int32).reshape(order.shape)


def gather_pixels(source: Bytes, order: NDArray[np.int32], out: Bytes) -> None:
    """Write pixel order[i] of the source to place i, a pixel as one word of four bytes."""
    words = cv2.cvtColor(source[:, None], cv2.COLOR_RGB2RGBA).reshape(-1).view(np.uint32)  # a pixel is one word
    moved = words.take(order.astype(np.intp), mode="clip").view(np.uint8).reshape(-1, 1, 4)
    out[...] = cv2.cvtColor(moved, cv2.COLOR_RGBA2RGB)[:, 0]


def bleach_and_add_snow(frame: Bytes, keep: np.float32, snow: Reals, out: Bytes) -> None:
    """Bleach a frame towards white and add the snow layer."""
    lift = np.float32(1) - keep
    for part, channels in _planes(frame):
        r, g, b = (channel.astype(np.float32) for channel in channels)
        grey = np.float32(0.299) * r
        grey += np.float32(0.587) * g
        grey += np.float32(0.114) * b
        grey *= np.float32(1.5)
        pale, changed = np.add(grey, np.float32(127.5), out=grey), []
        for channel in (r, g, b):
            raised = np.maximum(channel, pale)
            raised *= lift
            channel *= keep
            channel += raised
            channel += snow[part]
            changed.append(np.minimum(channel, np.float32(255), out=channel).astype(np.uint8))
        _merge(changed, out[part])


def fill_cells(frame: Bytes, rows: Integers, columns: Integers, out: Bytes) -> None:
    """Show the mean of each cell as one square; squares must follow each other without gaps."""
    sums = cv2.integral(frame.reshape(len(frame), -1, 3))
    bands = sums[rows[:, 1]] - sums[rows[:, 0]]
    value = bands[:, columns[:, 1]] - bands[:, columns[:, 0]]
    pixels = (rows[:, 1] - rows[:, 0])[:, None] * (columns[:, 1] - columns[:, 0])
    mean = value.astype(np.float32) * (np.float32(1) / pixels.astype(np.float32))[..., None] + _HALF
    across = np.repeat(mean.astype(np.uint8), columns[:, 3] - columns[:, 2], axis=1)
    np.copyto(out, np.repeat(across.reshape(len(rows), -1), rows[:, 3] - rows[:, 2], axis=0))
