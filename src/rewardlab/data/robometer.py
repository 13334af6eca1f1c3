"""Robometer rows: one Parquet table whose `frames` name a video, written as its training code takes it; labels read."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rewardlab.core.episode import Episode, Label
from rewardlab.core.storage import write_parquet
from rewardlab.data.contract import Writer, WrittenRow
from rewardlab.data.video import write_videos

TABLE = "metadata.parquet"
ROBOMETER_LABELS = ("partial_success", "quality_label")  # columns
_BEST = 5  # level


def robometer_row(episode: Episode, video: str) -> WrittenRow:
    """Return the row of an episode."""
    return {
        "id": episode.id,
        "task": episode.instruction,
        "lang_vector": None,  # that of whoever trains: its encoder is not known here
        "data_source": episode.provenance.subset or "rewardlab",
        "frames": video,
        "is_robot": True,
        "quality_label": quality_label(episode.label),
        "partial_success": partial_success(episode.label),
    }


def finish(folder: Path, rows: Sequence[WrittenRow]) -> None:
    """Write the table."""
    import pyarrow as pa

    types = {"lang_vector": pa.list_(pa.float32()), "is_robot": pa.bool_(), "partial_success": pa.float32()}
    names = ("id", "task", "lang_vector", "data_source", "frames", "is_robot", "quality_label", "partial_success")
    schema = pa.schema([(name, types.get(name, pa.string())) for name in names])
    write_parquet(pa.Table.from_pylist(list(rows), schema=schema), folder / TABLE)


def partial_success(label: Label) -> float | None:
    """Return how much was done, from 0 for level 1 to 1 for level 5; None where nobody knows."""
    if label.success:
        return 1.0
    return None if label.level is None else (label.level - 1) / 4


def quality_label(label: Label) -> str | None:
    """Return successful, suboptimal (something was done) or failure; None where nobody knows."""
    if label.success or label.level == _BEST:
        return "successful"
    if label.level is None:
        return "failure" if label.success is False else None
    return "failure" if label.level == 1 else "suboptimal"


def robometer_label(row: Mapping[str, object]) -> dict[str, object]:
    """Return the label of a row as reward or success: how much was done in quarters, else whether it succeeded."""
    done, quality = (row.get(name) for name in ROBOMETER_LABELS)
    if any(name in row for name in ("reward", "success")) or (done is None and quality is None):
        return {}
    if isinstance(done, int | float) and done in (0, 0.25, 0.5, 0.75, 1):
        return {"reward": int(1 + 4 * done)}
    return {"success": quality == "successful"} if quality in ("successful", "failure") else {}


ROBOMETER = Writer(
    "robometer",
    "a Parquet table of Robometer rows beside the videos",
    partial(write_videos, row_of=robometer_row),
    finish,
)
