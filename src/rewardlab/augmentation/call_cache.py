"""The cache of teacher calls: every answer is on disk before it is used, so that no question is asked twice.

One JSON object per line of `calls.jsonl`: `key` (of teacher and prompt), `teacher`, `prompt_hash`, `kind` and `answer`.
A line that was torn by a kill is passed over. Failures are not kept: they are asked again by the next run.
"""

import json
import os
from pathlib import Path

from rewardlab.augmentation.teacher_questions import MAX_TOKENS, Question
from rewardlab.augmentation.teachers import NamedTeacher
from rewardlab.core.bounded_json import parse_json
from rewardlab.core.errors import RunError
from rewardlab.core.limits import ANSWER_CHARACTERS
from rewardlab.core.run import writable
from rewardlab.core.seeding import digest

CALLS = "calls.jsonl"


class CallCache:
    """Answers of teachers by what was asked of whom."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / CALLS
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self.path.touch()
        self._answers = _read(self.path)

    def find(self, teacher: NamedTeacher, question: Question) -> str | None:
        """Return the answer to this question, None where this teacher was never asked it."""
        return self._answers.get(_key(teacher, question))

    def keep(self, teacher: NamedTeacher, question: Question, answer: str) -> None:
        """Write an answer down; when this returns it survives any crash."""
        key = _key(teacher, question)
        about = {"teacher": teacher.name, "prompt_hash": question.prompt_hash, "kind": question.kind}
        line = json.dumps({"key": key, **about, "answer": answer})
        with writable(self.path), self.path.open("ab") as file:
            file.write(b"\n" + line.encode())  # a newline first: a torn line before this one ends here
            file.flush()
            os.fsync(file.fileno())
        self._answers[key] = answer

    def __len__(self) -> int:
        return len(self._answers)


def _key(teacher: NamedTeacher, question: Question) -> str:
    return digest(teacher.identity, question.prompt_hash, MAX_TOKENS[question.kind])


def _read(path: Path) -> dict[str, str]:
    known: dict[str, str] = {}
    try:
        with path.open("rb") as file:
            for line in file:
                entry = _entry(line)
                if entry is not None:
                    known[entry[0]] = entry[1]
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}; fix the permission or name another --calls") from error
    return known


def _entry(line: bytes) -> tuple[str, str] | None:
    try:
        entry = parse_json(line)
        key, answer = entry["key"], entry["answer"]
    except (ValueError, LookupError, TypeError):
        return None
    sound = isinstance(key, str) and isinstance(answer, str) and len(answer) <= ANSWER_CHARACTERS.value
    return (key, answer) if sound else None
