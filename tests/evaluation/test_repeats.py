"""`--repeats`: the same question asked again, for the noise floor alone, through a scripted server and the controls."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.cli import main
from rewardlab.core.errors import RunError
from rewardlab.core.run import Run
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.evaluation.compare import compare_runs, finding
from rewardlab.evaluation.findings import verdict
from rewardlab.evaluation.summary import load_summary
from rewardlab.models import load_model, name_model
from rewardlab.reporting.report import write_report
from rewardlab.reporting.terminal_summary import drop_lines
from tests.conftest import ROWS
from tests.models.loopback import Call, ChatServer, chat_server
from tests.narrowing import known

CONDITIONS = 2  # clean, and one perturbation at one severity


def steady(call: Call) -> None:
    call.say(f"ANSWER: {1 + len(call.task) % 5}")


def wavering(call: Call) -> None:
    """One level on every first asking, another on the second, the first again on the third."""
    call.say(f"ANSWER: {(3, 4, 3)[call.before % 3]}")


def stress(server: ChatServer, data: Path, out: Path, *more: str, model: str = "") -> int:
    few = ["--perturbations", "low_light", "--severities", "4", "--engine", "local"]
    return main(["stress", model or server.model(), str(data), "--out", str(out), *few, *more])


def columns(run: Run, *, repeats: bool = False) -> list[dict[str, Any]]:
    return run.trials(repeats=repeats).records(("id", "model", "episode", "perturbation", "level", "repeat"))


@pytest.mark.slow
def test_repeats_ask_anew_and_leave_the_trials_and_every_number_as_they_are(tiny_data: Path, tmp_path: Path) -> None:
    questions = CONDITIONS * len(ROWS)
    with chat_server(wavering) as server:
        assert stress(server, tiny_data, tmp_path / "once") == 0
        assert len(server.bodies) == questions
        server.asked.clear()
        assert stress(server, tiny_data, tmp_path / "thrice", "--repeats", "3") == 0
        assert len(server.bodies) == 4 * questions  # no answer stood in for another
        assert stress(server, tiny_data, tmp_path / "thrice", "--repeats", "3") == 0
        assert len(server.bodies) == 4 * questions  # and none is paid for twice
        judge = server.model()
    once, thrice = Run(tmp_path / "once"), Run(tmp_path / "thrice")
    assert columns(thrice) == columns(once)  # ids among them
    every = columns(thrice, repeats=True)
    assert len(every) == thrice.record.trials == once.record.trials + 2 * questions
    assert {row["model"] for row in every if row["repeat"]} == {judge}  # the controls cost nothing more
    assert len({row["id"] for row in every}) == len(every)
    before, after = (load_summary(run) for run in (once, thrice))
    assert after.measurements == before.measurements and after.bootstrap == before.bootstrap
    assert before.noise == () and all(drop.noise_floor is None for drop in before.drops)


def test_the_noise_floor_is_that_of_the_answers_and_stands_beside_every_difference(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(wavering) as server:
        assert stress(server, tiny_data, tmp_path / "run", "--repeats", "3") == 0
        judge = server.model()
    run = Run(tmp_path / "run")
    summary = load_summary(run)
    noise = known(summary.noise_of(judge))
    assert (noise.askings, noise.deterministic) == (3, False)
    assert noise.changed == pytest.approx(2 / 3) and noise.level_deviation == pytest.approx(3**-0.5)
    assert noise.scored == noise.asked == CONDITIONS * len(ROWS)
    # Errors of 3, 4 and 3 differ by one, so each has variance 1/3. Two independent means over two subsets of 3 and 2
    # clips with a level add up.
    assert noise.macro_mae == pytest.approx(1.96 * np.sqrt(2 * (1 / 3) * (3 / 6**2 + 2 / 4**2)), rel=1e-3)
    control = known(summary.noise_of("length"))
    assert (control.askings, control.deterministic, control.changed, control.macro_mae) == (1, True, 0, 0)
    held = summary.paired_reference_of(judge, "visual", 4, "macro_mae")
    assert held.noise_floor is not None and held.noise_floor > 0
    (check, *_) = [c for c in summary.controls if c.where == "clean" and c.metric == "micro_mae"]
    assert check.noise_floor == pytest.approx(1.96 * np.sqrt(1 / 3 / 5), rel=1e-3)
    said = " ".join(capsys.readouterr().out.split())
    assert "noise floor" in said and "Asked 3 times" in said
    page = write_report([run], tmp_path / "report.html").read_text()
    assert 'id="noise-floor"' in page and "always alike" in page and ", noise " in page
    assert "Asked 3 times" in (tmp_path / "report" / "card.md").read_text()


def test_a_drop_below_the_noise_floor_is_no_drop(tiny_data: Path, tmp_path: Path) -> None:
    """Every second claim of success comes, whatever is shown; on one clean clip it happens to come first."""
    done = [str(row["task"]) for row in ROWS if row.get("reward") == 5]

    def react(call: Call) -> None:
        task = next((task for task in done if task.split()[-1] in call.task), "")
        turn = call.before + (call.task != done[0])
        call.say(f"ANSWER: {5 if task and turn % 2 == 0 else 1}")

    few = ["--perturbations", "polite_filler", "--severities", "1", "--engine", "local", "--repeats", "4"]
    with chat_server(react) as server:
        assert main(["stress", server.model(), str(tiny_data), "--out", str(tmp_path / "run"), *few]) == 0
    summary = load_summary(Run(tmp_path / "run"))
    (drop,) = summary.drops
    assert drop.drop == pytest.approx(1 / 6)  # of six clips, one was judged rightly when clean and wrongly when changed
    assert drop.noise_floor == pytest.approx(1.96 * np.sqrt(4 * (1 / 3)) / 6, rel=1e-3)
    assert drop.is_noise
    (said,) = verdict(summary)
    assert "the drop under semantic changes is within its noise floor, so it is no drop" in said
    assert "so this is no drop" in " ".join(drop_lines(summary))


@pytest.mark.slow
def test_models_that_are_compared_differ_by_more_than_their_noise_or_not_at_all(
    tiny_data: Path, tmp_path: Path
) -> None:
    with chat_server(wavering) as server:
        assert stress(server, tiny_data, tmp_path / "once") == 0
        server.asked.clear()
        assert stress(server, tiny_data, tmp_path / "thrice", "--repeats", "3") == 0
        judge = server.model()
    once, thrice = Run(tmp_path / "once"), Run(tmp_path / "thrice")
    noisy = compare_runs(thrice, thrice, judge, "oracle")
    errors = [test for test in noisy.tests if test.metric == "micro_mae" and test.group == "clean"]
    assert [test.noise_floor for test in errors] == [pytest.approx(1.96 * np.sqrt(1 / 3 / 5), rel=1e-3)]
    assert "noise floor 0.51" in finding(noisy, errors[0])
    assert all(test.better is None for test in noisy.tests if abs(test.paired.difference) <= test.noise_floor)
    unknown = compare_runs(once, thrice, judge, "oracle")
    assert all(np.isnan(test.noise_floor) for test in unknown.tests)
    assert [test.gap for test in unknown.tests] == [test.gap for test in noisy.tests]


def test_a_model_that_always_answers_alike_costs_nothing_more(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("pocket", "ensemble:pocket,length", "normalise:pocket", "prefixes:motion", "constant")
    assert all(name_model(name).deterministic for name in names)
    clips = [sample_frames(episode, frame_policy("uniform:4")) for episode in open_dataset(str(tiny_data)).episodes]
    pocket = load_model("pocket")
    assert pocket.score(clips) == pocket.score(clips)
    assert not name_model("openai:judge@http://127.0.0.1:1/v1").deterministic
    few = ["--perturbations", "none", "--engine", "local", "--no-controls"]
    assert main(["stress", "length", str(tiny_data), "--out", str(tmp_path / "run"), "--repeats", "5", *few]) == 0
    run = Run(tmp_path / "run")
    assert len(run.trials(repeats=True)) == run.record.trials == len(ROWS)
    assert "deterministic, so its noise floor is 0" in " ".join(capsys.readouterr().out.split())


def test_shards_of_repeats_are_put_together(tiny_data: Path, tmp_path: Path) -> None:
    with chat_server(wavering) as server:
        for part in ("1/2", "2/2"):
            out = tmp_path / part[0]
            assert stress(server, tiny_data, out, "--repeats", "2", "--shard", part, "--no-controls") == 0
    merged = ["runs", "merge", str(tmp_path / "1"), str(tmp_path / "2"), "--out", str(tmp_path / "whole")]
    assert main(merged) == 0
    whole = Run(tmp_path / "whole")
    assert len(whole.trials(repeats=True)) == 2 * len(whole.trials()) == 2 * CONDITIONS * len(ROWS)
    assert known(load_summary(whole).noise[0].changed) == 1


def test_another_number_of_repeats_is_another_plan_and_nonsense_is_refused(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(steady) as server:
        assert stress(server, tiny_data, tmp_path / "run", "--no-controls") == 0
        assert stress(server, tiny_data, tmp_path / "run", "--no-controls", "--repeats", "2") == 2
        assert "repeats was 1 and is 2" in capsys.readouterr().err
        assert stress(server, tiny_data, tmp_path / "other", "--repeats", "0") == 2
        assert "repeats must be from 1 to 100, got 0" in capsys.readouterr().err


def test_trials_that_claim_to_be_repeats_of_a_run_without_are_refused(tiny_data: Path, tmp_path: Path) -> None:
    with chat_server(steady) as server:
        assert stress(server, tiny_data, tmp_path / "run", "--no-controls") == 0
    run = Run(tmp_path / "run")
    (part,) = run.parts()
    forged = [replace(trial, repeat=1) for trial in run.trials().rows()]
    part.unlink()
    run.append(forged)
    with pytest.raises(RunError, match="repeat must be missing"):
        run.trials()


def test_an_ensemble_asks_its_shared_members_again(tiny_data: Path, tmp_path: Path) -> None:
    """A member that is a model of the run too is asked once for both, in each asking anew."""
    with chat_server(wavering) as server:
        both = f"ensemble:{server.model()},length"
        few = ["--perturbations", "none", "--engine", "local", "--no-controls", "--repeats", "3"]
        assert main(["stress", both, server.model(), str(tiny_data), "--out", str(tmp_path / "run"), *few]) == 0
        assert len(server.bodies) == 3 * len(ROWS)
        judge = server.model()
    summary = load_summary(Run(tmp_path / "run"))
    assert known(summary.noise_of(judge)).changed == pytest.approx(2 / 3)


def test_a_benchmark_shows_the_noise_floor_too(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(wavering) as server:
        out = str(tmp_path / "run")
        command = ["bench", server.model(), str(tiny_data), "--out", out, "--engine", "local", "--no-duplicates"]
        assert main([*command, "--repeats", "2"]) == 0
        assert len(server.bodies) == 2 * len(ROWS)
    assert "Asked 2 times" in " ".join(capsys.readouterr().out.split())
    assert json.loads((tmp_path / "run" / "bench.json").read_text())["models"]
