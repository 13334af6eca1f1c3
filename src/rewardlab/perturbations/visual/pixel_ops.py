"""Compiled loops over pixels, and lengths at the reference resolution.

Every random number is a function of a frame's seed and the place in the frame.
"""

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.core.jit import compiled
from rewardlab.perturbations.visual import pixel_ops_numpy

Image = NDArray[np.uint8]  # (H, W, 3)
Layer = NDArray[np.float32]
Floats = NDArray[np.float64]
Seeds = NDArray[np.uint64]  # one per frame
Integers = NDArray[np.int64]

NOISE_BITS = 12  # random bits per pixel and channel: quantiles are right to 1/8192
NOISE_STEPS = 1 << NOISE_BITS
_MASK = np.uint64(NOISE_STEPS - 1)
_BITS = np.uint64(NOISE_BITS)
_BLOCK = 4096  # values whose random bits are drawn at once, to stay in the first cache
_STRIDE = np.uint64(0x9E3779B97F4A7C15)  # splitmix64
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def map_frames(frames: Frames, change: Callable[[Image, Image], object]) -> Frames:
    """Return new frames, each written by `change(frame, target)`."""
    out = np.empty(frames.shape, np.uint8)
    for frame, target in zip(np.ascontiguousarray(frames), out, strict=True):
        change(frame, target)
    return out


def flat_rows(frame: Image) -> Image:
    """Return a view of a frame with one row of values per row of pixels."""
    return frame.reshape(frame.shape[0], -1)


@compiled(None)
def splitmix64(seed: np.uint64, index: int) -> np.uint64:
    """Return 64 random bits that belong to a seed and an index."""
    word = seed + np.uint64(index) * _STRIDE
    word = (word ^ (word >> np.uint64(30))) * _FIRST
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    return word ^ (word >> np.uint64(31))


@compiled(pixel_ops_numpy.look_up_noise)
def look_up_noise(frames: Frames, table: Image, seeds: Seeds, out: Frames) -> None:
    """Replace every value x by table[x << NOISE_BITS | u] with u fresh random bits; frames are (T, values)."""
    for t in range(frames.shape[0]):
        source, target = frames[t], out[t]
        whole = source.size // 4
        for i in range(whole):
            word = splitmix64(seeds[t], i)
            j = 4 * i  # written out: a loop of four is not unrolled, and takes twice as long
            target[j] = table[(np.uint64(source[j]) << _BITS) | (word & _MASK)]
            target[j + 1] = table[(np.uint64(source[j + 1]) << _BITS) | ((word >> np.uint64(16)) & _MASK)]
            target[j + 2] = table[(np.uint64(source[j + 2]) << _BITS) | ((word >> np.uint64(32)) & _MASK)]
            target[j + 3] = table[(np.uint64(source[j + 3]) << _BITS) | ((word >> np.uint64(48)) & _MASK)]
        for j in range(4 * whole, source.size):
            target[j] = table[(np.uint64(source[j]) << _BITS) | (splitmix64(seeds[t], j) & _MASK)]


@compiled(pixel_ops_numpy.salt_and_pepper)
def salt_and_pepper(frames: Frames, fraction: float, seeds: Seeds, out: Frames) -> None:
    """Turn half of this fraction of the values fully off and half fully on; frames are (T, values)."""
    words = np.empty(_BLOCK // 4, np.uint64)
    bits = words.view(np.uint16)
    low = int(fraction * 2**15 + 0.5)
    high = 2**16 - low
    for t in range(frames.shape[0]):
        for start in range(0, frames.shape[1], _BLOCK):
            for i in range(words.size):
                words[i] = splitmix64(seeds[t], start // 4 + i)
            source, target = frames[t, start : start + _BLOCK], out[t, start : start + _BLOCK]
            for i in range(source.size):
                target[i] = 0 if bits[i] < low else (255 if bits[i] >= high else source[i])


@compiled(pixel_ops_numpy.multiply_add)
def multiply_add(frames: Frames, keep: Layer, add: Layer, out: Frames) -> None:
    """Write x * keep + add, clipped and rounded down; all flat per frame."""
    for t in range(frames.shape[0]):
        source, target = frames[t], out[t]
        for i in range(source.size):
            value = np.float32(source[i]) * keep[i] + add[i]
            target[i] = np.uint8(np.int32(min(max(value, np.float32(0)), np.float32(255))))


@compiled(pixel_ops_numpy.look_up_by_max_channel)
def look_up_by_max_channel(frames: Frames, table: Image, out: Frames) -> None:
    """Replace every value x by table[brightest channel of its pixel, x]; frames are (pixels, 3)."""
    for i in range(frames.shape[0]):
        r, g, b = frames[i, 0], frames[i, 1], frames[i, 2]
        row = table[max(r, max(g, b))]
        out[i, 0], out[i, 1], out[i, 2] = row[r], row[g], row[b]


@compiled(pixel_ops_numpy.scale_saturation)
def scale_saturation(frames: Frames, factor: Layer, out: Frames) -> None:
    """Multiply the distance of each channel from the brightest one by factor[brightest, darkest]."""
    for i in range(frames.shape[0]):
        r, g, b = np.int32(frames[i, 0]), np.int32(frames[i, 1]), np.int32(frames[i, 2])
        top = max(r, max(g, b))
        stretch = factor[top, min(r, min(g, b))]
        level = np.float32(top) + np.float32(1e-3)  # floor of a whole number, whatever the rounding
        out[i, 0] = np.uint8(np.int32(max(level - np.float32(top - r) * stretch, np.float32(0))))
        out[i, 1] = np.uint8(np.int32(max(level - np.float32(top - g) * stretch, np.float32(0))))
        out[i, 2] = np.uint8(np.int32(max(level - np.float32(top - b) * stretch, np.float32(0))))


@compiled(pixel_ops_numpy.sum_shifted)
def sum_shifted(source: Image, shifts: Integers, weights: Layer, out: Image) -> None:
    """Write the weighted sum of shifted copies; rows are flat, shifts are (rows, values) and come in fours.

    Rows beyond the top or bottom repeat the edge; columns must exist, so the caller pads them.
    """
    last, width = source.shape[0] - 1, out.shape[1]
    total = np.empty(width, np.float32)
    for y in range(out.shape[0]):
        total[:] = 0
        for k in range(0, weights.size, 4):
            a = source[min(max(y + shifts[k, 0], 0), last), shifts[k, 1] : shifts[k, 1] + width]
            b = source[min(max(y + shifts[k + 1, 0], 0), last), shifts[k + 1, 1] : shifts[k + 1, 1] + width]
            c = source[min(max(y + shifts[k + 2, 0], 0), last), shifts[k + 2, 1] : shifts[k + 2, 1] + width]
            d = source[min(max(y + shifts[k + 3, 0], 0), last), shifts[k + 3, 1] : shifts[k + 3, 1] + width]
            p, q, r, s = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
            for i in range(width):
                pair = p * np.float32(a[i]) + q * np.float32(b[i])
                total[i] += pair + (r * np.float32(c[i]) + s * np.float32(d[i]))
        for i in range(width):
            out[y, i] = np.uint8(np.int32(total[i] + np.float32(0.5)))


@compiled(pixel_ops_numpy.disk_blur)
def disk_blur(padded: Image, reach: Integers, out: Image) -> None:
    """Average over a disk whose row dy reaches `reach[dy]` pixels to each side; rows are flat, padded by the radius."""
    radius, width = reach.size // 2, out.shape[1]
    sums = np.zeros((padded.shape[0], padded.shape[1] + 3), np.int32)  # running sums along each row, per channel
    for y in range(padded.shape[0]):
        for i in range(padded.shape[1]):
            sums[y, i + 3] = sums[y, i] + padded[y, i]
    scale = np.float32(1) / np.float32(2 * reach.sum() + reach.size)
    total = np.empty(width, np.int32)
    for y in range(out.shape[0]):
        total[:] = 0
        for k in range(reach.size):
            start, stop = 3 * (radius - reach[k]), 3 * (radius + reach[k] + 1)
            low, high = sums[y + k, start : start + width], sums[y + k, stop : stop + width]
            for i in range(width):
                total[i] += high[i] - low[i]
        for i in range(width):
            out[y, i] = np.uint8(np.int32(np.float32(total[i]) * scale + np.float32(0.5)))


@compiled(pixel_ops_numpy.interpolate_rows)
def interpolate_rows(source: Image, places: Layer, out: Image) -> None:
    """Write row y as the source at height places[y], between two rows; rows are flat."""
    last = source.shape[0] - 1
    for y in range(out.shape[0]):
        top = int(places[y])
        part = places[y] - np.float32(top)
        above, below, line = source[top], source[min(top + 1, last)], out[y]
        for i in range(out.shape[1]):
            start = np.float32(above[i])
            line[i] = np.uint8(np.int32(start + part * (np.float32(below[i]) - start) + np.float32(0.5)))


@compiled(pixel_ops_numpy.shuffle_neighbours)
def shuffle_neighbours(order: NDArray[np.int32], reach: float, rounds: int, seed: np.uint64) -> None:
    """Swap every entry of an (H, W) map with one that is -reach to below reach away, `rounds` times over."""
    height, width = order.shape
    rim, unit = int(np.ceil(reach)), 2 * reach / 2**32
    for k in range(rounds):
        for y in range(height - rim, rim, -1):
            for x in range(width - rim, rim, -1):
                word = splitmix64(seed, (k * height + y) * width + x)
                down = y + int(np.floor((word & np.uint64(0xFFFFFFFF)) * unit - reach))
                right = x + int(np.floor((word >> np.uint64(32)) * unit - reach))
                order[y, x], order[down, right] = order[down, right], order[y, x]


@compiled(pixel_ops_numpy.gather_pixels)
def gather_pixels(source: Image, order: NDArray[np.int32], out: Image) -> None:
    """Write pixel order[i] of the source to place i; images are (pixels, 3)."""
    for i in range(order.size):
        j = np.uint32(order[i])
        out[i, 0], out[i, 1], out[i, 2] = source[j, 0], source[j, 1], source[j, 2]


@compiled(pixel_ops_numpy.bleach_and_add_snow)
def bleach_and_add_snow(frame: Image, keep: np.float32, snow: Layer, out: Image) -> None:
    """Bleach a frame towards white and add the snow layer; frame is (pixels, 3), values in 0-255."""
    lift = np.float32(1) - keep
    for i in range(frame.shape[0]):
        r, g, b = np.float32(frame[i, 0]), np.float32(frame[i, 1]), np.float32(frame[i, 2])
        grey = np.float32(0.299) * r + np.float32(0.587) * g + np.float32(0.114) * b
        pale, top = np.float32(1.5) * grey + np.float32(127.5), np.float32(255)
        out[i, 0] = np.uint8(np.int32(min(keep * r + lift * max(r, pale) + snow[i], top)))
        out[i, 1] = np.uint8(np.int32(min(keep * g + lift * max(g, pale) + snow[i], top)))
        out[i, 2] = np.uint8(np.int32(min(keep * b + lift * max(b, pale) + snow[i], top)))


@compiled(pixel_ops_numpy.fill_cells)
def fill_cells(frame: Image, rows: Integers, columns: Integers, out: Image) -> None:
    """Show the mean of each cell as one square; a cell is (start, stop of what it averages, start, stop shown)."""
    width, line = frame.shape[1] // 3, np.empty(frame.shape[1], np.uint8)
    total = np.empty(frame.shape[1], np.int32)
    for j in range(rows.shape[0]):
        total[:] = 0
        for y in range(rows[j, 0], rows[j, 1]):
            for i in range(3 * width):
                total[i] += frame[y, i]
        for k in range(columns.shape[0]):
            first, last = columns[k, 0], columns[k, 1]
            fraction = np.float32(1) / np.float32((last - first) * (rows[j, 1] - rows[j, 0]))
            for c in range(3):
                value = 0
                for x in range(first, last):
                    value += total[3 * x + c]
                mean = np.uint8(np.int32(np.float32(value) * fraction + np.float32(0.5)))
                for x in range(columns[k, 2], columns[k, 3]):
                    line[3 * x + c] = mean
        for y in range(rows[j, 2], rows[j, 3]):
            out[y, :] = line


# Lengths and layers at the reference resolution: what is 1 px at 256 px height grows with the height of the frames.

IMAGENET_C = "ImageNet-C, levels 1, 2, 3 and 5"
REFERENCE_HEIGHT = 256  # pixels; the frame height for which ImageNet-C gives lengths
_MAX_WIDTH = 2048


def pixel_scale(frames: Frames) -> float:
    """Return how many pixels of these frames one pixel at the reference resolution is."""
    return float(frames.shape[1] / REFERENCE_HEIGHT)


def layer_shape(frames: Frames) -> tuple[int, int]:
    """Return the (height, width) at which layers are drawn: 256 px high, in the shape of the frame."""
    width = round(REFERENCE_HEIGHT * frames.shape[2] / frames.shape[1])
    return REFERENCE_HEIGHT, min(max(width, 1), _MAX_WIDTH)


def resize_layer(layer: Layer, frames: Frames) -> Layer:
    """Return a layer resized to the size of the frames."""
    size = (frames.shape[2], frames.shape[1])
    if layer.shape[:2] == frames.shape[1:3]:
        return layer
    return np.asarray(cv2.resize(layer, size, interpolation=cv2.INTER_LINEAR), np.float32)
