import subprocess
import sys

import rewardlab

HEAVY = (
    "torch",
    "transformers",
    "cv2",
    "av",
    "pyarrow",
    "scipy",
    "numba",
    "rich",
    "jinja2",
    "ray",
    "mujoco",
    "fastapi",
    "onnxruntime",
    "httpx2",
)


def test_importing_rewardlab_pulls_in_nothing_heavy() -> None:
    code = "import sys, rewardlab; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(HEAVY) & {name.partition(".")[0] for name in loaded}


def test_every_public_name_can_be_had_and_others_cannot() -> None:
    for name in rewardlab.__all__:
        assert getattr(rewardlab, name) is not None
    assert not hasattr(rewardlab, "no_such_verb")
