"""A run in an object store: written there as it goes, resumed from there alone, by an S3 server on loopback."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rewardlab
from rewardlab.core.errors import RunError
from rewardlab.core.run import Run, open_run
from rewardlab.core.settings import Execution
from rewardlab.core.storage import store_address, working_copy
from rewardlab.evaluation.evaluate import evaluate
from tests.evaluation.test_engines import wait_until
from tests.evaluation.test_stress import plan, without_time
from tests.s3_server import Objects, s3_server

pytest.importorskip("pyarrow._s3fs", reason="this build of pyarrow has no S3 client")
ADDRESS = "s3://lab/runs/mine"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    for name, value in (("ACCESS_KEY_ID", "me"), ("SECRET_ACCESS_KEY", "secret"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    from rewardlab.core import storage as object_store

    with s3_server() as (url, objects):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        object_store._open_store.cache_clear()  # each server has another port
        yield objects
    object_store._open_store.cache_clear()


def stored(objects: Objects, ending: str) -> list[str]:
    return sorted(key for key in objects.stored if key.endswith(ending))


@pytest.mark.slow
def test_a_run_in_an_object_store_is_that_of_a_folder(tiny_data: Path, tmp_path: Path, store: Objects) -> None:
    here = evaluate(plan(tiny_data, tmp_path / "here", perturbations=("polite_filler",)))
    there = rewardlab.stress(
        "length",
        tiny_data,
        perturbations="polite_filler",
        severities=(1, 4),
        execution=Execution(engine="local", quiet=True),
        out=ADDRESS,
    )
    assert there.place == ADDRESS
    assert without_time(there).equals(without_time(here))
    assert "lab/runs/mine/report.html" in store.stored
    assert len([key for key in store.stored if "/trials/" in key and key.endswith(".parquet")]) == 1
    shutil.rmtree(there.folder)  # as on another machine
    assert without_time(open_run(ADDRESS)).equals(without_time(here))
    assert rewardlab.report(ADDRESS).exists()


@pytest.mark.slow
def test_a_killed_run_goes_on_from_the_store_alone(tiny_data: Path, tmp_path: Path, store: Objects) -> None:
    """The command is killed, its machine is gone, and another goes on: nothing that was stored is asked again."""
    (tmp_path / "slowlab.py").write_text(
        "import os, threading\nfrom pathlib import Path\nfrom rewardlab import Score\n"
        "class Judge:\n"
        "    def score(self, episodes):\n"
        "        with Path(os.environ['ASKED']).open('a') as file: file.write('x' * len(episodes))\n"
        "        threading.Event().wait(float(os.environ['SECONDS_PER_CELL']))\n"
        "        return [Score(1 + len(e.instruction) % 5) for e in episodes]\n"
    )
    code = (
        "from pathlib import Path\nfrom tests.evaluation.test_stress import plan\n"
        "from rewardlab.evaluation.evaluate import evaluate\n"
        f"evaluate(plan(Path({str(tiny_data)!r}), Path({ADDRESS!r}), models=('slowlab:Judge',), controls=False,"
        " perturbations=('truncate_end',), workers=1, batch_size=1, quiet=True))"
    )
    arguments = [sys.executable, "-c", code]
    paths = f"{tmp_path}:{Path(__file__).parents[2]}:{os.environ.get('PYTHONPATH', '')}"
    slow = {"PYTHONPATH": paths, "ASKED": str(tmp_path / "first")}
    first = subprocess.Popen(arguments, env=os.environ | slow | {"SECONDS_PER_CELL": "0.3"}, stderr=subprocess.DEVNULL)
    wait_until(lambda: bool(stored(store, ".parquet")), first)
    first.kill()
    first.wait()
    shutil.rmtree(working_copy(ADDRESS))
    kept = len(open_run(ADDRESS).trials())
    again = slow | {"ASKED": str(tmp_path / "second"), "SECONDS_PER_CELL": "0"}
    subprocess.run(arguments, env=os.environ | again, check=True, capture_output=True)
    run = open_run(ADDRESS)
    assert 0 < kept < len(run.trials()) == run.record.trials
    assert len((tmp_path / "second").read_text()) == run.record.trials - kept


def test_a_store_without_room_is_one_sentence_and_nothing_is_lost(tiny_data: Path, store: Objects) -> None:
    settings = plan(tiny_data, Path(ADDRESS), perturbations=("none",))
    run = evaluate(settings)
    store.full = True
    with pytest.raises(RunError, match=r"cannot write s3://lab/runs/mine/.*then run the same command again"):
        run.save("more.json", {"a": 1})
    store.full = False
    assert without_time(evaluate(settings)).equals(without_time(run))


def test_names_in_a_store_lead_nowhere_else(tiny_data: Path, tmp_path: Path, store: Objects) -> None:
    evaluate(plan(tiny_data, Path(ADDRESS), perturbations=("none",)))
    store.stored["lab/runs/mine/../../escaped.json"] = b"{}"
    store.stored["lab/runs/mine/trials/../../escaped.json"] = b"{}"
    shutil.rmtree(tmp_path / "cache")
    open_run(ADDRESS)
    assert not list(tmp_path.rglob("escaped.json"))


def test_addresses_are_told_from_folders() -> None:
    assert store_address(Path("s3://lab/runs/mine")) == store_address("s3://lab/runs/mine/") == "s3://lab/runs/mine"
    assert store_address("gs://lab/x") == "gs://lab/x"
    assert store_address("runs/s3") is None and store_address("/tmp/s3:/x") is None
    assert open_run("runs/x") == Run(Path("runs/x"))


def test_a_run_in_googles_store_without_a_key_says_how_to_give_one(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow._gcsfs", reason="this build of pyarrow has no client of Google's store")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "keys.json"))
    with pytest.raises(RunError, match=r"names .*keys.json, which is no file; let GOOGLE_APPLICATION_CREDENTIALS name"):
        evaluate(plan(tiny_data, Path("gs://lab/mine")))
    (tmp_path / "keys.json").write_text('{"type": "nonsense"}')
    with pytest.raises(RunError, match=r"cannot read gs://lab/mine.*access token.*then run the same command again"):
        evaluate(plan(tiny_data, Path("gs://lab/mine")))


def test_a_changed_file_of_the_same_size_is_published(tiny_data: Path, store: Objects) -> None:
    run = evaluate(plan(tiny_data, Path(ADDRESS), perturbations=("none",)))
    for content in (b"<p>one</p>", b"<p>two</p>"):
        (run.folder / "report.html").write_bytes(content)
        run.publish()
        assert store.stored["lab/runs/mine/report.html"] == content


def test_a_reader_of_the_working_copy_sees_no_half_fetched_file(tiny_data: Path, store: Objects) -> None:
    run = evaluate(plan(tiny_data, Path(ADDRESS), perturbations=("none",)))
    before = (run.folder / "run.json").read_bytes()
    with (run.folder / "run.json").open("rb") as reader:
        store.stored["lab/runs/mine/run.json"] += b"\n"
        open_run(ADDRESS)
        assert reader.read() == before
    assert (run.folder / "run.json").read_bytes() == before + b"\n"


def test_shards_in_an_object_store_are_merged(tiny_data: Path, tmp_path: Path, store: Objects) -> None:
    whole = evaluate(plan(tiny_data, tmp_path / "whole", perturbations=("none",)))
    shards = [f"s3://lab/runs/shard-{number}" for number in (1, 2)]
    for number, address in enumerate(shards, start=1):
        evaluate(plan(tiny_data, Path(address), perturbations=("none",), shard=f"{number}/2"))
    shutil.rmtree(tmp_path / "cache")  # as on another machine
    merged = rewardlab.runs_merge(shards, out="s3://lab/runs/merged")
    assert without_time(merged.run).equals(without_time(whole))
    assert "lab/runs/merged/summary.json" in store.stored
