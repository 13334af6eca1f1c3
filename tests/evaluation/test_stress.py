"""The runner with real files and real processes."""

import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Never

import cv2
import numpy as np
import pyarrow as pa
import pytest

import rewardlab
from rewardlab.api import stress_plan
from rewardlab.cli import main
from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError, ModelError, PlanError, RunError
from rewardlab.core.run import Run
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Answer, Trial
from rewardlab.core.video_encoding import encode
from rewardlab.data import DATASETS
from rewardlab.evaluation.evaluate import evaluate, load_episodes
from rewardlab.evaluation.plan import Plan
from rewardlab.evaluation.replay import replay
from rewardlab.models import name_model
from rewardlab.perturbations import PERTURBATIONS
from rewardlab.perturbations.world import WORLD_PERTURBATIONS
from rewardlab.reporting.report import write_report
from tests.command_here import HEARS_CTRL_C
from tests.conftest import IN_PROCESS, ROWS, moving_square, write_rows
from tests.narrowing import known

SOME = ("fixed_pattern_noise", "polite_filler", "truncate_end", "resolution")


def plan(data: Path, out: Path, **changes: object) -> Plan:
    """Return a small plan that runs in this process; tests of worker processes ask for those."""
    settings: dict[str, Any] = {
        "models": ("length",),
        "data": str(data),
        "perturbations": SOME,
        "severities": (1, 4),
        "out": out,
    }
    return stress_plan(settings | {"engine": "local"} | changes)


def without_time(run: Run) -> pa.Table:
    return run.trials().arrow.drop_columns(["seconds"])


def scored(run: Run) -> list[Trial]:
    return run.trials().rows()


def write_model(folder: Path, body: str) -> dict[str, str]:
    """Write a module `judge` with a class Judge; return an environment that can import it."""
    head = "import os, sys, threading\nfrom rewardlab import Score\n\nclass Judge:\n    def score(self, episodes):\n"
    (folder / "judge").mkdir(exist_ok=True)
    (folder / "judge" / "__init__.py").write_text("")
    (folder / "judge" / "model.py").write_text(head + "".join(f"        {line}\n" for line in body.splitlines()))
    return os.environ | {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}


def command(data: Path, out: Path, *more: str) -> list[str]:
    names = ["judge.model:Judge", str(data), "--perturbations", ",".join(SOME), "--out", str(out)]
    return [sys.executable, "-m", "rewardlab", "stress", *names, "--no-controls", *more]


def run_judge(folder: Path, arguments: list[str]) -> int:
    """Run a command, given as `python -m rewardlab ...`, in this process with the folder's `judge`; return its code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        try:
            return main(arguments[3:])
        finally:  # the next test has a `judge` of its own
            for name in ("judge", "judge.model"):
                sys.modules.pop(name, None)


def short_clips(folder: Path, per_level: int) -> Path:
    """Write small clips with the names and tasks of some shipped ones, so many of each level."""
    rows = [json.loads(line) for line in (DATASETS["sample"] / "metadata.jsonl").read_text().splitlines()]
    short = [row for row in rows if row["file_name"].startswith("robometer_page/")]
    chosen = [row for level in range(1, 6) for row in [r for r in short if r["reward"] == level][:per_level]]
    for row in chosen:
        (folder / row["file_name"]).parent.mkdir(parents=True, exist_ok=True)
        encode(moving_square(row["file_name"], count=16, size=64), folder / row["file_name"], fps=10)
    return write_rows(folder, chosen)


def test_every_cell_of_the_plan_is_scored_once(tiny_data: Path, tmp_path: Path) -> None:
    run = evaluate(plan(tiny_data, tmp_path / "run"))
    trials = scored(run)
    models = ("length", "constant", "random", "motion", "end-motion", "change", "oracle")
    assert len(trials) == len({t.id for t in trials}) == len(ROWS) * len(models) * (1 + len(SOME) * 2)
    assert {t.status for t in trials if t.model != "oracle"} == {"scored"}


def drawn(data: str | Path, limit: int | None, seed: int = 0) -> list[Episode]:
    settings = {"models": "length", "data": str(data), "limit": limit, "seed": seed}
    return list(load_episodes(stress_plan(settings)).episodes)


def test_a_limit_draws_from_every_task_and_level_in_turn() -> None:
    every = drawn("sample-sim", None)
    strata = Counter((episode.provenance.task, episode.label.level) for episode in every)
    for limit in (1, 20, len(strata), len(strata) + 7):
        found = drawn("sample-sim", limit)
        counts = Counter((episode.provenance.task, episode.label.level) for episode in found)
        turns = max(counts.values())
        assert len(found) == limit and all(counts[each] >= min(turns - 1, strata[each]) for each in strata)


def test_a_limit_without_labels_draws_from_every_task_in_turn(tmp_path: Path) -> None:
    encode(moving_square("x", count=8, size=64), tmp_path / "a.mp4", fps=10)
    tasks = ["open the door"] * 5 + ["close the door"] * 2 + ["push the cup"]
    data = write_rows(tmp_path, [{"file_name": "a.mp4", "task": task} for task in tasks])
    assert Counter(episode.instruction for episode in drawn(data, 3)) == dict.fromkeys(tasks, 1)
    assert Counter(episode.instruction for episode in drawn(data, 6)) == dict(zip(tasks[::5], (3, 2), strict=True)) | {
        tasks[-1]: 1
    }


def test_a_higher_limit_keeps_the_episodes_of_a_lower_one_and_their_trials(tiny_data: Path, tmp_path: Path) -> None:
    every = [episode.id for episode in drawn("sample-sim", None)]
    found = [[episode.id for episode in drawn("sample-sim", limit)] for limit in (1, 2, 3, 30)]
    assert all(set(few) < set(more) for few, more in pairwise(found))
    assert all(ids == [each for each in every if each in set(ids)] for ids in found)  # in the order of the dataset
    assert found[-1] != [episode.id for episode in drawn("sample-sim", 30, seed=1)]
    few, more = (
        {t.id for t in scored(evaluate(plan(tiny_data, tmp_path / str(n), controls=False, limit=n)))} for n in (3, 4)
    )
    assert few < more
    shown = replay(Run(tmp_path / "4"), allow_code=True)
    assert set(shown.episodes) == {t.episode for t in scored(Run(tmp_path / "4"))}


@pytest.mark.slow
def test_one_worker_or_many_give_the_same_trials(tiny_data: Path, tmp_path: Path) -> None:
    one = evaluate(plan(tiny_data, tmp_path / "one", engine="processes", workers=1, batch_size=3))
    many = evaluate(plan(tiny_data, tmp_path / "many", engine="processes", workers=3, batch_size=1))
    assert without_time(one).equals(without_time(many))
    assert (one.folder / "summary.json").read_bytes() == (many.folder / "summary.json").read_bytes()


def test_a_finished_run_costs_nothing_to_run_again(tiny_data: Path, tmp_path: Path) -> None:
    settings = plan(tiny_data, tmp_path / "run")
    before = evaluate(settings).trials().arrow
    assert evaluate(settings).trials().arrow.equals(before)  # even the seconds are those of the first time


@pytest.mark.slow
def test_a_run_killed_at_a_random_moment_ends_as_if_undisturbed(
    tiny_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Finished cells are on disk and are never asked again; the metrics are the same bit for bit."""
    body = (
        "for e in episodes: sys.stderr.write(f'asked {e.clip.source.digest} {e.instruction}\\n'); sys.stderr.flush()\n"
        "threading.Event().wait(float(os.environ.get('SECONDS_PER_CELL', '0')))\n"
        "return [Score(1 + len(e.instruction) % 5) for e in episodes]"
    )
    environment = write_model(tmp_path, body)
    arguments = command(tiny_data, tmp_path / "killed", "--batch-size", "1", "--workers", "2", "--severities", "1,4")
    slow = environment | {"SECONDS_PER_CELL": "0.1"}
    first = subprocess.Popen(arguments, env=slow, stderr=subprocess.PIPE, text=True)
    errors = known(first.stderr)
    for _ in range(int(rng_for(0, "kill").integers(25, 46))):
        errors.readline()
    first.send_signal(signal.SIGKILL)
    first.wait()
    errors.close()
    kept = {(t.id, t.level) for t in scored(Run(tmp_path / "killed"))}
    assert run_judge(tmp_path, arguments) == 0
    trials = scored(Run(tmp_path / "killed"))
    asked_again = capfd.readouterr().err.count("asked ")
    assert kept, "nothing was on disk when the run was killed"
    assert kept <= {(t.id, t.level) for t in trials}
    assert asked_again == len(trials) - len(kept)
    whole = command(tiny_data, tmp_path / "whole", "--batch-size", "1", "--engine", "local", "--severities", "1,4")
    assert run_judge(tmp_path, whole) == 0
    assert without_time(Run(tmp_path / "killed")).equals(without_time(Run(tmp_path / "whole")))
    summaries = [(tmp_path / name / "summary.json").read_bytes() for name in ("killed", "whole")]
    assert summaries[0] == summaries[1]


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_goes_on(tiny_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = (
        "sys.stderr.write('asked\\n'); sys.stderr.flush()\n"
        "threading.Event().wait(0.02)\n"
        "return [Score(3) for e in episodes]"
    )
    environment = write_model(tmp_path, body)
    arguments = command(tiny_data, tmp_path / "run", "--batch-size", "1", "--severities", "1,4")
    stopped = subprocess.Popen(
        [sys.executable, "-c", HEARS_CTRL_C, *arguments[3:]], env=environment, stderr=subprocess.PIPE, text=True
    )
    errors = known(stopped.stderr)
    for _ in range(20):
        errors.readline()
    stopped.send_signal(signal.SIGINT)
    message = errors.read()
    errors.close()
    assert stopped.wait() == 130
    assert "run the same command again to continue" in message
    assert "Traceback" not in message
    kept = len(scored(Run(tmp_path / "run")))
    assert kept > 0
    assert run_judge(tmp_path, [*arguments, "--engine", "local"]) == 0
    assert capfd.readouterr().err.count("asked") == len(scored(Run(tmp_path / "run"))) - kept


@pytest.mark.slow
def test_a_model_that_raises_answers_nan_or_hangs_costs_only_those_cells(
    tiny_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = (
        "answers = []\n"
        "for e in episodes:\n"
        "    if 'open the drawer' in e.instruction: raise ValueError('the gripper fell off')\n"
        "    if 'fold the towel' in e.instruction: threading.Event().wait()\n"
        "    answers.append(Score(float('nan') if 'close the window' in e.instruction else 5.0))\n"
        "return answers"
    )
    write_model(tmp_path, body)
    flags = ["--timeout", "1", "--workers", "1", "--perturbations", "polite_filler", "--severities", "1"]
    arguments = command(tiny_data, tmp_path / "run", *flags)
    assert run_judge(tmp_path, arguments) == 0
    failures = {t.episode: t.reason for t in scored(Run(tmp_path / "run")) if t.status == "failed" and t.severity == 0}
    assert failures == {
        "arm/b.mp4": "ValueError: the gripper fell off",
        "hand/d.mp4": "level must be a number from 1 to 5, got nan",
        "hand/e.mp4": "no answer within 1 s",
    }
    others = [t for t in scored(Run(tmp_path / "run")) if t.episode not in failures]
    assert {t.status for t in others} == {"scored"}
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    clean = {r["metric"]: (r["scored"], r["asked"]) for r in summary["measurements"] if r["severity"] == 0}
    assert clean["micro_mae"] == (3, 5)  # five episodes have a level, two of them failed
    assert clean["success_accuracy"] == (3, 6)
    assert "3/5" in capfd.readouterr().out


@pytest.mark.slow
def test_a_model_that_kills_its_process_costs_only_that_cell(tiny_data: Path, tmp_path: Path) -> None:
    body = (
        "if any('drawer' in e.instruction for e in episodes): os.kill(os.getpid(), 9)\n"
        "return [Score(2) for e in episodes]"
    )
    write_model(tmp_path, body)
    flags = ["--workers", "1", "--perturbations", "polite_filler", "--severities", "2"]
    arguments = command(tiny_data, tmp_path / "run", *flags)
    assert run_judge(tmp_path, arguments) == 0
    failed = [t for t in scored(Run(tmp_path / "run")) if t.status == "failed"]
    assert {(t.episode, t.reason) for t in failed} == {
        ("arm/b.mp4", "the process of judge.model:Judge ended with exit code -9")
    }
    assert len(scored(Run(tmp_path / "run"))) == len(ROWS) * 2


def test_failed_cells_are_scored_again_only_when_asked(
    tiny_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flag = tmp_path / "broken"
    flag.touch()
    body = f"if os.path.exists({str(flag)!r}): raise OSError('server is down')\nreturn [Score(2) for e in episodes]"
    write_model(tmp_path, body)
    settings = ("--perturbations", "polite_filler", "--severities", "1", "--max-failures", "0", "--engine", "local")
    arguments = command(tiny_data, tmp_path / "run", *settings)
    assert run_judge(tmp_path, arguments) == 3
    assert "failed: 12 x judge.model:Judge: OSError: server is down" in capfd.readouterr().out
    flag.unlink()
    assert run_judge(tmp_path, arguments) == 3  # there is no answer yet
    assert {t.status for t in scored(Run(tmp_path / "run"))} == {"failed"}
    capfd.readouterr()
    assert run_judge(tmp_path, [*arguments, "--retry-failures", "--dry-run"]) == 0
    assert "finished" not in capfd.readouterr().out
    assert run_judge(tmp_path, [*arguments, "--retry-failures"]) == 0
    assert "finished" not in (told := capfd.readouterr().err) and "scoring 12 of 12" in told
    assert {t.status for t in scored(Run(tmp_path / "run"))} == {"scored"}


def test_a_cell_that_fails_again_has_its_newest_reason(tiny_data: Path, tmp_path: Path) -> None:
    words = tmp_path / "words"
    write_model(tmp_path, f"with open({str(words)!r}) as file:\n    raise OSError(file.read())")
    settings = ("--perturbations", "polite_filler", "--severities", "1", "--max-failures", "0", "--engine", "local")
    for word in ("first", "second", "third"):
        words.write_text(word)
        assert run_judge(tmp_path, command(tiny_data, tmp_path / "run", *settings, "--retry-failures")) == 3
        assert {t.reason for t in scored(Run(tmp_path / "run"))} == {f"OSError: {word}"}


def test_a_model_that_cannot_be_built_stops_the_run_with_its_reason(tiny_data: Path, tmp_path: Path) -> None:
    class Broken:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:  # noqa: ARG002
            return []

    def build(_budget: object) -> Never:
        raise ModelError("no weights at /nowhere")

    from rewardlab.models.contract import NamedModel

    broken = NamedModel("broken", "0", False, build)
    with pytest.raises(ModelError, match="no weights at /nowhere"):
        evaluate(plan(tiny_data, tmp_path / "run", models=broken))


def test_bad_rows_stop_the_run_before_any_work_or_are_left_out(tmp_path: Path) -> None:
    encode(moving_square("x"), tmp_path / "good.mp4", fps=10)
    (tmp_path / "cut.mp4").write_bytes((tmp_path / "good.mp4").read_bytes()[:900])
    (tmp_path / "zero.mp4").touch()
    rows: list[dict[str, object] | str] = [
        {"file_name": "good.mp4", "task": "open the door", "reward": 5},
        {"file_name": "cut.mp4", "task": "t", "reward": 5},
        {"file_name": "zero.mp4", "task": "t", "reward": 5},
        {"file_name": "gone.mp4", "task": "t", "reward": 5},
        {"file_name": "good.mp4", "task": "t", "reward": 7},
        {"file_name": "good.mp4", "task": "", "reward": 5},
        "not json",
    ]
    data = write_rows(tmp_path, rows)
    settings = plan(data, tmp_path / "run", perturbations=("gaussian_noise",))
    with pytest.raises(DataError, match=r"has 6 bad rows.*--skip-invalid\n  line 2: "):
        evaluate(settings)
    assert not (tmp_path / "run").exists()
    run = evaluate(replace(settings, skip_invalid=True))
    assert {t.episode for t in scored(run)} == {"good.mp4"}
    assert [row.place for row in run.record.skipped] == [f"line {line}" for line in range(2, 8)]
    assert "6</b> bad rows left out" in write_report([run], run.folder / "report.html").read_text()


def test_a_video_that_breaks_after_the_check_fails_only_its_own_cells(tmp_path: Path) -> None:
    from rewardlab.evaluation.evaluate import scoring_context
    from rewardlab.evaluation.plan import bundle_jobs
    from rewardlab.evaluation.plan import plan_trials as plan_cells
    from rewardlab.evaluation.scoring import Listeners, score_job

    for name in ("a", "b"):
        encode(moving_square(name), tmp_path / f"{name}.mp4", fps=10)
    data = write_rows(tmp_path, [{"file_name": f"{n}.mp4", "task": f"task {n}", "reward": 5} for n in ("a", "b")])
    settings = plan(data, tmp_path / "run")
    contents = load_episodes(settings)
    context = scoring_context(settings, contents.episodes)
    jobs = list(bundle_jobs(plan_cells(contents.episodes, context, (1,)), 1))
    (tmp_path / "a.mp4").unlink()
    trials: list[Trial] = []
    for job in jobs:
        models = {name: model.build() for name, model in context.models.items()}
        score_job(job, context, models, Listeners(lambda _cells: None, lambda _drafts: None, trials.extend))
    broken = [t for t in trials if t.episode == "a.mp4"]
    assert {t.status for t in broken} == {"failed"}
    assert all("does not exist" in (t.reason or "") for t in broken)
    assert "failed" not in {t.status for t in trials if t.episode == "b.mp4"}


def test_another_plan_does_not_write_into_a_run(tiny_data: Path, tmp_path: Path) -> None:
    evaluate(plan(tiny_data, tmp_path / "run"))
    with pytest.raises(RunError, match="other settings"):
        evaluate(plan(tiny_data, tmp_path / "run", seed=1))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"severities": (5,)}, "severities"),
        ({"models": ()}, "at least one model"),
        ({"batch_size": 0}, "batch-size"),
        ({"limit": 0}, "limit"),
        ({"timeout": float("nan")}, "timeout and load-timeout must be seconds above 0"),
        ({"load_timeout": float("inf")}, "timeout and load-timeout must be seconds above 0"),
        ({"max_cost": float("nan")}, "max-cost must be 0 or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan(Path("x"), Path("y"), **changes)


@pytest.mark.slow
def test_the_oracle_is_perfect_under_every_label_preserving_change_at_every_severity(tmp_path: Path) -> None:
    data = short_clips(tmp_path / "data", per_level=1)
    run = evaluate(
        plan(
            data, tmp_path / "run", models=("oracle",), controls=False, perturbations=("all",), severities=(1, 2, 3, 4)
        )
    )
    summary = json.loads((run.folder / "summary.json").read_text())
    preserving = {p.name for p in PERTURBATIONS.values() if p.expect == "same" and p not in WORLD_PERTURBATIONS}
    rows = [r for r in summary["measurements"] if r["group"] in preserving and r["scored"]]
    undefined = preserving - {r["group"] for r in rows}  # no cell of these five clips, e.g. no number in the text
    assert len(undefined) <= len(preserving) // 10, undefined
    assert {r["severity"] for r in rows} == {0, 1, 2, 3, 4}
    assert {r["value"] for r in rows if r["metric"] in ("macro_mae", "micro_mae")} == {0.0}
    taus = [r for r in rows if r["metric"] == "kendall_tau_b"]
    ordered = [r for r in taus if r["scored"] > 1]  # one clip alone has no order
    assert all(r["value"] == pytest.approx(1.0) for r in ordered)
    assert all(r["value"] is None for r in taus if r["scored"] == 1)
    assert len(ordered) >= 0.95 * len(taus)


def test_a_model_given_as_an_object_is_judged_without_truth_or_names(tiny_data: Path, tmp_path: Path) -> None:
    class Nosy:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            leaks = [(e.id, e.label.level, e.label.success, e.provenance.task) for e in episodes]
            return [rewardlab.Score(3, raw=repr(leak)) for leak in leaks]

    run = rewardlab.stress(
        Nosy(),
        tiny_data,
        perturbations=("codec", "task_swap"),
        severities=(2,),
        execution=IN_PROCESS,
        out=tmp_path / "run",
    )
    said = {t.raw for t in scored(run) if t.model == "Nosy"}
    assert said == {"('', None, None, '')"}
    assert (run.folder / "report.html").exists()


def test_trials_carry_the_frames_that_were_shown(tiny_data: Path, tmp_path: Path) -> None:
    run = evaluate(
        plan(tiny_data, tmp_path / "run", frames="uniform:4", perturbations=("truncate_end",), severities=(3,))
    )
    a = {t.severity: t for t in scored(run) if t.episode == "arm/a.mp4" and t.model == "length"}
    assert a[0].shown == (0, 4, 9, 13)
    assert a[3].shown == (0, 2, 4, 6)
    assert a[0].frames_hash != a[3].frames_hash


def test_known_progress_relabels_a_truncated_clip_and_unknown_progress_only_bounds_it(
    tiny_data: Path, tmp_path: Path
) -> None:
    run = evaluate(plan(tiny_data, tmp_path / "run", perturbations=("truncate_end",), severities=(3,)))
    cut = {t.episode: t for t in scored(run) if t.severity == 3 and t.model == "length"}
    assert (cut["hand/f.mp4"].expectation, cut["hand/f.mp4"].truth_level) == ("relabel", 2)  # progress 9/25
    assert (cut["arm/a.mp4"].expectation, cut["arm/a.mp4"].truth_level) == ("lower", None)


def test_a_model_that_writes_to_its_frames_spoils_nobody_elses(tiny_data: Path, tmp_path: Path) -> None:
    class Vandal:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            for episode in episodes:
                episode.frames[...] = 0
            return [rewardlab.Score(1)] * len(episodes)

    class Eye:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            return [rewardlab.Score(1 + 4 * float(e.frames.mean()) / 255) for e in episodes]

    both = [name_model(Vandal()), name_model(Eye())]
    settings: dict[str, Any] = {"controls": False, "max_failures": 0}  # it fails everywhere, and the run goes on
    together = evaluate(plan(tiny_data, tmp_path / "both", models=both, **settings))
    alone = evaluate(plan(tiny_data, tmp_path / "alone", models=both[1:], **settings))
    levels = [{(t.id, t.level) for t in scored(run) if t.model == "Eye"} for run in (together, alone)]
    assert levels[0] == levels[1]


def test_a_model_sees_only_the_frames_that_are_shown(tiny_data: Path, tmp_path: Path) -> None:
    class Peeper:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            return [rewardlab.Score(3, raw=f"{e.clip.source.count} {e.clip.order.tolist()}") for e in episodes]

    settings: dict[str, Any] = {
        "perturbations": ("truncate_end", "reverse"),
        "severities": (4,),
        "out": tmp_path / "run",
    }
    run = rewardlab.stress(Peeper(), tiny_data, execution=IN_PROCESS, **settings)
    for trial in (t for t in scored(run) if t.model == "Peeper"):
        assert trial.raw == f"{len(trial.shown)} {list(range(len(trial.shown)))}"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("Score(None)", "level must be a number from 1 to 5, got None"),
        ("Score('4')", "level must be a number from 1 to 5, got '4'"),
        ("Score(True)", "level must be a number from 1 to 5, got True"),
        ("Score([3])", "level must be a number from 1 to 5, got [3]"),
        ("Score(1, probabilities='10000')", "probabilities must be five numbers that sum to 1, got 10000"),
        ("Score(1, probabilities=[True, False, False, False, False])", "probabilities must be five numbers"),
        ("Score(3, progress='0123')", "progress must be 4 finite numbers"),
        ("Score(3, progress={0: 0, 1: 0, 2: 0, 3: 0})", "progress must be 4 finite numbers"),
        ("Score(3, progress=[0, 0, 0, 1e308])", "progress must be 4 finite numbers"),
        ("Score(3, probabilities=0.5)", "iterable"),
        ("Failure(ValueError('no camera'))", "no camera"),
        ("[5]", "expected a Score, a number from 1 to 5 or a Failure, got list"),
    ],
)
def test_an_odd_answer_is_a_failure_with_its_reason(answer: str, reason: str) -> None:
    from rewardlab.core.trial import Failure, Score, validate_answer

    made = validate_answer(eval(answer, {"Score": Score, "Failure": Failure}), 4)
    assert isinstance(made, Failure) and reason in made.reason


@pytest.mark.slow
def test_odd_text_and_odd_numbers_in_an_answer_are_kept_as_plain_ones(tiny_data: Path, tmp_path: Path) -> None:
    class Odd:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            two: Any = np.float32(2)
            return [rewardlab.Score(two, tuple(np.eye(5)[1]), raw="cut \ud83d") for _ in episodes]

    settings: dict[str, Any] = {"perturbations": ("jpeg",), "severities": (1,), "execution": IN_PROCESS}
    run = rewardlab.stress(Odd(), tiny_data, out=tmp_path / "run", **settings)
    assert {(t.level, t.raw) for t in scored(run) if t.model == "Odd"} == {(2.0, "cut ?")}


def test_the_same_object_goes_on_with_its_run_and_an_edited_one_does_not(tiny_data: Path, tmp_path: Path) -> None:
    class Fixed:
        def __init__(self, level: float) -> None:
            self.level = level

        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            return [rewardlab.Score(self.level)] * len(episodes)

    settings: dict[str, Any] = {
        "perturbations": ("jpeg",),
        "severities": (1,),
        "execution": IN_PROCESS,
        "out": tmp_path / "run",
    }
    first = rewardlab.stress(Fixed(2), tiny_data, **settings).trials().arrow
    assert rewardlab.stress(Fixed(2), tiny_data, **settings).trials().arrow.equals(first)
    with pytest.raises(RunError, match="other settings"):
        rewardlab.stress(Fixed(3), tiny_data, **settings)
    with pytest.raises(ModelError, match="make one"):
        rewardlab.stress(Fixed, tiny_data, **settings)


def test_an_edited_perturbation_or_a_renamed_episode_does_not_join_an_old_run(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from rewardlab.perturbations.contract import on_instruction\n"
        "@on_instruction('semantic', parameter='n', table=(1, 2, 3, 4))\n"
        "def shout(text, n, rng):\n    '''Shout.'''\n    return text + '!' * n\n"
    )
    (tmp_path / "shouting.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    data = tmp_path / "data"
    shutil.copytree(tiny_data, data)
    settings = plan(data, tmp_path / "run", perturbations=("shouting:shout",))
    evaluate(settings)
    (tmp_path / "shouting.py").write_text(code + "# edited\n")
    with pytest.raises(RunError, match="other settings"):
        evaluate(settings)
    (tmp_path / "shouting.py").write_text(code)
    rows = (data / "metadata.jsonl").read_text().replace("arm/a.mp4", "arm/z.mp4")
    (data / "metadata.jsonl").write_text(rows)
    (data / "arm" / "a.mp4").rename(data / "arm" / "z.mp4")
    with pytest.raises(RunError, match="other settings"):
        evaluate(settings)


@pytest.mark.slow
def test_a_model_that_does_not_load_in_time_or_dies_loading_is_said(tiny_data: Path, tmp_path: Path) -> None:
    import threading

    from rewardlab.models.contract import NamedModel

    apart = {"engine": "processes"}

    def never_loads(_budget: object) -> Never:
        while True:
            threading.Event().wait()

    slow = NamedModel("slow", "0", False, never_loads)
    with pytest.raises(ModelError, match="did not load in time"):
        evaluate(plan(tiny_data, tmp_path / "a", models=slow, load_timeout=3.0, **apart))
    dying = NamedModel("dying", "0", False, lambda _budget: os._exit(3))
    with pytest.raises(ModelError, match="exit code 3 while it loaded"):
        evaluate(plan(tiny_data, tmp_path / "b", models=dying, **apart))


def test_what_a_model_raises_while_it_loads_becomes_a_sentence_with_its_traceback(
    tiny_data: Path, tmp_path: Path
) -> None:
    from rewardlab.models.contract import NamedModel

    def refuse(_budget: object) -> Never:
        raise ValueError("no weights here\n  look there\n")

    with pytest.raises(ModelError) as caught:
        evaluate(plan(tiny_data, tmp_path / "run", models=NamedModel("mine", "0", False, refuse)))
    sentence, trace = str(caught.value).split("\n", 1)
    assert sentence == "cannot load a model: mine raised ValueError: no weights here look there"
    assert "test_stress.py" in trace and "in refuse" in trace


def test_the_page_of_an_unfinished_run_says_so(tiny_data: Path, tmp_path: Path) -> None:
    run = evaluate(plan(tiny_data, tmp_path / "run"))
    half = run.trials()
    (part,) = run.parts()
    part.unlink()
    (run.folder / "summary.json").unlink()
    run.append(half.rows()[:20])
    html = write_report([run], run.folder / "report.html").read_text()
    assert f"{len(half) - 20} trials of the plan are not scored yet" in html
    assert "Every trial was scored" not in html


@pytest.mark.slow
def test_a_video_too_large_to_be_decoded_for_all_cells_at_once_gives_the_same_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Eye:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            return [rewardlab.Score(1 + 4 * float(e.frames.mean()) / 255) for e in episodes]

    encode(moving_square("x", size=160), tmp_path / "large.mp4", fps=10)  # 20 frames of 77 kB
    data = write_rows(tmp_path, [{"file_name": "large.mp4", "task": "push the block", "reward": 5}])
    settings: dict[str, Any] = {
        "frames": "uniform:8",
        "perturbations": ("truncate_end", "jpeg"),
        "execution": IN_PROCESS,
    }
    runs = []
    for most in ("1", "100"):
        monkeypatch.setenv("REWARDLAB_MAX_CLIP_MB", most)
        runs.append(rewardlab.stress(Eye(), data, out=tmp_path / most, **settings))
    assert without_time(runs[0]).equals(without_time(runs[1]))
    assert {t.status for t in scored(runs[0]) if t.model == "Eye"} == {"scored"}


def test_opencv_from_another_package_is_recorded(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.metadata.distribution

    def distribution(name: str) -> importlib.metadata.Distribution:
        if name.startswith("opencv"):  # as where conda or the system brings OpenCV
            raise importlib.metadata.PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    run = rewardlab.stress("length", tiny_data, perturbations="none", limit=1, out=tmp_path, execution=IN_PROCESS)
    assert cv2.__version__ in known(run.stored("run.json"))["versions"].values()


def test_the_perturbation_that_was_drawn_is_kept_with_the_trial(tmp_path: Path) -> None:
    chosen = ("random:visual", "resolution")
    run = evaluate(plan(DATASETS["sample-sim"], tmp_path / "run", perturbations=chosen, limit=4))
    trials = list(run.trials().rows())
    drawn = {(t.episode, t.drawn) for t in trials if t.perturbation == "random:visual"}
    assert len(drawn) == 4 and all(PERTURBATIONS[name or ""].category == "visual" for _, name in drawn)
    assert {t.drawn for t in trials if t.perturbation != "random:visual"} == {None}
