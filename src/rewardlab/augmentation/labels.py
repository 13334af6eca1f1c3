"""The annotator's verdict on a level, and the stages that need it: validate, clip."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import numpy as np

from rewardlab.augmentation.batched_teacher import BatchedTeacher
from rewardlab.augmentation.questions import Attempt, Interview, Question, ask_until, validation_prompt
from rewardlab.augmentation.rows import SUCCESS, DatasetRow, StageRows, joined, made_row
from rewardlab.core.episode import LEVEL_STARTS, Episode, level_of_progress, show_only

_ANSWER = re.compile(r"ANSWER:\s*(TRUE|FALSE)")


@dataclass(frozen=True)
class Verdict:
    """What the annotator said of a label: None where it never answered in the form that is asked for."""

    right: bool | None
    rationale: str
    history: tuple[Attempt, ...]

    @property
    def last(self) -> Attempt:
        """Return the attempt that decided."""
        return self.history[-1]


def validate_rows(rows: Sequence[DatasetRow], interviewer: BatchedTeacher, attempts: int) -> StageRows:
    """Return the rows whose label the annotator confirms, and those it does not; source rows are not asked about."""
    return joined(interviewer.conduct(_validated(row, interviewer.teachers["vision"].name, attempts) for row in rows))


def judge(episode: Episode, task: str, score: int, attempts: int) -> Interview[Verdict]:
    """Ask the annotator whether a score is right for a task and a clip."""
    text = validation_prompt(task, score)
    question = Question("validate", "vision", text, episode, task, score, shown=True)
    asked = yield from ask_until(question, _refusal, attempts)
    if asked.text is None:
        return Verdict(None, asked.reason, asked.history)
    rationale, right = read_verdict(asked.text)
    return Verdict(right, rationale, asked.history)


def read_verdict(text: str) -> tuple[str, bool]:
    """Return the reasoning and the verdict of an answer that is not refused."""
    *reasoning, last = text.strip().splitlines()
    found = _ANSWER.fullmatch(last.strip())
    assert found is not None
    return "\n".join(reasoning).strip(), found[1] == "TRUE"


def _refusal(text: str) -> str:
    """Return why an answer is no verdict: the strict form is one line of it at the end, after a reason."""
    lines = text.strip().splitlines() or [""]
    if not _ANSWER.fullmatch(lines[-1].strip()):
        return "it does not end in a line ANSWER: TRUE or ANSWER: FALSE"
    if len(_ANSWER.findall(text)) > 1:
        return "it gives more than one answer"
    return "" if "".join(lines[:-1]).strip() else "it gives no reason before the answer"


def _validated(row: DatasetRow, validator: str, attempts: int) -> Interview[StageRows]:
    if row.is_source:
        return StageRows((row,))
    for given in row.provenance["verdicts"]:
        if given["by"] == validator and given["verdict"]:
            return StageRows((row,))
    verdict = yield from judge(row.episode, str(row.row["task"]), int(row.row["reward"]), attempts)
    row = row.changed({}, {"history": [*row.provenance["history"], *(each.as_json() for each in verdict.history)]})
    if verdict.right is None:
        return StageRows((), (row.refused("validate", f"no verdict: {verdict.rationale}"),))
    row = row.judged(verdict.last.teacher, verdict.rationale, verdict.last.prompt_hash, verdict=verdict.right)
    if verdict.right:
        return StageRows((row,))
    return StageRows((), (row.refused("validate", f"the annotator says FALSE: {verdict.rationale}"),))


# Stage `clip`: a ladder of truncations of each success, with the level at which each ends.
#
# Where the progress of every frame is known, it says where each level is; else clips end at fixed shares of the video,
# a level is proposed for each and the annotator confirms it or another one next to it.

STAGE = "clip"
# Shares of a video at which clips end, and the level that is proposed first.
_LADDER = {0.15: 1, 0.4: 2, 0.65: 3, 0.85: 4}
_SHORTEST = 2  # frames
_ROUNDED = 1e-3  # of progress: this near to where a level begins, the digits that a dataset keeps cannot tell


def clip_episodes(rows: Sequence[DatasetRow], interviewer: BatchedTeacher, attempts: int) -> StageRows:
    """Return the rows, after each success its truncations, and what was refused."""
    done = {row.provenance["source_episode"] for row in rows if row.provenance["stage"] == STAGE}
    return joined(interviewer.conduct(_interview(row, done, attempts) for row in rows))


def _interview(row: DatasetRow, done: set[str], attempts: int) -> Interview[StageRows]:
    if not row.is_source or row.row.get("reward") != SUCCESS or row.provenance["source_episode"] in done:
        return StageRows((row,))
    progress = row.episode.label.progress
    if progress is not None:
        return StageRows((row, *_known_clips(row, progress)))
    made = yield from _proposed_clips(row, attempts)
    return StageRows((row, *made.kept), made.rejected)


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
            columns = _columns(row, shown)
            made = made_row(_shortened(row, shown), STAGE, level, (), columns)
            clips.append(made.judged("code", f"the known progress ends at {progress[shown - 1]:.4f}", "", verdict=True))
    return clips


def _proposed_clips(row: DatasetRow, attempts: int) -> Interview[StageRows]:
    parts = []
    for share, level in _LADDER.items():
        shown = max(_SHORTEST, round(share * len(row.episode.clip)))
        if shown < len(row.episode.clip):
            parts.append((yield from _proposed(row, shown, level, attempts)))
    return joined(parts)


def _proposed(row: DatasetRow, shown: int, level: int, attempts: int) -> Interview[StageRows]:
    """Propose levels, the likeliest first, until the annotator confirms one."""
    short, history, task = _shortened(row, shown), list[Attempt](), str(row.row["task"])
    columns = _columns(row, shown)
    near = [near for near in (level, level + 1, level - 1) if 1 <= near < SUCCESS][:attempts]
    for number, proposed in enumerate(near, start=1):
        verdict = yield from judge(short.episode, task, proposed, attempts)
        last = verdict.last
        refused = "" if verdict.right else f"the annotator does not confirm it: {verdict.rationale}"
        proposal = Attempt("clip", last.teacher, last.prompt_hash, number, str(proposed), refused)
        history += [*verdict.history, proposal]
        if verdict.right:
            made = made_row(short, STAGE, proposed, history, columns)
            return StageRows((made.judged(last.teacher, verdict.rationale, last.prompt_hash, verdict=True),))
    made = made_row(short, STAGE, near[-1], history, columns)
    return StageRows((), (made.refused(STAGE, f"no level was confirmed in {len(near)} attempts"),))


def _shortened(row: DatasetRow, shown: int) -> DatasetRow:
    return replace(row, episode=shortened(row.episode, shown), video=None)


def shortened(episode: Episode, shown: int) -> Episode:
    """Return the episode that ends after so many frames."""
    return show_only(episode, np.arange(shown))


def _columns(row: DatasetRow, shown: int) -> dict[str, object]:
    path = PurePosixPath(str(row.row["file_name"]))
    progress = row.episode.label.progress
    cut = None if progress is None else list(progress[:shown])
    return {"file_name": str(path.with_name(f"{path.stem}-first{shown}.mp4")), "progress": cut}
