"""What a reward model in the loop costs: simulator steps a second while a policy learns, with it and without.

    python benchmarks/rl_speed.py [--task drawer-close] [--rounds 6] [--frames 8] [--model pocket]

One process, one thread. A policy learns by DSRL and is paid by the model, which watches every episode at its end. The
time of rendering and asking is told apart from that of simulating and learning, in the same rounds, so that a busy
machine slows both; the first round, which opens the renderer, is not counted. The cost is the one over the other.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

from rewardlab.rl.plan import StudyFolder, TrainingRun, plan_from_json
from rewardlab.rl.training_run import PolicyTraining, make_base_policy, open_training_run

MOST_COST = 0.30


def seconds_of_round(training: PolicyTraining) -> float:
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
        folder = StudyFolder(Path(place))
        make_base_policy(plan, folder, arguments.task)
        training = open_training_run(plan, folder, TrainingRun(arguments.task, arguments.model, "clean", "dsrl", 0))
        seconds_of_round(training)
        scoring = -training.reward.seconds
        spent = sum(seconds_of_round(training) for _ in range(arguments.rounds))
        scoring += training.reward.seconds
        steps = arguments.rounds * plan.schedule.simulators * plan.control.steps
        cost = scoring / (spent - scoring)
    print(f"without the model  {steps / (spent - scoring):8.0f} simulator steps/s")
    print(f"with {arguments.model:<12}  {steps / spent:8.0f} simulator steps/s, {arguments.frames} frames an episode")
    print(f"the reward costs {cost:.0%} (at most {MOST_COST:.0%} is wanted)")
    return int(cost > MOST_COST)


if __name__ == "__main__":
    sys.exit(main())
