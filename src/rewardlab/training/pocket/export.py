"""Weights to the files that ship: ONNX, half precision, int8, settings."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError
from rewardlab.core.storage import atomic_write, write_file
from rewardlab.models.pocket import familiar_images, int8_image_encoder, variant_files
from rewardlab.models.pocket.inference import PIECES_READ
from rewardlab.training.encoders import WORD_VECTOR_WIDTH, load_distillation_teacher
from rewardlab.training.holdout import recorded_split
from rewardlab.training.pocket import PocketSettings, Training
from rewardlab.training.pocket.calibration import fit_flag, fit_novelty_calibration, probed
from rewardlab.training.pocket.network import PocketNetwork, network_config

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

    expected = tuple(side.dim_value for side in onnx.load(source).graph.input[0].type.tensor_type.shape.dim[1:])
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[1:] != expected or not len(frames):
        raise DataError(f"frames to calibrate on must be uint8 (N, *{expected}), got {frames.dtype} {frames.shape}")
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

    (node,) = [each for each in model.graph.node if "frames" in each.input]
    chain = []  # between the transposed frames and the first convolution
    for expected in _PREPROCESSING:
        (node,) = [each for each in model.graph.node if node.output[0] in each.input]
        if node.op_type != expected:
            raise DataError(f"the image encoder must begin with {_PREPROCESSING}, got {node.op_type} for {expected}")
        chain.append(node)
    cast, subtract, divide, quantise, dequantise = chain
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


_LARGE = 1 << 14  # weights: a smaller matrix stays in half precision
_ZERO_POINT = 128  # of the unsigned numbers that stand for -127 to 127
_LEAST = np.float32(1e-12)  # of a scale times 127: a row or a column may be zero


def quantise_transformer(source: Path, out: Path, doubled: int = 4) -> None:
    """Write the int8 graph of an exported transformer: a scale for each column of a matrix and each row of its input.

    Rows are scaled as they come: nothing is calibrated, and the tokens of a frame do not depend on the batch. Both
    factors are unsigned: their products are summed without overflow even where the processor has no int8 dot products,
    so one file serves all. (On x86 with AMX, onnxruntime before 1.25 sums wrongly: microsoft/onnxruntime#27671.)
    The inputs of the first `doubled` matrices (by default the first layer) are quantised twice, the second time what
    rounding left over: their few large values would hide the others, most of all in a frame of one colour.
    """
    import onnx
    from onnx import numpy_helper
    from onnxruntime.quantization.shape_inference import quant_pre_process

    numbers: dict[str, Any] = {"one": np.float32(1), "most": np.float32(127), "least": _LEAST}
    numbers["zero_point"] = np.uint8(_ZERO_POINT)
    with TemporaryDirectory() as folder, atomic_write(out) as partial:
        folded = Path(folder) / "folded.onnx"  # weights in float32, transposed as they are multiplied
        quant_pre_process(source, folded, skip_symbolic_shape=True)
        model = onnx.load(folded)
        constants = {constant.name: constant for constant in model.graph.initializer}
        nodes: list[Any] = []
        matrices: dict[str, Any] = {}
        for node in model.graph.node:
            weight = constants.get(node.input[1]) if node.op_type == "MatMul" else None
            if weight is None or len(weight.dims) != 2 or np.prod(weight.dims) < _LARGE:
                nodes.append(node)
                continue
            values = numpy_helper.to_array(weight)
            scale = np.maximum(np.abs(values).max(axis=0), _LEAST) / numbers["most"]
            numbers[f"{weight.name}.int8"] = (np.round(values / scale) + _ZERO_POINT).astype(np.uint8)
            numbers[f"{weight.name}.scale"] = scale
            nodes += _int8_product(node.input[0], weight.name, node.output[0], again=len(matrices) < doubled)
            matrices[weight.name] = weight
        if not matrices:
            raise DataError(f"{source} must multiply by a matrix of {_LARGE:,} weights or more, found none")
        for weight in matrices.values():
            model.graph.initializer.remove(weight)
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(n), name) for name, n in numbers.items())
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        onnx.save(model, partial)
        _halve(partial)


def _int8_product(rows: str, matrix: str, out: str, again: bool) -> list[Any]:
    """Return the nodes that multiply rows by an int8 matrix; `again` adds the product of what rounding left over."""
    from onnx import TensorProto
    from onnx.helper import make_node

    first = f"{out}/first" if again else out
    nodes = [
        make_node("Abs", [rows], [f"{out}/abs"]),
        make_node("ReduceMax", [f"{out}/abs"], [f"{out}/max"], axes=[-1], keepdims=1),
        make_node("Max", [f"{out}/max", "least"], [f"{out}/peak"]),
        make_node("Div", [f"{out}/peak", "most"], [f"{out}/scale"]),
        make_node("Div", [rows, f"{out}/scale"], [f"{out}/scaled"]),
        make_node("QuantizeLinear", [f"{out}/scaled", "one", "zero_point"], [f"{out}/int8"]),
        make_node("MatMulInteger", [f"{out}/int8", f"{matrix}.int8", "zero_point", "zero_point"], [f"{out}/sums"]),
        make_node("Cast", [f"{out}/sums"], [f"{out}/float"], to=TensorProto.FLOAT),
        make_node("Mul", [f"{out}/float", f"{out}/scale"], [f"{out}/row"]),
        make_node("Mul", [f"{out}/row", f"{matrix}.scale"], [first]),
    ]
    if again:
        nodes += [
            make_node("Round", [f"{out}/scaled"], [f"{out}/rounded"]),
            make_node("Sub", [f"{out}/scaled", f"{out}/rounded"], [f"{out}/left"]),
            make_node("Mul", [f"{out}/left", f"{out}/scale"], [f"{out}/rest"]),
            *_int8_product(f"{out}/rest", matrix, f"{out}/second", again=False),
            make_node("Add", [first, f"{out}/second"], [out]),
        ]
    return nodes


_OPSET = 17


def export(settings: PocketSettings, training: Training, folder: Path, frames_seen: Frames) -> None:
    """Write the graphs of a variant and `VARIANT.json`; weights are stored in half precision or int8.

    Convolutions are written in int8 too, calibrated on `frames_seen`, uint8 (N, H, W, 3); DINOv2 in int8 alone.
    """
    model, stem = load_rounded(settings, training), folder / training.name
    config = network_config(training.variant, settings.size)
    frames = torch.zeros((2, config.size, config.size, 3), dtype=torch.uint8)
    tokens = torch.zeros((2, config.frames, config.tokens_per_frame, config.token_width))
    words, known = torch.zeros((2, PIECES_READ, WORD_VECTOR_WIDTH)), torch.ones((2, PIECES_READ))
    inputs, outputs = ["tokens", "words", "known"], ["p", "l", "s"]
    _, image_path, temporal_path, states_path, settings_path = variant_files(stem)
    _write(model.image_encoder, (frames,), image_path, (["frames"], ["tokens"]))
    _write(model.temporal_encoder, (tokens, words, known), temporal_path, (inputs, outputs))
    if config.dinov2:
        quantise_transformer(image_path, image_path)
        quantise_transformer(temporal_path, temporal_path, doubled=0)
    else:
        quantise_image_encoder(image_path, frames_seen, int8_image_encoder(stem))
    found = probed(settings, training)
    for path, rows in ((states_path, "trained/state"), (familiar_images(stem), "trained/image")):
        with atomic_write(path) as partial, partial.open("wb") as handle:
            np.save(handle, found[rows].astype(np.float16), allow_pickle=False)
    split = recorded_split(settings.out)
    if not training.robust:  # pocket-plain is trained with none of the catalog
        split = replace(split, train_perturbations=(), train_worlds=())
    described = {
        "size": config.size,
        **fit_novelty_calibration(settings, training),
        **fit_flag(settings, training),
        **split.to_json(),
        "fold": training.fold,
        "trained_tasks": list(settings.seen(training.fold)),
        "unseen_tasks": list(settings.unseen(training.fold)),
    }
    write_file(settings_path, json.dumps(described, indent=2) + "\n")


def load_rounded(settings: PocketSettings, training: Training) -> PocketNetwork:
    """Return the trained network with its weights rounded to half precision, as they ship."""
    network = network_config(training.variant, settings.size)
    model = PocketNetwork(network, load_distillation_teacher(settings.dinov2, "cpu") if network.dinov2 else None)
    state = torch.load(settings.out / f"{training.name}.pt", map_location="cpu", weights_only=True)
    for key, value in state.items():
        if value.is_floating_point() and value.ndim > 1:
            state[key] = value.half().float()
    model.load_trained_state(state)
    model.eval()
    return model


def _write(module: nn.Module, inputs: tuple[Tensor, ...], path: Path, names: tuple[list[str], list[str]]) -> None:
    with warnings.catch_warnings(), atomic_write(path) as partial:
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            inputs,
            str(partial),
            input_names=names[0],
            output_names=names[1],
            dynamic_axes={name: {0: "batch"} for name in (*names[0], *names[1])}
            | {name: {0: "batch", 1: "pieces"} for name in ("words", "known") if name in names[0]},
            opset_version=_OPSET,
            do_constant_folding=False,  # folding would multiply weights together that are stored rounded
            dynamo=False,
        )
        _halve(partial)


def _halve(path: Path) -> None:
    """Store every large weight in half precision with a cast behind it, which onnxruntime resolves when it loads."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(path)
    casts = []
    for weight in list(model.graph.initializer):
        values = numpy_helper.to_array(weight)
        if values.dtype != np.float32 or values.size < 256 or values.ndim < 2:
            continue
        half = numpy_helper.from_array(values.astype(np.float16), f"{weight.name}.half")
        casts.append(helper.make_node("Cast", [half.name], [weight.name], to=TensorProto.FLOAT))
        model.graph.initializer.remove(weight)
        model.graph.initializer.append(half)
    for node in reversed(casts):
        model.graph.node.insert(0, node)
    onnx.save(model, path)
