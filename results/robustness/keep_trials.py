"""Keeps what the study's numbers are computed from, small enough to commit.

    python results/robustness/keep_trials.py robustness results/robustness/run
    rewardlab report results/robustness/run --study results/robustness

Rounds progress and probabilities to three decimals and leaves out what no number needs (answers as text, frame hashes,
timings). Every file of results/robustness is written from the kept run, never from the whole one, so that anyone can
write it again from a clone; a test does.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rewardlab.core.run import Run

DECIMALS = 3
EMPTY = ("raw", "reason", "frames_hash", "video", "instruction")  # written empty
ROUNDED = ("truth_progress", "probabilities", "progress")


def main(source: Path, target: Path) -> None:
    table = pa.concat_tables([pq.read_table(part) for part in Run(source).parts()])
    table = table.sort_by(
        [("model", "ascending"), ("episode", "ascending"), ("perturbation", "ascending"), ("severity", "ascending")]
    )
    for name in table.column_names:
        table = table.set_column(table.column_names.index(name), table.schema.field(name), kept(table, name))
    (target / "trials").mkdir(parents=True, exist_ok=True)
    pq.write_table(table, target / "trials" / "part-kept.parquet", compression="zstd", compression_level=19)
    (target / "run.json").write_bytes((source / "run.json").read_bytes())


def kept(table: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
    column = table[name]
    if name in EMPTY:
        return pa.array([None if value is None else "" for value in column.to_pylist()], pa.string())
    if name in ROUNDED:
        return pa.array(
            [None if v is None else np.round(v, DECIMALS).tolist() for v in column.to_pylist()], column.type
        )
    if name == "shown":
        return pa.array([[] for _ in range(len(column))], column.type)
    return pc.multiply(column, 0.0) if name == "seconds" else column


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
