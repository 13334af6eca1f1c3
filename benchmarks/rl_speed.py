"""What a reward model in the loop costs: simulator steps a second while a policy learns, with it and without.

    python benchmarks/rl_speed.py [--task drawer-close] [--rounds 6] [--frames 8] [--model pocket]

One process, one thread. Both learn by DSRL from the same scenes: one is paid by the simulator, the other by the model,
which watches every episode at its end. Rounds take turns, so that a busy machine slows both; the first round of each,
which opens the renderer, is not counted. The cost is the time of rendering and asking over the time without them.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

from rewardlab.rl.base_policy import make_base_policy
from rewardlab.rl.plan import Cell, plan_from_json
from rewardlab.rl.run_folder import RunFolder
from rewardlab.rl.train_cell import CellTraining, open_cell

MOST_COST = 0.30


def seconds_of_round(training: CellTraining) -> float:
    started = time.perf_counter()
    training._learn_round()
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="drawer-close")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--frames", type=int, default=8)
    arguments = parser.parse_args()
    plan = plan_from_json(
        {
            "tasks": [arguments.task],
            "demonstrations": {"episodes": 4},
            "policy": {"steps": 20},
            "sac": {"initial_episodes": 4},
            "schedule": {"final": 1},
            "watch": {"frames": arguments.frames},
        },
        "rl_speed",
    )
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place))
        make_base_policy(plan, folder, arguments.task)
        plain, watched = (
            open_cell(plan, folder, Cell(arguments.task, reward, "clean", "dsrl", 0))
            for reward in ("true", arguments.model)
        )
        seconds_of_round(plain)
        seconds_of_round(watched)
        times = [(seconds_of_round(plain), seconds_of_round(watched)) for _ in range(arguments.rounds)]
        steps = plan.schedule.simulators * plan.control.steps
        without, with_model = (statistics.median(column) for column in zip(*times))
        cost = with_model / without - 1
    print(f"without the model  {steps / without:8.0f} simulator steps/s")
    print(
        f"with {arguments.model:<12}  {steps / with_model:8.0f} simulator steps/s, {arguments.frames} frames an episode"
    )
    print(f"the reward costs {cost:.0%} (at most {MOST_COST:.0%} is wanted)")
    return int(cost > MOST_COST)


if __name__ == "__main__":
    sys.exit(main())
