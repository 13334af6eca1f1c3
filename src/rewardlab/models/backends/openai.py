"""`openai:MODEL@URL`: any model behind an OpenAI-compatible chat-completions endpoint, local or hosted."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rewardlab.core.episode import Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.contract import Budget, ModelEntry
from rewardlab.models.model_string import one_of, read_options, read_url
from rewardlab.models.protocols.answer_parsers import PARSERS
from rewardlab.models.protocols.prompts import roboreward_prompt
from rewardlab.models.vlm import Turn

if TYPE_CHECKING:
    from rewardlab.models.backends.chat_completions import Said
    from rewardlab.models.backends.openai_endpoint import Endpoint


@dataclass(frozen=True)
class ApiSettings:
    """Options of `openai:`; the key is never among them, only the name of the environment variable that holds it."""

    parser: str = "strict"  # how the answer is read: strict, helm or robometer
    send: str = "images"  # frames as JPEG images, or as one mp4 video
    first: str = "video"  # what comes first in the message: the video or the text
    logprobs: str = "auto"  # ask for log-probabilities: auto (where the server gives them), on or off
    max_tokens: int = 128  # the longest answer
    concurrency: int = 32  # requests under way at once
    retries: int = 6  # attempts beyond the first
    timeout: float = 60.0  # seconds for one attempt
    patience: float = 110.0  # seconds for one batch with all its attempts; keep it below --timeout
    input_price: float = -1.0  # per million tokens; below 0 where it is not known
    output_price: float = -1.0
    key_env: str = "OPENAI_API_KEY"

    def __post_init__(self) -> None:
        one_of("parser", self.parser, tuple(PARSERS))
        one_of("send", self.send, ("images", "video"))
        one_of("first", self.first, ("video", "text"))
        one_of("logprobs", self.logprobs, ("auto", "on", "off"))
        if not re.fullmatch(r"[A-Za-z_]\w*", self.key_env):  # not shown: it may be the key itself
            raise PlanError("option key_env must be the name of an environment variable, such as OPENAI_API_KEY")
        if self.concurrency < 1 or self.max_tokens < 1 or self.timeout <= 0 or self.patience <= 0 or self.retries < 0:
            raise PlanError("concurrency and max_tokens must be at least 1, timeout and patience above 0")


def read_name(argument: str) -> tuple[str, str, ApiSettings]:
    """Return the model, the full address of its chat completions, and the options of `MODEL@URL?key=value`."""
    name, settings = read_options(argument, ApiSettings())
    model, _, url = re.sub(r"@(?=https?://)", "\n", name, count=1).partition("\n")
    parts = read_url(url if model else "", "openai:MODEL@URL such as openai:judge@http://localhost:8000/v1")
    path = parts.path.rstrip("/") or "/v1"
    if not path.endswith("/chat/completions"):
        path += "/chat/completions"
    return model, parts._replace(path=path, fragment="").geturl(), settings


def api_key(settings: ApiSettings) -> str:
    """Return the key from the environment, empty where there is none, as for most local servers."""
    key = os.environ.get(settings.key_env, "").strip()
    if not all("!" <= letter <= "~" for letter in key):
        raise PlanError(f"the key in {settings.key_env} holds a blank or a letter that no key has; set it again")
    return key


def identify(argument: str) -> str:
    """Check the argument without asking the server; what identifies the model is its name and what it is asked."""
    _, url, settings = read_name(argument)
    if find_spec("httpx2") is None:
        raise PlanError("openai: needs the package httpx2; install rewardlab with its extra: rewardlab[api]")
    api_key(settings)
    return digest(url, roboreward_prompt(""))


def open_endpoint(argument: str, budget: Budget) -> "Endpoint":
    """Return the model as something to talk with; see `rewardlab.models.vlm`."""
    from rewardlab.models.backends.openai_endpoint import Endpoint

    model, url, settings = read_name(argument)
    if budget.max_cost is not None and min(settings.input_price, settings.output_price) < 0:
        raise PlanError(
            f"--max-cost needs the prices of {model}: add ?input_price=...&output_price=... per million tokens, "
            "0 where it costs nothing"
        )
    return Endpoint(model, url, settings, budget)


@dataclass(frozen=True)
class ChatModel:
    """Asks a served model for the RoboReward level of each episode."""

    endpoint: "Endpoint"
    settings: ApiSettings

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the level the model writes; with probabilities where the server gives log-probabilities."""
        turns = [self._turn(episode) for episode in episodes]
        return [self._read(said) for said in self.endpoint.say(turns, self.settings.max_tokens)]

    def _turn(self, episode: Episode) -> Turn:
        prompt, frames = roboreward_prompt(episode.instruction), episode.frames
        times = episode.times
        fps = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 and times[-1] > times[0] else 1.0
        return Turn((frames, prompt) if self.settings.first == "video" else (prompt, frames), float(fps))

    def _read(self, said: "Said | Failure") -> Answer:
        from rewardlab.models.backends.chat_completions import level_probs
        from rewardlab.models.backends.openai_endpoint import missing

        if isinstance(said, Failure):
            return said
        if said.text is None:
            return missing(said)
        answer = PARSERS[self.settings.parser](said.text)
        if isinstance(answer, Score):
            probs = level_probs(said.digit) if said.digit and answer.level.is_integer() else None
            return replace(answer, probabilities=probs)
        if said.finish == "length":
            cut = f"; the answer was cut off at {self.settings.max_tokens} tokens, allow more with ?max_tokens="
            return Failure(answer.reason + cut, answer.raw)
        return answer


def _build(argument: str, budget: Budget) -> ChatModel:
    return ChatModel(open_endpoint(argument, budget), read_name(argument)[2])


OPENAI = {
    "openai": ModelEntry(
        "a vision-language model behind an OpenAI-compatible endpoint; openai:MODEL@URL, the key in OPENAI_API_KEY",
        _build,
        identify=identify,
        one_copy=True,
    ),
}
