"""The stages that check or propose a level: validate and clip. A vision teacher, the annotator, confirms levels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import numpy as np

from rewardlab.augmentation.batched_teacher import BatchedTeacher
from rewardlab.augmentation.questions import Attempt, Queries, Question, prompt_text, query_until_accepted
from rewardlab.augmentation.rows import CODE, SUCCESS, DatasetRow, StageRows, joined, made_row
from rewardlab.augmentation.rules import RULES
from rewardlab.core.episode import LEVEL_STARTS, Episode, level_of_progress, show_only
from rewardlab.data.roboreward_rows import stage_row

STAGE = "clip"
# Fractions of a video at which clips end, and the level that is proposed first.
PROPOSED_LEVELS = {0.15: 1, 0.4: 2, 0.65: 3, 0.85: 4}
_SHORTEST = 2  # frames
_ROUNDED = 1e-3  # of progress: so near to the start of a level, the digits in a dataset do not decide
_ANSWER = re.compile(r"ANSWER:\s*(TRUE|FALSE)")


@dataclass(frozen=True)
class Verdict:
    """The annotator's verdict on a level; `confirmed` is None where no answer had the required form."""

    confirmed: bool | None
    rationale: str
    history: tuple[Attempt, ...]

    @property
    def last(self) -> Attempt:
        """Return the attempt that decided."""
        return self.history[-1]


def validate_rows(rows: Sequence[DatasetRow], teacher: BatchedTeacher, attempts: int) -> StageRows:
    """Return the rows whose label the annotator confirms, the others as rejected; source rows stay as they are."""
    validator = teacher.teachers["vision"].name
    return joined(teacher.query_teachers(_validated(row, validator, attempts) for row in rows))


def query_verdict(episode: Episode, task: str, score: int, attempts: int) -> Queries[Verdict]:
    """Query the annotator whether a score is correct for a task and a clip."""
    text = prompt_text("validate", task=task, score=score)
    question = Question("validate", "vision", text, episode, task, score, shown=True)
    found = yield from query_until_accepted(question, _rejection, attempts)
    if found.text is None:
        return Verdict(None, found.history[-1].rejected, found.history)
    *reasoning, last = found.text.splitlines()  # of an accepted answer
    return Verdict(last.endswith("TRUE"), "\n".join(reasoning).strip(), found.history)


def _rejection(text: str) -> str:
    """Return why an answer is no verdict, or nothing; the required form is a reason, then one line with the verdict."""
    lines = text.strip().splitlines() or [""]
    if not _ANSWER.fullmatch(lines[-1].strip()):
        return "it does not end in a line ANSWER: TRUE or ANSWER: FALSE"
    if len(_ANSWER.findall(text)) > 1:
        return "it gives more than one answer"
    return "" if "".join(lines[:-1]).strip() else "it gives no reason before the answer"


def _validated(row: DatasetRow, validator: str, attempts: int) -> Queries[StageRows]:
    if row.is_source:
        return StageRows((row,))
    # Rules, which do not see a clip, are not asked where the known progress has told its level.
    graded = validator == RULES and row.provenance["stage"] == STAGE
    for given in row.provenance["verdicts"]:
        if given["verdict"] and (given["by"] == validator or (graded and given["by"] == CODE)):
            return StageRows((row,))
    verdict = yield from query_verdict(row.episode, str(row.row["task"]), int(row.row["reward"]), attempts)
    row = row.changed({}, {"history": [*row.provenance["history"], *(each.as_json() for each in verdict.history)]})
    if verdict.confirmed is None:
        return StageRows((), (row.rejected("validate", f"no verdict: {verdict.rationale}"),))
    row = row.with_verdict(verdict.last.teacher, verdict.rationale, verdict.last.prompt_hash, verdict=verdict.confirmed)
    if verdict.confirmed:
        return StageRows((row,))
    return StageRows((), (row.rejected("validate", f"the annotator says FALSE: {verdict.rationale}"),))


# Stage `clip`: each success cut at several points, with the level reached there. Known progress gives the level of
# every frame; else clips end at fixed fractions of the video, and the annotator confirms a proposed level or the next.


def clip_episodes(rows: Sequence[DatasetRow], teacher: BatchedTeacher, attempts: int) -> StageRows:
    """Return the rows, each success followed by its shorter clips, and what was rejected."""
    done = {row.provenance["source_episode"] for row in rows if row.provenance["stage"] == STAGE}
    return joined(teacher.query_teachers(_with_clips(row, done, attempts) for row in rows))


def _with_clips(row: DatasetRow, done: set[str], attempts: int) -> Queries[StageRows]:
    if not row.is_source or row.row.get("reward") != SUCCESS or row.provenance["source_episode"] in done:
        return StageRows((row,))
    progress = row.episode.label.progress
    if progress is not None:
        return StageRows((row, *_known_clips(row, progress)))
    parts = [StageRows((row,))]
    for fraction, level in PROPOSED_LEVELS.items():
        shown = max(_SHORTEST, round(fraction * len(row.episode.clip)))
        if shown < len(row.episode.clip):
            parts.append((yield from _proposed(row, shown, level, attempts)))
    return joined(parts)


def _known_clips(row: DatasetRow, progress: Sequence[float]) -> list[DatasetRow]:
    """Return one clip for each level below 5 that the rollout was at, ending in the middle of those frames."""
    levels = np.array([level_of_progress(value) for value in progress])
    clear = np.abs(np.subtract.outer(progress, LEVEL_STARTS)).min(axis=1) >= _ROUNDED
    clips = []
    for level in range(1, SUCCESS):
        frames = np.flatnonzero((levels == level) & clear)
        frames = frames[frames >= _SHORTEST - 1]
        if len(frames):
            shown = int(frames[len(frames) // 2]) + 1
            short = _shortened(row, shown)
            made = made_row(short, STAGE, level, (), _columns(short))
            why = f"the known progress ends at {progress[shown - 1]:.4f}"
            clips.append(made.with_verdict(CODE, why, "", verdict=True))
    return clips


def _proposed(row: DatasetRow, shown: int, level: int, attempts: int) -> Queries[StageRows]:
    """Propose levels, the most likely first, until the annotator confirms one."""
    short, history, task = _shortened(row, shown), list[Attempt](), str(row.row["task"])
    columns = _columns(short)
    near = [near for near in (level, level + 1, level - 1) if 1 <= near < SUCCESS][:attempts]
    for number, proposed in enumerate(near, start=1):
        verdict = yield from query_verdict(short.episode, task, proposed, attempts)
        last = verdict.last
        rejected = "" if verdict.confirmed else f"the annotator does not confirm it: {verdict.rationale}"
        proposal = Attempt("clip", last.teacher, last.prompt_hash, number, str(proposed), rejected)
        history += [*verdict.history, proposal]
        if verdict.confirmed:
            made = made_row(short, STAGE, proposed, history, columns)
            return StageRows((made.with_verdict(last.teacher, verdict.rationale, last.prompt_hash, verdict=True),))
    made = made_row(short, STAGE, near[-1], history, columns)
    return StageRows((), (made.rejected(STAGE, f"no level was confirmed in {len(near)} attempts"),))


def _shortened(row: DatasetRow, shown: int) -> DatasetRow:
    return replace(row, episode=shortened(row.episode, shown), video=None)


def shortened(episode: Episode, shown: int) -> Episode:
    """Return the episode that ends after so many frames."""
    return show_only(episode, np.arange(shown))


def _columns(short: DatasetRow) -> dict[str, object]:
    path, label = PurePosixPath(str(short.row["file_name"])), short.episode.label
    name = f"{path.stem}-first{len(short.episode.clip)}.mp4"
    columns: dict[str, object] = {"file_name": str(path.with_name(name))}
    columns["progress"] = None if label.progress is None else list(label.progress)
    return columns | ({"stages": [stage_row(stage) for stage in label.stages]} if label.stages else {})
