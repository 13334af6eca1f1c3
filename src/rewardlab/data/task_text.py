"""The instruction of episodes whose format has no place for it: a `task.txt` beside them, or the words of a name."""

from collections.abc import Sequence
from pathlib import Path

from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError
from rewardlab.core.limits import INSTRUCTION_CHARACTERS
from rewardlab.data.contract import Problem
from rewardlab.data.dataset_files import text_lines
from rewardlab.data.metadata_skeleton import task_in

TASK_FILE = "task.txt"


def task_beside(folder: Path, name: str = "") -> str:
    """Return the task of what is called `name` below the folder: from the nearest task.txt, else from the name.

    Empty where neither says one.
    """
    inside = (Path(name), *Path(name).parents) if name else (Path(),)
    written = next((text for part in inside if (text := _task_file(folder, folder / part / TASK_FILE))), "")
    return written or task_in(name)


def bounded_task(text: str) -> str:
    """Return an instruction, empty where nothing says one; DataError where it is too long."""
    if len(text) > INSTRUCTION_CHARACTERS.value:
        raise DataError(f"an instruction of {len(text):,} characters, {INSTRUCTION_CHARACTERS.describe()}")
    return text


def wordless_note(episodes: Sequence[Episode]) -> tuple[Problem, ...]:
    """Say how many episodes have no instruction: they are read, and models are asked for nothing."""
    without = [episode.id for episode in episodes if not episode.instruction.strip()]
    if not without:
        return ()
    what = f"no instruction is stored for {without[0]!r} and no name says one, so models are asked in empty words"
    return (Problem(f"{len(without)} of {len(episodes)} episodes", f"{what}; write it into a {TASK_FILE} beside it"),)


def _task_file(folder: Path, path: Path) -> str:
    if not path.is_file():
        return ""
    text = next((text for _, text in text_lines(folder, path)), "").strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{path}: not UTF-8 text; save the file in UTF-8") from None
    return text
