"""The application of `data verify`: the page, its rows and clips, and the verdicts, behind a token and limits.

It uses Starlette alone: an OpenAPI page is not needed here, and FastAPI is slow to import.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from rewardlab.core.episode import FailureCause
from rewardlab.core.limits import VERDICT_BYTES
from rewardlab.core.records import parse_json
from rewardlab.serving.http import (
    PAGE_POLICY,
    BodyLimit,
    RequestLimits,
    WithHeaders,
    error_handlers,
    media_type,
    whole_body,
)
from rewardlab.serving.listening import RequestRejected
from rewardlab.serving.verdicts import Decision, Verdict
from rewardlab.serving.verification_state import VerificationServer, require_judgeable, require_sound_cause
from rewardlab.serving.verified_split import metadata_line, verified_rows

_FILES = {"/": "verify_page.html", "/verify.js": "verify_page.js", "/verify.css": "verify_page.css"}
_KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_HEADERS = {
    "content-security-policy": f"{PAGE_POLICY}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}
_NAME_CHARACTERS, _NOTE_CHARACTERS = 40, 2_000
OPEN_PATHS = frozenset(_FILES)  # the page itself holds no data; its requests carry the token

Body = TypeVar("Body", bound=BaseModel)


def _printable(text: str) -> str:
    if text != text.strip() or not text.isprintable():
        raise ValueError("must be printable and begin and end with no space")
    return text


Annotator = Annotated[str, Field(min_length=1, max_length=_NAME_CHARACTERS), AfterValidator(_printable)]
RequestId = Annotated[str, Field(pattern="^[A-Za-z0-9-]{8,64}$")]


class StateQuery(BaseModel):
    """Whose rows are requested."""

    annotator: Annotator


class GivenVerdict(BaseModel):
    """A verdict as the page sends it; the page chooses `request`, so that sending it again changes nothing."""

    model_config = ConfigDict(extra="forbid")

    request: RequestId
    annotator: Annotator
    item: Annotated[str, Field(max_length=_NAME_CHARACTERS)]
    decision: Decision
    level: Annotated[int, Field(ge=1, le=5, strict=True)] | None = None
    note: Annotated[str, Field(max_length=_NOTE_CHARACTERS)] = ""
    rationale_seen: bool = False
    seconds: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    failure_cause: FailureCause | None = None
    failure_frame: Annotated[int, Field(ge=0, lt=2**31, strict=True)] | None = None


class Undo(BaseModel):
    """A verdict to take back, by its number."""

    model_config = ConfigDict(extra="forbid")

    annotator: Annotator
    verdict: Annotated[int, Field(ge=1, lt=2**63)]


def state(request: Request) -> Response:
    """Return the rows for a person to judge, and the progress."""
    query = StateQuery.model_validate(dict(request.query_params))
    return JSONResponse(_server_of(request).state_for(query.annotator))


async def judge(request: Request) -> Response:
    """Store a verdict; the answer is sent when it is on the disk."""

    def record(server: VerificationServer, given: GivenVerdict) -> dict[str, Any]:
        decision, level = require_judgeable(server.row(given.item), given.decision, given.level)
        verdict = Verdict(given.item, given.annotator, decision, level, given.note, given.rationale_seen, given.seconds)
        verdict = replace(verdict, failure_cause=given.failure_cause or "", failure_frame=given.failure_frame)
        require_sound_cause(server, verdict)
        return server.record(verdict, given.request)

    return await _carried_out(request, GivenVerdict, record)


async def undo(request: Request) -> Response:
    """Take back a verdict."""
    return await _carried_out(request, Undo, lambda server, body: server.undo(body.annotator, body.verdict))


def agreement(request: Request) -> Response:
    """Return the agreement of the annotators."""
    return JSONResponse(_server_of(request).agreement())


def rationale(request: Request) -> Response:
    """Return the validator's verdicts on a row, with their reasons."""
    return JSONResponse(_server_of(request).rationale(request.path_params["key"]))


async def frames(request: Request) -> Response:
    """Return the frames of a row's clip."""
    body = await _server_of(request).pictures(request.path_params["key"], "frames")
    return Response(body, media_type="application/octet-stream")


async def last(request: Request) -> Response:
    """Return the last frame of a row's clip in full size."""
    return Response(await _server_of(request).pictures(request.path_params["key"], "last"), media_type="image/jpeg")


def verified(request: Request) -> Response:
    """Return the verified rows, as the metadata of a dataset beside the same videos."""
    lines = map(metadata_line, verified_rows(_server_of(request).verified(), kept=True))
    return StreamingResponse(lines, media_type="application/x-ndjson")


def page(request: Request) -> Response:
    """Return the page, its script or its style sheet."""
    name = _FILES.get(request.url.path)
    if name is None:
        raise RequestRejected(404, "there is no such address here")
    return Response(Path(__file__).with_name(name).read_bytes(), media_type=_KINDS[name.rpartition(".")[2]])


_ROUTES = (
    Route("/api/state", state),
    Route("/api/verdicts", judge, methods=["POST"]),
    Route("/api/undo", undo, methods=["POST"]),
    Route("/api/agreement", agreement),
    Route("/api/rows/{key}/rationale", rationale),
    Route("/api/rows/{key}/frames", frames),
    Route("/api/rows/{key}/last", last),
    Route("/api/verified.jsonl", verified),
    Route("/{path:path}", page),
)


def create_app(server: VerificationServer, host: str, token: str) -> RequestLimits:
    """Return the ASGI application."""
    app = Starlette(routes=_ROUTES, lifespan=_lifespan, exception_handlers=error_handlers({}))
    app.state.server = server
    app.add_middleware(WithHeaders, headers=_HEADERS)
    return RequestLimits(app, token, BodyLimit(VERDICT_BYTES, "bytes", 1), OPEN_PATHS, host)


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    app.state.server.prepare()
    yield
    app.state.server.close()


def _server_of(request: Request) -> VerificationServer:
    found: VerificationServer = request.app.state.server
    return found


async def _carried_out(
    request: Request, kind: type[Body], carry_out: Callable[[VerificationServer, Body], dict[str, Any]]
) -> Response:
    """Carry out the JSON of a request in a thread, for it writes to the disk."""
    if media_type(request) != "application/json":
        raise RequestRejected(422, "expected JSON, with the content type application/json")
    try:
        found = parse_json(await whole_body(request))
    except ValueError as error:
        raise RequestRejected(422, f"the JSON cannot be read: {error}") from error
    return JSONResponse(await run_in_threadpool(carry_out, _server_of(request), kind.model_validate(found)))
