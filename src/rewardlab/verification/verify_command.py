"""Serving the page until the process is told to stop, or writing the verified split."""

import asyncio
import secrets
import signal
import socket

import uvicorn

from rewardlab.core.loading_line import loading
from rewardlab.core.terminal_text import one_line
from rewardlab.data.dataset_files import require_inside
from rewardlab.data.row_listing import RowListing, list_rows
from rewardlab.http_server.bearer_token import read_token
from rewardlab.http_server.listening import IDLE_SECONDS, address, listen, wait_until_started
from rewardlab.http_server.request_limits import PatientProtocol
from rewardlab.verification.app import create_app
from rewardlab.verification.assignments import Assignments
from rewardlab.verification.verdict_store import VerdictStore
from rewardlab.verification.verification_server import VerificationServer
from rewardlab.verification.verified_split import write_verified_split
from rewardlab.verification.verify_settings import VerifyPlan

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
        http=PatientProtocol,
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
        print(f"... {len(listing.problems):,} lines are left out in all; `rewardlab check` tells every one", flush=True)
