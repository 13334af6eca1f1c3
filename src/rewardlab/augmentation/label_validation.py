"""Stage `validate`: the strict annotator says TRUE or FALSE of every made row, and why; FALSE takes the row out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rewardlab.augmentation.interviews import Interviewer
from rewardlab.augmentation.provenance import DatasetRow, StageRows, joined
from rewardlab.augmentation.teacher_prompts import validation_prompt
from rewardlab.augmentation.teacher_questions import Attempt, Interview, Question, ask_until
from rewardlab.core.episode import Episode

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


def validate_rows(rows: Sequence[DatasetRow], interviewer: Interviewer, attempts: int) -> StageRows:
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
