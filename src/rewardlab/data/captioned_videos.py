"""Captions of a dataset: what a video shows in words, as `caption` in the rows of the RoboReward layout.

They are what the projector of a new vision-language model is aligned with; no model under test ever sees them.
"""

from collections.abc import Iterator
from pathlib import Path

from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError
from rewardlab.core.limits import INSTRUCTION_CHARACTERS
from rewardlab.data.dataset_files import text_lines
from rewardlab.data.roboreward_folder import read_folder
from rewardlab.data.roboreward_row import METADATA, parse_row


def captioned_videos(folder: Path) -> Iterator[tuple[Episode, str]]:
    """Yield every video that has a caption once, as an episode with its caption; DataError where there is none."""
    captions = _captions(folder)
    if not captions:
        raise DataError(
            f"no row in {folder / METADATA} has a caption; collect one with `rewardlab collect metaworld --captions`"
        )
    for episode in read_folder(folder).episodes:
        if episode.id in captions:  # other rows of the same video have a number behind its name
            yield episode, captions[episode.id]


def _captions(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    if not (folder / METADATA).is_file():
        return found
    for line, text in text_lines(folder, folder / METADATA):
        row = parse_row(text)
        caption = row.get("caption")
        if caption is None:
            continue
        if not isinstance(caption, str) or not caption.strip() or len(caption) > INSTRUCTION_CHARACTERS.value:
            raise DataError(f"line {line}: caption must be a text, {INSTRUCTION_CHARACTERS.describe()}")
        found.setdefault(str(row.get("file_name")), caption)
    return found
