"""Static int8 quantisation of the image encoder: int8 weights per channel, uint8 activations, calibrated on frames."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError
from rewardlab.core.run import atomic_write

_BATCH = 16  # frames that are calibrated on at once
_OPERATIONS = ["Conv", "Add", "Relu"]  # with convolutions alone, every shortcut would go to float and back
_PREPROCESSING = ["Cast", "Sub", "Div", "QuantizeLinear", "DequantizeLinear"]  # from uint8 to the first convolution


def quantise_image_encoder(source: Path, frames: Frames, out: Path) -> None:
    """Write the int8 graph of an exported image encoder, calibrated on frames uint8 (N, H, W, 3) of the graph's size.

    The frames should be of all kinds that the model will see: what goes beyond their range is clipped.
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    _check_frames(onnx.load(source), frames)
    with TemporaryDirectory() as folder, atomic_write(out) as partial:
        fused = Path(folder) / "fused.onnx"  # weights in float32, batch norms inside the convolutions
        quant_pre_process(source, fused, skip_symbolic_shape=True)
        quantize_static(
            fused,
            partial,
            _reader(frames),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=_OPERATIONS,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            extra_options={"WeightSymmetric": True},
        )
        graph = onnx.load(partial)
        _read_pixels_directly(graph)
        onnx.save(graph, partial)


def _check_frames(model: Any, frames: Frames) -> None:
    expected = tuple(side.dim_value for side in model.graph.input[0].type.tensor_type.shape.dim[1:])
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[1:] != expected or not len(frames):
        raise DataError(f"frames to calibrate on must be uint8 (N, *{expected}), got {frames.dtype} {frames.shape}")


def _reader(frames: Frames) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class FrameReader(CalibrationDataReader):
        """Hands out the frames in batches, as the quantiser asks for them."""

        def __init__(self) -> None:
            self.starts = iter(range(0, len(frames), _BATCH))

        def get_next(self) -> dict[str, Frames] | None:
            start = next(self.starts, None)
            return None if start is None else {"frames": frames[start : start + _BATCH]}

    return FrameReader()


def _read_pixels_directly(model: Any) -> None:
    """Let the first convolution read the pixels as they are: (pixel - 110) / 60 is itself a quantised number.

    So the normalisation is exact whatever the calibration saw, and no float copy of the frames is made.
    """
    from onnx import numpy_helper

    cast, subtract, divide, quantise, dequantise = _preprocessing_nodes(model.graph)
    known = {constant.name: numpy_helper.to_array(constant) for constant in model.graph.initializer}
    known |= {n.output[0]: numpy_helper.to_array(n.attribute[0].t) for n in model.graph.node if n.op_type == "Constant"}
    mean, deviation = (known[node.input[1]] for node in (subtract, divide))
    if float(mean) not in range(256):
        raise DataError(f"the image encoder must subtract a whole pixel value from 0 to 255, got {mean}")
    numbers = {"pixel_scale": 1 / np.float32(deviation), "pixel_zero_point": np.uint8(mean)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(n), name) for name, n in numbers.items())
    dequantise.input[:] = [cast.input[0], *numbers]
    for node in (cast, subtract, divide, quantise):
        model.graph.node.remove(node)


def _preprocessing_nodes(graph: Any) -> list[Any]:
    """Return the nodes between the transposed frames and the first convolution."""
    (chain,) = [node for node in graph.node if "frames" in node.input]
    found = []
    for expected in _PREPROCESSING:
        (chain,) = [node for node in graph.node if chain.output[0] in node.input]
        if chain.op_type != expected:
            raise DataError(f"the image encoder must begin with {_PREPROCESSING}, got {chain.op_type} for {expected}")
        found.append(chain)
    return found
