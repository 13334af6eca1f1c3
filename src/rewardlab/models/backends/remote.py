"""`remote:URL`: a model held by a rewardlab server; `rewardlab.models.backends.remote_protocol` says what travels."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rewardlab.core.episode import Episode
from rewardlab.core.errors import ModelError, PlanError, StopRun
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Answer, Failure
from rewardlab.models.backends.remote_protocol import (
    EPISODES_KIND,
    Health,
    pack_episodes,
    unpack_answers,
    unpack_health,
)
from rewardlab.models.contract import Budget, ModelEntry
from rewardlab.models.model_string import read_options, read_url

if TYPE_CHECKING:
    from rewardlab.models.backends.http_client import Line


@dataclass(frozen=True)
class RemoteSettings:
    """Options of `remote:`."""

    timeout: float = 100.0  # seconds for one batch with all its attempts; keep it below --timeout
    retries: int = 4  # attempts beyond the first

    def __post_init__(self) -> None:
        if self.timeout <= 0 or self.retries < 0:
            raise PlanError(f"option timeout must be above 0 and retries not negative, got {self}")


@dataclass(frozen=True)
class Remote:
    """Sends episodes to a server and returns its answers, as long as it holds the model it held at the start."""

    url: str
    settings: RemoteSettings
    line: "Line"
    health: Health

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the server's answers; a Failure for each episode where it gave none."""
        from rewardlab.models.backends.http_client import Request, wait_for

        body = pack_episodes(episodes)
        shown = [len(episode.clip) for episode in episodes]
        request = Request(f"{self.url}/score", digest(body), body, EPISODES_KIND)
        deadline = time.monotonic() + self.settings.timeout
        try:
            answers, holds = wait_for(self.line.ask(request, lambda data: unpack_answers(data, shown), deadline))
        except ModelError as error:
            return [Failure(str(error))] * len(episodes)
        if holds != self.health.fingerprint:
            raise StopRun(f"{self.url} holds another model than when the run began; start a run of its own for it")
        return answers


def _read(argument: str) -> tuple[str, RemoteSettings]:
    url, settings = read_options(argument, RemoteSettings())
    read_url(url, "remote:URL such as remote:http://localhost:8000")
    if find_spec("httpx2") is None:
        raise PlanError("remote: needs the package httpx2; install rewardlab with its extra: rewardlab[api]")
    return url.rstrip("/"), settings


def _build(argument: str, budget: Budget) -> Remote:
    from rewardlab.models.backends.http_client import Line, Manners, Request, wait_for

    url, settings = _read(argument)
    brisk = Line(Manners(retries=1, timeout=10.0))
    try:
        health = wait_for(brisk.ask(Request(f"{url}/health", url), unpack_health, time.monotonic() + 20.0))
    except (ModelError, StopRun) as error:
        raise ModelError(f"no rewardlab server answers at {url}: {error}") from error
    return Remote(url, settings, Line(Manners(retries=settings.retries, timeout=settings.timeout)), health)


def _identify(argument: str) -> str:
    """Ask the server which model it holds, so that other weights at the same address are another model."""
    return _build(argument, Budget()).health.fingerprint


REMOTE = {
    "remote": ModelEntry(
        "a model held by a rewardlab server; remote:http://host:8000",
        _build,
        identify=_identify,
    ),
}
