"""The vision-language models that a protocol can talk with, named inside the protocol's own string."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeVar

from rewardlab.core.catalog import find
from rewardlab.models.backends import hf as qwen_vl
from rewardlab.models.backends import openai as openai_api
from rewardlab.models.contract import Budget
from rewardlab.models.model_string import read_options
from rewardlab.models.vlm import Talker

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class _Line:
    """How a talker is checked without being opened, and how it is opened."""

    identify: Callable[[str], str]
    open: Callable[[str, Budget], Talker]


TALKERS = {
    "hf": _Line(qwen_vl.identify, qwen_vl.build),
    "openai": _Line(openai_api.identify, openai_api.open_endpoint),
}


def split_options(argument: str, default: Settings) -> tuple[str, Settings]:
    """Return `NAME:ARGUMENT?options` without the options that are the protocol's own, and those."""
    own = {entry.name for entry in fields(default)}  # type: ignore[arg-type]
    backend, mark, options = argument.rpartition("?")
    if not mark:
        return argument, default
    words = options.split("&")
    mine = [word for word in words if word.partition("=")[0] in own]
    rest = [word for word in words if word not in mine]
    settings = read_options("?" + "&".join(mine), default)[1] if mine else default
    return "?".join([backend, "&".join(rest)]) if rest else backend, settings


def identify_talker(backend: str) -> str:
    """Check the talker's string without opening it, and return what identifies the talker."""
    head, _, argument = backend.partition(":")
    return find(TALKERS, head, "model to talk with").identify(argument)


def open_talker(backend: str, budget: Budget) -> Talker:
    """Return the talker, ready to be asked; this may load weights."""
    head, _, argument = backend.partition(":")
    return find(TALKERS, head, "model to talk with").open(argument, budget)
