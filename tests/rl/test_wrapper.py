"""The gymnasium wrappers: any model's reward in place of the environment's."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium")

import gymnasium
from gymnasium.utils.env_checker import check_env

from rewardlab.core.episode import Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.rl.reward_stream import RewardStream
from rewardlab.rl.wrapper import INFO, ModelReward, VectorModelReward
from tests.narrowing import known, of_type

STEPS = 6


class Corridor(gymnasium.Env[Any, Any]):
    """A square that moves right by one cell where the action says so; five cells are the goal."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = "rgb_array") -> None:
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.Box(0, STEPS, (1,), np.float32)
        self.cell, self.time = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        super().reset(seed=seed)
        self.cell, self.time = 0, 0
        return np.array([0.0], np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.cell += int(action)
        self.time += 1
        return np.array([self.cell], np.float32), -1.0, False, self.time == STEPS, {}

    def render(self) -> np.ndarray:
        frame = np.full((16, 32, 3), 30, np.uint8)
        frame[4:12, 4 * self.cell : 4 * self.cell + 4] = 250
        return frame


class FilmedCorridor(Corridor):
    """The same with its picture among the observations, and an episode as long as one likes."""

    def __init__(self, steps: int = STEPS) -> None:
        super().__init__(render_mode=None)
        self.steps = steps
        image = gymnasium.spaces.Box(0, 255, (16, 32, 3), np.uint8)
        self.observation_space = gymnasium.spaces.Dict({"cell": self.observation_space, "image": image})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        cell, info = super().reset(seed=seed, options=options)
        return {"cell": cell, "image": self.render()}, info

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        cell, reward, terminated, _, info = super().step(action)
        return {"cell": cell, "image": self.render()}, reward, terminated, self.time == self.steps, info


class Position:
    """Reads the progress from where the square is; it abstains where the square left the picture's first half."""

    def __init__(self, *, abstain_from: int = 99) -> None:
        self.abstain_from = abstain_from
        self.batches: list[int] = []

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        self.batches.append(len(episodes))
        return [self._score(episode) for episode in episodes]

    def _score(self, episode: Episode) -> Answer:
        cells = [int(frame[8].max(axis=-1).argmax()) // 4 for frame in episode.frames]
        if cells[-1] >= self.abstain_from:
            return Failure("the guard abstains")
        progress = tuple(min(cell, 5) / 5 for cell in cells)
        return Score(5.0 if cells[-1] >= 5 else 1 + 4 * progress[-1], None, progress)


def rollout(env: Any, actions: Sequence[int]) -> tuple[list[float], list[dict[str, Any]]]:
    env.reset(seed=0)
    rewards, infos = [], []
    for action in actions:
        _, reward, _, _, info = env.step(action)
        rewards.append(reward)
        infos.append(info[INFO])
    return rewards, infos


ALL_RIGHT = [1, 1, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("stream", "rewards"),
    [
        (RewardStream("go right"), [0.2, 0.2, 0.2, 0.0, 0.2, 0.2]),
        (RewardStream("go right", mode="frame"), [0.2, 0.4, 0.6, 0.6, 0.8, 1.0]),
        (RewardStream("go right", mode="final"), [0, 0, 0, 0, 0, 1.0]),
        (RewardStream("go right", mode="final", success_bonus=3), [0, 0, 0, 0, 0, 4.0]),
        (RewardStream("go right", every=3), [0, 0, 0.6, 0, 0, 0.4]),
        (RewardStream("go right", discount=0.5), [0.1, 0.0, -0.1, -0.3, -0.2, -0.3]),
    ],
    ids=["difference", "frame", "final", "bonus", "every", "discount"],
)
def test_the_reward_is_what_the_model_says(stream: RewardStream, rewards: list[float]) -> None:
    model = Position()
    env = ModelReward(Corridor(), model, stream)
    paid, infos = rollout(env, ALL_RIGHT)
    assert paid == pytest.approx(rewards)
    assert infos[-1]["env_reward"] == -1.0 and infos[-1]["success"]
    assert env.timed.counts()["clips"] == sum(model.batches) and env.timed.counts()["seconds"] > 0


def test_where_the_model_abstains_progress_stays_and_no_bonus_is_paid() -> None:
    stream = RewardStream("go right", success_bonus=3)
    env = ModelReward(Corridor(), Position(abstain_from=3), stream)
    paid, infos = rollout(env, ALL_RIGHT)
    assert paid == pytest.approx([0.2, 0.2, 0, 0, 0, 0])
    assert (infos[-1]["abstained"], env.timed.counts()["failed"], infos[-1]["success"]) == (4, 4, False)


def test_the_same_clip_is_judged_once() -> None:
    model = Position()
    env = ModelReward(Corridor(), model, RewardStream("go right"))
    first, _ = rollout(env, ALL_RIGHT)
    again, _ = rollout(env, ALL_RIGHT)
    assert first == again and sum(model.batches) == STEPS


def test_a_long_episode_keeps_a_bounded_number_of_frames() -> None:
    env = ModelReward(Corridor(), Position(), RewardStream("go right", max_frames=3))
    rollout(env, ALL_RIGHT)
    clip = env.stream.episode().clip
    assert len(clip) <= 3 and (clip.positions[0], clip.positions[-1]) == (0, STEPS)


@pytest.mark.parametrize(("frames", "most"), [("uniform:16", 16), ("fps:0.1", 8), ("all", 512)])
def test_a_scored_clip_has_the_frames_of_the_policy_up_to_the_last_and_no_others(frames: str, most: int) -> None:
    stream = RewardStream("go right", frames=frames)
    for number in range(700):
        stream.add(np.full((2, 2, 3), number % 256, np.uint8))
        clip = stream.episode().clip
        assert (clip.positions[0], clip.positions[-1]) == (0, number)
        assert len(clip) == clip.source.count <= most, "frames that are not shown are neither stacked nor hashed"
        if number % 100 == 99:
            assert clip.read()[:, 0, 0, 0].tolist() == (clip.positions % 256).tolist()
    assert len(clip) > most // 2


def test_vector_environments_are_asked_in_one_batch_and_pay_the_same() -> None:
    model = Position()
    stream = RewardStream("go right")
    env = VectorModelReward(gymnasium.vector.SyncVectorEnv([Corridor, Corridor]), model, stream)
    env.reset(seed=0)
    paid = np.array([env.step(np.array([action, 0]))[1] for action in ALL_RIGHT])
    assert paid[:, 0] == pytest.approx([0.2, 0.2, 0.2, 0.0, 0.2, 0.2])
    assert (paid[:, 1] == 0).all()
    assert set(model.batches) == {2}
    assert env.step(np.array([1, 1]))[1].tolist() == [0.0, 0.0], "the step that begins a new episode pays nothing"
    assert env.step(np.array([1, 0]))[1] == pytest.approx([0.2, 0.0])


def test_each_environment_of_a_vector_can_have_an_instruction_of_its_own() -> None:
    streams = [RewardStream("go right"), RewardStream("stay where you are", mode="frame")]
    env = VectorModelReward(gymnasium.vector.SyncVectorEnv([Corridor, Corridor]), Position(), streams)
    env.reset(seed=0)
    assert [each.episode().instruction for each in env.streams] == ["go right", "stay where you are"]
    paid = np.array([env.step(np.array([1, 1]))[1] for _ in range(3)])
    assert paid[:, 0] == pytest.approx([0.2, 0.2, 0.2]) and paid[:, 1] == pytest.approx([0.2, 0.4, 0.6])


@pytest.mark.parametrize("autoreset", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("mode", ["difference", "final"])
def test_episodes_of_a_vector_pay_what_they_pay_alone_however_they_are_reset(autoreset: str, mode: Any) -> None:
    lengths, stream = (6, 4), RewardStream("go right", mode=mode, success_bonus=2)
    makers = [partial(FilmedCorridor, length) for length in lengths]
    vector = gymnasium.vector.SyncVectorEnv(makers, autoreset_mode=autoreset)
    env = VectorModelReward(vector, Position(), stream, image_key="image")
    env.reset(seed=0)
    paid: list[list[float]] = [[], []]
    successes: list[list[bool]] = [[], []]
    for _ in range(20):
        _, rewards, _, truncated, infos = env.step(np.array([1, 1]))
        for index in range(2):
            paid[index].append(rewards[index])
            successes[index].append(bool(infos[INFO]["success"][index]))
        if autoreset == "Disabled" and truncated.any():
            env.reset(options={"reset_mask": truncated})
    for length, got, succeeded in zip(lengths, paid, successes, strict=True):
        alone, noted = rollout(ModelReward(FilmedCorridor(length), Position(), stream, image_key="image"), [1] * length)
        expected, goals = list(alone), [info["success"] for info in noted]
        if autoreset == "NextStep":  # the step that resets
            expected, goals = [*expected, 0.0], [*goals, False]
        assert got == pytest.approx((expected * 20)[:20])
        assert succeeded == (goals * 20)[:20]


def test_a_vector_in_processes_pays_the_same() -> None:
    vector = gymnasium.vector.AsyncVectorEnv(
        [partial(FilmedCorridor, 3)] * 2, autoreset_mode="SameStep", context="spawn"
    )
    env = VectorModelReward(vector, Position(), RewardStream("go right"), image_key="image")
    try:
        env.reset(seed=0)
        paid = [env.step(np.array([1, 0]))[1].tolist() for _ in range(7)]
    finally:
        env.close()
    assert np.array(paid) == pytest.approx(np.array([[0.2, 0.0]] * 7))


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")  # it is a wrapper, on purpose
def test_gymnasium_finds_nothing_wrong_with_it() -> None:
    check_env(ModelReward(Corridor(), "length:6", RewardStream("go right")), skip_render_check=True)


@pytest.fixture
def registered() -> Iterator[str]:
    name = "rewardlab/Corridor-v0"
    make: Any = Corridor
    gymnasium.register(name, entry_point=make)
    yield name
    del gymnasium.registry[name]


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")  # it is a wrapper, on purpose
@pytest.mark.parametrize("model", ["length:6", Position()], ids=["name", "object"])
def test_gymnasium_checks_and_makes_again_what_wraps_a_made_environment(registered: str, model: Any) -> None:
    env = ModelReward(
        gymnasium.make(registered, render_mode="rgb_array"), model, RewardStream("go right", mode="frame")
    )
    check_env(env)
    again = gymnasium.make(known(env.spec))
    assert isinstance(again, ModelReward) and again.stream is not env.stream
    assert rollout(again, ALL_RIGHT) == rollout(env, ALL_RIGHT)


def test_what_cannot_work_is_said_at_once() -> None:
    with pytest.raises(PlanError, match="render_mode='rgb_array', got None"):
        ModelReward(Corridor(render_mode=None), "length", RewardStream("go right"))
    with pytest.raises(PlanError, match="reads the true label"):
        ModelReward(Corridor(), "oracle", RewardStream("go right"))
    vector = gymnasium.vector.SyncVectorEnv([Corridor], autoreset_mode="SameStep")
    with pytest.raises(PlanError, match="cannot render the final frame"):
        VectorModelReward(vector, "length", RewardStream("go right"))
    with pytest.raises(PlanError, match="one for each of the 1 environments, got RewardStream, RewardStream"):
        VectorModelReward(gymnasium.vector.SyncVectorEnv([Corridor]), "length", [RewardStream("go right")] * 2)
    with pytest.raises(PlanError, match="frames must be uniform:N"):
        RewardStream("go right", frames="some")
    with pytest.raises(PlanError, match="mode must be one of"):
        RewardStream("go right", mode="best")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="needs an instruction"):
        RewardStream(" ")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of another package
@pytest.mark.usefixtures("one_torch_thread")
def test_an_agent_of_stable_baselines_trains_with_it() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    env = ModelReward(Corridor(), Position(), RewardStream("go right", success_bonus=1.0))
    agent = sb3.PPO("MlpPolicy", env, n_steps=250, batch_size=125, n_epochs=4, seed=0, device="cpu", learning_rate=3e-3)
    agent.learn(2_000)
    observation, _ = env.reset(seed=1)
    for _ in range(STEPS):
        action, _ = agent.predict(observation, deterministic=True)
        observation, *_ = env.step(int(action))
    assert of_type(Corridor, env.unwrapped).cell >= 5, "it learned to go right"
