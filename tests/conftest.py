"""Small real datasets on disk, made once per test session."""

import json
import os
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from rewardlab.core.errors import RewardlabError
from rewardlab.core.seeding import rng_for
from rewardlab.core.settings import Execution
from rewardlab.core.video_encoding import encode
from rewardlab.worlds.offscreen import HOW_TO_INSTALL

# The same examples on every machine, however slow it is.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

IN_PROCESS = Execution(engine="local")  # for runs that test no worker process: starting those takes seconds

ROWS = (
    {"file_name": "arm/a.mp4", "task": "put the red cup on the plate", "reward": 5},
    {"file_name": "arm/b.mp4", "task": "open the drawer", "reward": 1},
    {"file_name": "arm/c.mp4", "task": "push the green block left", "reward": 3},
    {"file_name": "hand/d.mp4", "task": "close the window", "reward": 5},
    {"file_name": "hand/e.mp4", "task": "fold the towel", "success": False},
    {"file_name": "hand/f.mp4", "task": "wipe the table", "reward": 4, "progress": [i / 25 for i in range(20)]},
)


# Begun first, so that no process is left with one of them at the end while the others have nothing to do.
LONGEST = (
    *("test_engines.py", "test_vlm.py", "test_stress.py", "test_pocket.py", "test_measured_study.py"),
    *("test_rl_run.py", "test_objective_training.py", "test_killed_workers.py", "test_page.py", "test_pocket_int8.py"),
    *("test_hf.py", "test_strangers_runs.py", "test_attack.py", "test_hostile_servers.py"),
    *("test_collect.py", "test_memory.py"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch."""
    parser.addoption(
        "--pixel-noise", action="store_true", help="pixels a level off, sums an ulp; golden tests are skipped"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Add noise to rendering and decoding, here and in every process that a test starts."""
    folder, places = str(Path(__file__).parent / "pixel_noise"), os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if config.getoption("--pixel-noise") and folder not in places:  # else this interpreter began with it
        import tests.pixel_noise.sitecustomize  # noqa: F401

        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, places)])
        sys.path.insert(0, folder)  # what worker processes are given as their PYTHONPATH


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files that take longest first; within a file the order stays. Skip golden tests under noise."""
    if config.getoption("--pixel-noise"):
        for item in items:
            if item.get_closest_marker("golden"):
                item.add_marker(pytest.mark.skip(reason="compares with stored outputs, which --pixel-noise changes"))
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@contextmanager
def _skipped_without_simulator() -> Iterator[None]:
    try:
        yield
    except RewardlabError as error:
        if HOW_TO_INSTALL not in str(error) and "install rewardlab[sim]" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Skip a test whose fixtures cannot simulate or render here."""
    with _skipped_without_simulator():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test that cannot simulate or render here."""
    with _skipped_without_simulator():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that is skipped for want of a Debian package where CI=true: the machine there must have them all."""
    report = yield
    strict = os.environ.get("CI") == "true" and sys.platform == "linux"
    if strict and report.skipped and isinstance(report.longrepr, tuple) and "apt-get install" in report.longrepr[2]:
        why = f"{item.nodeid}: {report.longrepr[2]} (with CI=true this is no skip)"
        report.outcome, report.longrepr = "failed", why
    return report


def write_rows(folder: Path, rows: Iterable[Mapping[str, object] | str]) -> Path:
    """Write metadata.jsonl; rows are dicts or raw lines."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def moving_square(name: str, count: int = 20, size: int = 48) -> np.ndarray:
    """Frames of a bright square that crosses a textured background."""
    rng = rng_for(0, name)
    grey = rng.integers(40, 120, (1, size, size, 1), dtype=np.uint8)
    frames = np.tile(grey, (count, 1, 1, 3))
    for index in range(count):
        left = 4 + index * (size - 16) // max(count - 1, 1)
        frames[index, 20:30, left : left + 10] = (220, 60, 40)
    return frames


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of six short clips with every kind of truth."""
    folder = write_rows(tmp_path_factory.mktemp("tiny"), ROWS)
    for number, row in enumerate(ROWS):
        path = folder / str(row["file_name"])
        path.parent.mkdir(exist_ok=True)
        encode(moving_square(path.name, count=20 if "progress" in row else 14 + number), path, fps=10)
    return folder


@pytest.fixture(scope="module")
def one_torch_thread() -> Iterator[None]:
    """Compute on one thread: tiny networks are slower on several, and two processes test at once."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
