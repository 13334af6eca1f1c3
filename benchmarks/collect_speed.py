"""Speed of collecting: only kept frames with the fast settings (ours), or every step with the defaults (theirs).

The last line is theirs over ours, in seconds per episode. Run: python benchmarks/collect_speed.py
"""

import time
from collections import Counter
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

import mujoco
import numpy as np

from rewardlab.api import collect
from rewardlab.core.settings import settings_of
from rewardlab.core.video_encoding import encode
from rewardlab.worlds.metaworld.physics import open_task, simulate
from rewardlab.worlds.metaworld.policies import make_policy
from rewardlab.worlds.metaworld.recording import plan_episodes, record_episode
from rewardlab.worlds.offscreen import backend, in_rendering_thread, make_current
from rewardlab.worlds.plan import Collection

TASKS = ("drawer-open", "push", "window-close")
EPISODES = 4
SIZE = 128
STEPS = 200  # of the reference, about the mean length of ours
EVERY = 8  # the reference renders a few steps and is scaled up: one of its episodes takes half a minute


def main() -> None:
    ours = measure_ours()
    theirs = measure_theirs()
    print(f"renderer {backend()}, {SIZE} px, {len(TASKS)} tasks")
    show("ours", ours)
    show("theirs", theirs)
    print(f"ratio: {sum(theirs.values()) / sum(ours.values()):.1f}")


def show(name: str, seconds: "Counter[str]") -> None:
    total = sum(seconds.values())
    shares = ", ".join(f"{part} {value / total:.0%}" for part, value in seconds.items())
    print(f"{name}: {60 / total:.1f} episodes a minute on one core; {shares}")


def measure_ours() -> "Counter[str]":
    """Return the seconds of one episode of ours, on average, opened tasks and graphics not counted."""
    spent: Counter[str] = Counter()
    with TemporaryDirectory() as folder:
        settings = {setting.name: setting.default for setting in settings_of(collect)} | {"tasks": TASKS}
        settings |= {"episodes": EPISODES, "camera": ("right",), "size": SIZE, "out": Path(folder)}
        plan = Collection(**{field.name: settings[field.name] for field in fields(Collection)})
        (Path(folder) / "metaworld").mkdir()
        episodes = plan_episodes(plan)
        for task in TASKS:
            record_episode(plan, next(each for each in episodes if each.task == task))
        for planned in episodes:
            spent.update(record_episode(plan, planned).seconds)
    return Counter({part: value / len(episodes) for part, value in spent.items()})


def measure_theirs() -> "Counter[str]":
    """Return the seconds of one episode that renders every step with MuJoCo's renderer as it comes."""
    spent: Counter[str] = Counter()
    for task in TASKS:
        simulate(task, 1, 1, make_policy("expert", task, 1))
        clock = [time.perf_counter()]
        trajectory = simulate(task, 1, STEPS, make_policy("expert", task, 1))
        clock.append(time.perf_counter())
        frames, seconds = render_as_it_comes(task, trajectory.qpos[::EVERY])
        start = time.perf_counter()
        with TemporaryDirectory() as folder:
            encode(np.repeat(frames, EVERY, axis=0)[:STEPS], Path(folder) / "a.mp4", 80)
        encoded = time.perf_counter() - start
        spent.update({"simulate": clock[1] - clock[0], "render": seconds * EVERY, "encode": encoded})
    return Counter({part: value / len(TASKS) for part, value in spent.items()})


@in_rendering_thread
def render_as_it_comes(task: str, states: np.ndarray) -> tuple[np.ndarray, float]:
    make_current()
    model = open_task(task).model
    data, scene = mujoco.MjData(model), mujoco.MjvScene(model, 1000)
    context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, context)
    view, frame, frames = mujoco.MjvCamera(), mujoco.MjrRect(0, 0, SIZE, SIZE), []
    view.type, view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, model.camera("corner2").id
    start = time.perf_counter()
    for qpos in states:
        data.qpos[:] = qpos
        mujoco.mj_forward(model, data)
        mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, view, mujoco.mjtCatBit.mjCAT_ALL.value, scene)
        mujoco.mjr_render(frame, scene, context)
        pixels = np.empty((SIZE, SIZE, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, frame, context)
        frames.append(pixels[::-1, ::-1])
    return np.stack(frames), time.perf_counter() - start


if __name__ == "__main__":
    main()
