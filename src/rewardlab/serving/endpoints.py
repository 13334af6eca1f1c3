"""Score, batch, health, models, metrics, live page; the request types."""

import math
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from rewardlab.core.episode import Episode
from rewardlab.core.limits import INSTRUCTION_CHARACTERS
from rewardlab.core.trial import ScoreInfo
from rewardlab.models.remote import EPISODES_TYPE, PROTOCOL, Health, pack_answers, unpack_episodes
from rewardlab.serving.http import PAGE_POLICY, media_type, whole_body
from rewardlab.serving.listening import RequestRejected
from rewardlab.serving.memory import MemoryShare
from rewardlab.serving.state import Memory, RewardServer, Server
from rewardlab.serving.uploads import read_form

MAX_FPS = 1_000.0
DEFAULT_FPS = 10.0
_MAX_REFERENCE = 4_096
_MAX_CLIPS = 1_000
_MAX_EVERY = 1_000_000  # frames

Instruction = Annotated[str, Field(min_length=1, max_length=INSTRUCTION_CHARACTERS.default)]
FrameRate = Annotated[float, Field(gt=0, le=MAX_FPS, allow_inf_nan=False)]


class NewSession(BaseModel):
    """What opens a session."""

    model_config = ConfigDict(extra="forbid")
    instruction: Instruction
    fps: FrameRate = DEFAULT_FPS
    score_every: Annotated[int, Field(ge=1, le=_MAX_EVERY)] | None = Field(
        None,
        description="once so many frames are new since the last score, an append is answered with the score",
    )


class ClipReference(BaseModel):
    """A clip in the folder that the server may read."""

    model_config = ConfigDict(extra="forbid")
    instruction: Instruction
    reference: Annotated[str, Field(min_length=1, max_length=_MAX_REFERENCE)]
    fps: FrameRate = DEFAULT_FPS


class BatchRequest(BaseModel):
    """Several clips to score together."""

    model_config = ConfigDict(extra="forbid")
    clips: Annotated[list[ClipReference], Field(min_length=1, max_length=_MAX_CLIPS)]


class AnswerBody(BaseModel):
    """One answer: a level from 1 to 5, or why there is none; `info` is what else is known about it."""

    level: float | None = None
    probabilities: list[float] | None = None
    progress: list[float] | None = None
    raw: str | None = None
    failure: str | None = None
    info: ScoreInfo
    model: str
    fingerprint: str


class SessionBody(BaseModel):
    """A session, and how many frames it has."""

    session: str
    frames: int


class SessionAnswerBody(AnswerBody, SessionBody):
    """The answer to the clip of a session so far."""


class ErrorBody(BaseModel):
    """Why a request was rejected."""

    error: str


REJECTIONS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "the request cannot be read"},
    401: {"model": ErrorBody, "description": "the bearer token is missing or wrong"},
    408: {"model": ErrorBody, "description": "the request did not arrive in time"},
    413: {"model": ErrorBody, "description": "the request is too long"},
    422: {"model": ErrorBody, "description": "the request holds no clip and instruction that can be scored"},
    503: {"model": ErrorBody, "description": "too many clips are pending; try again after the seconds in Retry-After"},
}
REFERENCE_REJECTIONS: dict[int | str, dict[str, Any]] = {
    **REJECTIONS,
    403: {"model": ErrorBody, "description": "this server may not read the file that is named"},
    404: {"model": ErrorBody, "description": "there is no such file"},
}
SESSION_REJECTIONS: dict[int | str, dict[str, Any]] = {
    **REJECTIONS,
    404: {"model": ErrorBody, "description": "there is no such session, or it has no frames"},
}


router = APIRouter()


def request_body(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI entry of a required body: a schema for each content type."""
    content = {kind: {"schema": schema} for kind, schema in schemas.items()}
    return {"requestBody": {"required": True, "content": content}}


BINARY = {"type": "string", "format": "binary"}
_FORM_SCHEMA = {
    "type": "object",
    "required": ["clip", "instruction"],
    "properties": {
        "clip": {**BINARY, "description": "a video, or frames as .npy or .npz"},
        "instruction": {"type": "string", "minLength": 1},
        "fps": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_FPS, "default": DEFAULT_FPS},
    },
}
_BATCH_SCHEMA = {
    "type": "object",
    "required": ["clips"],
    "properties": {
        "clips": {"type": "array", "minItems": 1, "maxItems": _MAX_CLIPS, "items": ClipReference.model_json_schema()}
    },
}
_CLIP_BODY = request_body({"multipart/form-data": _FORM_SCHEMA, "application/json": ClipReference.model_json_schema()})
_BATCH_BODY = request_body({"application/json": _BATCH_SCHEMA})
_EPISODES_BODY = request_body({EPISODES_TYPE: BINARY})


@router.post("/v1/score", openapi_extra=_CLIP_BODY, responses={**REFERENCE_REJECTIONS, 200: {"model": AnswerBody}})
async def score(request: Request, server: Server, memory: Memory) -> dict[str, Any]:
    """Score one clip: a file in a form (`clip`, `instruction`, `fps`), or JSON that names one below the root."""
    if media_type(request) == "multipart/form-data":
        episode = await _form_clip(request, server, memory)
    elif media_type(request) == "application/json":
        body = ClipReference.model_validate(await server.parse(await whole_body(request), memory))
        episode = await _referenced(server, body, memory)
    else:
        raise RequestRejected(422, "expected a form with a clip, or JSON that names one")
    return (await server.answers([episode]))[0]


@router.post(
    "/v1/batch", openapi_extra=_BATCH_BODY, responses={**REFERENCE_REJECTIONS, 200: {"model": list[AnswerBody]}}
)
async def batch(request: Request, server: Server, memory: Memory) -> list[dict[str, Any]]:
    """Score several clips below the root; one answer each, in order."""
    body = BatchRequest.model_validate(await server.parse(await whole_body(request), memory))
    server.batcher.require_size(len(body.clips))
    return await server.answers([await _referenced(server, clip, memory) for clip in body.clips])


@router.post("/score", openapi_extra=_EPISODES_BODY, responses={**REJECTIONS, 415: REJECTIONS[422]})
async def score_episodes(request: Request, server: Server, memory: Memory) -> Response:
    """Score the episodes of one archive, as `remote:URL` sends them; one answer each, in order."""
    if media_type(request) != EPISODES_TYPE:
        raise RequestRejected(415, f"expected the content type {EPISODES_TYPE}")
    body = await whole_body(request)
    episodes = await server.decode(partial(unpack_episodes, body, memory.take))
    if not episodes:
        raise RequestRejected(422, "the request holds no episodes")
    answers, served = await server.batcher.score(episodes)
    return Response(pack_answers(answers, served.fingerprint), media_type="application/json")


async def _form_clip(request: Request, server: RewardServer, memory: MemoryShare) -> Episode:
    form = read_form(await whole_body(request), request.headers["content-type"], most=8)
    clip, instruction = form.get("clip"), form.get("instruction")
    if not isinstance(clip, memoryview) or not isinstance(instruction, str):
        raise RequestRejected(422, "expected a form with a file `clip` and a text `instruction`")
    try:
        rate = float(str(form.get("fps", DEFAULT_FPS)))  # of a file this is no number
    except ValueError:
        rate = math.nan
    if not 0 < rate <= MAX_FPS:
        raise RequestRejected(422, f"fps must be a number above 0 and at most {MAX_FPS:g}")
    work = partial(server.decoder.uploaded, clip, require_instruction(instruction), rate, memory)
    return await server.decode_sent(clip, work)


async def _referenced(server: RewardServer, clip: ClipReference, memory: MemoryShare) -> Episode:
    work = partial(server.decoder.referenced, clip.reference, require_instruction(clip.instruction), clip.fps, memory)
    return await server.decode(work)


def require_instruction(text: str) -> str:
    """Return the instruction; reject an empty one, and one above the limit."""
    if not text.strip():
        raise RequestRejected(422, "the instruction is empty; say what the robot was asked to do")
    if len(text) > INSTRUCTION_CHARACTERS.value:
        raise RequestRejected(422, f"the instruction has {len(text):,} characters, {INSTRUCTION_CHARACTERS.describe()}")
    return text


# Health, models, metrics, and the live page.

_PAGE = Path(__file__).with_name("live_page.html")
_SHOWN_POINTS = 200  # of each session's curve
_ASSETS = {"/live.js": "text/javascript", "/live.css": "text/css"}


@router.get("/health")
async def health(server: Server) -> dict[str, Any]:
    """Return that the server is healthy, and which model it serves."""
    served = server.batcher.served
    return {"protocol": PROTOCOL, "status": "healthy", **asdict(Health(served.name, served.fingerprint))}


@router.get("/v1/models", responses={401: REJECTIONS[401]})
async def models(server: Server) -> dict[str, Any]:
    """Return the models that are served: there is one."""
    served = server.batcher.served
    return {"models": [{"name": served.name, "fingerprint": served.fingerprint, "caveat": served.caveat}]}


@router.get("/metrics", response_class=PlainTextResponse, responses={401: REJECTIONS[401]})
async def metrics(server: Server) -> Response:
    """Return the counters for Prometheus."""
    return Response(server.metrics.text(), media_type="text/plain; version=0.0.4")


@router.get("/v1/live", responses={401: REJECTIONS[401]})
async def live(server: Server) -> dict[str, Any]:
    """Return the data of the live page: the load, and the curve of every session."""
    served = server.batcher.served
    sessions = [
        {"id": each.id, "instruction": each.instruction, "frames": each.count, "curve": each.curve[-_SHOWN_POINTS:]}
        for each in server.sessions
    ]
    return {
        "model": served.name,
        "caveat": served.caveat,
        "pending": server.batcher.pending,
        "capacity": server.batcher.settings.capacity,
        "sessions": sessions,
    }


@router.get("/", include_in_schema=False)
async def page() -> HTMLResponse:
    """Return the live page."""
    return HTMLResponse(_PAGE.read_text(encoding="utf-8"), headers={"content-security-policy": PAGE_POLICY})


@router.get("/live.js", include_in_schema=False)
@router.get("/live.css", include_in_schema=False)
async def asset(request: Request) -> Response:
    """Return the script or the style sheet of the live page."""
    path = request.url.path
    return Response(_PAGE.with_suffix(Path(path).suffix).read_bytes(), media_type=_ASSETS[path])
