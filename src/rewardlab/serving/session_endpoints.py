"""Live sessions over HTTP and WebSocket: open, append frames, score at any time, close."""

from functools import partial
from typing import Annotated, Any

import cv2
import numpy as np
from fastapi import APIRouter, Path, Query, Request, WebSocket
from pydantic import ValidationError
from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect

from rewardlab.core.errors import DataError, RewardlabError
from rewardlab.serving.endpoints import (
    BINARY,
    REJECTIONS,
    SESSION_REJECTIONS,
    NewInstruction,
    NewSession,
    SessionAnswerBody,
    SessionBody,
    request_body,
    require_instruction,
)
from rewardlab.serving.http import whole_body
from rewardlab.serving.listening import RequestRejected
from rewardlab.serving.memory import MemoryShare
from rewardlab.serving.sessions import Session
from rewardlab.serving.state import Memory, RewardServer, Server
from rewardlab.serving.uploads import decode_frames

router = APIRouter(tags=["Live sessions"])

_NEW_BODY = request_body({"application/json": NewSession.model_json_schema()})
_INSTRUCTION_BODY = request_body({"application/json": NewInstruction.model_json_schema()})
_FRAMES_BODY = request_body(dict.fromkeys(("application/octet-stream", "image/jpeg", "image/png"), BINARY))
_JPEG_BODY: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/jpeg": {"schema": BINARY}}, "description": "the last frame"}
}
_NO_FRAMES = {**REJECTIONS[422], "description": "the session has no frames yet"}
_POLICY_VIOLATION, _UNREADABLE = 1008, 400
_AT = "which frame of the session the first of these is; those that it has already are not appended again"
Name = Annotated[str, Path(description="the id of the session")]
Place = Annotated[int | None, Query(ge=0, description=_AT)]
_OPENED = {
    "model": SessionBody,
    "content": {"application/json": {"example": {"session": "hV3kq0Zs1dXb2w9A", "frames": 0}}},
    "links": {  # to the calls that take the id of the session
        name: {"operationId": name, "parameters": {"name": "$response.body#/session"}}
        for name in ("append_frames", "instruct_session", "score_session", "last_frame", "close_session")
    },
}


@router.post("/v1/sessions", status_code=201, openapi_extra=_NEW_BODY, responses={**REJECTIONS, 201: _OPENED})
async def open_session(request: Request, server: Server, memory: Memory) -> dict[str, Any]:
    """Open a session for one instruction.

    The WebSocket `/v1/stream` holds a session over one connection: the same JSON opens it, binary messages append
    frames, the text `score` scores the clip so far, and the end of the connection closes it.
    """
    return _described(await _open(server, await whole_body(request), memory))


@router.post(
    "/v1/sessions/{name}/frames",
    operation_id="append_frames",
    openapi_extra=_FRAMES_BODY,
    responses={**SESSION_REJECTIONS, 200: {"model": SessionAnswerBody | SessionBody}},
)
async def append_frames(
    name: Name, request: Request, server: Server, memory: Memory, at: Place = None
) -> dict[str, Any]:
    """Append frames: .npy or .npz of uint8 (T, H, W, 3) or (H, W, 3), or one JPEG or PNG image.

    Where the session was opened with `score_every`, an append that brings so many frames is answered with the score.
    """
    return await _append(server, server.sessions.find(name), await whole_body(request), memory, at)


@router.put(
    "/v1/sessions/{name}/instruction",
    operation_id="instruct_session",
    openapi_extra=_INSTRUCTION_BODY,
    responses={**SESSION_REJECTIONS, 200: {"model": SessionBody}},
)
async def instruct_session(name: Name, request: Request, server: Server, memory: Memory) -> dict[str, Any]:
    """Change the instruction of a session: from now on the clip so far is scored by the new one."""
    session = server.sessions.find(name)
    body = NewInstruction.model_validate(await server.parse(await whole_body(request), memory))
    session.instruct(require_instruction(body.instruction))
    return _described(session)


@router.get(
    "/v1/sessions/{name}",
    operation_id="score_session",
    responses={**SESSION_REJECTIONS, 409: _NO_FRAMES, 200: {"model": SessionAnswerBody}},
)
async def score_session(name: Name, server: Server) -> dict[str, Any]:
    """Score the clip so far; only new frames are encoded."""
    return await server.score_session(server.sessions.find(name))


@router.get(
    "/v1/sessions/{name}/frame",
    operation_id="last_frame",
    response_class=Response,
    responses={**SESSION_REJECTIONS, **_JPEG_BODY},
)
async def last_frame(name: Name, server: Server) -> Response:
    """Return the last frame of a session as JPEG, for the live page."""
    frame = server.sessions.find(name).last_frame
    if frame is None:
        raise RequestRejected(404, "this session has no frames yet")
    _, encoded = cv2.imencode(".jpg", np.ascontiguousarray(frame[..., ::-1]))
    return Response(encoded.tobytes(), media_type="image/jpeg", headers={"cache-control": "no-store"})


@router.delete("/v1/sessions/{name}", status_code=204, operation_id="close_session", responses=SESSION_REJECTIONS)
async def close_session(name: Name, server: Server) -> None:
    """Close a session and forget its frames."""
    server.sessions.close(server.sessions.find(name).id)


@router.websocket("/v1/stream")
async def stream(socket: WebSocket, server: Server, memory: Memory) -> None:
    """Hold a session over one connection: JSON opens it, binary messages append frames, `score` scores the clip."""
    await socket.accept()
    session = None
    try:
        try:
            session = await _open(server, await socket.receive_text(), memory)
        except (ValidationError, RequestRejected, KeyError) as error:  # KeyError: binary
            if isinstance(error, RequestRejected) and error.status != _UNREADABLE:
                raise
            raise DataError('the first message must be JSON such as {"instruction": "open the drawer"}') from None
        await socket.send_json(_described(session))
        while True:
            memory.give_back()  # what the message before took
            await socket.send_json(await _reply(server, session, await socket.receive(), memory))
    except WebSocketDisconnect:
        pass
    except RewardlabError as error:
        await socket.close(_POLICY_VIOLATION, str(error).encode()[:120].decode("utf-8", "ignore"))
    finally:
        if session is not None:
            server.sessions.close(session.id)


async def _open(server: RewardServer, text: str | bytes, memory: MemoryShare) -> Session:
    body = NewSession.model_validate(await server.parse(text, memory))
    return server.sessions.open(require_instruction(body.instruction), body.fps, body.score_every)


def _described(session: Session) -> dict[str, Any]:
    return {"session": session.id, "frames": session.count}


async def _reply(server: RewardServer, session: Session, message: Any, memory: MemoryShare) -> dict[str, Any]:
    """Return the reply to one message; a bad message gets an error, and the session stays open."""
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    server.sessions.find(session.id)
    try:
        if message.get("bytes") is not None:
            return await _append(server, session, message["bytes"], memory)
        if message.get("text") == "score":
            return await server.score_session(session)
    except RewardlabError as error:
        return {"error": str(error)}
    return {"error": "expected frames as a binary message, or the text `score`"}


async def _append(
    server: RewardServer, session: Session, data: bytes, memory: MemoryShare, at: int | None = None
) -> dict[str, Any]:
    frames = await server.decode_sent(data, partial(decode_frames, data, memory))
    if at is not None:
        if at > session.count:
            raise RequestRejected(422, f"this session has {session.count} frames, so the next come at {session.count}")
        frames = frames[session.count - at :]
        if not len(frames):  # the answer to these was lost on its way
            return await server.score_session(session) if session.scored == session.count else _described(session)
    due = session.is_score_due(len(frames))
    if due:  # before the append: a client that sends rejected frames again must not append them twice
        server.batcher.require_room(1)
    server.sessions.append(session, frames)
    return await server.score_session(session) if due else _described(session)
