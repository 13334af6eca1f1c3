"""Scoring whole clips: one, a batch of references, or the episodes that `remote:` sends."""

import math
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import Response

from rewardlab.core.bounded_json import parse_json
from rewardlab.core.episode import Episode
from rewardlab.core.limits import INSTRUCTION_CHARACTERS
from rewardlab.http_server.refused_request import RefusedRequest
from rewardlab.http_server.request_content import media_type, validation_sentence
from rewardlab.http_server.request_limits import whole_body
from rewardlab.models.backends.remote_protocol import EPISODES_TYPE, pack_answers, unpack_episodes
from rewardlab.serving.form_reading import read_form
from rewardlab.serving.request_types import (
    DEFAULT_FPS,
    MAX_FPS,
    REFERENCE_REFUSALS,
    REFUSALS,
    AnswerBody,
    BatchRequest,
    ClipReference,
)
from rewardlab.serving.reward_server import RewardServer, Server

router = APIRouter()

_FORM_SCHEMA = {
    "type": "object",
    "required": ["clip", "instruction"],
    "properties": {
        "clip": {"type": "string", "format": "binary", "description": "a video, or frames as .npy or .npz"},
        "instruction": {"type": "string", "minLength": 1},
        "fps": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_FPS, "default": DEFAULT_FPS},
    },
}
_CLIP_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": _FORM_SCHEMA},
            "application/json": {"schema": ClipReference.model_json_schema()},
        },
    }
}
_EPISODES_BODY = {
    "requestBody": {
        "required": True,
        "content": {EPISODES_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post("/v1/score", openapi_extra=_CLIP_BODY, responses={**REFERENCE_REFUSALS, 200: {"model": AnswerBody}})
async def score(request: Request, server: Server) -> dict[str, Any]:
    """Score one clip: a file in a form (`clip`, `instruction`, `fps`), or JSON that names one below the root."""
    episode = await _form_clip(request, server) if _is_form(request) else await _json_clip(request, server)
    return (await server.answers([episode]))[0]


@router.post("/v1/batch", responses={**REFERENCE_REFUSALS, 200: {"model": list[AnswerBody]}})
async def batch(asked: BatchRequest, server: Server) -> list[dict[str, Any]]:
    """Score several clips below the root; one answer each, in order."""
    episodes = [await _referenced(server, clip) for clip in asked.clips]
    return await server.answers(episodes)


@router.post("/score", openapi_extra=_EPISODES_BODY, responses={**REFUSALS, 415: REFUSALS[422]})
async def score_episodes(request: Request, server: Server) -> Response:
    """Score the episodes of one archive, as `remote:URL` sends them; one answer each, in order."""
    if media_type(request) != EPISODES_TYPE:
        raise RefusedRequest(415, f"expected the content type {EPISODES_TYPE}")
    body = await whole_body(request)
    episodes = await server.decode(partial(unpack_episodes, body))
    if not episodes:
        raise RefusedRequest(422, "the request holds no episodes")
    answers, served = await server.batcher.ask(episodes)
    return Response(pack_answers(answers, served.fingerprint), media_type="application/json")


def _is_form(request: Request) -> bool:
    return media_type(request) == "multipart/form-data"


async def _form_clip(request: Request, server: RewardServer) -> Episode:
    form = read_form(await whole_body(request), request.headers["content-type"], most=8)
    clip, instruction = form.get("clip"), form.get("instruction")
    if not isinstance(clip, memoryview) or not isinstance(instruction, str):
        raise RefusedRequest(422, "expected a form with a file `clip` and a text `instruction`")
    rate = _frame_rate(form.get("fps", str(DEFAULT_FPS)))
    work = partial(server.decoder.uploaded, clip, require_instruction(instruction), rate)
    return await server.decode_sent(clip, work)


async def _json_clip(request: Request, server: RewardServer) -> Episode:
    if media_type(request) != "application/json":
        raise RefusedRequest(422, "expected a form with a clip, or JSON that names one")
    try:
        asked = ClipReference.model_validate(parse_json(await whole_body(request)))
    except ValidationError as error:
        raise RefusedRequest(422, validation_sentence(error.errors())) from error
    except ValueError as error:
        raise RefusedRequest(400, f"the JSON cannot be read: {error}") from error
    return await _referenced(server, asked)


async def _referenced(server: RewardServer, asked: ClipReference) -> Episode:
    work = partial(server.decoder.referenced, asked.reference, require_instruction(asked.instruction), asked.fps)
    return await server.decode(work)


def require_instruction(text: str) -> str:
    """Return an instruction that is there, and no longer than is taken in."""
    if not text.strip():
        raise RefusedRequest(422, "the instruction is empty; say what the robot was asked to do")
    if len(text) > INSTRUCTION_CHARACTERS.value:
        raise RefusedRequest(422, f"the instruction has {len(text):,} characters, {INSTRUCTION_CHARACTERS.describe()}")
    return text


def _frame_rate(text: object) -> float:
    try:
        rate = float(text) if isinstance(text, str) else math.nan
    except ValueError:
        rate = math.nan
    if not 0 < rate <= MAX_FPS:
        raise RefusedRequest(422, f"fps must be a number above 0 and at most {MAX_FPS:g}")
    return rate
