"""The noise of `pytest --pixel-noise`: at most a level, the same each time, in every process that a test starts."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rewardlab.worlds.metaworld.physics import simulate
from rewardlab.worlds.metaworld.policies import make_policy
from rewardlab.worlds.metaworld.render import CameraView
from rewardlab.worlds.metaworld.scene_edits import render_rollout

NOISE = str(Path(__file__).parent / "pixel_noise")
CODE = """
import sys
from pathlib import Path
import numpy as np
from rewardlab.data.images import decode_images
from rewardlab.data.video import VideoFile
from rewardlab.evaluation.engines.ordered_map import map_items
from tests.test_pixel_noise import rendered

def seen(folder):
    kinds = {kind: decode_images([(folder / f"frame.{kind}").read_bytes()], 1) for kind in ("jpg", "png")}
    frames, progress = rendered()
    return kinds | {"video": VideoFile(folder / "a.mp4").read(np.arange(2)), "rendered": frames, "progress": progress}

folder, out = map(Path, sys.argv[1:])
first, again = seen(folder), seen(folder)
assert all((first[kind] == again[kind]).all() for kind in first)
worker, _ = map_items(lambda path: VideoFile(path).read(np.arange(2)), [folder / "a.mp4"] * 2, 2)
np.savez(out, **first, worker=worker)
"""


def rendered() -> tuple[np.ndarray, np.ndarray]:
    """Return a frame and the progress of a rollout."""
    trajectory = simulate("reach", 0, 12, make_policy("expert", "reach", 0))
    return render_rollout(trajectory, [0], CameraView(size=64)), trajectory.progress


def run(folder: Path, name: str, *places: str) -> dict[str, np.ndarray]:
    """Return what a fresh interpreter and its worker see."""
    found = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place != NOISE]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*places, *found, str(Path(__file__).parents[1])])}
    command = [sys.executable, "-c", CODE, str(folder), str(folder / f"{name}.npz")]
    subprocess.run(command, env=environment, check=True)
    return dict(np.load(folder / f"{name}.npz"))


@pytest.mark.slow
def test_noise_is_small_repeats_itself_and_reaches_workers(tiny_data: Path, tmp_path: Path) -> None:
    import cv2

    rendered()  # where this cannot be, the test is skipped
    (tmp_path / "a.mp4").write_bytes((tiny_data / "arm/a.mp4").read_bytes())
    picture = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    for kind in ("jpg", "png"):
        assert cv2.imwrite(str(tmp_path / f"frame.{kind}"), picture)
    plain, noisy = run(tmp_path, "plain"), run(tmp_path, "noisy", NOISE)
    for kind in ("jpg", "video", "rendered"):
        assert set(np.unique(noisy[kind].astype(int) - plain[kind])) == {-1, 0, 1}
    assert (noisy["worker"] == noisy["video"]).all()
    assert (noisy["png"] == plain["png"]).all()  # no processor decodes it differently
    assert (noisy["progress"] != plain["progress"]).any()
    assert noisy["progress"] == pytest.approx(plain["progress"], rel=1e-15)
