"""Teachers: who answers the questions of the factory, named by one string as models are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rewardlab.augmentation.scripted_teacher import ScriptedOptions, ScriptedTeacher
from rewardlab.augmentation.teacher_questions import MAX_TOKENS, Question
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Failure
from rewardlab.core.version import __version__
from rewardlab.data.conversion.resampling import at_rate
from rewardlab.models.backends import VLM_BACKENDS
from rewardlab.models.contract import Budget
from rewardlab.models.model_string import parse_model_string, read_options
from rewardlab.models.vlm import Prompt, Video, VisionLanguageModel, VlmBackend, frame_rate

SCRIPTED = "scripted"
SAMPLED_FPS = 1.0  # at which a teacher sees a video, and its last frame


class Teacher(Protocol):
    """Answers questions, one text or Failure each, in order."""

    def answer(self, questions: Sequence[Question]) -> Sequence[str | Failure]:
        """Return what the teacher says to each question."""


@dataclass(frozen=True)
class NamedTeacher:
    """A teacher that is not built yet: its string, what identifies its answers, and whether it may cost money."""

    name: str
    identity: str
    server: bool
    backend: VlmBackend[Any] | None
    spec: Any

    def build(self, budget: Budget) -> Teacher:
        """Return the teacher, ready to answer; this may load weights."""
        if self.backend is None:
            return ScriptedTeacher(self.spec)
        return VlmTeacher(self.backend.build(self.spec, budget))


@dataclass(frozen=True)
class VlmTeacher:
    """A vision-language model as a teacher; one that is asked about text alone sees no frames."""

    vlm: VisionLanguageModel

    def answer(self, questions: Sequence[Question]) -> Sequence[str | Failure]:
        """Return what the model writes, asked together where the longest answer allowed is the same."""
        found: dict[int, str | Failure] = {}
        for most in sorted({MAX_TOKENS[question.kind] for question in questions}):
            places = [place for place, question in enumerate(questions) if MAX_TOKENS[question.kind] == most]
            replies = self.vlm.complete([_prompt(questions[place]) for place in places], most)
            for place, reply in zip(places, replies):
                found[place] = reply if isinstance(reply, Failure) else reply.text
        return [found[place] for place in range(len(questions))]


def name_teacher(text: str) -> NamedTeacher:
    """Return the teacher meant by a string: `scripted`, or a model behind `openai:` or `hf:`."""
    string = parse_model_string(text)
    if string.name == SCRIPTED and not string.argument:
        options = read_options(string.options, ScriptedOptions())
        return NamedTeacher(text, digest(SCRIPTED, __version__, repr(options)), False, None, options)
    if string.name not in VLM_BACKENDS:
        known = ", ".join((SCRIPTED, *(f"{name}:..." for name in VLM_BACKENDS)))
        raise PlanError(f"there is no teacher {text!r}; known: {known}")
    backend = VLM_BACKENDS[string.name]
    spec = backend.parse(string.argument, read_options(string.options, backend.options))
    name = f"{string.name}:{string.argument}"
    return NamedTeacher(name, digest(name, backend.identify(spec)), backend.server, backend, spec)


def _prompt(question: Question) -> Prompt:
    if not question.shown:
        return Prompt((question.text,))
    shown = at_rate(question.episode, SAMPLED_FPS)
    return Prompt((Video(shown.frames, shown.times, frame_rate(shown.times)), question.text))
