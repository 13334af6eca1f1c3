"""The application: the page, its rows and clips, and the verdicts, behind a token and the limits on requests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response, StreamingResponse

from rewardlab.core.errors import DataError, RunError
from rewardlab.core.limits import VERDICT_BYTES
from rewardlab.http_server.listening import is_loopback
from rewardlab.http_server.refused_request import RefusedRequest
from rewardlab.http_server.request_limits import BodyLimit, RequestLimits
from rewardlab.verification.request_origin import same_origin_only
from rewardlab.verification.verdicts import Decision, Verdict
from rewardlab.verification.verification_server import VerificationServer, require_judgeable
from rewardlab.verification.verified_split import metadata_line, verified_rows

_FILES = {"/": "verify_page.html", "/verify.js": "verify_page.js", "/verify.css": "verify_page.css"}
_KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}
_NAME_CHARACTERS, _NOTE_CHARACTERS = 40, 2_000
OPEN_PATHS = frozenset(_FILES)  # the page holds nothing by itself; it asks with the token

router = APIRouter()


def _printable(text: str) -> str:
    if text != text.strip() or not text.isprintable():
        raise ValueError("must be printable and begin and end with no space")
    return text


Annotator = Annotated[str, Field(min_length=1, max_length=_NAME_CHARACTERS), AfterValidator(_printable)]
Asking = Annotated[Annotator, Query()]
RequestId = Annotated[str, Field(pattern="^[A-Za-z0-9-]{8,64}$")]


class GivenVerdict(BaseModel):
    """A verdict as the page sends it; `request` is of its own making, so that sending it again changes nothing."""

    model_config = ConfigDict(extra="forbid")

    request: RequestId
    annotator: Annotator
    item: Annotated[str, Field(max_length=_NAME_CHARACTERS)]
    decision: Decision
    level: Annotated[int, Field(ge=1, le=5, strict=True)] | None = None
    note: Annotated[str, Field(max_length=_NOTE_CHARACTERS)] = ""
    rationale_seen: bool = False
    seconds: Annotated[float, Field(ge=0, le=1e6)] = 0.0


class Undo(BaseModel):
    """A verdict to take back, by its number."""

    model_config = ConfigDict(extra="forbid")

    annotator: Annotator
    verdict: Annotated[int, Field(ge=1, lt=2**63)]


def _server_of(connection: HTTPConnection) -> VerificationServer:
    found: VerificationServer = connection.app.state.server
    return found


Server = Annotated[VerificationServer, Depends(_server_of)]


@router.get("/api/state")
def state(server: Server, annotator: Asking) -> dict[str, Any]:
    """Return the rows for a person to judge, and how far it is."""
    return server.state_for(annotator)


@router.post("/api/verdicts")
def judge(server: Server, given: GivenVerdict) -> dict[str, Any]:
    """Keep a verdict; the answer is sent when it is on the disk."""
    decision, level = require_judgeable(server.row(given.item), given.decision, given.level)
    verdict = Verdict(given.item, given.annotator, decision, level, given.note, given.rationale_seen, given.seconds)
    return server.record(verdict, given.request)


@router.post("/api/undo")
def undo(server: Server, asked: Undo) -> dict[str, Any]:
    """Take back a verdict."""
    return server.undo(asked.annotator, asked.verdict)


@router.get("/api/agreement")
def agreement(server: Server) -> dict[str, Any]:
    """Return how far the annotators agree."""
    return server.agreement()


@router.get("/api/rows/{key}/rationale")
def rationale(server: Server, key: str) -> list[dict[str, Any]]:
    """Return what the validator said of a row."""
    return server.rationale(key)


@router.get("/api/rows/{key}/{kind}")
async def pictures(server: Server, key: str, kind: Literal["frames", "last"]) -> Response:
    """Return the frames of a row's clip, or its last frame in full size."""
    body = await server.pictures(key, kind)
    return Response(body, media_type="image/jpeg" if kind == "last" else "application/octet-stream")


@router.get("/api/verified.jsonl")
def verified(server: Server) -> Response:
    """Return the verified rows, as the metadata of a dataset beside the same videos."""
    lines = map(metadata_line, verified_rows(server.verified(), kept=True))
    return StreamingResponse(lines, media_type="application/x-ndjson")


@router.get("/{path:path}")
def page(request: Request) -> Response:
    """Return the page, its script or its style sheet."""
    name = _FILES.get(request.url.path)
    if name is None:
        raise RefusedRequest(404, "there is no such address here")
    return Response(Path(__file__).with_name(name).read_bytes(), media_type=_KINDS[name.rpartition(".")[2]])


def create_app(server: VerificationServer, host: str, token: str) -> RequestLimits:
    """Return the ASGI application."""
    app = FastAPI(title="rewardlab verify", lifespan=_lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.server = server
    app.include_router(router)
    app.middleware("http")(_with_headers)
    for kind in (RefusedRequest, DataError, RunError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refused)
    if is_loopback(host) and ":" not in host:  # a page from elsewhere must not reach it by another name
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1", host])
    body = BodyLimit(VERDICT_BYTES, "bytes", 1)
    return RequestLimits(same_origin_only(app, OPEN_PATHS), token, body, OPEN_PATHS)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.server.close()


async def _with_headers(request: Request, answer: Any) -> Response:
    response: Response = await answer(request)
    response.headers.update(_HEADERS)
    return response


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """Return why a request is not carried out, in one sentence."""
    return JSONResponse({"error": _sentence(error).encode("utf-8", "replace").decode()}, _status(error))


def _status(error: Exception) -> int:
    if isinstance(error, RefusedRequest):
        return error.status
    if isinstance(error, HTTPException):
        return error.status_code
    return 503 if isinstance(error, RunError) else 422


def _sentence(error: Exception) -> str:
    if isinstance(error, RequestValidationError):
        return "; ".join(f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors()[:3])
    return str(error.detail) if isinstance(error, HTTPException) else str(error)
