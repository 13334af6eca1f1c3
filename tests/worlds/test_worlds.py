import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.errors import DataError, NotApplicable, PlanError
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.perturbations.contract import Perturbation, PerturbedEpisode
from rewardlab.perturbations.world import WORLD_PERTURBATIONS
from rewardlab.testing import check_perturbation
from rewardlab.worlds import offscreen, open_world
from rewardlab.worlds.metaworld.physics import Trajectory
from rewardlab.worlds.metaworld.render import CAMERAS, CameraView
from rewardlab.worlds.metaworld.scene_edits import render_rollout
from tests.worlds.conftest import same

NAMES = {entry.name: entry for entry in WORLD_PERTURBATIONS}
SHOWN = "uniform:3"


def original(episodes: tuple[Episode, ...], number: int = 0) -> Episode:
    return sample_frames(episodes[number], frame_policy(SHOWN))


def applied(entry: Perturbation, episode: Episode, severity: int) -> PerturbedEpisode | None:
    try:
        return entry(episode, severity, 1)
    except NotApplicable:
        return None


def test_an_episode_rendered_again_is_bit_identical_and_near_its_video(episodes: tuple[Episode, ...]) -> None:
    episode = original(episodes)
    assert episode.sim_state is not None
    world = open_world(episode.sim_state)
    first, again = (world.render(episode.clip.order) for _ in range(2))
    assert same(first, again)
    error = np.mean((first.astype(float) - episode.frames) ** 2)
    assert 10 * np.log10(255**2 / error) > 28  # only the codec lies between them


@pytest.mark.slow
def test_threads_that_render_at_once_see_what_each_sees_alone(drawer: Trajectory) -> None:
    view = CameraView(size=64)
    asked = [(list(range(start, start + 60, 6)), ((("table_texture", (1.0, seed)),) if seed % 2 else ()))
             for seed, start in enumerate((0, 20, 40, 60, 80, 100))]  # fmt: skip
    alone = [render_rollout(drawer, steps, view, changes) for steps, changes in asked]
    with ThreadPoolExecutor(6) as pool:
        together = pool.map(lambda each: render_rollout(drawer, each[0], view, each[1]), asked)
    assert all(same(one, other) for one, other in zip(alone, together, strict=True))


def test_a_record_of_another_outcome_is_refused(episodes: tuple[Episode, ...]) -> None:
    assert episodes[0].sim_state is not None
    with pytest.raises(DataError, match=r"0\.123"):
        open_world({**episodes[0].sim_state, "end": 0.123})
    with pytest.raises(DataError, match="copy the file again"):
        open_world({**episodes[0].sim_state, "file": "/nowhere.npy"})
    with pytest.raises(DataError, match="stride"):
        open_world({key: value for key, value in episodes[0].sim_state.items() if key != "stride"})
    with pytest.raises(PlanError, match="no world is called 'mars'"):
        open_world({"kind": "mars"})


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_changed_world_keeps_the_contract_and_the_truth(name: str, episodes: tuple[Episode, ...]) -> None:
    episode = original(episodes)
    check_perturbation(NAMES[name], [episode])
    changed = [change for severity in (1, 2, 3, 4) if (change := applied(NAMES[name], episode, severity))]
    assert changed or name == "world_goal_hidden"
    for change in changed:
        assert change.expect == "same" and change.episode.label == episode.label


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"world_goal_hidden", "world_object_colour"}))
def test_a_higher_severity_changes_the_frames_more(name: str, episodes: tuple[Episode, ...]) -> None:
    episode = original(episodes)
    assert episode.sim_state is not None
    clean = open_world(episode.sim_state).render(episode.clip.order).astype(float)
    weak, strong = (NAMES[name](episode, severity, 1).episode.frames for severity in (1, 4))
    assert 0 < np.abs(weak - clean).mean() < np.abs(strong - clean).mean()


def test_changes_leave_nothing_behind(episodes: tuple[Episode, ...]) -> None:
    episode = original(episodes)
    assert episode.sim_state is not None
    world = open_world(episode.sim_state)
    before = world.render(episode.clip.order)
    for entry in WORLD_PERTURBATIONS:
        applied(entry, episode, 4)
    assert same(world.render(episode.clip.order), before)


def test_an_instruction_follows_the_colour_of_its_object(episodes: tuple[Episode, ...]) -> None:
    entry = NAMES["world_object_colour"]
    episode = replace(original(episodes), instruction="Press the Red button.")
    change = entry(episode, 4, 1)
    assert "red" not in change.episode.instruction.lower() and "button" in change.episode.instruction
    with pytest.raises(NotApplicable, match="'red'"):
        entry(episode, 1, 1)
    other = entry(replace(episode, instruction="Push the button on the yellow box."), 4, 1)
    assert "yellow box" in other.episode.instruction
    assert episode.sim_state is not None
    two = replace(
        episode, sim_state={**episode.sim_state, "colours": ["red", "black"]}, instruction="Push the red black button."
    )
    with pytest.raises(NotApplicable, match="red, black"):
        entry(two, 4, 1)


def test_an_episode_without_a_world_or_with_other_pixels_is_dropped(episodes: tuple[Episode, ...]) -> None:
    plain = episode_from_frames(episodes[0].frames, "press the button")
    with pytest.raises(NotApplicable, match="not recorded in a simulator"):
        NAMES["world_fov"](plain, 2, 0)
    changed = NAMES["world_fov"](episodes[0], 2, 0).episode
    with pytest.raises(NotApplicable, match="edit the scene first"):
        NAMES["world_camera"](changed, 2, 0)


def test_the_goal_marker_is_hidden_unless_asked_for(drawer: Trajectory) -> None:
    plain, marked = (render_rollout(drawer, [0], CameraView(size=64, marker=marker)) for marker in (False, True))
    assert not same(plain, marked)
    assert same(render_rollout(drawer, [0], CameraView(size=64, marker=True), [("goal_hidden", (0.0,))]), plain)
    with pytest.raises(NotApplicable, match="none to hide"):
        render_rollout(drawer, [0], CameraView(size=64), [("goal_hidden", (0.0,))])


@pytest.mark.parametrize("camera", CAMERAS)
def test_frames_are_the_right_way_up(drawer: Trajectory, camera: str) -> None:
    """The brown table lies below the grey floor and background behind it, except from straight above."""
    (frame,) = render_rollout(drawer, [0], CameraView(camera, 64)).astype(int)
    brown = (frame[..., 0] - frame[..., 2]) > 20
    table = brown & (frame[..., 0] < 160) & (abs(frame[..., 0] - 2 * frame[..., 1]) > 40)
    assert table.any()
    if camera not in ("top", "front"):
        assert table[40:].mean() > table[:24].mean()


def test_missing_renderers_are_named_with_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(offscreen, "_loads", lambda *_names: False)
    offscreen.backend.cache_clear()
    with pytest.raises(PlanError, match="apt-get install libosmesa6"):
        offscreen.backend()
    monkeypatch.setattr(offscreen, "_has_gpu", lambda: True)
    monkeypatch.setattr(offscreen, "_loads", lambda *_names: True)
    assert offscreen.backend() == "egl"
    offscreen.backend.cache_clear()


@pytest.mark.skipif(find_spec("triton") is None, reason="triton, which comes with some builds of torch")
@pytest.mark.parametrize("asked", ["", "osmesa"])
def test_triton_can_be_loaded_after_the_simulator(asked: str) -> None:
    code = (
        "from rewardlab.worlds.metaworld.physics import load_module\nload_module('mujoco')\n"
        "from rewardlab.worlds.offscreen import make_current\nmake_current()\nimport triton"
    )
    assert subprocess.run([sys.executable, "-c", code], env=os.environ | {"MUJOCO_GL": asked}).returncode == 0


_DRAWING = """
import os, signal, time
from rewardlab.worlds.offscreen import in_rendering_thread, make_current
import mujoco

@in_rendering_thread
def draw():
    make_current()
    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    context, scene = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100), mujoco.MjvScene(model, 10)
    for step in range(10):
        if step in (0, 4):
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        mujoco.mjr_render(mujoco.MjrRect(0, 0, 64, 64), scene, context)
    print("drawn", flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)
draw()
"""


def test_two_interrupts_while_a_frame_is_drawn_end_the_process_after_the_drawing() -> None:
    offscreen.backend()  # skips the test where nothing renders
    done = subprocess.run([sys.executable, "-c", _DRAWING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "drawn\n"), done.stderr  # SIGSEGV where it is freed early


@pytest.mark.parametrize("camera", ["right", "left", "far"])
def test_a_point_is_seen_where_it_is_drawn(drawer: Trajectory, camera: str) -> None:
    plain, marked = (
        render_rollout(drawer, [0], CameraView(camera, 200, marker=marker))[0].astype(int) for marker in (False, True)
    )
    drawn = np.argwhere(np.abs(marked - plain).sum(axis=2) > 60).mean(axis=0)  # the ball at the goal, (y, x)
    seen = CAMERAS[camera].seen_at(drawer.goal)
    assert seen is not None and CAMERAS["corner2"].seen_at(drawer.goal) is None
    np.testing.assert_allclose((seen[::-1] + 1) * 100, drawn, atol=3)
