"""The RoboReward layout: videos, and metadata.jsonl with one row each."""

import json
from collections.abc import Sequence
from pathlib import Path

from rewardlab.core.run import atomic_write
from rewardlab.data.roboreward_row import METADATA, row_of
from rewardlab.data.writers.contract import Batch, Row, Writer
from rewardlab.data.writers.video_copy import write_video


def write_batch(folder: Path, batch: Batch) -> list[Row]:
    """Write one video per rollout."""
    rows = []
    for rollout in batch.rollouts:
        name = f"{rollout.name}.mp4"
        write_video(rollout.first, folder / name)
        rows.append(row_of(rollout.first, name))
    return rows


def finish(folder: Path, rows: Sequence[Row]) -> None:
    """Write the rows."""
    with atomic_write(folder / METADATA) as partial:
        partial.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


ROBOREWARD = Writer("roboreward", "metadata.jsonl beside the videos, as RoboReward publishes it", write_batch, finish)
