"""What requests and answers hold, as the OpenAPI page shows them."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from rewardlab.core.limits import INSTRUCTION_CHARACTERS

MAX_FPS = 1_000.0
DEFAULT_FPS = 10.0
_MAX_REFERENCE = 4_096
_MAX_EVERY = 1_000_000  # frames

Instruction = Annotated[str, Field(min_length=1, max_length=INSTRUCTION_CHARACTERS.default)]
FrameRate = Annotated[float, Field(gt=0, le=MAX_FPS, allow_inf_nan=False)]


class NewSession(BaseModel):
    """What opens a session."""

    model_config = ConfigDict(extra="forbid")
    instruction: Instruction
    fps: FrameRate = DEFAULT_FPS
    score_every: Annotated[int, Field(ge=1, le=_MAX_EVERY)] | None = Field(
        None, description="an append that brings so many frames since the last question is answered with the score"
    )


class ClipReference(BaseModel):
    """A clip below the folder that the server may read."""

    model_config = ConfigDict(extra="forbid")
    instruction: Instruction
    reference: Annotated[str, Field(min_length=1, max_length=_MAX_REFERENCE)]
    fps: FrameRate = DEFAULT_FPS


class BatchRequest(BaseModel):
    """Several clips that are asked about together."""

    model_config = ConfigDict(extra="forbid")
    clips: Annotated[list[ClipReference], Field(min_length=1, max_length=1_000)]


class AnswerBody(BaseModel):
    """One answer: a level from 1 to 5, or why there is none; `trust` says how far it may be relied on."""

    level: float | None = None
    probabilities: list[float] | None = None
    progress: list[float] | None = None
    raw: str | None = None
    failure: str | None = None
    trust: dict[str, Any]
    model: str
    fingerprint: str


class SessionBody(BaseModel):
    """A session, and how many frames it has."""

    session: str
    frames: int


class SessionAnswerBody(AnswerBody, SessionBody):
    """The answer to the clip of a session so far."""


class ErrorBody(BaseModel):
    """Why a request was refused."""

    error: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "the request cannot be read"},
    401: {"model": ErrorBody, "description": "the bearer token is missing or wrong"},
    408: {"model": ErrorBody, "description": "the request did not arrive in time"},
    413: {"model": ErrorBody, "description": "the request is too long"},
    422: {"model": ErrorBody, "description": "the request holds no clip and instruction that can be scored"},
    503: {"model": ErrorBody, "description": "too much is waiting; Retry-After says when to come again"},
}
REFERENCE_REFUSALS: dict[int | str, dict[str, Any]] = {
    **REFUSALS,
    403: {"model": ErrorBody, "description": "this server may not read the file that is named"},
    404: {"model": ErrorBody, "description": "there is no such file"},
}
SESSION_REFUSALS: dict[int | str, dict[str, Any]] = {
    **REFUSALS,
    404: {"model": ErrorBody, "description": "there is no such session, or it has no frames"},
}
