"""Teachers, which answer questions: a VLM, or the scripted teacher that reads the simulator state."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Protocol

import numpy as np

from rewardlab.augmentation import rules
from rewardlab.augmentation.questions import MAX_TOKENS, TOGETHER, Question
from rewardlab.augmentation.rules import NO_COMMAND, RULES, SCORES
from rewardlab.core.errors import PlanError, RewardlabError
from rewardlab.core.seeding import digest, rng_for
from rewardlab.core.settings import Help
from rewardlab.core.trial import Failure
from rewardlab.data.convert import at_rate
from rewardlab.models.contract import Budget, parse_model_string, read_arguments
from rewardlab.models.protocols import VLM_BACKENDS
from rewardlab.models.vlm import Prompt, Video, VisionLanguageModel, frame_rate
from rewardlab.worlds import open_world
from rewardlab.worlds.metaworld.graded_commands import graded_commands, level_of_command, normal, object_name, until
from rewardlab.worlds.metaworld.instructions import caption, describe_displacement, inverse_instructions, phrasings
from rewardlab.worlds.metaworld.physics import TASKS
from rewardlab.worlds.metaworld.replay import ReplayedRollout
from rewardlab.worlds.metaworld.tasks import OTHER_OBJECTS
from rewardlab.worlds.tabletop import replay as tabletop

Replayed = ReplayedRollout | tabletop.ReplayedRollout
SCRIPTED = "scripted"
VERSION = 2  # of what `scripted` answers: raise it whenever that changes
SAMPLED_FPS = 1.0  # at which a teacher sees a video, and its last frame


class Teacher(Protocol):
    """Answers questions, one text or Failure each, in order."""

    def answer(self, questions: Sequence[Question]) -> Sequence[str | Failure]:
        """Return one answer per question."""


@dataclass(frozen=True)
class NamedTeacher:
    """A teacher that is not built yet: its string, what identifies its answers, and whether it may cost money."""

    name: str
    identity: str
    server: bool
    build: Callable[[Budget], Teacher]  # this may load weights
    exclusive: bool = False  # too big for a copy per worker


@dataclass(frozen=True)
class VlmTeacher:
    """A vision-language model as a teacher; frames are sent only with questions that show them."""

    vlm: VisionLanguageModel

    def answer(self, questions: Sequence[Question]) -> Sequence[str | Failure]:
        """Return the completions; questions with the same limit of tokens go to the model together."""
        found: dict[int, str | Failure] = {}
        for most in sorted({MAX_TOKENS[question.kind] for question in questions}):
            places = [place for place, question in enumerate(questions) if MAX_TOKENS[question.kind] == most]
            replies = self.vlm.complete([_prompt(questions[place]) for place in places], most)
            for place, reply in zip(places, replies, strict=True):
                found[place] = reply if isinstance(reply, Failure) else reply.text
        return [found[place] for place in range(len(questions))]


def name_teacher(text: str) -> NamedTeacher:
    """Return the teacher meant by a string: `scripted`, `rules`, or a model behind `openai:` or `hf:`."""
    string = parse_model_string(text)
    if text == RULES:
        return rules_teacher({})
    if string.name == SCRIPTED and not string.argument:
        scripted = ScriptedTeacher(**read_arguments(SCRIPTED, ScriptedTeacher, string.options))  # type: ignore[arg-type]
        return NamedTeacher(text, digest(SCRIPTED, VERSION, scripted.wrong), False, lambda _: scripted)
    if string.name not in VLM_BACKENDS:
        known = ", ".join((SCRIPTED, RULES, *(f"{name}:..." for name in VLM_BACKENDS)))
        raise PlanError(f"there is no teacher {text!r}; known: {known}")
    backend = VLM_BACKENDS[string.name]
    vlm = backend.name(string.argument, string.options, ())
    name = f"{string.name}:{string.argument}"
    return NamedTeacher(name, vlm.fingerprint, bool(vlm.server), lambda budget: VlmTeacher(vlm.build(budget)), True)


def rules_teacher(instructions: Mapping[str, Sequence[str]]) -> NamedTeacher:
    """Return the teacher that answers by rule, who knows these instructions of every source."""
    identity = digest(RULES, rules.VERSION, json.dumps(instructions, sort_keys=True))
    return NamedTeacher(RULES, identity, False, lambda _: rules.RulesTeacher(instructions))


def _prompt(question: Question) -> Prompt:
    if not question.shown:
        return Prompt((question.text,))
    shown = at_rate(question.episode, SAMPLED_FPS)
    return Prompt((Video(shown.frames, shown.times, frame_rate(shown.times)), question.text))


@dataclass(frozen=True)
class ScriptedTeacher:
    """Answers from the simulator's state; an episode without one gets a Failure."""

    wrong: Annotated[float, Help("fraction of commands written for a wrong score, to test validators")] = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.wrong <= 1:
            raise PlanError(f"option wrong must be a fraction from 0 to 1, got {self.wrong}")

    def answer(self, questions: Sequence[Question]) -> list[str | Failure]:
        """Return the answer from the state to each question."""
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> str | Failure:
        if question.kind == "rewrite":
            return corrected(question.task)
        episode = question.episode
        if episode.sim_state is None:
            return Failure(f"the scripted teacher knows simulated episodes alone, and {episode.id} has no world record")
        try:
            rollout = _replayed(json.dumps(episode.sim_state, default=str))
        except RewardlabError as error:
            return Failure(str(error))
        if question.kind == "analysis":
            return _analysis(rollout, question.task)
        if question.kind == "plan":
            commands = _commands(rollout, question.task)
            lines = [f"{score}: {(commands[score] or [NO_COMMAND])[0]}" for score in SCORES]
            return "\n".join(["5) Final set of suggested commands", *lines, f"5: {question.task}"])
        if question.kind == "command":
            return self._command(rollout, question)
        return _verdict(rollout, question)

    def _command(self, rollout: Replayed, question: Question) -> str:
        """Return the next command of the wanted score; with the option `wrong`, sometimes one of another score."""
        record, score = rollout.record, question.score
        rng = rng_for(record.seed, "wrong command", record.task, score, question.attempt)
        if rng.random() < self.wrong:
            score = int(rng.choice([other for other in SCORES if other != question.score]))
        known = _commands(rollout, question.task)[score]
        return known[(question.attempt - 1) % len(known)] if known else NO_COMMAND


def corrected(task: str) -> str:
    """Return a task description with a capital letter, a full stop and, for words of the world, their spelling."""
    known, words = _vocabulary(), list[str]()
    for word in task.split():
        plain = word.casefold().strip(".,:;!?")
        is_known = plain in known or not plain.isalpha()
        close = [] if is_known else get_close_matches(plain, sorted(known), n=1, cutoff=0.75)
        words.append(word.casefold().replace(plain, close[0]) if close else word)
    text = " ".join(words)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


@lru_cache(maxsize=1)
def _vocabulary() -> frozenset[str]:
    texts = (text for lists in phrasings().values() for kind in lists.values() for text in kind)
    more = describe_displacement(np.ones(3)), describe_displacement(-np.ones(3)), *tabletop.said_there()
    return frozenset(word.casefold().strip(".,:;!?") for text in (*texts, *more) for word in text.split())


@lru_cache(maxsize=2 * TOGETHER)  # rows that advance in step; a replay takes seconds
def _replayed(record: str) -> Replayed:
    world = open_world(json.loads(record))
    if not isinstance(world, ReplayedRollout | tabletop.ReplayedRollout):
        raise PlanError(f"the scripted teacher knows Meta-World and the tabletop alone, got the world {record[:80]}")
    if isinstance(world, ReplayedRollout) and world.trajectory.stages:
        raise PlanError(f"the scripted teacher knows Meta-World's rollouts of one task, got {world.trajectory.name}")
    return world


def _analysis(rollout: Replayed, instruction: str) -> str:
    if isinstance(rollout, tabletop.ReplayedRollout):
        return tabletop.describe(rollout.rollout)
    trajectory = rollout.trajectory
    task, other = trajectory.task, OTHER_OBJECTS.get(trajectory.task)
    said = [*phrasings()[task]["train"], *inverse_instructions(task, TASKS), *([other[0]] if other else [])]
    moved = caption(task, trajectory.gripper_pos, trajectory.object_pos)
    # To a tenth of a millimetre, so that no two episodes share a plan.
    start, end = (f"({x:.4f}, {y:.4f}, {z:.4f})" for x, y, z in trajectory.object_pos[[0, -1]])
    return (
        f"1) Scene and objects: {object_name(task, instruction)}. What can be asked here: {' '.join(said)}\n"
        f"2) Robot actions step by step: {moved}.\n"
        f"3) Final state summary: it went from {start} to {end} m; progress {trajectory.progress[-1]:.2f} of the task."
    )


@lru_cache(maxsize=2 * TOGETHER)
def _commands(rollout: Replayed, task: str) -> dict[int, list[str]]:
    """Return true commands for each score."""
    rng = rng_for(rollout.record.seed, "commands", rollout.record.task)
    if isinstance(rollout, tabletop.ReplayedRollout):
        found = tabletop.graded_commands(rollout.rollout, rng)
    else:
        found = graded_commands(rollout.trajectory, task, rng)
    return {score: [each.text for each in found if each.level == score] for score in SCORES}


def _verdict(rollout: Replayed, question: Question) -> str:
    last = len(question.episode.clip) - 1  # a clip shows the first frames
    if isinstance(rollout, tabletop.ReplayedRollout):
        step = tabletop.video_steps(rollout.rollout, rollout.record.frames)[last]
        level = tabletop.level_of_command(question.task, rollout.rollout, int(step))
    else:
        level = level_of_command(question.task, until(rollout.trajectory, int(rollout.record.video_steps()[last])))
    if level is None:
        return f"Nothing in the state tells how far {normal(question.task)!r} was done.\nANSWER: FALSE"
    right = "matches" if level == question.score else "does not match"
    said = f"By the state of the simulator the final level is {level}, which {right} the provided {question.score}."
    return f"{said}\nANSWER: {'TRUE' if level == question.score else 'FALSE'}"
