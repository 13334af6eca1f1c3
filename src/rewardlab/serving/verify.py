"""Command `data verify`: serve the page, or write the verified split."""

import asyncio
import secrets
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from rewardlab.core.errors import PlanError
from rewardlab.core.old_settings import setting
from rewardlab.core.terminal import loading, one_line
from rewardlab.data.row_listing import RowListing, list_rows
from rewardlab.data.safe_files import require_inside
from rewardlab.models.remote import TOKEN_VARIABLE, read_token
from rewardlab.serving.http import TimeoutProtocol
from rewardlab.serving.listening import IDLE_SECONDS, address, listen, require_port, wait_until_started
from rewardlab.serving.verdicts import VerdictStore
from rewardlab.serving.verification_state import Assignments, VerificationServer
from rewardlab.serving.verified_split import write_verified_split
from rewardlab.serving.verify_app import create_app


@dataclass(frozen=True)
class VerifyPlan:
    """Start a local page on which people check the labels of a dataset; or write out what they have verified."""

    data: str = setting("dataset in the RoboReward layout: a folder with metadata.jsonl", positional=True)
    verdicts: Path | None = setting("SQLite file of the verdicts; by default DATA/verdicts.sqlite", None)
    overlap: float = setting("share of the rows that two people judge, from 0 to 1, to measure how far they agree", 0.2)
    seed: int = setting("seed of the order of rows, and of those that two people judge", 0)
    host: str = setting("address to listen on; by default nobody but this machine reaches it", "127.0.0.1")
    port: int = setting(f"port to listen on; 0 takes a free one; the token is {TOKEN_VARIABLE}, else a new one", 8010)
    export: Path | None = setting("write verified rows and their videos into this new folder, and serve nothing", None)

    def __post_init__(self) -> None:
        require_port(self.port)
        if not 0 <= self.overlap <= 1:
            raise PlanError(f"overlap must be a share from 0 to 1, got {self.overlap}")


VERDICTS = "verdicts.sqlite"
_DRAIN_SECONDS = 5
_PROBLEMS_SHOWN = 5


def verify(plan: VerifyPlan) -> None:
    """Serve the page until SIGTERM or Ctrl-C; or write the verified split and return."""
    with loading(f"reading the rows of {plan.data}"):
        listing = list_rows(plan.data)
        server = open_verification(plan, listing)
    _tell_problems(listing)
    if plan.export is not None:
        split = server.verified()
        write_verified_split(split, plan.export)
        server.close()
        print(one_line(f"{plan.export}: {split.sentence()}"), flush=True)
        return
    with listen(plan.host, plan.port) as listening:
        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises what it caught again once it has drained
            signal.signal(number, lambda *_: None)
        asyncio.run(_run(plan, server, listening))


def open_verification(plan: VerifyPlan, listing: RowListing) -> VerificationServer:
    """Return the state of a server over these rows, with the verdicts that are there already."""
    path = plan.verdicts
    if path is None:
        path = listing.folder / VERDICTS
        require_inside(listing.folder, path)  # no link in a stranger's dataset leads to another file
    return VerificationServer(listing, Assignments(listing.rows, plan.overlap, plan.seed), VerdictStore(path))


def server_config(plan: VerifyPlan, server: VerificationServer, token: str) -> uvicorn.Config:
    """Return how uvicorn serves."""
    return uvicorn.Config(
        create_app(server, plan.host, token),
        host=plan.host,
        port=plan.port,
        http=TimeoutProtocol,
        ws="none",
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
        log_level="warning",
        access_log=False,
        server_header=False,
    )


async def _run(plan: VerifyPlan, server: VerificationServer, listening: socket.socket) -> None:
    token = read_token() or secrets.token_urlsafe(24)
    running = uvicorn.Server(server_config(plan, server, token))
    task = asyncio.create_task(running.serve([listening]))
    if await wait_until_started(running, task):
        rows = f"{len(server.listing.rows):,} rows of {plan.data}"
        print(one_line(f"verify {rows} at {address(plan.host, listening)}/#token={token}"), flush=True)
    await task


def _tell_problems(listing: RowListing) -> None:
    for problem in listing.problems[:_PROBLEMS_SHOWN]:
        print(one_line(f"left out {problem}"), flush=True)
    if len(listing.problems) > _PROBLEMS_SHOWN:
        print(
            f"... {len(listing.problems):,} lines are left out in all; `rewardlab data check` tells every one",
            flush=True,
        )
