"""The stages that change the words: rewrite, counterfactual."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from rewardlab.augmentation.batched_teacher import BatchedTeacher
from rewardlab.augmentation.labels import Verdict, judge
from rewardlab.augmentation.questions import (
    Asked,
    Attempt,
    Interview,
    Question,
    analysis_prompt,
    ask_once,
    ask_until,
    command_prompt,
    plan_prompt,
    rewrite_prompt,
    with_history,
)
from rewardlab.augmentation.rows import SUCCESS, DatasetRow, StageRows, joined, made_row
from rewardlab.augmentation.teachers import NO_COMMAND
from rewardlab.augmentation.text_checks import CommandContext, refusal, rewrite_refusal


def rewrite_tasks(rows: Sequence[DatasetRow], interviewer: BatchedTeacher, attempts: int) -> StageRows:
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


# Stage `counterfactual`: other commands for the video of a success, one for each of the levels 1 to 4.
#
# The video is analysed, distinct failure modes are planned, and commands are written from the lowest score on, each
# with those before it. Code and the annotator refuse what breaks a rule, and the teacher is asked again, up to a bound.

SCORES = (1, 2, 3, 4)
STAGE = "counterfactual"
_CHECKED = "ASCII, under 25 words, imperative, grounded, not entailed, no paraphrase"
_SECTION = r"^\W*{}\s*[).:\-]"
_SCORED_LINE = re.compile(r"^\W*(?:score\s*)?([1-5])\W+(\S.*)$", re.IGNORECASE)


@dataclass(frozen=True)
class CommandPlan:
    """What commands are written from: the analysis, the command suggested for each score, and how both were asked."""

    analysis: str
    suggested: dict[int, str]
    history: tuple[Attempt, ...]


def relabel_counterfactually(rows: Sequence[DatasetRow], interviewer: BatchedTeacher, attempts: int) -> StageRows:
    """Return the rows, after each success its counterfactual ones, and what was refused."""
    done = {row.provenance["source_episode"] for row in rows if row.provenance["stage"] == STAGE}
    return joined(interviewer.conduct(_interview(row, done, attempts) for row in rows))


def _interview(row: DatasetRow, done: set[str], attempts: int) -> Interview[StageRows]:
    if not row.is_source or row.row.get("reward") != SUCCESS or row.provenance["source_episode"] in done:
        return StageRows((row,))
    made = yield from _counterfactuals(row, attempts)
    return StageRows((row, *made.kept), made.rejected)


def _counterfactuals(row: DatasetRow, attempts: int) -> Interview[StageRows]:
    plan = yield from _planned(row, attempts)
    if plan.suggested == {}:
        return StageRows((), tuple(_refused(row, score, "", plan.history) for score in SCORES))
    kept, rejected, lower = list[DatasetRow](), list[DatasetRow](), dict[int, str]()
    for score in SCORES:
        if plan.suggested[score] == NO_COMMAND:
            reason = "the teacher knows no command for this score"
            rejected.append(made_row(row, STAGE, score, plan.history, _columns("")).refused(STAGE, reason))
            continue
        text, history, verdict = yield from _command(row, plan, lower, score, attempts)
        if text is None:
            rejected.append(_refused(row, score, history[-1].answer, (*plan.history, *history)))
            continue
        lower[score] = text
        kept.append(_kept(made_row(row, STAGE, score, (*plan.history, *history), _columns(text)), verdict))
    return StageRows(tuple(kept), tuple(rejected))


def _planned(row: DatasetRow, attempts: int) -> Interview[CommandPlan]:
    """Analyse the video and plan a command for each score; none is suggested where a teacher kept to no form."""
    task = str(row.row["task"])
    question = Question("analysis", "vision", analysis_prompt(task), row.episode, task, shown=True)
    analysis = yield from ask_until(question, _analysis_refusal, attempts)
    if analysis.text is None:
        return CommandPlan("", {}, analysis.history)
    question = Question("plan", "vision", plan_prompt(task, analysis.text), row.episode, task)
    planned = yield from ask_until(question, _plan_refusal, attempts)
    suggested = {} if planned.text is None else suggested_commands(planned.text)
    return CommandPlan(analysis.text, suggested, (*analysis.history, *planned.history))


def _command(
    row: DatasetRow, plan: CommandPlan, lower: dict[int, str], score: int, attempts: int
) -> Interview[tuple[str | None, list[Attempt], Verdict | None]]:
    """Ask for the command of a score until neither code nor the annotator refuses it."""
    task, history = str(row.row["task"]), list[Attempt]()
    listed = "\n".join(f"{each}: {text}" for each, text in plan.suggested.items())
    question = Question("command", "text", command_prompt(task, listed, lower, score), row.episode, task, score)
    context = CommandContext(task, plan.analysis, score, tuple(lower.values()))
    for number in range(1, attempts + 1):
        asked = with_history(question, history, number)
        text, attempt = yield from ask_once(asked, partial(refusal, context=context))
        if attempt.rejected:
            history.append(attempt)
            continue
        verdict = yield from judge(row.episode, text, score, attempts)
        if verdict.right:
            history += [*verdict.history, attempt]
            return text, history, verdict
        said = "gave no verdict" if verdict.right is None else "says FALSE"
        refused = f"the annotator {said}: {verdict.rationale}"
        history += [*verdict.history, replace(attempt, rejected=refused)]
    return None, history, None


def suggested_commands(text: str) -> dict[int, str]:
    """Return the command that a plan ends with for each score; empty where they are not there in order."""
    found: list[tuple[int, str]] = []
    for line in reversed(text.strip().splitlines()):
        scored = _SCORED_LINE.match(line)
        if scored:
            found.insert(0, (int(scored[1]), scored[2].strip()))
        if found and found[0][0] == 1:
            break
    scores = [score for score, _ in found if score != SUCCESS]
    return dict(found) if tuple(scores) == SCORES else {}


def _analysis_refusal(text: str) -> str:
    missing = [str(n) for n in (1, 2, 3) if not re.search(_SECTION.format(n), text, re.MULTILINE)]
    return f"it lacks section {', '.join(missing)} of the three that are asked for" if missing else ""


def _plan_refusal(text: str) -> str:
    return "" if suggested_commands(text) else "it does not end in commands for the scores 1, 2, 3 and 4 in this order"


def _kept(row: DatasetRow, verdict: Verdict | None) -> DatasetRow:
    assert verdict is not None
    judged = row.judged("code", _CHECKED, "", verdict=True)
    return judged.judged(verdict.last.teacher, verdict.rationale, verdict.last.prompt_hash, verdict=True)


def _refused(row: DatasetRow, score: int, text: str, history: Sequence[Attempt]) -> DatasetRow:
    last = next((each for each in reversed(history) if each.rejected), history[-1])
    reason = f"no {last.kind} could be used after {last.attempt} attempts; the last: {last.rejected}"
    return made_row(row, STAGE, score, history, _columns(text)).refused(STAGE, reason)


def _columns(text: str) -> dict[str, str | None]:
    """Return the columns of another command: progress was measured for the task of the source."""
    return {"task": text, "progress": None}
