"""The bearer token that a server of rewardlab wants and its client sends: read from the environment."""

import os

TOKEN_VARIABLE = "REWARDLAB_TOKEN"


def read_token() -> str:
    """Return the token; empty where none is set."""
    return os.environ.get(TOKEN_VARIABLE, "").strip()
