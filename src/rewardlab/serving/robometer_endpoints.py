"""Robometer's HTTP endpoints, so that its clients can use any rewardlab model.

A sample holds a trajectory with `frames` and `task`; arrays are nested lists, or .npy files of a form. The model gives
one probability of success per clip, so without `use_frame_steps` there is one probability per sample.
"""

import json
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from fastapi import APIRouter, Request

from rewardlab.core.episode import Episode, Frames, in_memory, show_only, whole_clip
from rewardlab.core.errors import DataError
from rewardlab.core.records import parse_json, parsed_bytes
from rewardlab.core.trial import SUCCESS_LEVEL, Answer, Failure, Score
from rewardlab.serving.endpoints import BINARY, DEFAULT_FPS, REJECTIONS, answered, request_body, require_instruction
from rewardlab.serving.http import whole_body
from rewardlab.serving.listening import RequestRejected
from rewardlab.serving.memory import MemoryShare
from rewardlab.serving.state import Memory, RewardServer, Server
from rewardlab.serving.uploads import Form, decode_frames, read_form, require_frames

router = APIRouter(tags=["Clients of Robometer"])

_MOST_SAMPLES = 256
_INDEX_BYTES = 32  # that a clip takes for a frame beside its pixels: which one it is, and when it is shown
_PIXEL = {"type": "array", "minItems": 3, "maxItems": 3, "items": {"type": "integer", "minimum": 0, "maximum": 255}}
_FRAME = {"type": "array", "minItems": 1, "items": {"type": "array", "minItems": 1, "items": _PIXEL}}
_TRAJECTORY = {
    "type": "object",
    "required": ["frames", "task"],
    "properties": {
        "frames": {"description": "(T, H, W, 3) from 0 to 255", "type": "array", "minItems": 1, "items": _FRAME},
        "task": {"type": "string", "minLength": 1, "examples": ["open the drawer"]},
    },
}
_EQUAL = 1e-9  # a probability that is closer to one half is a tie
_SIDES = {"progress": ("trajectory",), "preference": ("chosen_trajectory", "rejected_trajectory")}
_SAMPLE = {
    "oneOf": [
        {
            "type": "object",
            "required": ["sample_type", *sides],
            "properties": {"sample_type": {"const": kind}, **dict.fromkeys(sides, _TRAJECTORY)},
        }
        for kind, sides in _SIDES.items()
    ]
}
_FRAME_STEPS = "answer for the clip up to each of its frames"
_JSON_SCHEMA = {
    "type": "object",
    "required": ["samples"],
    "properties": {
        "samples": {
            "description": "what to evaluate",
            "type": "array",
            "minItems": 1,
            "maxItems": _MOST_SAMPLES,
            "items": _SAMPLE,
        },
        "use_frame_steps": {"type": "boolean", "default": False, "description": _FRAME_STEPS},
    },
}
_FORM_SAMPLE = {
    "sample_type": "progress",
    "trajectory": {"frames": {"__numpy_file__": "sample_0_trajectory_frames"}, "task": "open the drawer"},
}
_FORM_SCHEMA = {
    "type": "object",
    "required": ["sample_0"],
    "properties": {
        "sample_0": {
            "type": "string",
            "examples": [json.dumps(_FORM_SAMPLE)],
            "description": 'a sample as JSON, with frames as {"__numpy_file__": NAME}: the file NAME of the form',
        },
        "sample_0_trajectory_frames": {**BINARY, "description": "frames as .npy"},
        "use_frame_steps": {"type": "string", "enum": ["true", "false"], "description": _FRAME_STEPS},
    },
}

_PROGRESS = {
    "outputs_preference": None,
    "outputs_progress": {"progress_pred": [[0.0, 0.31, 0.72]]},
    "outputs_success": {"success_probs": [[0.25]]},
    "failures": [None],
}
_RESPONSES = {**REJECTIONS, **answered(_PROGRESS)}

Json = dict[str, Any]
Sample = tuple[str, list[Episode]]  # its type, and its clips: prefixes of one trajectory, or two to be compared


@router.post("/evaluate_batch", openapi_extra=request_body({"application/json": _JSON_SCHEMA}), responses=_RESPONSES)
async def evaluate_batch(request: Request, server: Server, memory: Memory) -> Json:
    """Answer samples given as JSON."""
    found = await server.parse(await whole_body(request), memory)
    if not isinstance(found, dict) or not isinstance(found.get("samples"), list):
        raise RequestRejected(422, 'expected {"samples": [...]}')
    return await _evaluate(server, found["samples"], found.get("use_frame_steps") in (True, "true"), memory)


@router.post(
    "/evaluate_batch_npy", openapi_extra=request_body({"multipart/form-data": _FORM_SCHEMA}), responses=_RESPONSES
)
async def evaluate_batch_npy(request: Request, server: Server, memory: Memory) -> Json:
    """Answer samples given as fields of a form, with their arrays as .npy files."""
    form = read_form(await whole_body(request), request.headers.get("content-type", ""), most=4 * _MOST_SAMPLES)
    return await _evaluate(server, *await server.decode(partial(_form_samples, form, memory)), memory)


@router.get(
    "/model_info", responses=answered({"model_path": "pocket", "num_gpus": 0, "fingerprint": "1f0c9a5e7b3d2468"})
)
async def model_info(server: Server) -> Json:
    """Return which model is served."""
    served = server.batcher.served
    return {"model_path": served.name, "num_gpus": 0, "fingerprint": served.fingerprint}


@router.get("/gpu_status", responses=answered({"total_gpus": 1, "available_gpus": 1, "pending": 0}))
async def gpu_status(server: Server) -> Json:
    """Return how many clips are pending; a rewardlab model is one worker."""
    busy = min(1, server.batcher.pending)
    return {"total_gpus": 1, "available_gpus": 1 - busy, "pending": server.batcher.pending}


async def _evaluate(server: RewardServer, samples: list[Json], frame_steps: bool, memory: MemoryShare) -> Json:
    decoded = await server.decode(partial(_decoded, samples, frame_steps, memory))
    answers, _ = await server.batcher.score([clip for _, clips in decoded for clip in clips])
    left = iter(answers)
    parts = [list(islice(left, len(clips))) for _, clips in decoded]
    kinds = {kind for kind, _ in decoded}
    if kinds == {"preference"}:
        return {"outputs_preference": _preferences(parts), "outputs_progress": None, "outputs_success": None}
    if kinds != {"progress"}:
        raise RequestRejected(422, "the samples of one request must be of one type, progress or preference")
    return _progress(parts, frame_steps)


def _form_samples(form: Form, memory: MemoryShare) -> tuple[list[Json], bool]:
    samples = list[Json]()
    while (text := form.get(f"sample_{len(samples)}")) is not None:
        memory.take(parsed_bytes(text) if isinstance(text, str) else 0)
        try:
            sample = parse_json(text) if isinstance(text, str) else None
        except ValueError as error:
            raise RequestRejected(400, f"sample_{len(samples)} cannot be read: {error}") from error
        if not isinstance(sample, dict):
            raise RequestRejected(422, "every sample must be a JSON object")
        samples.append({key: _with_frames(value, form, memory) for key, value in sample.items()})
    return samples, str(form.get("use_frame_steps", "")).lower() == "true"


def _with_frames(trajectory: Any, form: Form, memory: MemoryShare) -> Any:
    """Return a trajectory with its frames in place of the name of the file that holds them; all else as it is."""
    frames = trajectory.get("frames") if isinstance(trajectory, dict) else None
    if not isinstance(frames, dict):
        return trajectory
    file = form.get(str(frames.get("__numpy_file__")))
    if not isinstance(file, memoryview):
        raise RequestRejected(422, "frames name a file that is not in the form")
    return {**trajectory, "frames": decode_frames(file, memory)}


def _decoded(samples: list[Json], frame_steps: bool, memory: MemoryShare) -> list[Sample]:
    if not 0 < len(samples) <= _MOST_SAMPLES:
        raise RequestRejected(422, f"expected 1 to {_MOST_SAMPLES} samples, got {len(samples)}")
    decoded: list[Sample] = []
    for sample in samples:
        kind = sample.get("sample_type") if isinstance(sample, dict) else None
        if kind not in ("progress", "preference"):
            raise RequestRejected(422, "sample_type must be progress or preference")
        clips = [_episode(sample.get(side)) for side in _SIDES[kind]]
        if kind == "progress" and frame_steps:
            clips = _prefixes(clips[0], memory)
        decoded.append((kind, clips))
    return decoded


def _prefixes(whole: Episode, memory: MemoryShare) -> list[Episode]:
    """Return the clip up to each of its frames; a model may hold the frames of all of them at once."""
    count, pixels = len(whole.clip), whole.frames
    memory.take((pixels.nbytes // count + _INDEX_BYTES) * count * (count + 1) // 2)
    return [show_only(whole, np.arange(end + 1)) for end in range(count)]


def _episode(trajectory: Any) -> Episode:
    if not isinstance(trajectory, dict) or not isinstance(trajectory.get("task"), str):
        raise RequestRejected(422, "every trajectory must have frames and a task")
    task = require_instruction(trajectory["task"])
    return Episode("", task, whole_clip(in_memory(_frames(trajectory.get("frames"))), DEFAULT_FPS))


def _frames(given: Any) -> Frames:
    if isinstance(given, np.ndarray):
        return given
    try:
        frames = np.stack([_frame(each) for each in given])  # one by one: a long call would keep other threads waiting
    except (ValueError, TypeError, OverflowError):
        raise DataError("frames must be lists of whole numbers from 0 to 255, of shape (T, H, W, 3)") from None
    return require_frames(frames)


def _frame(given: Any) -> Frames:
    frame = np.asarray(given)
    if frame.ndim != 3 or not frame.size or not np.issubdtype(frame.dtype, np.integer):
        raise ValueError
    if frame.min() < 0 or frame.max() > 255:
        raise ValueError
    return frame.astype(np.uint8)


def _progress(parts: list[list[Answer]], frame_steps: bool) -> Json:
    """Return the progress and the success of every sample; a sample without an answer has empty lists."""
    progress, success = list[list[float]](), list[list[float]]()
    for part in parts:
        scores = [answer for answer in part if isinstance(answer, Score)]
        curves = [[(s.level - 1) / 4] if s.progress is None else list(s.progress) for s in scores]
        progress.append([value for curve in curves for value in (curve[-1:] if frame_steps else curve)])
        success.append([s.probabilities[SUCCESS_LEVEL - 1] for s in scores if s.probabilities is not None])
    failures = [next((answer.reason for answer in part if isinstance(answer, Failure)), None) for part in parts]
    return {
        "outputs_preference": None,
        "outputs_progress": {"progress_pred": progress},
        "outputs_success": {"success_probs": success} if any(success) else None,
        "failures": failures,
    }


def _preferences(parts: list[list[Answer]]) -> Json:
    """Return how probable it is that the chosen clip got further than the rejected one."""
    preferred: list[float] = []
    for chosen, rejected in parts:
        for answer in (chosen, rejected):
            if isinstance(answer, Failure):
                raise RequestRejected(422, f"the model gave no answer to a clip: {answer.reason}")
        assert isinstance(chosen, Score) and isinstance(rejected, Score)
        if chosen.probabilities is None or rejected.probabilities is None:
            preferred.append(0.5 + 0.5 * float(np.sign(chosen.level - rejected.level)))
        else:
            joint = np.outer(chosen.probabilities, rejected.probabilities)
            preferred.append(float(np.clip(np.tril(joint, -1).sum() + 0.5 * np.trace(joint), 0, 1)))
    labels = [1] * len(parts)  # the clip that is called chosen is the better one
    predictions = [int(p > 0.5 + _EQUAL) for p in preferred]
    return {"predictions": predictions, "prediction_probs": preferred, "preference_labels": labels}
