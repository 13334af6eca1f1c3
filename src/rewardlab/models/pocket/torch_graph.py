"""An ONNX graph of pocket run by torch, on a GPU: the operations that its exporter writes, and no others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from torch import Tensor
from torch.nn import functional

from rewardlab.core.errors import ModelError

Array = NDArray[Any]
Attributes = Mapping[str, Any]
Operation = Callable[[Attributes, list[Any]], Any]


@dataclass(frozen=True)
class GraphValue:
    """The shape of an input or output; a name stands for a size that varies."""

    shape: list[int | str]


@dataclass(frozen=True)
class _Node:
    operation: Operation
    attributes: Attributes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    last_used: tuple[str, ...]  # values that no later node reads


class TorchGraph:
    """A graph with the methods of an onnxruntime session that pocket calls.

    Whole numbers, which are sizes, stay on the processor; int8 weights and the values that they are multiplied with are
    kept as floats, whose products and sums are the same.
    """

    def __init__(self, path: str, device: str) -> None:
        self.device = torch.device(device)
        graph = onnx.load_model_from_string(Path(path).read_bytes()).graph
        if any(each.data_location == TensorProto.EXTERNAL for each in graph.initializer):
            raise ModelError(f"{path} keeps weights in another file; expected one file; train the model again")
        self._weights = {each.name: self._kept(numpy_helper.to_array(each)) for each in graph.initializer}
        unknown = sorted({node.op_type for node in graph.node} - _OPERATIONS.keys() - {"Constant"})
        if unknown:
            names = ", ".join(unknown)
            raise ModelError(f"{path} has the operations {names}, which only onnxruntime runs; leave out device")
        self._input_shapes, self._output_shapes = (list(map(_shape_of, each)) for each in (graph.input, graph.output))
        self._outputs = [each.name for each in graph.output]
        self._nodes = self._read_nodes(graph)

    def get_inputs(self) -> list[GraphValue]:
        """Return the shapes of the inputs."""
        return self._input_shapes

    def get_outputs(self) -> list[GraphValue]:
        """Return the shapes of the outputs."""
        return self._output_shapes

    @torch.inference_mode()
    def run(self, _outputs: None, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the outputs for these inputs."""
        values: dict[str, Any] = dict(self._weights) | {"": None}
        values |= {
            name: torch.from_numpy(np.ascontiguousarray(value)).to(self.device) for name, value in inputs.items()
        }
        for node in self._nodes:
            made = node.operation(node.attributes, [values[name] for name in node.inputs])
            values.update(zip(node.outputs, made if isinstance(made, tuple | list) else (made,), strict=False))
            for name in node.last_used:
                del values[name]
        return [values[name].float().cpu().numpy() for name in self._outputs]

    def _kept(self, array: Array) -> Tensor:
        whole = array.dtype in (np.int64, np.int32, np.bool_)
        tensor = torch.from_numpy(np.array(array))
        return tensor if whole else tensor.float().to(self.device)

    def _read_nodes(self, graph: Any) -> list[_Node]:
        constants = {node.output[0] for node in graph.node if node.op_type == "Constant"}
        kept, uses = {*self._outputs, *constants}, dict[str, int]()
        for place, node in enumerate(graph.node):
            uses |= dict.fromkeys((*node.input, *node.output), place)
        made = {name for node in graph.node for name in node.output} - kept
        nodes = []
        for place, node in enumerate(graph.node):
            attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
            if node.op_type == "Constant":
                self._weights[node.output[0]] = self._kept(numpy_helper.to_array(attributes["value"]))
                continue
            if node.op_type == "QuantizeLinear":  # the range of the zero point, which is kept as a float
                attributes["signed"] = self._is_signed(graph, node)
            gone = {name for name in (*node.input, *node.output) if name in made and uses[name] == place}
            inputs, outputs = tuple(node.input), tuple(node.output)
            nodes.append(_Node(_OPERATIONS[node.op_type], attributes, inputs, outputs, tuple(gone)))
        return nodes

    @staticmethod
    def _is_signed(graph: Any, node: Any) -> bool:
        zero = next((each for each in graph.initializer if len(node.input) > 2 and each.name == node.input[2]), None)
        return zero is not None and zero.data_type == TensorProto.INT8


def _shape_of(value: Any) -> GraphValue:
    return GraphValue([size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim])


def _together(values: list[Any]) -> list[Tensor]:
    """Return tensors on one device: that of those which are not on the processor, if there are any."""
    device = next((each.device for each in values if each.device.type != "cpu"), values[0].device)
    return [each.to(device) for each in values]


def _binary(compute: Callable[[Tensor, Tensor], Tensor]) -> Operation:
    return lambda _, values: compute(*_together(values))


def _numbers(value: Tensor) -> list[int]:
    return [int(each) for each in value.reshape(-1).tolist()]


def _divide(one: Tensor, other: Tensor) -> Tensor:
    return torch.div(one, other, rounding_mode=None if one.is_floating_point() else "trunc")


def _slice(_: Attributes, values: list[Any]) -> Tensor:
    data, starts, ends = values[0], _numbers(values[1]), _numbers(values[2])
    axes = _numbers(values[3]) if len(values) > 3 and values[3] is not None else list(range(len(starts)))
    steps = _numbers(values[4]) if len(values) > 4 and values[4] is not None else [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 0:
            raise ModelError("the graph reads a tensor backwards, which only onnxruntime does; leave out device")
        size = data.shape[axis]
        first, last = (min(max(each + size if each < 0 else each, 0), size) for each in (start, end))
        index = [slice(None)] * data.ndim
        index[axis] = slice(first, last, step)
        data = data[tuple(index)]
    return data  # type: ignore[no-any-return]


def _reshape(_: Attributes, values: list[Any]) -> Tensor:
    data, wanted = values[0], _numbers(values[1])
    return data.reshape([data.shape[place] if size == 0 else size for place, size in enumerate(wanted)])  # type: ignore[no-any-return]


def _gather(attributes: Attributes, values: list[Any]) -> Tensor:
    data, index, axis = values[0], values[1].to(values[0].device), attributes.get("axis", 0)
    found = data.index_select(axis, index.reshape(-1) % data.shape[axis])
    axis = axis % data.ndim
    return found.reshape(data.shape[:axis] + index.shape + data.shape[axis + 1 :])  # type: ignore[no-any-return]


def _axes(attributes: Attributes, values: list[Any]) -> list[int]:
    given = values[1] if len(values) > 1 and values[1] is not None else None
    return _numbers(given) if given is not None else list(attributes.get("axes", ()))


def _squeeze(attributes: Attributes, values: list[Any]) -> Tensor:
    axes = _axes(attributes, values)
    return values[0].squeeze(tuple(axes)) if axes else values[0].squeeze()  # type: ignore[no-any-return]


def _unsqueeze(attributes: Attributes, values: list[Any]) -> Tensor:
    data = values[0]
    rank = data.ndim + len(_axes(attributes, values))
    for axis in sorted(each % rank for each in _axes(attributes, values)):
        data = data.unsqueeze(axis)
    return data  # type: ignore[no-any-return]


def _reduced(compute: Callable[[Tensor, list[int], bool], Tensor]) -> Operation:
    def reduce(attributes: Attributes, values: list[Any]) -> Tensor:
        axes = _axes(attributes, values) or list(range(values[0].ndim))
        return compute(values[0], axes, bool(attributes.get("keepdims", 1)))

    return reduce


def _cast(attributes: Attributes, values: list[Any]) -> Tensor:
    kind, data = attributes["to"], values[0]
    if kind in (TensorProto.INT64, TensorProto.INT32):
        return data.long()  # type: ignore[no-any-return]
    return data.bool() if kind == TensorProto.BOOL else data.float()  # type: ignore[no-any-return]


def _quantize(attributes: Attributes, values: list[Any]) -> Tensor:
    zero = values[2] if len(values) > 2 and values[2] is not None else 0
    low, high = (-128, 127) if attributes["signed"] else (0, 255)
    return (values[0] / values[1]).round().add(zero).clamp(low, high)  # type: ignore[no-any-return]


def _multiply_whole(_: Attributes, values: list[Any]) -> Tensor:
    one, other = values[0], values[1]
    if len(values) > 2 and values[2] is not None:
        one = one - values[2]
    if len(values) > 3 and values[3] is not None:
        other = other - values[3]
    return one @ other  # type: ignore[no-any-return]


def _multiply_and_add(attributes: Attributes, values: list[Any]) -> Tensor:
    one, other = (
        value.t() if attributes.get(name) else value
        for value, name in zip(values[:2], ("transA", "transB"), strict=True)
    )
    product = attributes.get("alpha", 1.0) * (one @ other)
    added = values[2] if len(values) > 2 else None
    return product if added is None else product + attributes.get("beta", 1.0) * added  # type: ignore[no-any-return]


def _convolve(attributes: Attributes, values: list[Any]) -> Tensor:
    pads = list(attributes.get("pads", (0, 0, 0, 0)))
    data = functional.pad(values[0], (pads[1], pads[3], pads[0], pads[2])) if any(pads) else values[0]
    bias = values[2] if len(values) > 2 else None
    strides, dilations = (tuple(attributes.get(name, (1, 1))) for name in ("strides", "dilations"))
    return functional.conv2d(data, values[1], bias, strides, 0, dilations, attributes.get("group", 1))


def _normalise_layer(attributes: Attributes, values: list[Any]) -> Tensor:
    axis, bias = attributes.get("axis", -1), values[2] if len(values) > 2 else None
    shape = list(values[0].shape[axis:])
    return functional.layer_norm(values[0], shape, values[1], bias, attributes.get("epsilon", 1e-5))


def _normalise_batch(attributes: Attributes, values: list[Any]) -> Tensor:
    data, weight, bias, mean, variance = values
    return functional.batch_norm(data, mean, variance, weight, bias, eps=attributes.get("epsilon", 1e-5))


def _resize(attributes: Attributes, values: list[Any]) -> Tensor:
    mode, place = attributes.get("mode", b"nearest"), attributes.get("coordinate_transformation_mode", b"half_pixel")
    if (mode, place) not in ((b"linear", b"half_pixel"), (b"linear", b"pytorch_half_pixel")):
        raise ModelError("the graph resizes in a way that only onnxruntime knows; leave out device")
    sizes = values[3] if len(values) > 3 and values[3] is not None else None
    scales = None if sizes is not None else values[2].tolist()[2:]
    size = None if sizes is None else _numbers(sizes)[2:]
    return functional.interpolate(values[0], size=size, scale_factor=scales, mode="bilinear", align_corners=False)


def _split(attributes: Attributes, values: list[Any]) -> list[Tensor]:
    axis = attributes.get("axis", 0)
    return list(values[0].split(_numbers(values[1]), axis))


def _constant(attributes: Attributes, values: list[Any]) -> Tensor:
    value = numpy_helper.to_array(attributes["value"]).item() if "value" in attributes else 0.0
    return torch.full(_numbers(values[0]), value)


def _expand(_: Attributes, values: list[Any]) -> Tensor:
    wanted = torch.broadcast_shapes(tuple(values[0].shape), tuple(_numbers(values[1])))
    return values[0].expand(wanted)  # type: ignore[no-any-return]


def _flatten(attributes: Attributes, values: list[Any]) -> Tensor:
    axis = attributes.get("axis", 1)
    rows = int(np.prod(values[0].shape[:axis], dtype=np.int64))
    return values[0].reshape(rows, -1)  # type: ignore[no-any-return]


def _clip(_: Attributes, values: list[Any]) -> Tensor:
    low, high = (values[place] if len(values) > place else None for place in (1, 2))
    return values[0].clamp(None if low is None else low.item(), None if high is None else high.item())  # type: ignore[no-any-return]


_OPERATIONS: dict[str, Operation] = {
    "Abs": lambda _, values: values[0].abs(),
    "Add": _binary(torch.add),
    "BatchNormalization": _normalise_batch,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": lambda attributes, values: torch.cat(_together(values), attributes["axis"]),
    "ConstantOfShape": _constant,
    "Conv": _convolve,
    "Div": _binary(_divide),
    "Equal": _binary(torch.eq),
    "Erf": lambda _, values: values[0].erf(),
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gemm": _multiply_and_add,
    "LayerNormalization": _normalise_layer,
    "MatMul": _binary(torch.matmul),
    "MatMulInteger": _multiply_whole,
    "Max": _binary(torch.maximum),
    "Mod": _binary(torch.remainder),
    "Mul": _binary(torch.mul),
    "Pow": _binary(torch.pow),
    "QuantizeLinear": _quantize,
    "ReduceMax": _reduced(lambda data, axes, keep: data.amax(axes, keep)),
    "ReduceMean": _reduced(lambda data, axes, keep: data.mean(axes, keep)),
    "ReduceSum": _reduced(lambda data, axes, keep: data.sum(axes, keep)),
    "Relu": lambda _, values: values[0].relu(),
    "Reshape": _reshape,
    "Resize": _resize,
    "Round": lambda _, values: values[0].round(),
    "Shape": lambda _, values: torch.tensor(values[0].shape),
    "Slice": _slice,
    "Softmax": lambda attributes, values: values[0].softmax(attributes.get("axis", -1)),
    "Split": _split,
    "Sqrt": lambda _, values: values[0].sqrt(),
    "Squeeze": _squeeze,
    "Sub": _binary(torch.sub),
    "Transpose": lambda attributes, values: values[0].permute(attributes["perm"]),
    "Unsqueeze": _unsqueeze,
    "Where": lambda _, values: torch.where(*_together(values)),
}
