"""How a protocol over a backend becomes an entry of the catalog; describing a clip; the static control."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np

from rewardlab.core.episode import Episode, Frames
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Failure
from rewardlab.models.backends import find_backend
from rewardlab.models.contract import Budget, ModelEntry, RewardModel
from rewardlab.models.model_string import ModelString, Pairs, one_of, read_two_options, speed_options, split_options
from rewardlab.models.vlm import Prompt, Video, VisionLanguageModel, VlmBackend, frame_rate

QUESTION = "Describe the video in great detail."
_TOKENS = 1024


@dataclass(frozen=True)
class ClipDescriber:
    """Asks for a description of clips; the instruction is not told, so that nothing suggests what should be there."""

    vlm: VisionLanguageModel

    def describe(self, episodes: Sequence[Episode]) -> list[str | Failure]:
        """Return what the model says it sees in each clip."""
        videos = [Video(episode.frames, episode.times, frame_rate(episode.times)) for episode in episodes]
        replies = self.vlm.complete([Prompt((video, QUESTION)) for video in videos], _TOKENS)
        return [reply if isinstance(reply, Failure) else reply.text for reply in replies]


# How a protocol becomes lines of the catalog: `PROTOCOL:BACKEND:ARGUMENT?options`, and a backend's name alone.

Options = TypeVar("Options")


@dataclass(frozen=True)
class VlmProtocol(Generic[Options]):
    """A published way of getting rewards from any vision-language model."""

    summary: str
    prompt: Callable[[str], str]  # its words for an instruction: other words are another model
    build: Callable[[VisionLanguageModel, Options], RewardModel]
    default_options: Callable[[VlmBackend[Any]], Options]  # a frozen dataclass
    options: object  # the same over a backend that says nothing else
    aliases: Mapping[str, str] = field(default_factory=dict)  # other names of its options


@dataclass(frozen=True)
class ProtocolSpec(Generic[Options]):
    """What the string says: the protocol's own options, and the backend with what it parsed of the string."""

    options: Options
    backend: VlmBackend[Any]
    backend_spec: Any


def protocol_entry(protocol: VlmProtocol[Options]) -> ModelEntry[ProtocolSpec[Options]]:
    """Return the line for `PROTOCOL:BACKEND:ARGUMENT?options`, over any backend of the package or outside it."""

    def parse(string: ModelString) -> ProtocolSpec[Options]:
        name, _, argument = string.argument.partition(":")
        return _parse(protocol, find_backend(name), argument, string.options)

    return replace(_entry(protocol, protocol.summary, parse), options=(protocol.options,))


def backend_entry(backend: VlmBackend[Any], protocol: VlmProtocol[Options]) -> ModelEntry[ProtocolSpec[Options]]:
    """Return the line for `BACKEND:ARGUMENT?options`, the backend asked by this protocol."""

    def parse(string: ModelString) -> ProtocolSpec[Options]:
        return _parse(protocol, backend, string.argument, string.options)

    options = (protocol.default_options(backend), backend.options)
    return replace(_entry(protocol, backend.summary, parse), options=options)


def _parse(
    protocol: VlmProtocol[Options], backend: VlmBackend[Any], argument: str, pairs: Pairs
) -> ProtocolSpec[Options]:
    """Read every option once; those that are not the protocol's own are the backend's, or arguments of code outside."""
    default, others = protocol.default_options(backend), pairs
    if backend.outside:
        pairs, others = split_options(pairs, default, protocol.aliases)
    own, read = read_two_options(pairs, default, backend.options, protocol.aliases)
    return ProtocolSpec(own, backend, backend.parse(argument, others if backend.outside else read))


def _entry(
    protocol: VlmProtocol[Options], summary: str, parse: Callable[[ModelString], ProtocolSpec[Options]]
) -> ModelEntry[ProtocolSpec[Options]]:
    def identify(spec: ProtocolSpec[Options]) -> str:
        return digest(spec.backend.identify(spec.backend_spec), protocol.prompt(""))

    def build(spec: ProtocolSpec[Options], budget: Budget) -> RewardModel:
        return protocol.build(spec.backend.build(spec.backend_spec, budget), spec.options)

    def speed(spec: ProtocolSpec[Options]) -> frozenset[str]:
        return speed_options(spec.backend.options) - {entry.name for entry in fields(spec.options)}  # type: ignore[arg-type]

    return ModelEntry(
        summary,
        parse,
        build,
        identify,
        one_copy=True,
        apart=lambda spec: spec.backend.outside,
        prompt=protocol.prompt,
        speed=speed,
        server=lambda spec: spec.backend.server,
        describe=lambda spec, budget: ClipDescriber(spec.backend.build(spec.backend_spec, budget)),
    )


# The static control of a protocol: the first frame in place of every frame, to see whether a model counts frames.


def check_control(control: str) -> None:
    """Check, in a `__post_init__`, the option control."""
    one_of("control", control, ("none", "static"))


def controlled_frames(episode: Episode, control: str) -> Frames:
    """Return the frames of an episode, or as many copies of the first for the static control."""
    frames = episode.frames
    return frames[np.zeros(len(frames), dtype=np.int64)] if control == "static" else frames
