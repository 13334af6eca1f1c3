import subprocess
import sys

import rewardlab

HEAVY = (
    *("torch", "transformers", "cv2", "av", "pyarrow", "scipy", "numba", "rich", "jinja2", "ray", "mujoco"),
    *("gymnasium", "fastapi", "matplotlib", "onnxruntime", "httpx2"),
)


def heavy_loaded_by(code: str) -> set[str]:
    """Return the heavy packages that a fresh interpreter has loaded after this code."""
    code += f"\nimport sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_rewardlab_pulls_in_nothing_heavy() -> None:
    assert heavy_loaded_by("import rewardlab") == set()


def test_importing_the_catalog_of_models_loads_none_of_what_they_run_on() -> None:
    assert heavy_loaded_by("import rewardlab.models") == set()


def test_the_help_of_every_command_loads_nothing_heavy() -> None:
    """One process shows the help of all: `python -X importtime -m rewardlab COMMAND --help` tells which loads what."""
    code = (
        "import contextlib\n"
        "from rewardlab.cli import COMMANDS, main\n"
        "for name in COMMANDS:\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        assert main([*name.split(), '--help']) == 0, name\n"
    )
    assert heavy_loaded_by(code) == set()


def test_every_public_name_can_be_had_and_others_cannot() -> None:
    for name in rewardlab.__all__:
        assert getattr(rewardlab, name) is not None
    assert not hasattr(rewardlab, "no_such_verb")
