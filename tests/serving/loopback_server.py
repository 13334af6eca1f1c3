"""A real server on loopback, in a thread of the test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from rewardlab.models.contract import RewardModel
from rewardlab.serving.app import create_app, create_server
from rewardlab.serving.batching import BatchingSettings, ServedModel
from rewardlab.serving.http import server_config
from tests.served_app import served


@contextmanager
def reward_server(
    name: str,
    model: RewardModel,
    *,
    root: Path | None = None,
    max_batch: int = 32,
    max_wait: float = 0.005,
    queue: int = 128,
    sessions: int = 64,
    host: str = "127.0.0.1",
) -> Iterator[httpx2.Client]:
    """Serve until the block ends; give a client of it."""
    batching = BatchingSettings(max_batch, max_wait, queue)
    state = create_server(ServedModel(name, "one", model, ""), "uniform:16", root, batching, sessions)
    config = server_config(create_app(state, host), drain=30, websockets=True)
    with served(config) as url, httpx2.Client(base_url=url, timeout=60) as client:
        yield client
