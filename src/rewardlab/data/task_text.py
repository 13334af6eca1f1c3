"""The instruction of episodes whose format has no place for it: a `task.txt` beside them, or the words of a name."""

from pathlib import Path

from rewardlab.core.errors import DataError
from rewardlab.core.limits import INSTRUCTION_CHARACTERS
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


def require_task(text: str, remedy: str) -> str:
    """Return an instruction; DataError where it is empty or too long."""
    if not text.strip():
        raise DataError(f"no instruction is stored, and no name says one; {remedy}")
    if len(text) > INSTRUCTION_CHARACTERS.value:
        raise DataError(f"an instruction of {len(text):,} characters, {INSTRUCTION_CHARACTERS.describe()}")
    return text


def _task_file(folder: Path, path: Path) -> str:
    if not path.is_file():
        return ""
    text = next((text for _, text in text_lines(folder, path)), "").strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{path}: not UTF-8 text; save the file in UTF-8") from None
    return text
