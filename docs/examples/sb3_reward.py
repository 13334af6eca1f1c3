"""Trains a Stable-Baselines3 agent whose reward is a reward model's, not the environment's.

    pip install "rewardlab[rl,sim]" stable-baselines3
    python docs/examples/sb3_reward.py --model pocket --task button-press --steps 20000

`--model` takes any name that `rewardlab stress` takes: pocket, pocket+guard, remote:http://127.0.0.1:8000, ...
"""

import argparse

import gymnasium
import metaworld  # noqa: F401  # registers its environments
import numpy as np
from stable_baselines3 import SAC

from rewardlab.rl.reward_stream import RewardStream
from rewardlab.rl.wrapper import ModelReward


class Upright(gymnasium.Wrapper):
    """An environment of Meta-World, whose cameras film upside down, with the picture turned."""

    def render(self) -> np.ndarray:
        return np.ascontiguousarray(self.env.render()[::-1, ::-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--task", default="button-press")
    parser.add_argument("--instruction", default="press the button")
    parser.add_argument("--steps", type=int, default=20_000)
    options = parser.parse_args()
    camera = {"render_mode": "rgb_array", "camera_name": "corner2", "width": 128, "height": 128}
    env = Upright(gymnasium.make("Meta-World/MT1", env_name=f"{options.task}-v3", **camera))
    # The model looks every 50 steps and pays what progress was made since; a success pays 10 more, once.
    stream = RewardStream(options.instruction, mode="difference", success_bonus=10.0, every=50)
    watched = ModelReward(env, options.model, stream)
    agent = SAC("MlpPolicy", watched, learning_starts=min(500, options.steps // 2), verbose=1)
    agent.learn(options.steps)
    counts = watched.timed.counts()
    print(f"the model scored {counts['clips']:.0f} clips in {counts['seconds']:.1f} s")


if __name__ == "__main__":
    main()
