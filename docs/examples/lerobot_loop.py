"""A control loop as LeRobot has it (get_observation, select_action, send_action), with a reward model beside it.

    python docs/examples/lerobot_loop.py --model pocket --episodes 2
    rewardlab serve pocket &  python docs/examples/lerobot_loop.py --model remote:http://127.0.0.1:8000

Put your robot and your policy in place of `DrawnArm` and `wander`. The clip is scored every 10 steps and at the
end; where the model abstains, the reward is 0. The rewards of an episode can go into a LeRobot dataset as a column.
"""

import argparse

import numpy as np

from rewardlab.models import name_model
from rewardlab.rl.reward_stream import RewardStream

CAMERA = "observation.images.front"


class DrawnArm:
    """Stands in for a robot: a white gripper on a dark table that moves towards a red button."""

    def __init__(self, seed: int) -> None:
        self.gripper = np.random.default_rng(seed).uniform(20, 100, 2)

    def get_observation(self) -> dict[str, np.ndarray]:
        """Return the state and the picture of the camera."""
        frame = np.full((128, 128, 3), 40, np.uint8)
        frame[60:70, 110:120] = (200, 20, 20)
        row, column = self.gripper.astype(int)
        frame[row - 4 : row + 4, column - 4 : column + 4] = 255
        return {"observation.state": self.gripper.copy(), CAMERA: frame}

    def send_action(self, action: np.ndarray) -> None:
        """Move the gripper."""
        self.gripper = np.clip(self.gripper + action, 5, 122)


def wander(observation: dict[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Stands in for a policy: towards the button, not straight."""
    return np.clip(np.array([65, 115]) - observation["observation.state"], -3, 3) + rng.normal(0, 2, 2)


def run_episode(model_name: str, instruction: str, steps: int, seed: int) -> list[float]:
    """Return the reward of every step of one episode."""
    model, robot, rng = name_model(model_name).build(), DrawnArm(seed), np.random.default_rng(seed)
    stream = RewardStream(instruction, mode="difference", every=10, success_bonus=1.0)
    observation = robot.get_observation()
    stream.add(observation[CAMERA])
    rewards = []
    for step in range(1, steps + 1):
        robot.send_action(wander(observation, rng))
        observation = robot.get_observation()
        stream.add(observation[CAMERA])
        ended = step == steps
        if stream.is_due(ended=ended):
            stream.update(model.score([stream.episode()])[0])
        rewards.append(stream.reward(ended=ended))
    return rewards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--instruction", default="press the red button")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--episodes", type=int, default=1)
    options = parser.parse_args()
    for seed in range(options.episodes):
        rewards = run_episode(options.model, options.instruction, options.steps, seed)
        print(f"episode {seed}: return {sum(rewards):+.2f} over {len(rewards)} steps")


if __name__ == "__main__":
    main()
