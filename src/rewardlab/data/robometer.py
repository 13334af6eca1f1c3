"""Robometer rows: one Parquet table whose `frames` name a video, written as its training code takes it; labels read."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rewardlab.core.episode import Label
from rewardlab.core.storage import write_parquet
from rewardlab.data.contract import Batch, Writer, WrittenRow
from rewardlab.data.video import write_video

TABLE = "metadata.parquet"
ROBOMETER_LABELS = ("partial_success", "quality_label")  # columns
_BEST = 5  # level


def write_batch(folder: Path, batch: Batch) -> list[WrittenRow]:
    """Write one video per rollout."""
    rows = []
    for rollout in batch.rollouts:
        name = f"{rollout.name}.mp4"
        write_video(rollout.first, folder / name)
        episode = rollout.first
        rows.append(
            {
                "id": episode.id,
                "task": episode.instruction,
                "lang_vector": None,  # that of whoever trains: its encoder is not known here
                "data_source": episode.provenance.subset or "rewardlab",
                "frames": name,
                "is_robot": True,
                "quality_label": quality_label(episode.label),
                "partial_success": partial_success(episode.label),
            }
        )
    return rows


def finish(folder: Path, rows: Sequence[WrittenRow]) -> None:
    """Write the table."""
    import pyarrow as pa

    texts = ("id", "task", "data_source", "frames", "quality_label")
    types = {"lang_vector": pa.list_(pa.float32()), "is_robot": pa.bool_(), "partial_success": pa.float32()}
    names = ("id", "task", "lang_vector", "data_source", "frames", "is_robot", "quality_label", "partial_success")
    schema = pa.schema([(name, pa.string() if name in texts else types[name]) for name in names])
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


ROBOMETER = Writer("robometer", "a Parquet table of Robometer rows beside the videos", write_batch, finish)
