"""Score, batch, health, models, metrics, live page; the request types."""

import math
from dataclasses import asdict
from enum import Enum
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
from rewardlab.serving.docs_page import docs_page
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

_INSTRUCTION: dict[str, Any] = {"description": "what the robot was asked to do", "examples": ["open the drawer"]}
_FPS = "frames per second"
Instruction = Annotated[str, Field(min_length=1, max_length=INSTRUCTION_CHARACTERS.default, **_INSTRUCTION)]
FrameRate = Annotated[float, Field(gt=0, le=MAX_FPS, allow_inf_nan=False, description=_FPS)]


class NewSession(BaseModel):
    """What opens a session."""

    model_config = ConfigDict(extra="forbid")
    instruction: Instruction
    fps: FrameRate = DEFAULT_FPS
    score_every: Annotated[int, Field(ge=1, le=_MAX_EVERY)] | None = Field(
        None,
        description="once so many frames are new since the last score, an append is answered with the score",
        examples=[10],
    )


class NewInstruction(BaseModel):
    """What a session is asked for from now on."""

    model_config = ConfigDict(extra="forbid")
    instruction: Instruction


class ClipReference(BaseModel):
    """A clip in the folder that the server may read."""

    model_config = ConfigDict(extra="forbid")
    instruction: Instruction
    reference: Annotated[
        str,
        Field(
            min_length=1,
            max_length=_MAX_REFERENCE,
            description="a file below the folder of --root",
            examples=["drawer/17.mp4"],
        ),
    ]
    fps: FrameRate = DEFAULT_FPS


class BatchRequest(BaseModel):
    """Several clips to score together."""

    model_config = ConfigDict(extra="forbid")
    clips: Annotated[list[ClipReference], Field(min_length=1, max_length=_MAX_CLIPS)]


class AnswerBody(BaseModel):
    """One answer: a level from 1 to 5, or why there is none; `info` is what else is known about it.

    `familiarity` says in words whether the clip is like the training data of the model, if the model can tell.
    """

    level: float | None = Field(None, examples=[4.0])
    probabilities: list[float] | None = Field(None, examples=[[0.02, 0.03, 0.1, 0.6, 0.25]])
    progress: list[float] | None = Field(None, examples=[[0.0, 0.31, 0.72]])
    raw: str | None = None
    failure: str | None = None
    familiarity: str | None = Field(None, examples=["within its training data (distance 0.21, limit 0.35)"])
    info: ScoreInfo = Field(examples=[{"prediction_set": [4, 5], "set_coverage": 0.9, "novelty": 0.21}])
    model: str = Field(examples=["pocket"])
    fingerprint: str = Field(examples=["1f0c9a5e7b3d2468"])


class SessionBody(BaseModel):
    """A session, and how many frames it has."""

    session: str = Field(examples=["hV3kq0Zs1dXb2w9A"])
    frames: int = Field(examples=[3])


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
CLIPS: list[str | Enum] = ["Clips"]
SERVER: list[str | Enum] = ["Server"]


def request_body(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI entry of a required body: a schema for each content type."""
    content = {kind: {"schema": schema} for kind, schema in schemas.items()}
    return {"requestBody": {"required": True, "content": content}}


def answered(example: object) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entry of an answer of JSON without a schema: an example."""
    return {200: {"content": {"application/json": {"example": example}}}}


BINARY = {"type": "string", "format": "binary"}
_FORM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["clip", "instruction"],
    "additionalProperties": False,
    "properties": {
        "clip": {**BINARY, "description": "a video, an image, or frames as .npy or .npz"},
        "instruction": {"type": "string", "minLength": 1, **_INSTRUCTION},
        "fps": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": MAX_FPS,
            "default": DEFAULT_FPS,
            "description": f"{_FPS} of an array; a video has its own",
        },
    },
}
_BATCH_SCHEMA = {
    "type": "object",
    "required": ["clips"],
    "properties": {
        "clips": {
            "description": "for each clip its instruction, reference and fps",
            "type": "array",
            "minItems": 1,
            "maxItems": _MAX_CLIPS,
            "items": ClipReference.model_json_schema(),
        }
    },
}
_CLIP_BODY = request_body({"multipart/form-data": _FORM_SCHEMA, "application/json": ClipReference.model_json_schema()})
_BATCH_BODY = request_body({"application/json": _BATCH_SCHEMA})
_EPISODES_BODY = request_body({EPISODES_TYPE: BINARY})
_EPISODES_ANSWER = {"fingerprint": "1f0c9a5e7b3d2468", "answers": [{"level": 4.0, "probabilities": None, "info": {}}]}
_EPISODES_TYPE_ONLY = {**REJECTIONS[422], "description": f"the content type is not {EPISODES_TYPE}"}
_EPISODES_RESPONSES = {**REJECTIONS, 415: _EPISODES_TYPE_ONLY, **answered(_EPISODES_ANSWER)}


@router.post(
    "/v1/score", tags=CLIPS, openapi_extra=_CLIP_BODY, responses={**REFERENCE_REJECTIONS, 200: {"model": AnswerBody}}
)
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
    "/v1/batch",
    tags=CLIPS,
    openapi_extra=_BATCH_BODY,
    responses={**REFERENCE_REJECTIONS, 200: {"model": list[AnswerBody]}},
)
async def batch(request: Request, server: Server, memory: Memory) -> list[dict[str, Any]]:
    """Score several clips below the root; one answer each, in order."""
    body = BatchRequest.model_validate(await server.parse(await whole_body(request), memory))
    server.batcher.require_size(len(body.clips))
    return await server.answers([await _referenced(server, clip, memory) for clip in body.clips])


@router.post("/score", tags=CLIPS, openapi_extra=_EPISODES_BODY, responses=_EPISODES_RESPONSES)
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
    if unknown := set(form) - set(_FORM_SCHEMA["properties"]):
        raise RequestRejected(422, f"the form has unknown fields: {', '.join(sorted(unknown))}"[:200])
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


# Health, models, metrics, and the pages.

_FOLDER = Path(__file__).parent
_SHOWN_POINTS = 200  # of each session's curve
ASSETS = {
    "/live.js": "live_page.js",
    "/live.css": "live_page.css",
    "/docs.js": "docs_page.js",
    "/docs.css": "docs_page.css",
}
_KINDS = {".js": "text/javascript", ".css": "text/css"}
_SERVED = {"name": "pocket", "fingerprint": "1f0c9a5e7b3d2468"}
_POINT: dict[str, Any] = {
    "frames": 3,
    "progress": 0.72,
    "level": 4.0,
    "probabilities": None,
    "failure": None,
    "info": {},
}
_LIVE_STATE = {
    "model": "pocket",
    "caveat": "",
    "pending": 0,
    "capacity": 128,
    "sessions": [{"id": "hV3kq0Zs1dXb2w9A", "instruction": "open the drawer", "frames": 3, "curve": [_POINT]}],
}


@router.get("/health", tags=SERVER, responses=answered({"protocol": PROTOCOL, "status": "healthy", **_SERVED}))
async def health(server: Server) -> dict[str, Any]:
    """Return that the server is healthy, and which model it serves."""
    served = server.batcher.served
    return {"protocol": PROTOCOL, "status": "healthy", **asdict(Health(served.name, served.fingerprint))}


@router.get(
    "/v1/models", tags=SERVER, responses={401: REJECTIONS[401], **answered({"models": [{**_SERVED, "caveat": ""}]})}
)
async def models(server: Server) -> dict[str, Any]:
    """Return the models that are served: there is one."""
    served = server.batcher.served
    return {"models": [{"name": served.name, "fingerprint": served.fingerprint, "caveat": served.caveat}]}


@router.get("/metrics", tags=SERVER, response_class=PlainTextResponse, responses={401: REJECTIONS[401]})
async def metrics(server: Server) -> Response:
    """Return the counters for Prometheus."""
    return Response(server.metrics.text(), media_type="text/plain; version=0.0.4")


@router.get("/v1/live", tags=SERVER, responses={401: REJECTIONS[401], **answered(_LIVE_STATE)})
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
    return _page((_FOLDER / "live_page.html").read_text(encoding="utf-8"))


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """Return the page that lists every endpoint."""
    return _page(docs_page(request.app))


def _page(html: str) -> HTMLResponse:
    return HTMLResponse(html, headers={"content-security-policy": PAGE_POLICY})


async def asset(request: Request) -> Response:
    """Return a script or a style sheet of the pages."""
    path = _FOLDER / ASSETS[request.url.path]
    return Response(path.read_bytes(), media_type=_KINDS[path.suffix])


for each in ASSETS:
    router.add_api_route(each, asset, include_in_schema=False)
