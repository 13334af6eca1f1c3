"""What a server says of itself: health, models, metrics, and the live page."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from rewardlab.models.backends.remote_protocol import PROTOCOL, Health
from rewardlab.serving.request_types import REFUSALS
from rewardlab.serving.reward_server import Server

router = APIRouter()

_PAGE = Path(__file__).with_name("live_page.html")
_SHOWN_POINTS = 200  # of each session's curve
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'"
_ASSETS = {"live.js": "text/javascript", "live.css": "text/css"}


@router.get("/health")
async def health(server: Server) -> dict[str, Any]:
    """Return which model is served, and that it is."""
    served = server.batcher.served
    return {"protocol": PROTOCOL, "status": "healthy", **asdict(Health(served.name, served.fingerprint))}


@router.get("/v1/models", responses={401: REFUSALS[401]})
async def models(server: Server) -> dict[str, Any]:
    """Return the models that are served: there is one."""
    served = server.batcher.served
    return {"models": [{"name": served.name, "fingerprint": served.fingerprint, "caveat": served.caveat}]}


@router.get("/metrics", response_class=PlainTextResponse, responses={401: REFUSALS[401]})
async def metrics(server: Server) -> Response:
    """Return what was counted, as Prometheus reads it."""
    return Response(server.metrics.text(), media_type="text/plain; version=0.0.4")


@router.get("/v1/live", responses={401: REFUSALS[401]})
async def live(server: Server) -> dict[str, Any]:
    """Return what the live page shows: the load, and the curve of every session."""
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
    """Return the live page, for the person beside the robot."""
    return HTMLResponse(_PAGE.read_text(encoding="utf-8"), headers={"content-security-policy": _POLICY})


@router.get("/{name}", include_in_schema=False)
async def asset(name: str) -> Response:
    """Return the script or the style sheet of the live page."""
    if name not in _ASSETS:
        raise HTTPException(404)
    return Response(_PAGE.with_name(name.replace("live", "live_page")).read_bytes(), media_type=_ASSETS[name])
