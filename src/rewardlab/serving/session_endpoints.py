"""Live sessions over HTTP and WebSocket: open, append frames, ask at any time, close."""

from functools import partial
from typing import Any

import cv2
import numpy as np
from fastapi import APIRouter, Request, WebSocket
from pydantic import ValidationError
from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect

from rewardlab.core.errors import DataError, RewardlabError
from rewardlab.core.records import parse_json
from rewardlab.serving.endpoints import (
    REFUSALS,
    SESSION_REFUSALS,
    NewSession,
    SessionAnswerBody,
    SessionBody,
    require_instruction,
)
from rewardlab.serving.http import whole_body
from rewardlab.serving.listening import RequestRejected
from rewardlab.serving.sessions import Session
from rewardlab.serving.state import RewardServer, Server
from rewardlab.serving.uploads import decode_frames

router = APIRouter()

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FRAMES_BODY = {
    "requestBody": {
        "required": True,
        "content": {kind: _BINARY for kind in ("application/octet-stream", "image/jpeg", "image/png")},
    }
}
_JPEG_BODY: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/jpeg": _BINARY}, "description": "the last frame"}
}
_POLICY_VIOLATION = 1008


def _link(operation: str) -> dict[str, Any]:
    """Say in the OpenAPI page which call takes the id of the session that was opened."""
    return {"operationId": operation, "parameters": {"name": "$response.body#/session"}}


_OPENED = {
    "model": SessionBody,
    "links": {name: _link(name) for name in ("append_frames", "ask_session", "last_frame", "close_session")},
}


@router.post("/v1/sessions", status_code=201, responses={**REFUSALS, 201: _OPENED})
async def open_session(asked: NewSession, server: Server) -> dict[str, Any]:
    """Open a session for one instruction."""
    return _described(_open(server, asked))


@router.post(
    "/v1/sessions/{name}/frames",
    operation_id="append_frames",
    openapi_extra=_FRAMES_BODY,
    responses={**SESSION_REFUSALS, 200: {"model": SessionAnswerBody | SessionBody}},
)
async def append_frames(name: str, request: Request, server: Server) -> dict[str, Any]:
    """Append frames: .npy or .npz of uint8 (T, H, W, 3) or (H, W, 3), or one JPEG or PNG image.

    Where the session was opened with `score_every`, an append that brings so many frames is answered with the score.
    """
    return await _append(server, server.sessions.find(name), await whole_body(request))


@router.get(
    "/v1/sessions/{name}",
    operation_id="ask_session",
    responses={**SESSION_REFUSALS, 409: REFUSALS[422], 200: {"model": SessionAnswerBody}},
)
async def ask_session(name: str, server: Server) -> dict[str, Any]:
    """Ask about the clip so far; only frames that are new to the model are encoded."""
    return await server.ask_session(server.sessions.find(name))


@router.get(
    "/v1/sessions/{name}/frame",
    operation_id="last_frame",
    response_class=Response,
    responses={**SESSION_REFUSALS, **_JPEG_BODY},
)
async def last_frame(name: str, server: Server) -> Response:
    """Return the last frame of a session as JPEG, for the live page."""
    frame = server.sessions.find(name).last_frame
    if frame is None:
        raise RequestRejected(404, "this session has no frames yet")
    _, encoded = cv2.imencode(".jpg", np.ascontiguousarray(frame[..., ::-1]))
    return Response(encoded.tobytes(), media_type="image/jpeg", headers={"cache-control": "no-store"})


@router.delete("/v1/sessions/{name}", status_code=204, operation_id="close_session", responses=SESSION_REFUSALS)
async def close_session(name: str, server: Server) -> None:
    """Close a session and forget its frames."""
    server.sessions.close(server.sessions.find(name).id)


@router.websocket("/v1/stream")
async def stream(socket: WebSocket, server: Server) -> None:
    """Hold a session over one connection: JSON opens it, binary messages append frames, the text `score` asks."""
    await socket.accept()
    session = None
    try:
        session = _opened(server, await socket.receive_text())
        await socket.send_json(_described(session))
        while True:
            await socket.send_json(await _reply(server, session, await socket.receive()))
    except WebSocketDisconnect:
        pass
    except (RewardlabError, KeyError) as error:  # KeyError: binary before the session was opened
        await socket.close(_POLICY_VIOLATION, str(error).encode()[:120].decode("utf-8", "ignore"))
    finally:
        if session is not None:
            server.sessions.close(session.id)


def _opened(server: RewardServer, text: str) -> Session:
    try:
        asked = NewSession.model_validate(parse_json(text))
    except (ValidationError, ValueError):
        raise DataError('the first message must be JSON such as {"instruction": "open the drawer"}') from None
    return _open(server, asked)


def _open(server: RewardServer, asked: NewSession) -> Session:
    return server.sessions.open(require_instruction(asked.instruction), asked.fps, asked.score_every)


def _described(session: Session) -> dict[str, Any]:
    return {"session": session.id, "frames": session.count}


async def _reply(server: RewardServer, session: Session, message: Any) -> dict[str, Any]:
    """Return what answers one message; what is wrong with a message is said, and the session goes on."""
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    server.sessions.find(session.id)
    try:
        if message.get("bytes") is not None:
            return await _append(server, session, message["bytes"])
        if message.get("text") == "score":
            return await server.ask_session(session)
    except RewardlabError as error:
        return {"error": str(error)}
    return {"error": "expected frames as a binary message, or the text `score`"}


async def _append(server: RewardServer, session: Session, data: bytes) -> dict[str, Any]:
    frames = await server.decode_sent(data, partial(decode_frames, data))
    asks = session.asks_with(len(frames))
    if asks:  # frames that were taken cannot be refused any more: who sends them again would have them twice
        server.batcher.require_room(1)
    server.sessions.append(session, frames)
    return await server.ask_session(session) if asks else _described(session)
