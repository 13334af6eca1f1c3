"""What the string of an OpenAI-compatible endpoint says, `openai:MODEL@URL?key=value`, and the key it needs."""

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec

from rewardlab.core.errors import PlanError
from rewardlab.models.model_string import one_of, option, read_url


@dataclass(frozen=True)
class OpenAIOptions:
    """Options of `openai:`; the key is never among them, only the name of the environment variable that holds it."""

    send: str = option("images", "images: each frame as a JPEG; video: one mp4")
    logprobs: str = option("auto", "ask for log-probabilities: auto (where the server gives them), on or off")
    concurrency: int = option(32, "requests under way at once", speed=True)
    retries: int = option(6, "attempts beyond the first", speed=True)
    timeout: float = option(60.0, "seconds for one attempt", speed=True)
    patience: float = option(110.0, "seconds for one batch with all attempts; keep it below --timeout", speed=True)
    input_price: float = option(-1.0, "price of a million tokens read; below 0 where it is not known", speed=True)
    output_price: float = option(-1.0, "price of a million tokens written; below 0 where it is not known", speed=True)
    key_env: str = option("OPENAI_API_KEY", "environment variable that holds the key; it may be unset", speed=True)

    def __post_init__(self) -> None:
        one_of("send", self.send, ("images", "video"))
        one_of("logprobs", self.logprobs, ("auto", "on", "off"))
        if not re.fullmatch(r"[A-Za-z_]\w*", self.key_env):  # not shown: it may be the key itself
            raise PlanError("option key_env must be the name of an environment variable, such as OPENAI_API_KEY")
        if self.concurrency < 1 or self.timeout <= 0 or self.patience <= 0 or self.retries < 0:
            raise PlanError("concurrency must be at least 1, timeout and patience above 0, retries not negative")


@dataclass(frozen=True)
class OpenAISpec:
    """Which model of which server to ask, and how; `url` is the full address of its chat completions."""

    model: str
    url: str
    options: OpenAIOptions


def parse_endpoint(argument: str, options: OpenAIOptions) -> OpenAISpec:
    """Return what `MODEL@URL` means; the server is not asked."""
    model, _, url = re.sub(r"@(?=https?://)", "\n", argument, count=1).partition("\n")
    parts = read_url(url if model else "", "openai:MODEL@URL such as openai:judge@http://localhost:8000/v1")
    path = parts.path.rstrip("/") or "/v1"
    if not path.endswith("/chat/completions"):
        path += "/chat/completions"
    if find_spec("httpx2") is None:
        raise PlanError("openai: needs the package httpx2; install rewardlab with its extra: rewardlab[api]")
    api_key(options)
    return OpenAISpec(model, parts._replace(path=path, fragment="").geturl(), options)


def api_key(options: OpenAIOptions) -> str:
    """Return the key from the environment, empty where there is none, as for most local servers."""
    key = os.environ.get(options.key_env, "").strip()
    if not all("!" <= letter <= "~" for letter in key):
        raise PlanError(f"the key in {options.key_env} holds a blank or a letter that no key has; set it again")
    return key
