"""`remote:URL`: a model held by a rewardlab server; `rewardlab.models.backends.remote_protocol` says what travels."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rewardlab.core.episode import Episode
from rewardlab.core.errors import ModelError, PlanError, StopRun
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Answer, Failure
from rewardlab.http_server.bearer_token import TOKEN_VARIABLE, read_token
from rewardlab.models.backends.remote_protocol import (
    EPISODES_TYPE,
    pack_episodes,
    unpack_answers,
    unpack_health,
)
from rewardlab.models.contract import Budget, ModelEntry
from rewardlab.models.model_string import ModelString, option, read_options, read_url, speed_options

if TYPE_CHECKING:
    from rewardlab.models.backends.http_client import HttpClient

_TOO_LARGE = 413
_HINT = f"is the address right, and the token in {TOKEN_VARIABLE}?"


@dataclass(frozen=True)
class RemoteOptions:
    """Options of `remote:`."""

    timeout: float = option(100.0, "seconds for one batch with all its attempts; keep it below --timeout", speed=True)
    retries: int = option(4, "attempts beyond the first", speed=True)

    def __post_init__(self) -> None:
        if self.timeout <= 0 or self.retries < 0:
            raise PlanError(f"option timeout must be above 0 and retries not negative, got {self}")


@dataclass(frozen=True)
class RemoteSpec:
    """Which server to ask, and how."""

    url: str
    options: RemoteOptions


@dataclass(frozen=True)
class Remote:
    """Sends episodes to a server and returns its answers, as long as it holds the model it held at the start."""

    spec: RemoteSpec
    client: "HttpClient"
    fingerprint: str

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the server's answers; a Failure for each episode where it gave none."""
        from rewardlab.models.backends.http_client import run_async

        return run_async(self._ask(episodes, self._deadline()))

    async def score_async(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the same from asynchronous code, whose loop goes on while the server works."""
        from rewardlab.models.backends.http_client import start_async

        return await asyncio.wrap_future(start_async(self._ask(episodes, self._deadline())))

    def _deadline(self) -> float:
        return time.monotonic() + self.spec.options.timeout

    async def _ask(self, episodes: Sequence[Episode], deadline: float) -> list[Answer]:
        """Return the answers; where a request is larger than the server takes, its halves are sent one by one."""
        from rewardlab.models.backends.http_client import RejectedRequest, Request

        url, body = self.spec.url, pack_episodes(episodes)
        frame_counts = [len(episode.clip) for episode in episodes]
        request = Request(f"{url}/score", digest(body), body, EPISODES_TYPE)
        try:
            reply = await self.client.send(request, lambda data: unpack_answers(data, frame_counts), deadline)
        except ModelError as error:
            if isinstance(error, RejectedRequest) and error.status == _TOO_LARGE and len(episodes) > 1:
                half = len(episodes) // 2
                return [
                    answer for part in (episodes[:half], episodes[half:]) for answer in await self._ask(part, deadline)
                ]
            return [Failure(str(error))] * len(episodes)
        answers, fingerprint = reply
        if fingerprint != self.fingerprint:
            raise StopRun(f"{url} holds another model than when the run began; start a run of its own for it")
        return answers


def _parse(string: ModelString) -> RemoteSpec:
    read_url(string.argument, "remote:URL such as remote:http://localhost:8000")
    if find_spec("httpx2") is None:
        raise PlanError("remote: needs the package httpx2; install rewardlab with its extra: rewardlab[api]")
    return RemoteSpec(string.argument.rstrip("/"), read_options(string.options, RemoteOptions()))


def _build(spec: RemoteSpec, budget: Budget) -> Remote:
    from rewardlab.models.backends.http_client import HttpClient, RetryPolicy

    policy = RetryPolicy(retries=spec.options.retries, timeout=spec.options.timeout)
    fingerprint = _served_fingerprint(spec)
    return Remote(spec, HttpClient(policy, read_token(), _HINT, understood=True), fingerprint)


def _served_fingerprint(spec: RemoteSpec) -> str:
    """Ask the server which model it holds, so that other weights at the same address are another model."""
    from rewardlab.models.backends.http_client import HttpClient, Request, RetryPolicy, run_async

    client, request = (
        HttpClient(RetryPolicy(retries=1, timeout=10.0), read_token(), _HINT),
        Request(f"{spec.url}/health", spec.url),
    )
    try:
        return run_async(client.send(request, unpack_health, time.monotonic() + 20.0)).fingerprint
    except (ModelError, StopRun) as error:
        raise ModelError(f"no rewardlab server answers at {spec.url}: {error}") from error


REMOTE = ModelEntry(
    "a model held by a rewardlab server; remote:http://host:8000",
    options=(RemoteOptions(),),
    parse=_parse,
    build=_build,
    identify=_served_fingerprint,
    speed=lambda spec: speed_options(spec.options),
    server=lambda spec: True,
)
