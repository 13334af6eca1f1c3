"""Engines: the same trials bit for bit wherever work runs, and nothing lost where workers, machines or commands die.

The tests on Ray are skipped where it is not installed (`pip install "rewardlab[ray]"`, as `make test` does).
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rewardlab
from rewardlab.core.errors import PlanError, RewardlabError
from rewardlab.core.run import Run
from rewardlab.core.settings import Execution
from rewardlab.core.trial import Trial
from rewardlab.core.video_encoding import encode
from rewardlab.evaluation import evaluate as stress
from rewardlab.evaluation.engines import open_engine
from rewardlab.evaluation.engines.ordered_map import map_items
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.evaluation.plan import Plan, bundle_jobs, plan_trials
from tests.conftest import moving_square, write_rows
from tests.evaluation.deadly_square import square
from tests.evaluation.test_stress import plan, without_time

CODE = """
import ctypes, os, random, threading
from pathlib import Path
from rewardlab import Score

HERE = Path(__file__).parent

class Poisoned:
    "Crashes as C code does whenever it is shown the drawer."
    def score(self, episodes):
        if any("drawer" in e.instruction for e in episodes):
            with (HERE / "tries").open("a") as file: file.write("x")
            ctypes.string_at(0)
        return [Score(1 + 4 * float(e.frames.mean()) / 255) for e in episodes]

class Together:
    "Answers when three workers are there, and says which one it is."
    def score(self, episodes):
        (HERE / f"worker-{os.getppid()}").touch()
        while len(list(HERE.glob("worker-*"))) < 3: threading.Event().wait(0.02)
        return [Score(1 + 4 * float(e.frames.mean()) / 255, raw=str(os.getppid())) for e in episodes]

class Wordy:
    "Says 3 KB that cannot be compressed."
    def score(self, episodes):
        dice = [random.Random(f"{e.instruction} {e.frames.sum()}") for e in episodes]
        return [Score(3, raw=die.randbytes(1500).hex()) for die in dice]

class Stuck:
    "Answers five times; then it says so and waits until it is killed, unless there is a file that frees it."
    def score(self, episodes):
        with (HERE / "asked").open("a") as file: file.write("x")
        while (HERE / "asked").stat().st_size > 5 and not (HERE / "free").exists(): threading.Event().wait(0.02)
        return [Score(1 + len(e.instruction) % 5) for e in episodes]
"""
SETTINGS = {"perturbations": ("fixed_pattern_noise",), "severities": (4,), "controls": False, "quiet": True}


MIXED = SETTINGS | {"models": ("length", "enginelab:Poisoned"), "batch_size": 1, "workers": 2}


@contextmanager
def lab_in(folder: Path) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        (folder / "enginelab.py").write_text(CODE)
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", f"{folder}:{os.environ.get('PYTHONPATH', '')}")
        yield folder
        sys.modules.pop("enginelab", None)  # the engine `local` imports it here; the next test has one of its own


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    with lab_in(tmp_path) as folder:
        yield folder


@pytest.fixture(scope="module")
def on_processes(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> pa.Table:
    with lab_in(tmp_path_factory.mktemp("reference")) as folder:
        return without_time(evaluate(plan(tiny_data, folder / "run", engine="processes", **MIXED)))


NODE = {"object_store_memory": 80_000_000, "include_dashboard": False}


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """A Ray cluster on loopback: one node of two cores that says it has a GPU.

    A node whose process is gone refuses connections and counts as lost after 20 of them, 200 ms apart; one that is only
    busy has a minute to answer each question.
    """
    ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "rewardlab[ray]"')
    from ray.cluster_utils import Cluster

    quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 200, "health_check_failure_threshold": 20}
    quick["health_check_timeout_ms"] = 60_000
    head = {"num_cpus": 2, "num_gpus": 1, "_system_config": quick, **NODE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)  # once for all tests in this process
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def failures(run: Run) -> list[Trial]:
    return [trial for trial in run.trials().rows() if trial.status == "failed"]


def engine_settings(name: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"engine": name, "workers": 2} | (
        {"address": request.getfixturevalue("ray_cluster").address} if name == "ray" else {}
    )


@pytest.mark.slow
@pytest.mark.usefixtures("lab")
def test_the_command_itself_gives_the_trials_of_the_processes_bit_for_bit(tiny_data: Path, tmp_path: Path) -> None:
    settings = MIXED | {"models": ("length", "enginelab:Wordy")}
    apart, here = (
        evaluate(plan(tiny_data, tmp_path / name, engine=name, **settings)) for name in ("processes", "local")
    )
    assert without_time(apart).equals(without_time(here))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ray"])
def test_every_engine_gives_the_trials_of_the_processes_bit_for_bit(
    name: str, tiny_data: Path, tmp_path: Path, lab: Path, on_processes: pa.Table, request: pytest.FixtureRequest
) -> None:
    """A model of the catalog, and one from outside that a crash in C takes away."""
    run = evaluate(plan(tiny_data, tmp_path / name, **MIXED | engine_settings(name, request)))
    assert without_time(run).equals(on_processes)
    lost = failures(run)
    assert {(trial.episode, trial.model) for trial in lost} == {("arm/b.mp4", "enginelab:Poisoned")}
    assert {trial.reason for trial in lost} == {"the process of enginelab:Poisoned ended with exit code -11"}
    assert len(lost) == 2
    assert (lab / "tries").read_text() == "x" * 2 * len(lost)  # each was tried twice


@pytest.mark.slow
@pytest.mark.parametrize("name", ["processes", "ray"])
def test_a_run_whose_command_is_killed_goes_on_with_another_engine(
    name: str, tiny_data: Path, tmp_path: Path, lab: Path, request: pytest.FixtureRequest
) -> None:
    changes = SETTINGS | {"models": ("enginelab:Stuck",), "batch_size": 1, "max_failures": 0}
    settings = engine_settings(name, request) | {"workers": 1}
    code = (
        "from pathlib import Path\nfrom tests.evaluation.test_stress import plan\n"
        "from rewardlab.evaluation.evaluate import evaluate\n"
        f"evaluate(plan(Path({str(tiny_data)!r}), Path({str(tmp_path / 'run')!r}), **{changes | settings!r}))"
    )
    first = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL)
    parts = tmp_path / "run" / "trials"
    asked = lab / "asked"
    wait_until(lambda: bool(list(parts.glob("*.parquet"))), first)  # it is written although nothing more comes
    first.kill()
    first.wait()
    kept = len(Run(tmp_path / "run").trials())
    (lab / "free").touch()
    asked.write_text("")
    other = {"processes": "local", "ray": "processes"}[name]
    run = evaluate(plan(tiny_data, tmp_path / "run", **changes | {"engine": other, "workers": 1}))
    assert kept > 0
    assert len(asked.read_text()) == run.record.trials - kept
    assert not failures(run)


@pytest.mark.slow
@pytest.mark.usefixtures("lab")
def test_a_ray_cluster_of_two_machines_that_loses_one_finishes_the_run(
    tiny_data: Path, tmp_path: Path, ray_cluster: Any
) -> None:
    other = ray_cluster.add_node(num_cpus=1, **NODE)  # of three workers one must be there
    changes = SETTINGS | {"models": ("enginelab:Together",), "severities": (1, 4), "max_failures": 0, "workers": 3}
    seen: set[str | None] = set()

    def lose_a_machine(trials: Sequence[Trial]) -> None:
        """Kill the second node, with all that runs there, as soon as all workers have answered."""
        before = len(seen)
        seen.update(trial.raw for trial in trials)
        if before < 3 == len(seen):
            ray_cluster.remove_node(other, allow_graceful=False)

    struck = score_with(
        plan(tiny_data, tmp_path / "ray", engine="ray", address=ray_cluster.address, **changes), lose_a_machine
    )
    assert len(seen) == 3
    calm = evaluate(plan(tiny_data, tmp_path / "calm", **changes))
    assert without_time(struck).drop_columns(["raw"]).equals(without_time(calm).drop_columns(["raw"]))
    assert not failures(struck)


def wait_until(is_so: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    """Return when something is so; it is an error if the process ends before."""
    while not is_so():
        with suppress(subprocess.TimeoutExpired):
            pytest.fail(f"it ended with {process.wait(0.1)}")


def score_with(stress_plan: Plan, take: Callable[[Sequence[Trial]], None]) -> Run:
    """Score a plan as `stress` does, telling somebody of every trial."""
    contents, context = stress.open_plan(stress_plan)
    run = stress.start_scoring(stress_plan, context, contents)
    jobs = bundle_jobs(plan_trials(contents.episodes, context, stress_plan.severities), 1)
    stress.score_jobs(run, jobs, context, stress_plan, (0, run.record.trials), take)
    return run


@pytest.mark.parametrize("name", ["processes", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_map_over_workers_is_in_order_and_survives_a_death(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    settings = engine_settings(name, request)
    del settings["workers"]
    (tmp_path / "armed").touch()
    results = map_items(partial(square, tmp_path / "armed"), range(8), 2, Execution(**settings))
    assert [next(results) for _ in range(6)] == [0, 1, 4, 9, 16, 25]
    with pytest.raises(RewardlabError, match="no six"):
        next(results)
    assert not (tmp_path / "armed").exists()


def bench_files(data: Path, out: Path, engine: dict[str, Any]) -> object:
    execution = Execution(quiet=True, **engine)
    run = rewardlab.bench("length", data, out=out, limit=3, controls=False, duplicates=False, execution=execution)
    return without_time(run).to_pylist(), json.loads((out / "bench.json").read_text())["models"]


def attack_files(data: Path, out: Path, engine: dict[str, Any]) -> object:
    changes: dict[str, Any] = {"perturbations": ("hold_last", "speed_up"), "queries": 3, "limit": 3}
    attacked = rewardlab.attack("length", data, out=out, execution=Execution(quiet=True, **engine), **changes)
    return sorted(map(str, without_time(attacked.run).to_pylist())), attacked.result


def relabel_files(data: Path, out: Path, engine: dict[str, Any]) -> object:
    execution = Execution(quiet=True, **engine)
    rewardlab.relabel(data, model="length", run=out / "run", out=out / "p.parquet", limit=3, execution=execution)
    return (out / "p.parquet").read_bytes()


def augment_files(_data: Path, out: Path, engine: dict[str, Any]) -> object:
    """Tasks rewritten by the scripted teacher, and clips by known progress, both made by workers."""
    demos = out.parent / "demos"
    row = {"file_name": "lab/a.mp4", "task": "clsoe the drawer", "reward": 5, "progress": [i / 19 for i in range(20)]}
    if not demos.exists():
        (demos / "lab").mkdir(parents=True)
        encode(moving_square("demo"), demos / "lab/a.mp4", fps=10)
        write_rows(demos, [row])
    rewardlab.data_augment(demos, out=out, stage=("rewrite", "clip"), execution=Execution(quiet=True, **engine))
    return contents(out)


def collect_files(_data: Path, out: Path, engine: dict[str, Any]) -> object:
    small: dict[str, Any] = {"tasks": "reach", "episodes": 1, "quality": "random", "frames": (2, 3), "size": 32}
    rewardlab.collect("metaworld", out=out, **small, execution=Execution(**engine))
    return contents(out)


def contents(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and ".calls" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name != "lock"}


@pytest.mark.slow
@pytest.mark.parametrize("command", ["bench", "attack", "relabel", "augment", "collect"])
def test_every_command_makes_the_same_on_ray(
    command: str, tiny_data: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    make = globals()[f"{command}_files"]
    settings = engine_settings("ray", request) | {"workers": 1}
    on_ray, here = make(tiny_data, tmp_path / "ray", settings), make(tiny_data, tmp_path / "here", {"engine": "local"})
    assert repr(on_ray) == repr(here)  # an end that is unknown is nan, which equals nothing


@pytest.mark.slow
def test_each_worker_gets_the_share_of_a_gpu_that_the_settings_name(ray_cluster: Any) -> None:
    """The node says that it has one GPU, of which Ray keeps the books: there is room for two halves."""
    settings = Execution(engine="ray", address=ray_cluster.address, gpus=0.5)
    with open_engine(settings) as engine:
        assert engine.cores == 2
    assert list(map_items(os.getenv, ["CUDA_VISIBLE_DEVICES"], 1, settings)) == ["0"]


@pytest.mark.usefixtures("lab")
def test_a_disk_without_room_stops_the_run_in_one_sentence_and_the_run_goes_on_later(
    tiny_data: Path, tmp_path: Path
) -> None:
    """No file of the command may grow beyond some KB, which the answers together do."""
    words = "stress enginelab:Wordy {} --perturbations fixed_pattern_noise --severities 4 --no-controls --out {} -q"
    command = f"ulimit -f 24; exec {sys.executable} -m rewardlab {words.format(tiny_data, tmp_path / 'run')}"
    command += " --engine local"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.search(r"cannot write .*File too large.*then run the same command again", done.stderr)
    assert "Traceback" not in done.stderr
    run = evaluate(plan(tiny_data, tmp_path / "run", **SETTINGS | {"models": ("enginelab:Wordy",)}))
    assert len(run.trials()) == run.record.trials == 12
    assert not failures(run)


def test_an_unknown_engine_and_settings_that_mean_nothing_to_it_are_refused(tiny_data: Path, tmp_path: Path) -> None:
    with pytest.raises(RewardlabError, match=r"engine of .* must be .*'ray', got 'rya'"):
        plan(tiny_data, tmp_path / "run", engine="rya")
    with pytest.raises(PlanError, match="address and gpus are for --engine ray"):
        plan(tiny_data, tmp_path / "run", address="auto")


_LISTENING = """
import psutil
from rewardlab.core.settings import Execution
from rewardlab.evaluation.engines.ordered_map import ItemWorkers

with ItemWorkers(abs, 1, Execution(engine="ray")) as workers:
    assert list(workers.map([-1, -2])) == [1, 2]
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    sockets = [socket for process in tree for socket in process.net_connections("inet")]
    print(*{socket.laddr.ip for socket in sockets if socket.status == psutil.CONN_LISTEN})
"""


@pytest.mark.slow
def test_ray_on_one_machine_listens_on_loopback_alone() -> None:
    pytest.importorskip("psutil", reason="it comes with accelerate")
    pytest.importorskip("ray", reason='Ray is not installed: pip install "rewardlab[ray]"')
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    for _ in range(5):  # Ray itself gives a cluster 30 s to start, which a busy machine may exceed
        done = subprocess.run(
            [sys.executable, "-c", _LISTENING], capture_output=True, text=True, check=False, env=environment
        )
        if "The current node timed out during startup" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    addresses = [ip_address(each) for each in done.stdout.split()]
    assert addresses and all((getattr(each, "ipv4_mapped", None) or each).is_loopback for each in addresses)
