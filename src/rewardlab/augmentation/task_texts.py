"""The stages that change task texts: rewrite (spelling) and counterfactual (other commands for a success).

Counterfactual: the video is analysed, distinct failure modes are planned, and one command is written for each score
from 1 to 4, each with those of lower scores in the prompt. Code and the annotator reject what breaks a rule; then the
question is repeated, up to a bound.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from rewardlab.augmentation.batched_teacher import BatchedTeacher
from rewardlab.augmentation.labels import Verdict, query_verdict
from rewardlab.augmentation.questions import (
    Attempt,
    Queries,
    QueryResult,
    Question,
    prompt_text,
    query_once,
    query_until_accepted,
    with_history,
)
from rewardlab.augmentation.rows import CODE, SUCCESS, DatasetRow, StageRows, joined, made_row
from rewardlab.augmentation.rules import NO_COMMAND, SCORES
from rewardlab.augmentation.text_checks import CommandContext, command_rejection, rewrite_rejection

STAGE = "counterfactual"
_CHECKED = "ASCII, under 25 words, imperative, grounded, not entailed, no paraphrase"
_SECTION = r"^\W*{}\s*[).:\-]"
_SCORED_LINE = re.compile(r"^\W*(?:score\s*)?([1-5])\W+(\S.*)$", re.IGNORECASE)


def rewrite_tasks(rows: Sequence[DatasetRow], teacher: BatchedTeacher, attempts: int) -> StageRows:
    """Return the rows with spelling and grammar of their tasks corrected, with one query per description.

    Where no answer keeps the meaning, the description stays as it is.
    """
    first: dict[str, DatasetRow] = {}
    for row in rows:
        if row.provenance["stage"] == "source":
            first.setdefault(str(row.row["task"]), row)
    found = teacher.query_teachers(
        query_until_accepted(
            Question("rewrite", "text", prompt_text("rewrite", task=task), row.episode, task),
            partial(rewrite_rejection, original=task),
            attempts,
        )
        for task, row in first.items()
    )
    known = dict(zip(first, found, strict=True))
    return StageRows(tuple(_rewritten(row, known) for row in rows))


def _rewritten(row: DatasetRow, known: dict[str, QueryResult]) -> DatasetRow:
    if row.provenance["stage"] != "source":
        return row
    found = known[str(row.row["task"])]
    history = {"history": [*row.provenance["history"], *(each.as_json() for each in found.history)]}
    if found.text is None or found.text == row.row["task"]:
        return row.changed({}, history)
    last = found.history[-1]
    about = {"stage": "rewrite", "teacher": last.teacher, "prompt_hash": last.prompt_hash, "attempt": last.attempt}
    return row.changed({"task": found.text}, history | about)


@dataclass(frozen=True)
class CommandPlan:
    """What commands are written from: the analysis, the command suggested for each score, and the attempts at both."""

    analysis: str
    suggested: dict[int, str]
    history: tuple[Attempt, ...]


def relabel_counterfactually(rows: Sequence[DatasetRow], teacher: BatchedTeacher, attempts: int) -> StageRows:
    """Return the rows, each success followed by its counterfactual rows, and what was rejected."""
    done = {row.provenance["source_episode"] for row in rows if row.provenance["stage"] == STAGE}
    return joined(teacher.query_teachers(_with_counterfactuals(row, done, attempts) for row in rows))


def _with_counterfactuals(row: DatasetRow, done: set[str], attempts: int) -> Queries[StageRows]:
    if not row.is_source or row.row.get("reward") != SUCCESS or row.provenance["source_episode"] in done:
        return StageRows((row,))
    plan = yield from _planned(row, attempts)
    if plan.suggested == {}:
        return StageRows((row,), tuple(_rejected(row, score, "", plan.history) for score in SCORES))
    kept, rejected, lower = [row], list[DatasetRow](), dict[int, str]()
    for score in SCORES:
        if plan.suggested[score] == NO_COMMAND:
            reason = "the teacher knows no command for this score"
            rejected.append(made_row(row, STAGE, score, plan.history, _columns("")).rejected(STAGE, reason))
            continue
        history, verdict = yield from _command(row, plan, lower, score, attempts)
        text, every = history[-1].answer, (*plan.history, *history)
        if verdict is None:
            rejected.append(_rejected(row, score, text, every))
            continue
        lower[score] = text
        made = made_row(row, STAGE, score, every, _columns(text)).with_verdict(CODE, _CHECKED, "", verdict=True)
        last = verdict.last
        kept.append(made.with_verdict(last.teacher, verdict.rationale, last.prompt_hash, verdict=True))
    return StageRows(tuple(kept), tuple(rejected))


def _planned(row: DatasetRow, attempts: int) -> Queries[CommandPlan]:
    """Analyse the video and plan a command for each score; none is suggested where no answer had the required form."""
    task = str(row.row["task"])
    question = Question("analysis", "vision", prompt_text("analysis", task=task), row.episode, task, shown=True)
    analysis = yield from query_until_accepted(question, _analysis_rejection, attempts)
    if analysis.text is None:
        return CommandPlan("", {}, analysis.history)
    text = prompt_text("plan", task=task, analysis=analysis.text)
    question = Question("plan", "vision", text, row.episode, task)
    reason = "it does not end in commands for the scores 1, 2, 3 and 4 in this order"
    planned = yield from query_until_accepted(question, lambda t: "" if suggested_commands(t) else reason, attempts)
    suggested = {} if planned.text is None else suggested_commands(planned.text)
    return CommandPlan(analysis.text, suggested, (*analysis.history, *planned.history))


def _command(
    row: DatasetRow, plan: CommandPlan, lower: dict[int, str], score: int, attempts: int
) -> Queries[tuple[list[Attempt], Verdict | None]]:
    """Query the command of a score until neither code nor the annotator rejects it: the last attempt has it."""
    task, history = str(row.row["task"]), list[Attempt]()
    listed = "\n".join(f"{each}: {text}" for each, text in plan.suggested.items())
    before = "\n".join(f"{below}: {text}" for below, text in lower.items()) or "(none)"
    asked = prompt_text("command", task=task, plan=listed, history=before, score=score)
    question = Question("command", "text", asked, row.episode, task, score)
    context = CommandContext(task, plan.analysis, score, tuple(lower.values()))
    for number in range(1, attempts + 1):
        repeated = with_history(question, history, number)
        text, attempt = yield from query_once(repeated, partial(command_rejection, context=context))
        if attempt.rejected:
            history.append(attempt)
            continue
        verdict = yield from query_verdict(row.episode, text, score, attempts)
        if verdict.confirmed:
            history += [*verdict.history, attempt]
            return history, verdict
        answer = "gave no verdict" if verdict.confirmed is None else "says FALSE"
        rejected = f"the annotator {answer}: {verdict.rationale}"
        history += [*verdict.history, replace(attempt, rejected=rejected)]
    return history, None


def suggested_commands(text: str) -> dict[int, str]:
    """Return the command for each score from the end of a plan; empty where they are not there in order."""
    found: list[tuple[int, str]] = []
    for line in reversed(text.strip().splitlines()):
        scored = _SCORED_LINE.match(line)
        if scored:
            found.insert(0, (int(scored[1]), scored[2].strip()))
        if found and found[0][0] == 1:
            break
    scores = [score for score, _ in found if score != SUCCESS]
    return dict(found) if tuple(scores) == SCORES else {}


def _analysis_rejection(text: str) -> str:
    missing = [str(n) for n in (1, 2, 3) if not re.search(_SECTION.format(n), text, re.MULTILINE)]
    return f"it lacks section {', '.join(missing)} of the three that are asked for" if missing else ""


def _rejected(row: DatasetRow, score: int, text: str, history: Sequence[Attempt]) -> DatasetRow:
    last = next((each for each in reversed(history) if each.rejected), history[-1])
    reason = f"no {last.kind} could be used after {last.attempt} attempts; the last: {last.rejected}"
    return made_row(row, STAGE, score, history, _columns(text)).rejected(STAGE, reason)


def _columns(text: str) -> dict[str, str | None]:
    """Return the columns of a row with another command; progress belongs to the task of the source, so it goes."""
    return {"task": text, "progress": None}
