"""How a protocol over a backend becomes an entry of the catalog; describing a clip; the static control."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np

from rewardlab.core.episode import Episode, Frames
from rewardlab.core.settings import Help
from rewardlab.core.trial import Failure
from rewardlab.models.backends import find_backend
from rewardlab.models.contract import Budget, ModelEntry, NamedModel, RewardModel
from rewardlab.models.external import all_settings, identity, options_of, read_arguments, shown_options
from rewardlab.models.model_string import ModelString, canonical_name
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


@dataclass(frozen=True)
class VlmProtocol:
    """A published way of getting rewards from any vision-language model.

    `model` is a class of reward model: its first field is the vision-language model, the others are the options.
    `defaults` are those that depend on the backend. `version` is that of its behaviour, as in ModelEntry.
    """

    summary: str
    prompt: Callable[[str], str]  # its words for an instruction: other words are another model
    model: Callable[..., RewardModel]
    defaults: Callable[[VlmBackend], Mapping[str, Any]] = lambda backend: {}
    version: int = 1

    def settings(self, backend: VlmBackend) -> Callable[..., RewardModel]:
        """Return the signature with the options of the protocol over this backend."""
        return partial(self.model, None, **self.defaults(backend))


def protocol_entry(protocol: VlmProtocol) -> ModelEntry:
    """Return the line for `PROTOCOL:BACKEND:ARGUMENT?options`, over any backend of the package or outside it."""

    def name(string: ModelString) -> NamedModel:
        backend, _, argument = string.argument.partition(":")
        return _name(protocol, find_backend(backend), backend, argument, string)

    return ModelEntry(protocol.summary, name, (partial(protocol.model, None),), version=protocol.version)


def backend_entry(name: str, backend: VlmBackend, protocol: VlmProtocol) -> ModelEntry:
    """Return the line for `BACKEND:ARGUMENT?options`, the backend asked by this protocol."""

    def named(string: ModelString) -> NamedModel:
        return _name(protocol, backend, name, string.argument, string)

    options = (protocol.settings(backend), *backend.options)
    return ModelEntry(backend.summary, named, options, version=protocol.version)


def _name(protocol: VlmProtocol, backend: VlmBackend, kind: str, argument: str, string: ModelString) -> NamedModel:
    """Read every option once; those that are not the protocol's own are the backend's."""
    settings = protocol.settings(backend)
    known = options_of(settings)
    given = read_arguments(kind, settings, tuple(pair for pair in string.options if pair[0] in known))
    vlm = backend.name(argument, tuple(pair for pair in string.options if pair[0] not in known), known)
    settings(**given)  # a wrong value is said now
    values = all_settings(settings, given)

    def build(budget: Budget) -> RewardModel:
        return protocol.model(vlm.build(budget), **values)

    return NamedModel(
        canonical_name(string, (*shown_options(settings, given), *vlm.shown)),
        identity(protocol.model.__name__, values, protocol.prompt(""), str(backend.version), vlm.fingerprint),
        False,
        build,
        exclusive=True,
        isolated=vlm.isolated,
        prompt=protocol.prompt,
        server=vlm.server,
        describe=None if vlm.isolated else lambda budget: ClipDescriber(vlm.build(budget)),
    )


# The static control of a protocol: the first frame in place of every frame, to see whether a model counts frames.


Control = Annotated[
    Literal["none", "static"], Help("static: the first frame in place of every frame, to see what no change gives")
]


def controlled_frames(episode: Episode, control: str) -> Frames:
    """Return the frames of an episode, or as many copies of the first for the static control."""
    frames = episode.frames
    return frames[np.zeros(len(frames), dtype=np.int64)] if control == "static" else frames
