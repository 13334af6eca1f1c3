"""A folder that is whole or not there: it is written under another name, batch by batch, and renamed at the end.

A journal says which batches are done, so that a conversion that was stopped goes on where it was.
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.bounded_json import parse_json
from rewardlab.core.errors import PlanError
from rewardlab.core.run import atomic_write, writable
from rewardlab.core.seeding import digest
from rewardlab.data.writers.contract import Batch, Row, Writer


@dataclass(frozen=True)
class ResumableFolder:
    """The folder to make; `identity` tells this conversion from others."""

    target: Path
    identity: str

    @property
    def partial(self) -> Path:
        """Return where files are until all are there."""
        return self.target.with_name(f".{self.target.name}.converting")

    @property
    def notes(self) -> Path:
        """Return where the journals are, and what else is of use only while files are written."""
        return self.partial / ".conversion"

    def begin(self) -> None:
        """Make the folder, or go on with it; PlanError where the target is there or the folder is another's."""
        if self.target.exists():
            raise PlanError(f"{self.target} is there already; name a folder that is not, or remove it")
        stated = self.notes / "identity.json"
        with writable(self.partial):
            self.notes.mkdir(parents=True, exist_ok=True)
            if not stated.exists():
                with atomic_write(stated) as partial:
                    partial.write_text(self.identity, encoding="utf-8")
        if stated.read_text(encoding="utf-8") != self.identity:
            raise PlanError(f"{self.partial} is what another conversion has left; finish that one, or remove it")

    def write(self, writer: Writer, split: str, batches: Sequence[Batch]) -> None:
        """Write the batches that are not done, then what describes the whole."""
        folder, journal = self.partial / split, self.notes / f"{split}.jsonl"
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            done, keys = _read_journal(journal), [_key(batch) for batch in batches]
            for key, batch in zip(keys, batches):
                if key not in done:
                    done[key] = writer.write(folder, batch)
                    _append(journal, key, done[key])
            writer.finish(folder, [row for key in keys for row in done[key]])

    def complete(self) -> None:
        """Give the folder its name, and remove the notes."""
        with writable(self.target):
            os.rename(self.partial, self.target)
        shutil.rmtree(self.target / self.notes.name)


def _key(batch: Batch) -> str:
    """Return what a batch is made of: where it stands, and the content of every episode."""
    return digest(batch.number, *(view.hash for rollout in batch.rollouts for view in rollout.views))


def _read_journal(path: Path) -> dict[str, list[Row]]:
    done: dict[str, list[Row]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            entry = parse_json(line)
            done[entry["batch"]] = entry["rows"]
        except (ValueError, LookupError, TypeError):  # the line that was being written when it was stopped
            continue
    return done


def _append(path: Path, key: str, rows: list[Row]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps({"batch": key, "rows": rows}, ensure_ascii=False))
        file.flush()
        os.fsync(file.fileno())
