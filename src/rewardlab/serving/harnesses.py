"""Any reward model inside other people's harnesses: a scorer for inspect_ai, a grader for inspect-robots.

Both are found by entry points once the harness is installed; neither is imported unless the harness asks for it.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab.core.episode import Episode, Frames, episode_from_frames, is_success, strip_labels
from rewardlab.core.errors import DataError, RewardlabError
from rewardlab.core.trial import Answer, Failure, describe_info, familiarity_sentence
from rewardlab.data.video import VideoFile, frame_policy, sample_frames
from rewardlab.models import name_model
from rewardlab.models.composite import build_model, validated_answers
from rewardlab.models.contract import Budget, NamedModel, RewardModel

_DEFINITIVE = ("success", "failure")  # reasons with which a simulator of inspect-robots states the outcome
_MOST_NOTE = 2_000  # characters


@dataclass(frozen=True)
class Verdict:
    """What a model makes of one clip: success or not, None where it gives no answer that one may use."""

    success: bool | None
    sentence: str
    answer: Answer


@dataclass(frozen=True, eq=False)
class ClipJudge:
    """A reward model that calls clips successes or failures; it is loaded for the first clip."""

    model: str
    frames: str
    grade_unfamiliar: bool

    def __post_init__(self) -> None:
        self.named.refuse_truth("a harness")
        frame_policy(self.frames)  # a wrong one is told before anything is run

    @cached_property
    def named(self) -> NamedModel:
        """Return the model with what identifies it; nothing is loaded."""
        return name_model(self.model)

    @cached_property
    def built(self) -> RewardModel:
        """Return the loaded model."""
        return build_model(self.named, Budget())

    def verdict(self, episode: Episode) -> Verdict:
        """Return what the model makes of an episode; its level must be 4.5 or higher for a success."""
        shown = strip_labels(sample_frames(episode, frame_policy(self.frames)))
        (answer,) = validated_answers(self.built, [shown])
        if isinstance(answer, Failure):
            return Verdict(None, f"{self.model} gave no answer: {answer.reason}", answer)
        said = f"{self.model}: level {answer.level:.2f} of 5 from {len(shown.clip)} frames"
        facts = "; ".join(filter(None, (familiarity_sentence(answer.info), describe_info(answer.info))))
        sentence = f"{said}; {facts}" if facts else said
        refused = answer.info.guard is not None and answer.info.guard.decision == "abstain"
        unfit = refused or (bool(answer.info.unfamiliar) and not self.grade_unfamiliar)
        return Verdict(None if unfit else is_success(answer.level), sentence, answer)


# inspect-robots: a grader states the outcome of a trial once, before scorers read it.


class RewardModelGrader:
    """Grades a trial of inspect-robots by what one camera saw; the harness asks for `name`, `grade` and `config`."""

    name = "rewardlab"

    def __init__(self, judge: ClipJudge, camera: str, fps: float) -> None:
        self._judge, self._camera, self._fps = judge, camera, fps

    def config(self) -> dict[str, Any]:
        """Return the settings for the log, with what identifies the model."""
        judge = self._judge
        settings = {"frames": judge.frames, "camera": self._camera, "grade_unfamiliar": judge.grade_unfamiliar}
        return {"model": judge.model, "fingerprint": judge.named.fingerprint, **settings}

    def grade(self, record: Any, scene: Any) -> None:
        """Write the outcome into a record that has none; a clip without a usable answer leaves it as it is.

        What a person or the simulator has stated is never overturned.
        """
        from inspect_robots.transcript import operator_event

        note, source = None, "embodiment"
        if record.operator_judgement is not None:
            return
        if record.terminated and record.termination_reason in _DEFINITIVE:
            outcome = record.termination_reason
        else:
            try:
                clip = clip_of_record(record, self._camera)
                found = self._judge.verdict(episode_from_frames(clip, scene.instruction, fps=self._fps))
            except (RewardlabError, OSError, ValueError) as error:
                found = Verdict(None, str(error), Failure(str(error)))
            if found.success is None:
                print(f"rewardlab grader: {found.sentence}; trial left ungraded", file=sys.stderr)
                return
            outcome, source = "success" if found.success else "failure", self.name
            note = found.sentence[:_MOST_NOTE]
            record.operator_note = note
        record.operator_judgement = outcome
        record.events.append(operator_event(t=len(record.steps), verdict=outcome, source=source, note=note))


def inspect_robots_grader(
    model: str = "pocket",
    camera: str = "",
    frames: str = "uniform:16",
    fps: float = 10.0,
    grade_unfamiliar: bool = False,
) -> RewardModelGrader:
    """Return a grader for inspect-robots; without a camera it watches the first by name."""
    return RewardModelGrader(ClipJudge(model, frames, bool(grade_unfamiliar)), camera, float(fps))


def clip_of_record(record: Any, camera: str = "") -> Frames:
    """Return what one camera saw during a trial of inspect-robots: before the first step, and after each."""
    seen = list(_observations(record))
    names = sorted({name for images in seen for name in images})
    if not names or (camera and camera not in names):
        raise DataError(f"expected frames of {camera or 'a camera'}, the trial has {', '.join(names) or 'none'}")
    chosen = camera or names[0]
    frames = [np.asarray(load()) for images in seen if (load := images.get(chosen)) is not None]
    if len({frame.shape for frame in frames}) != 1 or frames[0].shape[-1:] != (3,) or frames[0].dtype != np.uint8:
        kinds = sorted({f"{frame.dtype} {frame.shape}" for frame in frames})
        raise DataError(f"expected frames of one size, uint8 (H, W, 3), got {', '.join(kinds)} from {chosen}")
    return np.stack(frames)


def _observations(record: Any) -> Iterator[Mapping[str, Callable[[], Any]]]:
    """Yield, per moment, what loads the image of each camera; the harness keeps them in memory or in files."""
    for place, step in enumerate(record.steps):
        if place == 0:
            yield _images(step.observation.images, step.image_refs)
        yield _images(step.result.observation.images, step.result_image_refs)


def _images(inline: Mapping[str, Any], stored: Mapping[str, Any] | None) -> dict[str, Callable[[], Any]]:
    if inline:
        return {name: partial(np.asarray, image) for name, image in inline.items()}
    return {name: reference.load for name, reference in (stored or {}).items()}


# inspect_ai: a scorer reads a clip that a sample or a solver names.


def __getattr__(name: str) -> Any:
    """Return the scorer `reward_model`, made and registered when inspect_ai loads the entry point."""
    if name == "reward_model":
        return _inspect_ai_scorer()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _inspect_ai_scorer() -> Any:
    import anyio
    from inspect_ai.scorer import Score, accuracy, scorer, stderr

    def reward_model(
        model: str = "pocket",
        video: str = "video",
        instruction: str = "instruction",
        frames: str = "uniform:16",
        grade_unfamiliar: bool = False,
    ) -> Any:
        """Score the clip that the store or the metadata of a sample names, 1 for a success and 0 for a failure.

        `video` and `instruction` are keys; without such an instruction the input of the sample is it. A clip without a
        usable answer is unscored, and no metric counts it.
        """
        judge = ClipJudge(model, frames, grade_unfamiliar)
        one_at_a_time = anyio.CapacityLimiter(1)

        async def score(state: Any, target: Any) -> Any:
            del target  # the outcome is read from the clip alone
            path, asked = (state.store.get(key, state.metadata.get(key)) for key in (video, instruction))
            asked = str(asked or state.input_text)
            try:
                if not isinstance(path, str | Path):
                    raise DataError(f"expected the path of a video in the store or the metadata as {video!r}, got none")
                episode = Episode(str(path), asked, VideoFile(Path(path)).clip())
                found = await anyio.to_thread.run_sync(judge.verdict, episode, limiter=one_at_a_time)
            except (RewardlabError, OSError) as error:
                return Score.unscored(reason="scoring_failed", explanation=str(error))
            facts: dict[str, Any] = {"model": model, "fingerprint": judge.named.fingerprint, "instruction": asked}
            if isinstance(found.answer, Failure):
                return Score.unscored(reason="grader_failed", explanation=found.sentence, metadata=facts)
            facts |= {"level": found.answer.level, "progress": list(found.answer.progress or ())}
            if found.success is None:
                return Score.unscored(reason="grader_failed", explanation=found.sentence, metadata=facts)
            return Score(value=float(found.success), explanation=found.sentence, metadata=facts)

        return score

    return scorer(metrics=[accuracy(), stderr()])(reward_model)
