"""Stage `rewrite`: task descriptions in correct grammar and spelling, their meaning kept."""

from collections.abc import Sequence

from rewardlab.augmentation.interviews import Interviewer
from rewardlab.augmentation.provenance import DatasetRow, StageRows
from rewardlab.augmentation.rewrite_checks import rewrite_refusal
from rewardlab.augmentation.teacher_prompts import rewrite_prompt
from rewardlab.augmentation.teacher_questions import Asked, Interview, Question, ask_until


def rewrite_tasks(rows: Sequence[DatasetRow], interviewer: Interviewer, attempts: int) -> StageRows:
    """Return the rows with their tasks rewritten, each description asked about once.

    Where no answer keeps the meaning, the description stays as it is.
    """
    first: dict[str, DatasetRow] = {}
    for row in rows:
        if row.provenance["stage"] == "source":
            first.setdefault(str(row.row["task"]), row)
    asked = interviewer.conduct(_rewritten(task, row, attempts) for task, row in first.items())
    known = dict(zip(first, asked))
    return StageRows(tuple(_applied(row, known) for row in rows))


def _rewritten(task: str, row: DatasetRow, attempts: int) -> Interview[Asked]:
    question = Question("rewrite", "text", rewrite_prompt(task), row.episode, task)
    asked = yield from ask_until(question, lambda text: rewrite_refusal(text, task), attempts)
    return asked


def _applied(row: DatasetRow, known: dict[str, Asked]) -> DatasetRow:
    asked = known.get(str(row.row["task"])) if row.provenance["stage"] == "source" else None
    if asked is None:
        return row
    history = {"history": [*row.provenance["history"], *(each.as_json() for each in asked.history)]}
    if asked.text is None or asked.text == row.row["task"]:
        return row.changed({}, history)
    last = asked.history[-1]
    about = {"stage": "rewrite", "teacher": last.teacher, "prompt_hash": last.prompt_hash, "attempt": last.attempt}
    return row.changed({"task": asked.text}, history | about)
