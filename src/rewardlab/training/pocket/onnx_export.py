"""ONNX export: from trained weights to the files that ship, two graphs, familiar states and the calibrated settings."""

import json
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from rewardlab.core.episode import Frames
from rewardlab.core.run import atomic_write
from rewardlab.models.pocket import variant_files
from rewardlab.models.pocket.clip_padding import CLIP_FRAMES
from rewardlab.models.pocket.precision import int8_image_encoder
from rewardlab.models.pocket.wordpiece import MAX_PIECES
from rewardlab.training.pocket.fit_novelty_calibration import familiar_states, fit_novelty_calibration
from rewardlab.training.pocket.int8_quantisation import quantise_image_encoder
from rewardlab.training.pocket.network import NetworkConfig, PocketNetwork
from rewardlab.training.pocket.perturbation_holdout import split_of_variant
from rewardlab.training.pocket.plan import PocketPlan, Training
from rewardlab.training.pocket.word_vectors import WORD_VECTOR_WIDTH

_OPSET = 17


def export(plan: PocketPlan, training: Training, folder: Path, frames_seen: Frames) -> None:
    """Write the graphs of a variant and `VARIANT.json`; weights are stored in half precision.

    The image encoder is written in int8 too, calibrated on `frames_seen`, uint8 (N, H, W, 3).
    """
    model = load_rounded(plan, training)
    config = NetworkConfig(size=plan.size)
    frames = torch.zeros((2, plan.size, plan.size, 3), dtype=torch.uint8)
    tokens = torch.zeros((2, CLIP_FRAMES, config.tokens_per_frame, config.channels[3]))
    words, known = torch.zeros((2, MAX_PIECES, WORD_VECTOR_WIDTH)), torch.ones((2, MAX_PIECES))
    inputs, outputs = ["tokens", "words", "known"], ["p", "l", "s"]
    _, image_path, temporal_path, states_path, settings_path = variant_files(folder / training.name)
    _write(model.image_encoder, (frames,), image_path, (["frames"], ["tokens"]))
    quantise_image_encoder(image_path, frames_seen, int8_image_encoder(folder / training.name))
    _write(model.temporal_encoder, (tokens, words, known), temporal_path, (inputs, outputs))
    with atomic_write(states_path) as partial, partial.open("wb") as handle:
        np.save(handle, familiar_states(plan, training), allow_pickle=False)
    settings = {
        "size": plan.size,
        **fit_novelty_calibration(plan, training),
        **split_of_variant(plan, training.variant).to_json(),
        "fold": training.fold,
        "trained_tasks": list(plan.seen(training.fold)),
        "unseen_tasks": list(plan.unseen(training.fold)),
    }
    with atomic_write(settings_path) as partial:
        partial.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def load_rounded(plan: PocketPlan, training: Training) -> PocketNetwork:
    """Return the trained network with its weights rounded to half precision, as they ship."""
    model = PocketNetwork(NetworkConfig(size=plan.size))
    state = torch.load(plan.out / f"{training.name}.pt", map_location="cpu", weights_only=True)
    model.load_state_dict({key: _rounded(value) for key, value in state.items()})
    model.eval()
    return model


def _rounded(value: Tensor) -> Tensor:
    return value.half().float() if value.is_floating_point() and value.ndim > 1 else value


def _write(module: nn.Module, inputs: tuple[Tensor, ...], path: Path, names: tuple[list[str], list[str]]) -> None:
    with warnings.catch_warnings(), atomic_write(path) as partial:
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            inputs,
            str(partial),
            input_names=names[0],
            output_names=names[1],
            dynamic_axes={name: {0: "batch"} for name in (*names[0], *names[1])},
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
