"""How a protocol over a backend becomes an entry of the catalog; the RoboReward rubric, which every backend has."""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, Literal

import numpy as np

from rewardlab.core.catalog import find
from rewardlab.core.episode import LEVELS, Episode
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.backends.hf import HF
from rewardlab.models.backends.openai import OPENAI
from rewardlab.models.contract import (
    Budget,
    Comparer,
    ModelEntry,
    ModelString,
    NamedModel,
    Pairs,
    RewardModel,
    all_settings,
    at_least_one,
    canonical_name,
    identity,
    options_of,
    read_arguments,
    shown_options,
)
from rewardlab.models.external import is_module, name_external
from rewardlab.models.protocols.clips import (
    DemonstrationData,
    Demonstrations,
    ShownClips,
    Views,
    demonstrations,
    view_videos,
    with_demonstration,
)
from rewardlab.models.protocols.compare import ClipComparer
from rewardlab.models.vlm import (
    UNREADABLE,
    AnswerFormat,
    Completion,
    NamedVlm,
    Prompt,
    VisionLanguageModel,
    VlmBackend,
    choice_probs,
    clip_video,
    is_vlm,
    map_frames,
)

QUESTION = "Describe the video in great detail."
_TOKENS = 1024


@dataclass(frozen=True)
class ClipDescriber:
    """Asks for a description of clips; the instruction is not told, so that nothing suggests what should be there."""

    vlm: VisionLanguageModel

    def describe(self, episodes: Sequence[Episode]) -> list[str | Failure]:
        """Return what the model says it sees in each clip."""
        replies = self.vlm.complete([Prompt((clip_video(episode), QUESTION)) for episode in episodes], _TOKENS)
        return [reply if isinstance(reply, Failure) else reply.text for reply in replies]


# Backends: those of the package, and `package.module:name` outside.

VLM_BACKENDS: dict[str, VlmBackend] = {"hf": HF, "openai": OPENAI}


def find_backend(name: str) -> VlmBackend:
    """Return the backend of this name, or that for `module:name`: a model, or what makes one from the options."""
    if name in VLM_BACKENDS:
        return VLM_BACKENDS[name]
    if not is_module(name):
        return find(VLM_BACKENDS, name, "VLM backend")

    def named(attribute: str, pairs: Pairs, also: Collection[str]) -> NamedVlm:
        offers = "the methods of VisionLanguageModel"
        external = name_external(f"{name}:{attribute}", pairs, is_vlm, offers, also)
        return NamedVlm(external.identity, lambda _: external.make(), external.shown, isolated=True)

    return VlmBackend("a vision-language model outside the package", named)


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
    defaults: Callable[[VlmBackend], Mapping[str, Any]] = lambda _: {}
    compares: bool = False  # whether it also asks which of two clips is better
    abstains: bool = False  # whether it may answer that the clip does not show what is asked
    version: int = 1

    def settings(self, backend: VlmBackend) -> Callable[..., RewardModel]:
        """Return the signature with the options of the protocol over this backend."""
        return partial(self.model, None, **self.defaults(backend))


def protocol_entry(protocol: VlmProtocol) -> ModelEntry:
    """Return the line for `PROTOCOL:BACKEND:ARGUMENT?options`, over any backend of the package or outside it."""

    def name(string: ModelString) -> NamedModel:
        backend, _, argument = string.argument.partition(":")
        return _name(protocol, find_backend(backend), backend, argument, string)

    options = (partial(protocol.model, None),)
    return ModelEntry(protocol.summary, name, options, version=protocol.version, over="backend")


def backend_entry(name: str, backend: VlmBackend) -> ModelEntry:
    """Return the line for `BACKEND:ARGUMENT?options`, the backend asked by the rubric."""

    def named(string: ModelString) -> NamedModel:
        return _name(RUBRIC, backend, name, string.argument, string)

    options = (RUBRIC.settings(backend), *backend.options)
    return ModelEntry(backend.summary, named, options, version=RUBRIC.version)


def _name(protocol: VlmProtocol, backend: VlmBackend, kind: str, argument: str, string: ModelString) -> NamedModel:
    """Read every option once; those that are not the protocol's own are the backend's."""
    settings = protocol.settings(backend)
    known = options_of(settings)
    given = read_arguments(kind, settings, tuple(pair for pair in string.options if pair[0] in known))
    vlm = backend.name(argument, tuple(pair for pair in string.options if pair[0] not in known), known)
    settings(**given)  # a wrong value is said now
    values = all_settings(settings, given)
    shown = demonstrations(str(values.get("demonstration", "")))
    content = values if shown is None else values | {"demonstration": shown.content}

    def build(budget: Budget) -> RewardModel:
        return protocol.model(vlm.build(budget), **values)

    return NamedModel(
        canonical_name(string, (*shown_options(settings, given), *vlm.shown)),
        identity(protocol.model.__name__, content, protocol.prompt(""), str(backend.version), vlm.fingerprint),
        False,
        build,
        exclusive=True,
        isolated=vlm.isolated,
        prompt=protocol.prompt,
        server=vlm.server,
        describe=None if vlm.isolated else lambda budget: ClipDescriber(vlm.build(budget)),
        abstains=protocol.abstains,
        compare=_comparer(vlm, values) if protocol.compares and not vlm.isolated else None,
    )


def _comparer(vlm: NamedVlm, values: Mapping[str, Any]) -> Callable[[Budget], Comparer]:
    def build(budget: Budget) -> Comparer:
        return ClipComparer(vlm.build(budget), values["answer"], values["tokens"], values.get("views", "images"))

    return build


# The RoboReward rubric: its three answer parsers, its words, its options.

_STRICT = re.compile(r"\bANSWER\s*:\s*([1-5])(?![\w%/]|[.,-]\d)", re.IGNORECASE)
_ANY_ANSWER = re.compile(r"\bANSWER\s*:", re.IGNORECASE)
# HELM, branch `rob` (Apache-2.0): the number after "answer:", else the number the text begins with.
_HELM = re.compile(r"(?i)\banswer\b\s*:\s*(-?\d+(?:\.\d+)?)")
_LEADING = re.compile(r"\s*(-?\d+(?:\.\d+)?)\b")
# robometer (MIT), `robometer/evals/baselines/roboreward.py`; a number outside 1 to 5 counts as not found.
_ROBOMETER = re.compile(r"ANSWER:\s*(\d+)", re.IGNORECASE)
_LONE_LEVEL = re.compile(r"\b[1-5]\b")


def strict(raw: str) -> Answer:
    """Return the level where the text holds exactly one `ANSWER: n` with n a whole number from 1 to 5."""
    found = _STRICT.findall(raw)
    if len(found) == 1 and len(_ANY_ANSWER.findall(raw)) == 1:
        return Score(float(found[0]), raw=raw)
    return Failure(f"{UNREADABLE}: expected one 'ANSWER: n' with n from 1 to 5", raw)


def helm(raw: str) -> Answer:
    """Return the number HELM reads where it is a level; HELM does not clip, and a Score cannot be outside 1 to 5.

    What HELM makes of a number outside, and of an unreadable answer (an error of 4), is up to its protocol: see
    `helm_number`.
    """
    number = helm_number(raw)
    if number is None:
        return Failure(f"{UNREADABLE}: expected a number after 'answer:' or at the start", raw)
    if not LEVELS[0] <= number <= LEVELS[-1]:
        return Failure(f"answer out of range: expected 1 to 5, got {number:g}", raw)
    return Score(number, raw=raw)


def helm_number(raw: str) -> float | None:
    """Return the number that HELM reads, in range or not; None where it reads none."""
    found = _HELM.search(raw) or _LEADING.match(raw)
    number = float(found[1]) if found else math.nan
    return number if math.isfinite(number) else None


def robometer(raw: str) -> Answer:
    """Return the level robometer reads: after 'ANSWER:', else the last lone 1 to 5, else its documented default 1."""
    found = _ROBOMETER.search(raw)
    if found and float(found[1]) in LEVELS:
        return Score(float(found[1]), raw=raw)
    return Score(float((_LONE_LEVEL.findall(raw) or ["1"])[-1]), raw=raw)


PARSERS: dict[str, Callable[[str], Answer]] = {"strict": strict, "helm": helm, "robometer": robometer}


# Prompts of published models and protocols, word for word: a model answers well only to its own.

# The rubric of RoboReward (section A.2.2), which grades clips here and writes negatives in `augmentation`.
PROGRESS_RUBRIC = """\
Rubric for end-of-episode progress (judge only the final state without time limits):
1 - No Success: Final state shows no goal-relevant change for the command.
2 - Minimal Progress: Final state shows a small but insufficient change toward the goal.
3 - Partial Completion: The final state shows good progress toward the goal but violates more than one requirement \
or a major requirement.
4 - Near Completion: Final state is correct in region and intent but misses a single minor requirement.
5 - Perfect Completion: Final state satisfies all requirements."""

# teetone/RoboReward-4B and -8B (CC-BY-4.0), the prompt of their model cards and of `robometer/evals/baselines/
# roboreward.py` in robometer (MIT); the paper prints its rubric alone.
_ROBOREWARD = f"""\
Given the task, assign a discrete progress score reward (1,2,3,4,5) for the robot in the video in the format: \
ANSWER: <score>
{PROGRESS_RUBRIC}

Task: """


def roboreward_prompt(instruction: str) -> str:
    """Return the RoboReward prompt, which asks for `ANSWER: <1-5>`."""
    return _ROBOREWARD + instruction


ANSWER = AnswerFormat("ANSWER: ", tuple(str(level) for level in LEVELS))


@dataclass(frozen=True)
class Rubric:
    """Asks a vision-language model for the level of each episode."""

    vlm: VisionLanguageModel
    answer: Annotated[
        Literal["logits", "generate"],
        Help("logits: probabilities of the digits after ANSWER:; generate: the written answer"),
    ] = "generate"
    parser: Annotated[
        Literal["strict", "helm", "robometer"], Help("parser of the written answer: strict, helm or robometer")
    ] = "strict"
    order: Annotated[Literal["video_first", "text_first"], Help("order of the prompt: video_first or text_first")] = (
        "video_first"
    )
    tokens: Annotated[int, Help("most tokens of an answer")] = 128
    views: Views = "images"
    demonstration: DemonstrationData = ""

    def __post_init__(self) -> None:
        at_least_one("tokens", self.tokens)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the expected level under the probabilities of the five, or the level that the model writes."""
        prompts = self._prompts(episodes)
        if self.answer == "logits":
            return [
                probs if isinstance(probs, Failure) else Score(float(np.array(probs) @ LEVELS), probs)
                for probs in self.vlm.answer_probs(prompts, ANSWER)
            ]
        return [self._parse(completion) for completion in self.vlm.complete(prompts, self.tokens, ANSWER)]

    @cached_property
    def _pool(self) -> Demonstrations | None:
        return demonstrations(self.demonstration)

    def _prompts(self, episodes: Sequence[Episode]) -> list[Prompt]:
        """Return one prompt per episode; episodes that show the same clip share its Video."""
        keys = map_frames(_clip_key, episodes)
        clips = dict(zip(keys, episodes, strict=True))
        videos = dict(zip(clips, map_frames(partial(view_videos, views=self.views), clips.values()), strict=True))
        first = self.order == "video_first"
        return [
            rubric_prompt(with_demonstration(videos[key], episode, self._pool), episode.instruction, video_first=first)
            for key, episode in zip(keys, episodes, strict=True)
        ]

    def _parse(self, completion: Completion | Failure) -> Answer:
        if isinstance(completion, Failure):
            return completion
        answer = replace(PARSERS[self.parser](completion.text), info=completion.info)
        if isinstance(answer, Score):
            known = completion.choice_logprobs if answer.level.is_integer() else None
            return replace(answer, probabilities=choice_probs(known, ANSWER.choices) if known else None)
        if completion.finish == "length":
            cut = f"; the answer was cut off at {self.tokens} tokens, allow more with ?tokens="
            return replace(answer, reason=answer.reason + cut)
        return answer


def rubric_prompt(shown: ShownClips, instruction: str, *, video_first: bool) -> Prompt:
    """Return what is asked about a clip, when it is scored and when a model is trained to answer."""
    text = shown.words + roboreward_prompt(instruction)
    if video_first:
        return Prompt((*shown.videos, text), prefix=(*shown.videos, shown.words + roboreward_prompt("")))
    return Prompt((text, *shown.videos))


def _clip_key(episode: Episode) -> str:
    """Identify the shown frames of every view and their times without reading them."""
    clip, views = episode.clip, (f"{name} {source.digest}" for name, source in episode.views.items())
    return digest(clip.source.digest, clip.order.tobytes(), clip.positions.tobytes(), clip.fps, *views)


RUBRIC = VlmProtocol(
    "the RoboReward rubric, levels 1 to 5, over a vision-language model: rubric:hf:PATH, the same as hf:PATH; "
    "rubric:package.module:name for a backend of your own",
    prompt=roboreward_prompt,
    model=Rubric,
    defaults=lambda backend: {"answer": "logits"} if backend.scores_answers else {},
    compares=True,
)
