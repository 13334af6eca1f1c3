"""Questions to teachers: the prompts of the paper, Question and Attempt, and repeating a question after a rejection."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from rewardlab.core.episode import Episode
from rewardlab.core.seeding import digest
from rewardlab.models.protocols import PROGRESS_RUBRIC

# Prompts of the paper (sections A.2.1 to A.2.3), word for word: tests/augmentation/paper_prompts.py reads them there.
_REWRITE = """\
Rewrite the following task description to correct grammar and spelling only.
Fix capitalization errors by beginning a sentence or phrase with a capital letter.
Do not change meaning.
Task description: {task}
Return only the corrected text."""

_ANALYSIS = """\
You are analyzing a video of a robot performing a short-horizon manipulation task.
Describe the starting scene and objects visible. Be sure to mention objects in the task description.
Describe thoroughly object positions, locations and their relations to each other and to the robot for the \
starting scene.
Use the ROBOT BASE perspective for left/right; if the base is not visible, use the CAMERA perspective.
Then describe, step by step, what the robot does from start to end, focusing on the final state.
Be concrete and factual. Do not invent objects that are not visible.
Pay special attention to the last frame, especially when describing the final state.

Task description: {task}

Output sections:
1) Scene and objects
2) Robot actions step by step
3) Final state summary including the final state of the robot and relevant objects given the task description."""

_PLAN = """\
Plan carefully and step by step.
Goal: Think step by step to design distinct failure modes and concrete ideas for new task commands for scores 1, 2, 3, \
and 4, so that 1 < 2 < 3 < 4 < 5, where 5 is the original task fully satisfied by the video.
Judge only the final state and ignore time limits.
Use only visible objects and relations grounded in the video analysis. Each score must correspond to a strictly closer \
final state to success than the previous one.
For reward 1, the robot performed no relevant action towards the goal (e.g., handled a completely different object \
than the one in the task description). Assign a distinct failure mode to each of 2, 3, and 4. The ideas must not be \
entailed by or easier than the original task. Justify each idea's score in parentheses.
Critical: ideas for different scores must NOT be paraphrases or trivial rewrites of each other.
Each idea must NOT already be satisfied by the starting scene described above; require a visible change from the \
initial state.
Use the initial-state description explicitly to avoid proposing goals that are already true at the initial state.
For lower scores 2, 3, and 4 specifically, do NOT use control-action phrases similar to 'release the gripper' or 'let \
go of the gripper' or 'not in contact with the robot'.
For scores 3 and 4, refer to the SAME primary target object/entity using the same name as in the original task \
description. Do not switch to a different instance (e.g., 'cabinet' -> 'upper cabinet door').
Match the diction, writing style and complexity of the original task description.

Original task (score 5): {task}
Video analysis:
{analysis}
Rubric:
{rubric}

Clarification for scoring 3 vs 4 (MINOR vs MAJOR requirements):
- Treat a requirement as MINOR when the PRIMARY object identity and PRIMARY spatial relation to the reference object \
are satisfied, but an AUXILIARY constraint is missed.
- Examples of AUXILIARY constraints that can be MINOR: remaining on the same support surface (e.g., keeping a cloth \
directly under the object), releasing/holding the gripper at the end, small orientation or placement tolerances, or \
cosmetic positioning details that do not change the core relation.
- Therefore, if the target object is correctly placed relative to the specified reference and all core elements are \
correct, but an auxiliary constraint like keeping the original cloth under the object is missed, prefer score 4 (Near \
Completion) rather than 3 (Partial Completion).
- Use score 3 only when multiple constraints are missed or when the missed constraint is CENTRAL to the task identity \
(e.g., primary spatial relation is incorrect).

Produce the following sections in order:
1) Reasoning - step-by-step analysis of the scene and of what final-state properties define success for the original \
task 5.
2) Separation plan - explain how to construct 1, 2, 3, and 4 so that 1 < 2 < 3 < 4 < 5 using only visible, concrete \
constraints.
3) Ideas for new task commands - propose highly focused candidate commands for each of scores 1, 2, 3, and 4. Justify \
each with a one-line reason for why it receives that score.
4) Monotonicity check - for each adjacent pair (1<2), (2<3), (3<4), and (4<5), justify why the later command is \
strictly closer to success under the rubric.
5) Final set of suggested commands - list the best final commands given the reasoning and separation plan for scores \
1, 2, 3, 4, and 5 (remember 5 is the original task). Output only the commands with their scores, one per line."""

_COMMAND = """\
Using the final suggested commands, generate a single imperative task command (one line) for the SAME video such that:
- Its correct evaluation under the rubric would be score {score} for the final state shown in the video.
- The command is stricter or different from the original so that the same video does not fully satisfy it if score is \
below 5.
- It is not entailed by the original task and is not an easier subset.
- Do not mention or reference the original task for the new task description.
- It uses only visible objects and relations described in the video analysis.
- Use plain ASCII characters only.
- Keep under 25 words.
- Start with a verb to make it an imperative command and do not mention the score or any meta-instructions in the \
command.

Original task (score 5): {task}
Rubric:
{rubric}
Final suggested commands:
{plan}

Keep in mind the following previously generated commands for lower scores and avoid duplication or contradiction while \
maintaining strict ordering (lower scores farther from success than higher scores):
{history}

Now output only the command for score {score} on a single line with no quotes and no extra commentary."""

_VALIDATE = """\
You are a strict annotation validator for short-horizon ROBOT TASK videos.

INPUTS
- TASK DESCRIPTION: {task}
- PROVIDED SCORE: {score} (must be one of 1,2,3,4,5)

YOUR JOB (single-pass):
1) Watch the video.
2) Using the rubric below, evaluate the robot's actions during the task and the final state, and determine whether the \
PROVIDED SCORE is correct.
3) Check that the TASK DESCRIPTION is coherent and refers to the correct items/actions visible in the video.
4) Decision basis and rejection criteria:
- If the TASK DESCRIPTION is incoherent with the video (e.g., wrong primary object identity, inconsistent relation, \
key details not visible, or rule conflicts), you MUST output ANSWER: FALSE.
- Otherwise, output ANSWER: TRUE if the PROVIDED SCORE matches the rubric for the video; output ANSWER: FALSE if it \
does not match.

RUBRIC (end-of-episode, discrete progress):
1 - No Success: Final state shows no goal-relevant change for the command (e.g., wrong object was handled)
2 - Minimal Progress: Final state shows a small but insufficient change toward the goal.
3 - Partial Completion: The final state shows good progress toward the goal but violates more than one requirement or \
a major requirement.
4 - Near Completion: The final state is correct in region and intent but misses a single minor requirement.
5 - Perfect Completion: Fully satisfies the task as described; ALL requirements met.

MINOR VS MAJOR REQUIREMENTS (clarification for 3 vs 4):
- Treat a requirement as MINOR when the PRIMARY object identity and PRIMARY spatial relation to the reference object \
are satisfied, but an AUXILIARY constraint is missed.
- Examples of AUXILIARY constraints that can be MINOR: remaining on the same support surface (e.g., keeping a cloth \
directly under the object), holding/releasing the gripper at the end, small orientation or placement tolerances, or \
cosmetic positioning details that do not change the core relation.
- Therefore, if the target object is correctly placed relative to the specified reference and all core elements are \
correct, but an auxiliary constraint like keeping the original cloth under the object is missed, prefer score 4 (Near \
Completion) rather than 3 (Partial Completion).
- Use score 3 only when multiple constraints are missed or when the missed constraint is CENTRAL to the task identity \
(e.g., wrong object identity or the primary spatial relation is incorrect).

PERSPECTIVE & COMMON PITFALLS (apply strictly):
- Left/Right: Use the ROBOT BASE perspective. If the base is not visible, use the CAMERA perspective.
- Object naming: REJECT if the description mislabels key items.
- Consistency rules:
  * If the primary target object/entity name in the TASK DESCRIPTION does not match the object named in the video, \
treat as mismatch -> REJECT. Do NOT treat category synonyms or toy/real variants as equivalent (e.g., "sandwich slice" \
vs "toy cheese").
  * End location naming: Allow common surface synonyms (e.g., towel/cloth/napkin/rag) as equivalent IF color and \
relative placement match, and there is no conflicting evidence. If color or relative placement clearly differ, REJECT.
- Irrelevant objects: Ignore objects not needed to perform the task (do NOT reject just for extra/unused items).
- Move vs slide: Do not conflate sliding on a surface with picking up/placing if the description depends on this \
distinction.
- Color ambiguity: If color terms feel ambiguous BUT the intended item/action is still unambiguous for executing the \
task, do NOT reject for color alone.
- Visibility: If key details to judge success are not visible or the video is too unclear, REJECT.

TASK SANITY CHECKS (MUST REJECT if any apply):
- Task string is empty, placeholder, or nonsense and not a valid task description/command (e.g., "No image loaded in \
this hit").
- Task does not reference any visible objects/relations in the video or cannot be grounded.

OUTPUT FORMAT (STRICT)
1) First, write your reasoning (few sentences) that clearly states whether the PROVIDED SCORE matches the rubric \
and why.
2) Then on a new line write exactly ONE of the following without any formatting and nothing else:
ANSWER: TRUE
or
ANSWER: FALSE"""

# Ours: the paper says only that what is rejected is generated again.
_AGAIN = """

Your answer to this was refused: {reason}.
It was: {answer}
Answer once more, in the form that is asked for."""
_ANSWER_SHOWN = 400  # characters of a rejected answer that the next prompt quotes


Kind = Literal["rewrite", "analysis", "plan", "command", "validate", "clip"]
Role = Literal["vision", "text"]
Made = TypeVar("Made")

# Rows whose questions are sent together; the same on every engine, because it decides the order of the questions.
TOGETHER = 256
MAX_TOKENS = {"rewrite": 128, "analysis": 1024, "plan": 2048, "command": 64, "validate": 512, "clip": 0}
_PROMPTS = {"rewrite": _REWRITE, "analysis": _ANALYSIS, "plan": _PLAN, "command": _COMMAND, "validate": _VALIDATE}


def prompt_text(kind: Kind, **values: object) -> str:
    """Return the prompt of a kind of question; `values` are what it names beside the rubric."""
    return _PROMPTS[kind].format(rubric=PROGRESS_RUBRIC, **values)


@dataclass(frozen=True, eq=False)
class Question:
    """One question to a teacher: the prompt, the episode it is about, and the number of the attempt.

    `episode`, `task` and `score` repeat the prompt as data, for a teacher that reads no prompts; with `shown` the
    frames are part of the question.
    """

    kind: Kind
    role: Role
    text: str
    episode: Episode
    task: str
    score: int = 0
    attempt: int = 1
    shown: bool = False

    @cached_property
    def prompt_hash(self) -> str:
        """Identify prompt and frames by content, whatever the files are called."""
        clip = self.episode.clip
        frames = (clip.source.digest, clip.order.tobytes(), clip.positions.tobytes()) if self.shown else ()
        return digest(self.kind, self.text, *frames)


@dataclass(frozen=True)
class TeacherAnswer:
    """The answer of a teacher; `failed` is the reason where there is none."""

    text: str
    teacher: str
    prompt_hash: str
    failed: str = ""


@dataclass(frozen=True)
class Attempt:
    """One entry of a row's history: the question, the teacher, the answer, and why it was rejected, if it was."""

    kind: Kind
    teacher: str
    prompt_hash: str
    attempt: int
    answer: str
    rejected: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the entry as a row of metadata holds it."""
        return asdict(self)


@dataclass(frozen=True)
class QueryResult:
    """The accepted text, None where every attempt was rejected, and all attempts in order."""

    text: str | None
    history: tuple[Attempt, ...]


# Yields questions one after the other, is sent the answer to each, and returns what it made of them.
Queries = Generator[Question, TeacherAnswer, Made]


def query_until_accepted(question: Question, rejection: Callable[[str], str], attempts: int) -> Queries[QueryResult]:
    """Repeat a question until an answer is accepted, at most `attempts` times; each retry quotes the last rejection."""
    history: list[Attempt] = []
    for number in range(1, attempts + 1):
        answer, attempt = yield from query_once(with_history(question, history, number), rejection)
        history.append(attempt)
        if not attempt.rejected:
            return QueryResult(answer, tuple(history))
    return QueryResult(None, tuple(history))


def query_once(question: Question, rejection: Callable[[str], str]) -> Queries[tuple[str, Attempt]]:
    """Send one question; return the answer without surrounding blanks, and the attempt with its rejection, if any."""
    answer = yield question
    text = answer.text.strip()
    rejected = f"the teacher did not answer: {answer.failed}" if answer.failed else rejection(text)
    return text, Attempt(question.kind, answer.teacher, answer.prompt_hash, question.attempt, text, rejected)


def with_history(question: Question, history: Sequence[Attempt], number: int) -> Question:
    """Return the question for its next attempt: with the reason why the last answer to it was rejected."""
    last = next((each for each in reversed(history) if each.kind == question.kind), None)
    if last is None:
        return question
    again = _AGAIN.format(reason=last.rejected, answer=last.answer[:_ANSWER_SHOWN])
    return replace(question, text=question.text + again, attempt=number)
