"""ONNX export: from trained weights to the files that ship, two graphs and the calibrated settings."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor, nn

from rewardlab.core.episode import Frames
from rewardlab.core.run import atomic_write
from rewardlab.core.seeding import rng_for
from rewardlab.models.pocket import variant_files
from rewardlab.models.pocket.clip_padding import CLIP_FRAMES
from rewardlab.models.pocket.precision import int8_image_encoder
from rewardlab.models.pocket.wordpiece import MAX_PIECES
from rewardlab.runner.fit_calibration import conformal_quantile, fit_temperature
from rewardlab.training.pocket.int8_quantisation import quantise_image_encoder
from rewardlab.training.pocket.network import NetworkConfig, PocketNetwork
from rewardlab.training.pocket.perturbation_holdout import split_of_variant
from rewardlab.training.pocket.plan import PocketPlan, Training
from rewardlab.training.pocket.word_vectors import WORD_VECTOR_WIDTH

_COVERAGE = 0.9
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
    inputs, outputs = ["tokens", "words", "known"], ["p", "l"]
    _, image_path, temporal_path, settings_path = variant_files(folder / training.name)
    _write(model.image_encoder, (frames,), image_path, (["frames"], ["tokens"]))
    quantise_image_encoder(image_path, frames_seen, int8_image_encoder(folder / training.name))
    _write(model.temporal_encoder, (tokens, words, known), temporal_path, (inputs, outputs))
    settings = {
        "size": plan.size,
        **_fit_calibration(plan, training.variant),
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


def _fit_calibration(plan: PocketPlan, variant: str) -> dict[str, Any]:
    """Fit temperature and conformal threshold, each on half of what all folds say of tasks that they never saw.

    So probabilities and sets are as wide as an unseen task needs them (cross-conformal over the folds of the plan).
    """
    logits, level = _of_unseen_tasks(plan, variant)
    order = rng_for(plan.seed, "calibration").permutation(len(level))
    fit, test = order[: len(order) // 2], order[len(order) // 2 :]
    temperature = fit_temperature(softmax(logits[fit], axis=1), level[fit] - 1)
    prob_of_truth = softmax(logits[test] / temperature, axis=1)[np.arange(len(test)), level[test] - 1]
    quantile = conformal_quantile(1 - prob_of_truth, _COVERAGE)
    threshold = 0.0 if quantile is None else 1 - quantile
    return {"temperature": round(temperature, 4), "conformal": round(threshold, 6), "calibrated_on": len(order)}


def _of_unseen_tasks(plan: PocketPlan, variant: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return logits and levels of the validation rollouts of unseen tasks; of all where a plan has no unseen task."""
    parts = []
    for training in [each for each in plan.trainings if each.variant == variant]:
        with np.load(plan.out / f"{training.name}-probes.npz") as found:
            task, logits, level = found["own/task"], found["own/logits"], found["own/level"]
        unseen = np.isin(task, plan.unseen(training.fold)) if plan.unseen(training.fold) else np.ones(len(task), bool)
        parts.append((logits[unseen].astype(np.float64), level[unseen].astype(np.int64)))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
