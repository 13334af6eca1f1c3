"""A real server on loopback, in a thread of the test."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from rewardlab.models.contract import RewardModel
from rewardlab.serving.app import create_server
from rewardlab.serving.batching import ServedModel
from rewardlab.serving.listening import ServePlan
from rewardlab.serving.serve import server_config
from tests.served_app import served


@contextmanager
def reward_server(plan: ServePlan, model: RewardModel) -> Iterator[httpx2.Client]:
    """Serve until the block ends; give a client of it."""
    state = create_server(plan, ServedModel(plan.model, "one", model, ""))
    with served(server_config(plan, state)) as url, httpx2.Client(base_url=url, timeout=60) as client:
        yield client
