"""Collect a dataset into a folder: in order, resumable, with splits; the caller gives the map over workers."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from rewardlab.core.catalog import find
from rewardlab.core.errors import Interrupted, PlanError, RewardlabError, RunError
from rewardlab.core.run import claim_folder
from rewardlab.core.storage import locked, store_address, writable, write_file
from rewardlab.core.terminal import ProgressBar, counted
from rewardlab.data.roboreward_rows import METADATA
from rewardlab.worlds.metaworld.tasks import SPLITS
from rewardlab.worlds.plan import Collection, PlannedEpisode, RecordedEpisode, Simulator

RECORD = "collect.json"


def _metaworld() -> Simulator:
    from rewardlab.worlds.metaworld.recording import SIMULATOR

    return SIMULATOR


def _tabletop() -> Simulator:
    from rewardlab.worlds.tabletop.recording import SIMULATOR

    return SIMULATOR


SIMULATORS: dict[str, Callable[[], Simulator]] = {"metaworld": _metaworld, "tabletop": _tabletop}


def simulator_called(name: str) -> Simulator:
    """Return a simulator of the catalog."""
    return find(SIMULATORS, name, "simulator")()


MapItems = Callable[[Callable[[PlannedEpisode], RecordedEpisode], Sequence[PlannedEpisode]], Iterable[RecordedEpisode]]


def collect_rollouts(
    plan: Collection, defaults: Mapping[str, object], map_items: MapItems, *, quiet: bool = False
) -> Counter[int]:
    """Record every episode of the plan that is not there yet; return how many rows there are at each level.

    `map_items` applies a function to every item, in order, on as many workers as the caller likes. A folder that was
    begun before a setting existed has the default of that setting.
    """
    simulator = simulator_called(plan.simulator)
    simulator.check(plan)
    if store_address(plan.out):
        raise PlanError(f"out must be a folder, one that all machines share for --engine ray, got {plan.out}")
    with writable(plan.out):
        (plan.out / plan.simulator).mkdir(parents=True, exist_ok=True)
    with locked(plan.out):
        settings = {name: value for name, value in vars(plan).items() if name != "out"}
        claim_folder(plan.out / RECORD, settings, defaults={k: v for k, v in defaults.items() if k in settings})
        for rest in (plan.out / plan.simulator).glob(".*.tmp"):  # of a run that was killed
            rest.unlink(missing_ok=True)
        planned = simulator.plan(plan)
        done = 0 if not (plan.out / METADATA).exists() else _repair(plan, planned)
        recorded = map_items(partial(_record, plan), planned[done:])
        progress = ProgressBar("collecting", len(planned), done, quiet=quiet)
        with writable(plan.out), (plan.out / METADATA).open("a", encoding="utf-8") as handle, progress:
            try:
                for number, episode in enumerate(recorded, start=done + 1):
                    handle.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in episode.rows))
                    handle.flush()
                    progress.step(number, lambda: f"{60 * progress.rate:.0f} a minute")
            except KeyboardInterrupt:
                made = f"{progress.done} of {counted(len(planned), 'episode')} in {plan.out}"
                raise Interrupted(f"stopped with {made}; run the same command again to continue") from None
        return _write_splits(plan)


def _record(plan: Collection, planned: PlannedEpisode) -> RecordedEpisode:
    try:
        return simulator_called(plan.simulator).record(plan, planned)
    except RewardlabError as error:
        raise RunError(f"{planned.stem} could not be made: {error}") from error


def _repair(plan: Collection, planned: list[PlannedEpisode]) -> int:
    """Return how many episodes are finished; the last one is made anew if the run was killed while writing its rows."""
    path = plan.out / METADATA
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    names = [json.loads(line)["file_name"] for line in lines if line.endswith("\n")]
    whole = (plan.out / "splits").exists()
    torn = None if whole or not names else names[-1]
    kept = [line for line, name in zip(lines, names, strict=False) if name != torn]
    write_file(path, "".join(kept))
    done = list(dict.fromkeys(name for name in names if name != torn))
    if done != [f"{each.stem}.mp4" for each in planned[: len(done)]]:
        raise RunError(f"{path} does not hold the episodes of this plan in order; collect into another folder")
    return len(done)


def _write_splits(plan: Collection) -> Counter[int]:
    """Write the file names of each split, and return how many rows there are at each level."""
    rows = [json.loads(line) for line in (plan.out / METADATA).read_text(encoding="utf-8").splitlines()]
    with writable(plan.out / "splits"):
        (plan.out / "splits").mkdir(exist_ok=True)
        for split in SPLITS:
            names = dict.fromkeys(row["file_name"] for row in rows if row["split"] == split)
            (plan.out / "splits" / f"{split}.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return Counter(int(row["reward"]) for row in rows)
