"""Datasets to be judged, and servers of the page: in a thread of the test, or as a process of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2

from rewardlab.core.video_encoding import encode
from rewardlab.data.row_listing import list_rows
from rewardlab.serving.http import server_config
from rewardlab.serving.verify import open_verification
from rewardlab.serving.verify_app import create_app
from tests.conftest import moving_square
from tests.served_app import served

TOKEN = "a-token-of-the-tests"
REASON = "The square rests <b>at the right edge</b>, so the score matches."
ROOT = Path(__file__).parents[2]


def judged_data(folder: Path, count: int) -> Path:
    """Write a dataset of so many rows over four short clips; every second row carries the reasons of a validator."""
    folder.mkdir(parents=True, exist_ok=True)
    for clip in range(4):
        (folder / "arm").mkdir(exist_ok=True)
        encode(moving_square(f"clip {clip}", count=8, size=32), folder / f"arm/{clip}.mp4", fps=10)
    rows = [_row(number) for number in range(count)]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def _row(number: int) -> dict[str, object]:
    row: dict[str, object] = {"file_name": f"arm/{number % 4}.mp4", "task": f"push square {number}"}
    row |= {"reward": 1 + number % 5, "source": "tests"}
    verdict = {"by": "openai:judge", "verdict": True, "rationale": REASON, "prompt_hash": ""}
    return row | ({"provenance": {"stage": "counterfactual", "verdicts": [verdict]}} if number % 2 == 0 else {})


@contextmanager
def verification_server(data: Path, overlap: float = 0.2) -> Iterator[httpx2.Client]:
    """Serve the page in a thread until the block ends; give a client that knows the token."""
    state = open_verification(list_rows(str(data)), None, overlap, 0)
    config = server_config(create_app(state, "127.0.0.1", TOKEN), drain=5, websockets=False)
    headers = {"authorization": f"Bearer {TOKEN}"}
    with closing(state), served(config) as url, httpx2.Client(base_url=url, headers=headers, timeout=60) as client:
        yield client


@contextmanager
def verifying_process(data: Path, port: int, cwd: Path = ROOT) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Run `rewardlab data verify` until the block ends; give the process and the address that it prints."""
    command = [sys.executable, "-m", "rewardlab", "data", "verify", str(data), "--port", str(port), "--overlap", "0"]
    pipe, environment = subprocess.PIPE, os.environ | {"REWARDLAB_TOKEN": TOKEN}
    with subprocess.Popen(command, cwd=cwd, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert line.startswith("verify "), process.stderr.read()
            yield process, line.split()[-1]
        finally:
            if process.poll() is None:
                process.kill()
