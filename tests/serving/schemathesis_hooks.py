"""What Schemathesis sends where the OpenAPI says only `binary`: NumPy files, whole and damaged, and episodes."""

import io

import numpy as np
import schemathesis
from hypothesis import strategies as st
from numpy.typing import DTypeLike

from rewardlab.core.episode import Episode, in_memory, whole_clip
from rewardlab.models.remote import EPISODES_TYPE, pack_episodes

_SHAPES = (
    (4, 16, 16, 3),
    (1, 16, 16, 3),
    (16, 16, 3),
    (1, 1, 1, 3),
    (0, 16, 16, 3),
    (16, 16),
    (4, 16, 16, 4),
    (3,),
    (),
)
_DTYPES: tuple[DTypeLike, ...] = (np.uint8, np.uint8, np.float32, np.int64, bool, "U3")


def _saved(shape: tuple[int, ...], dtype: DTypeLike, compressed: bool) -> bytes:
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.save)(buffer, array)
    return buffer.getvalue()


def _damaged(data: bytes, place: int, byte: int) -> bytes:
    place %= len(data) + 1
    return data[:place] if byte > 255 else data[:place] + bytes([byte]) + data[place + 1 :]


def _damaged_or_not(whole: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    broken = st.builds(_damaged, whole, st.integers(0, 10_000), st.integers(0, 400))
    return whole | broken | st.binary(max_size=64)


_ARRAYS = st.builds(_saved, st.sampled_from(_SHAPES), st.sampled_from(_DTYPES), st.booleans())
_WHOLE = st.builds(_saved, st.sampled_from(_SHAPES[:3]), st.just(np.uint8), st.booleans())
_FRAMES = _damaged_or_not(_WHOLE | _ARRAYS)
_PIXELS = np.arange(4 * 16 * 16 * 3, dtype=np.uint8).reshape(4, 16, 16, 3)
_EPISODES = st.lists(st.text(max_size=20), max_size=3).map(
    lambda texts: pack_episodes([Episode("", text, whole_clip(in_memory(_PIXELS), 10.0)) for text in texts])
)

schemathesis.openapi.format("binary", _FRAMES)
schemathesis.openapi.media_type("application/octet-stream", _FRAMES)
schemathesis.openapi.media_type(EPISODES_TYPE, _damaged_or_not(_EPISODES))
