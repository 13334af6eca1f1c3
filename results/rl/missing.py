"""Which training runs of a plan are missing in the record that is kept here, and how to make only these.

    python results/rl/missing.py quality
    python results/rl/missing.py quality --into rl/quality --again pocket,pocket-plain,hf:smol-reward
    python results/rl/missing.py quality --join rl/quality

The first prints them. --into writes the finished runs into a study folder, so that

    rewardlab study rl results/rl/quality.toml --out rl/quality

trains only the others; --again leaves out rewards that have changed since, whose runs are then all made anew. Base
policies and heads are made again there: what they come to depends on the machine, so read `base policy` first. --join
puts the finished runs of study folders, and their measures on held-out episodes, in place of older ones in the record.
"""

import argparse
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

from rewardlab.core.records import record_to_json
from rewardlab.core.run import claim_folder
from rewardlab.rl.plan import RlPlan, StudyFolder, TrainingRun, read_rl_plan
from rewardlab.rl.results import (
    RESULT,
    RESULTS,
    TRAINING_RUNS,
    TrainingRunResult,
    read_results,
    read_training_run,
    write_results,
    write_training_run,
)

HERE = Path(__file__).resolve().parent
Key = tuple[str, str, str, str, int]


def key_of(run: TrainingRun | TrainingRunResult) -> Key:
    return run.task, run.reward, run.condition, run.algorithm, run.seed


def join(plan: RlPlan, record: Path, folders: list[Path]) -> None:
    """Put what study folders hold into a record, in the order of its plan."""
    kept = read_results(record)
    runs = {key_of(run): run for run in kept.training_runs}
    offline = {(each.reward, each.task): each for each in kept.offline}
    for folder in folders:
        found = [read_training_run(path) for path in folder.glob(f"{TRAINING_RUNS}/*/{RESULT}")]
        runs |= {key_of(run): run for run in found if run.status == "finished"}
        if (folder / RESULTS).exists():
            offline |= {(each.reward, each.task): each for each in read_results(folder).offline}
    ordered = tuple(runs[key] for key in map(key_of, plan.training_runs()) if key in runs)
    write_results(replace(kept, training_runs=ordered, offline=tuple(offline.values())), record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", choices=sorted(path.stem for path in HERE.glob("*.toml")))
    parser.add_argument("--into", type=Path)
    parser.add_argument("--again", type=lambda text: tuple(text.split(",")), default=())
    parser.add_argument("--join", type=Path, nargs="+", default=[])
    asked = parser.parse_args()
    plan = read_rl_plan(HERE / f"{asked.plan}.toml")
    if asked.join:
        join(plan, HERE / asked.plan, asked.join)
    finished = {
        key_of(run): run
        for run in read_results(HERE / asked.plan).training_runs
        if run.status == "finished" and run.reward not in asked.again
    }
    keys = {run: key_of(run) for run in plan.training_runs()}
    missing = Counter((run.reward, run.seed) for run, key in keys.items() if key not in finished)
    for (reward, seed), count in missing.items():
        print(f"{count:4} x {reward}, seed {seed}")
    print(f"{sum(missing.values())} of {len(keys)} training runs are missing")
    if asked.into:
        folder = StudyFolder(asked.into.resolve())
        folder.path.mkdir(parents=True, exist_ok=True)
        claim_folder(folder.plan, json.loads(json.dumps(record_to_json(plan))))
        for run, key in keys.items():
            if key in finished:
                folder.training_run(run).mkdir(parents=True, exist_ok=True)
                write_training_run(finished[key], folder.result(run))


if __name__ == "__main__":
    main()
