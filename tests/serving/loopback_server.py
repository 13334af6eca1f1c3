"""A real server on loopback, in a thread of the test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import uvicorn

from rewardlab.models.contract import RewardModel
from rewardlab.serving.app import create_server
from rewardlab.serving.serve_command import server_config
from rewardlab.serving.serve_settings import ServePlan
from rewardlab.serving.served_model import ServedModel


@contextmanager
def reward_server(plan: ServePlan, model: RewardModel) -> Iterator[httpx2.Client]:
    """Serve until the block ends; give a client of it."""
    state = create_server(plan, ServedModel(plan.model, "one", model, ""))
    server = uvicorn.Server(server_config(plan, state))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        started = threading.Event()
        while not server.started:
            assert thread.is_alive()
            started.wait(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()
