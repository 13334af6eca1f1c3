"""Which training runs of a plan are missing in the record that is kept here, and how to make only these.

    python results/rl/missing.py quality
    python results/rl/missing.py quality --into rl/quality --again pocket,pocket-plain,hf:smol-reward

The first prints them. --into writes the finished runs into a study folder, so that

    rewardlab study rl results/rl/quality.toml --out rl/quality

trains only the others; --again leaves out rewards that have changed since, whose runs are then all made anew. Base
policies and heads are made again there: what they come to depends on the machine, so read `base policy` first.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from rewardlab.core.records import record_to_json
from rewardlab.core.run import claim_folder
from rewardlab.rl.plan import StudyFolder, read_rl_plan
from rewardlab.rl.results import read_results, write_training_run

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", choices=sorted(path.stem for path in HERE.glob("*.toml")))
    parser.add_argument("--into", type=Path)
    parser.add_argument("--again", type=lambda text: tuple(text.split(",")), default=())
    asked = parser.parse_args()
    plan = read_rl_plan(HERE / f"{asked.plan}.toml")
    finished = {
        (run.task, run.reward, run.condition, run.algorithm, run.seed): run
        for run in read_results(HERE / asked.plan).training_runs
        if run.status == "finished" and run.reward not in asked.again
    }
    keys = {run: (run.task, run.reward, run.condition, run.algorithm, run.seed) for run in plan.training_runs()}
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
