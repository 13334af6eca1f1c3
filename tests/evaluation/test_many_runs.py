"""Many runs: listed, filtered, asked in SQL, joined, removed, and shards put together where they belong together."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import PlanError, RunError
from rewardlab.core.run import SUMMARY, Run
from rewardlab.core.settings import Execution, Sharding
from rewardlab.core.storage import locked
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.reporting.command_text import run_table
from tests.conftest import IN_PROCESS
from tests.narrowing import known
from tests.plans import stress_plan

MODEL = """
from rewardlab import Score

class Fixed:
    def score(self, episodes):
        return [Score(2.0) for _ in episodes]
"""


def make_run(
    out: Path, data: Path, model: str = "length", severities: tuple[int, ...] = (1, 4), shard: str = ""
) -> None:
    scoring = dict(workers=1, quiet=True, shard=shard, engine="local", out=out)
    evaluate(stress_plan((model,), str(data), ("jpeg", "reverse"), severities, controls=False, **scoring))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Path:
    """A whole run, the same plan in two shards, and a run of another plan."""
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "whole", tiny_data)
    for part in ("1", "2"):
        make_run(folder / "shards" / part, tiny_data, shard=f"{part}/2")
    make_run(folder / "other", tiny_data, "constant", (2,))
    return folder


def test_names_that_differ_at_their_ends_differ_in_the_table(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"{'hf-some-long-model-name-' * 3}sample-{end}" for end in ("0a1b2c3d", "4e5f6a7b")]
    for name in names:
        shutil.copytree(runs / "whole", tmp_path / name)
    assert main(["runs", "list", str(tmp_path)]) == 0
    shown = "".join(line.split(" ")[0] for line in capsys.readouterr().out.splitlines()[1:])
    assert all(name in shown for name in names)


def test_a_narrow_table_of_runs_cuts_models_and_data_and_keeps_names_and_headings(runs: Path) -> None:
    console = Console(width=50)
    with console.capture() as shown:
        console.print(run_table(rewardlab.runs_list(runs, where="state=scored")))
    headings, *lines = shown.get().splitlines()
    assert headings.split()[:4] == ["run", "state", "trials", "created"]
    assert [line.split()[:3] for line in lines] == [[f"shards/{n}", "scored", "15/30"] for n in (1, 2)]


def test_runs_are_listed_with_how_far_they_got(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {entry.name: entry for entry in rewardlab.runs_list(runs)}
    assert set(found) == {"whole", "other", "shards/1", "shards/2"}
    whole, shard = found["whole"], found["shards/1"]
    assert (whole.state, whole.trials, whole.planned, whole.models, whole.episodes) == (
        "finished",
        30,
        30,
        ("length",),
        6,
    )
    assert (shard.state, shard.trials, shard.planned) == ("scored", 15, 30)
    assert main(["runs", "list", str(runs)]) == 0
    out = capsys.readouterr().out
    assert "15/30" in out and "finished" in out
    assert main(["runs", "list", str(runs), "--json", "--where", "state=scored"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["name"] for row in rows] == ["shards/1", "shards/2"]


@pytest.mark.parametrize(
    ("where", "names"),
    [
        (("model=len*",), {"whole", "shards/1", "shards/2"}),
        (("model=length", "state=finished"), {"whole"}),
        ("name=sh*", {"shards/1", "shards/2"}),
        ("kind=bench", set()),
        ("before=2020-01-01", set()),
        ("after=2020-01-01", {"whole", "other", "shards/1", "shards/2"}),
    ],
)
def test_conditions_keep_some(runs: Path, where: tuple[str, ...], names: set[str]) -> None:
    assert {entry.name for entry in rewardlab.runs_list(runs, where=where)} == names


def test_a_broken_run_is_listed_and_hides_no_other(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "copy")
    (tmp_path / "copy" / "other" / "run.json").write_text('{"kind": ')
    found = {entry.name: entry for entry in rewardlab.runs_list(tmp_path / "copy")}
    assert found["other"].state == "unreadable" and "is no record of a run" in found["other"].problem
    assert found["whole"].state == "finished"
    with pytest.raises(PlanError, match="a condition must be KEY=PATTERN with a key among name, kind"):
        rewardlab.runs_list(tmp_path, where="colour=red")
    with pytest.raises(PlanError, match="no folder at"):
        rewardlab.runs_list(tmp_path / "nowhere")


def test_sql_says_what_the_trials_say(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    sql = "SELECT run, perturbation, avg(level) AS mean, count(*) AS n FROM trials GROUP BY ALL ORDER BY ALL"
    answer = rewardlab.runs_sql(sql, runs, where="name=whole").to_pylist()
    trials = Run(runs / "whole").trials().rows()
    for row in answer:
        levels = [known(trial.level) for trial in trials if trial.perturbation == row["perturbation"]]
        assert row["mean"] == pytest.approx(sum(levels) / len(levels)) and row["n"] == len(levels)
    joined = "SELECT r.state, count(*) AS n FROM trials t JOIN runs r ON t.run = r.name GROUP BY ALL ORDER BY ALL"
    assert rewardlab.runs_sql(joined, runs).to_pylist() == [
        {"state": "finished", "n": 48},
        {"state": "scored", "n": 30},
    ]
    (row,) = rewardlab.runs_sql("SELECT max(len(shown)) AS most FROM trials", runs).to_pylist()
    assert row["most"] == max(len(trial.shown) for trial in trials)
    assert main(["runs", "sql", "SELECT count(*) AS all_trials FROM trials", str(runs)]) == 0
    assert capsys.readouterr().out.split() == ["all_trials", "78"]


def test_trials_of_many_runs_are_joined_in_one_file(runs: Path, tmp_path: Path) -> None:
    for name in ("all.parquet", "all.csv"):
        assert main(["runs", "join", str(runs), "--out", str(tmp_path / name), "--where", "state=finished"]) == 0
    table = pq.read_table(tmp_path / "all.parquet")
    assert table.num_rows == 48 and set(table["run"].to_pylist()) == {"whole", "other"}
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 49
    assert main(["runs", "join", str(runs), "--out", str(tmp_path / "all.xlsx")]) == 2


def test_runs_are_removed_only_where_it_is_meant(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(runs, folder)
    (folder / "link").symlink_to(runs / "whole")
    assert main(["runs", "prune", str(folder)]) == 2  # without a condition
    assert main(["runs", "prune", str(folder), "--where", ""]) == 2
    assert main(["runs", "prune", str(folder), "--where", "state=scored"]) == 0
    assert len(rewardlab.runs_list(folder)) == 4  # nobody said yes
    with locked(folder / "shards" / "1"):
        assert other_process_says(folder) == 2
    assert (folder / "shards" / "2").exists()  # none is removed where one is being written
    (folder / "no run").mkdir()
    (folder / "no run" / "run.json").write_text('{"of": "another program"}')
    assert main(["runs", "prune", str(folder), "--where", "name=*", "--yes"]) == 2
    assert len(rewardlab.runs_list(folder)) == 5  # nor is anything where a run.json is somebody else's
    shutil.rmtree(folder / "no run")
    assert main(["runs", "prune", str(folder), "--where", "state=scored", "--yes"]) == 0
    assert {entry.name for entry in rewardlab.runs_list(folder)} == {"whole", "other"} and (runs / "whole").is_dir()


def test_a_run_is_open_only_while_its_command_would_go_on(runs: Path, tiny_data: Path, tmp_path: Path) -> None:
    here = Execution(engine="local", quiet=True)
    rewardlab.relabel(tiny_data, model="length", run=tmp_path / "relabel", out=tmp_path / "p.parquet", execution=here)
    rewardlab.attack("length", tiny_data, perturbations="jpeg", queries=1, out=tmp_path / "attack", execution=here)
    shutil.copytree(runs / "shards" / "1", tmp_path / "shard")
    rewardlab.runs_merge([tmp_path / "shard", runs / "shards" / "1"], out=tmp_path / "half")
    shutil.copytree(tmp_path / "relabel", tmp_path / "stopped")
    stopped = Run(tmp_path / "stopped")
    some = stopped.trials().rows()[:2]
    for path in stopped.parts():
        path.unlink()
    stopped.append(some)
    states = {entry.name: entry.state for entry in rewardlab.runs_list(tmp_path)}
    done = {"relabel": "finished", "attack": "finished", "shard": "scored"}
    assert states == done | {"half": "open", "stopped": "open"}
    assert main(["runs", "prune", str(tmp_path), "--where", "state=open", "--yes"]) == 0
    assert {entry.name for entry in rewardlab.runs_list(tmp_path)} == set(done)


def other_process_says(folder: Path) -> int:
    """The exit code of a prune in another process: a file lock binds others only."""
    import subprocess
    import sys

    command = [sys.executable, "-m", "rewardlab", "runs", "prune", str(folder), "--where", "state=scored", "--yes"]
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_shards_put_together_are_the_whole_run(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards = [runs / "shards" / part for part in ("1", "2")]
    assert not any((shard / SUMMARY).exists() for shard in shards)
    made = rewardlab.runs_merge(shards, out=tmp_path / "merged")
    assert (made.trials, made.planned, made.notes) == (30, 30, ())
    merged, whole = ([replace(t, seconds=0) for t in run.trials().rows()] for run in (made.run, Run(runs / "whole")))
    assert merged == whole
    assert made.run.summary == Run(runs / "whole").summary
    assert "--shard" in Run(shards[0]).record.command and "--shard" not in Run(tmp_path / "merged").record.command
    again = [str(shards[0]), str(tmp_path / "merged")]
    assert main(["runs", "merge", *again, "--out", str(tmp_path / "again")]) == 0
    assert "30 of 30 trials, complete" in capsys.readouterr().out
    shutil.copytree(shards[0], tmp_path / "copy")
    part = rewardlab.runs_merge([shards[0], tmp_path / "copy"], out=tmp_path / "part")
    assert part.trials == 15 and not (part.run.folder / SUMMARY).exists()


def test_what_does_not_belong_together_is_refused(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"are no shards of one run: the model length was removed.*severities was 1,4"):
        rewardlab.runs_merge([runs / "whole", runs / "other"], out=tmp_path / "out")
    with pytest.raises(PlanError, match="name at least two run folders"):
        rewardlab.runs_merge([runs / "whole"], out=tmp_path / "out")
    other = tmp_path / "version"
    shutil.copytree(runs / "shards" / "2", other)
    content = known(Run(other).stored("run.json"))
    Run(other).save("run.json", content | {"versions": {**content["versions"], "numpy": "1.0"}})
    assert (
        rewardlab.runs_merge([runs / "shards" / "1", other], out=tmp_path / "noted")
        .notes[0]
        .startswith("shards were made with")
    )
    Run(other).save("run.json", content | {"versions": {**content["versions"], "rewardlab": "0.0"}})
    with pytest.raises(RunError, match=r"were made by rewardlab .* and 0\.0; use one version"):
        rewardlab.runs_merge([runs / "shards" / "1", other], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_shards_of_two_machines_are_put_together(tiny_data: Path, tmp_path: Path) -> None:
    """Data and code lie at other paths there, and were written at other times."""
    for part in ("1", "2"):
        data, code = tmp_path / part / "data", tmp_path / part / "shardlab.py"
        shutil.copytree(tiny_data, data)
        code.write_text(MODEL)
        for path in (code, *data.rglob("*.*")):
            os.utime(path, (int(part), int(part)))
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(code.parent))
            make_run(tmp_path / part / "run", data, "shardlab:Fixed", shard=f"{part}/2")
            sys.modules.pop("shardlab")
    made = rewardlab.runs_merge([tmp_path / part / "run" for part in ("1", "2")], out=tmp_path / "whole")
    assert made.planned == made.trials == 30


def test_a_run_does_not_go_on_with_a_model_that_has_moved_on(tiny_data: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        (tmp_path / "shardlab.py").write_text(MODEL)
        make_run(tmp_path / "run", tiny_data, "shardlab:Fixed")
        sys.modules.pop("shardlab")
        (tmp_path / "shardlab.py").write_text(MODEL.replace("2.0", "4.25"))
        with pytest.raises(RunError, match="it was made with another version of shardlab:Fixed"):
            make_run(tmp_path / "run", tiny_data, "shardlab:Fixed")
        sys.modules.pop("shardlab")


def test_shards_that_disagree_are_refused(runs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(runs / "whole", other)
    run = Run(other)
    table = run.trials().arrow
    levels = [3.5 if level is not None else None for level in table["level"].to_pylist()]
    place = table.schema.get_field_index("level")
    for path in run.parts():
        path.unlink()
    run.append_table(table.set_column(place, table.schema.field(place), [levels]))
    with pytest.raises(RunError, match=r"the shards disagree on trial \w+: .* says .* and .* 3\.5"):
        rewardlab.runs_merge([runs / "shards" / "1", other], out=tmp_path / "out")


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/99999999"])
def test_a_shard_that_is_none_is_said(shard: str, tiny_data: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="shard must be I/N with I from 1 to N"):
        rewardlab.stress("length", tiny_data, execution=IN_PROCESS, sharding=Sharding(shard), out=tmp_path)


@pytest.mark.parametrize("command", ["bench", "attack", "fit calibration", "fit guard"])
def test_only_a_stress_test_is_scored_in_shards(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "length", "sample", "--shard", "1/2"]) == 2
    assert f"{command} takes no '--shard'" in capsys.readouterr().err


def test_an_attack_describes_no_failures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attack", "length", "sample", "--describe-failures", "2"]) == 2
    assert "attack takes no '--describe-failures'" in capsys.readouterr().err


def test_progress_and_forecast_of_a_shard_count_its_own_trials(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["stress", "length", str(tiny_data), "--perturbations", "jpeg", "--severities", "1", "--no-controls"]
    words += ["--engine", "local", "--out", str(tmp_path / "run")]
    for part in ("1", "2"):  # both in one folder: what the other shard scored is no progress of this one
        assert main([*words, "--shard", f"{part}/2", "--dry-run"]) == 0
        assert "6 trials (3 episodes x 2 conditions x 1 model); " in capsys.readouterr().out
        assert main([*words, "--shard", f"{part}/2"]) == 0
        told = capsys.readouterr().err
        assert "6 trials (3 episodes x 2 conditions x 1 model); " in told and told.count("scoring 6 of 6") == 1
    assert main([*words, "--shard", "2/2", "--dry-run"]) == 0
    assert "6 trials (3 episodes x 2 conditions x 1 model), 6 of them finished" in capsys.readouterr().out
    assert main([*words, "--dry-run"]) == 0
    assert "12 trials (6 episodes x 2 conditions x 1 model), 12 of them finished" in capsys.readouterr().out
