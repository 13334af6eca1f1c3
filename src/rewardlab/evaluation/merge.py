"""Shards of one run, scored on different machines, put together: only where they are of the same plan and agree."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rewardlab.core.errors import PlanError, RunError
from rewardlab.core.run import RECORD, SUMMARY, Run, open_run, start_run
from rewardlab.core.run_files import plan_differences, read_part
from rewardlab.core.settings import Help
from rewardlab.core.storage import locked
from rewardlab.evaluation.summary import save_summary

_SAME_MACHINE = ("numpy", "opencv", "av")  # versions that numbers may depend on


@dataclass(frozen=True)
class Merged:
    """The run that was made, how many trials are there and are planned, and what else the shards differ in."""

    run: Run
    trials: int
    planned: int
    notes: tuple[str, ...]


def runs_merge(
    runs: Annotated[Sequence[Run | str | Path], Help("run folders of the same plan")],
    *,
    out: Annotated[Path | str, Help("run folder to write")] = Path("runs") / "merged",
) -> Merged:
    """Join the shards of a run, after a check that they belong together and agree.

    Examples:
        rewardlab runs merge runs/shard-1 runs/shard-2 --out runs/whole
        rewardlab report runs/whole
    """
    shards = list(dict.fromkeys(run if isinstance(run, Run) else open_run(run) for run in runs))
    if len(shards) < 2:
        raise PlanError("name at least two run folders to put together")
    _require_one_plan(shards)
    _require_agreement(shards)
    whole = start_run(Path(out), _whole(shards[0].stored(RECORD) or {}))
    with locked(whole.folder):
        for shard in shards:
            for path in shard.parts():
                whole.append_table(read_part(path, shard.record))
        found = len(whole.trials(("id", "status"), repeats=True))
        if found == whole.record.trials:
            whole.compact()
            save_summary(whole)
        else:
            (whole.folder / SUMMARY).unlink(missing_ok=True)
    notes = []
    for name in _SAME_MACHINE:
        versions: dict[Any, None] = dict.fromkeys(shard.record.versions.get(name) for shard in shards)
        if len(versions) > 1:
            notes.append(f"shards were made with {name} {' and '.join(map(str, versions))}")
    return Merged(whole, found, whole.record.trials, tuple(notes))


def _whole(content: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a shard as that of the whole: no part is named any more."""
    settings = {name: "" if name == "shard" else value for name, value in content.get("settings", {}).items()}
    return {**content, "command": re.sub(r" --shard \S+", "", str(content.get("command", ""))), "settings": settings}


def _require_one_plan(shards: Sequence[Run]) -> None:
    first = shards[0]
    for shard in shards[1:]:
        both, a, b = f"{first.folder} and {shard.folder}", first.record, shard.record
        if a.plan_digest != b.plan_digest:
            plans = ((each.stored(RECORD) or {}).get("plan", {}) for each in (first, shard))
            raise RunError(f"{both} are no shards of one run: {'; '.join(plan_differences(*plans))}")
        if (a.kind, a.trials) != (b.kind, b.trials):
            kinds = f"{a.kind} of {a.trials:,} trials and {b.kind} of {b.trials:,} trials"
            raise RunError(f"{both} are no shards of one run: {kinds}")
        if a.version != b.version:
            raise RunError(f"{both} were made by rewardlab {a.version} and {b.version}; use one version")


def _require_agreement(shards: Sequence[Run]) -> None:
    """Raise RunError where two shards scored one trial with unlike levels."""
    scored: dict[str, tuple[float, Path]] = {}
    for shard in shards:
        table = shard.trials(("id", "status", "level"), repeats=True).arrow
        for trial, level in zip(table["id"].to_pylist(), table["level"].to_pylist(), strict=True):
            if level is None:
                continue
            other, folder = scored.setdefault(trial, (level, shard.folder))
            if other != level:
                levels = f"{folder} says {other:g} and {shard.folder} {level:g}"
                ask = "was it the same model, and is it random?"
                raise RunError(f"the shards disagree on trial {trial}: {levels}; {ask}")
