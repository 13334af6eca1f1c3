"""The int8 graph of a transformer: as the float network, whatever else is in the batch and however large a channel."""

import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="needs rewardlab[train]")
pytest.importorskip("onnx", reason="needs rewardlab[train]")

from torch import Tensor, nn

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError
from rewardlab.training.encoders import PATCH, WIDTH, Dinov2, Dinov2ImageEncoder
from rewardlab.training.pocket.export import quantise_transformer

_SIZE = 4 * PATCH
Floats = NDArray[np.float32]


@pytest.fixture
def encoder() -> Dinov2ImageEncoder:
    """Two layers with random weights; as in the trained network, one channel is far larger than the others."""
    torch.manual_seed(0)
    encoder = Dinov2().eval().requires_grad_(False)
    encoder.blocks = encoder.blocks[:2]
    encoder.positions.normal_(std=0.1)
    encoder.get_parameter("blocks.0.norm2.weight")[7] = 40.0
    return Dinov2ImageEncoder(encoder, _SIZE)


def _frames(count: int) -> Frames:
    coarse = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return coarse.repeat(_SIZE // 8, axis=1).repeat(_SIZE // 8, axis=2)


def _export(module: nn.Module, example: Tensor, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (example,),
            str(path),
            input_names=["frames"],
            output_names=["tokens"],
            dynamic_axes={name: {0: "batch"} for name in ("frames", "tokens")},
            opset_version=17,
            dynamo=False,
        )
    return path


def _run(path: Path, frames: Frames | Floats) -> Floats:
    (tokens,) = onnxruntime.InferenceSession(path).run(None, {"frames": frames})
    found: Floats = tokens
    return found


def _error(tokens: Floats, expected: Floats) -> float:
    return float(np.linalg.norm(tokens - expected) / np.linalg.norm(expected))


def test_every_patch_becomes_a_token_in_its_place(encoder: Dinov2ImageEncoder) -> None:
    frames = torch.from_numpy(_frames(2))
    tokens = encoder(frames)
    assert tokens.shape == (2, 16, WIDTH)
    pooled = tokens.unflatten(1, (2, 2, 2, 2)).mean(dim=(2, 4)).flatten(1, 2)
    torch.testing.assert_close(pooled, encoder.encoder(frames, 2), atol=1e-4, rtol=1e-4)


def test_the_int8_graph_answers_like_the_network_whatever_the_batch(
    encoder: Dinov2ImageEncoder, tmp_path: Path
) -> None:
    frames = _frames(3)
    frames[2] = 0
    source = _export(encoder, torch.from_numpy(frames[:2]), tmp_path / "float.onnx")
    out, once = tmp_path / "int8.onnx", tmp_path / "once.onnx"
    quantise_transformer(source, out)
    quantise_transformer(source, once, doubled=0)
    expected = encoder(torch.from_numpy(frames)).numpy()
    np.testing.assert_allclose(_run(source, frames), expected, atol=1e-3)
    tokens = _run(out, frames)
    assert _error(tokens, expected) < 0.03
    assert _error(tokens, expected) < 0.8 * _error(_run(once, frames), expected)  # the large channel
    for index in range(len(frames)):
        np.testing.assert_array_equal(_run(out, frames[index : index + 1])[0], tokens[index])
    assert out.stat().st_size < 0.35 * source.stat().st_size


def test_rows_and_columns_of_zeros_stay_zero(tmp_path: Path) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(128, 160, bias=False).requires_grad_(False)
    linear.weight[5] = 0
    rows = np.random.default_rng(0).normal(size=(2, 3, 128)).astype(np.float32)
    rows[1, 2] = 0
    out = tmp_path / "int8.onnx"
    quantise_transformer(_export(linear, torch.from_numpy(rows), tmp_path / "float.onnx"), out)
    product = _run(out, rows)
    assert not product[1, 2].any() and not product[..., 5].any()
    np.testing.assert_allclose(product, linear(torch.from_numpy(rows)).numpy(), atol=0.02)


def test_a_graph_without_a_large_matrix_is_refused(tmp_path: Path) -> None:
    source = _export(nn.Linear(8, 8), torch.zeros(2, 3, 8), tmp_path / "small.onnx")
    with pytest.raises(DataError, match="found none"):
        quantise_transformer(source, tmp_path / "int8.onnx")
    assert not (tmp_path / "int8.onnx").exists()
