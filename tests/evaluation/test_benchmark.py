"""The RoboRewardBench protocol on real files, with answers that were recorded."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from rewardlab.api import bench_plan
from rewardlab.cli import main
from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError
from rewardlab.core.run import Run
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.core.video_encoding import encode
from rewardlab.data import choose_split
from rewardlab.evaluation.bench import run_benchmark
from rewardlab.evaluation.replay import replay
from rewardlab.evaluation.roborewardbench import SUBSETS, published_rows
from rewardlab.models.contract import NamedModel
from rewardlab.reporting.benchmark_tables import load_benchmark, print_benchmark
from rewardlab.reporting.leaderboard import leaderboard
from rewardlab.reporting.report import write_report
from tests.conftest import moving_square, write_rows
from tests.narrowing import known

RECORDED = (  # subset, true level, what the model wrote (None: no completion came back)
    ("bridge", 5, "The cup is on the plate.\nANSWER: 3"),
    ("bridge", 2, "I cannot tell from these frames."),
    ("bridge", 4, "ANSWER: 9"),
    ("droid", 3, "answer: 3.5"),
    ("droid", 5, "ANSWER: 2, or rather ANSWER: 5"),
    ("droid", 4, None),
    ("droid", 4, "4 - near completion"),
    ("robo_arena", 1, "ANSWER: 1"),
)
# What HELM makes of them: 2; unreadable 4; unclipped 5; decimal 0.5; the first of several 3; dropped; leading 0; 0.
HELM: dict[str, list[float]] = {"bridge": [2, 4, 5], "droid": [0.5, 3, 0], "robo_arena": [0]}
STRICT: dict[str, list[float]] = {"bridge": [2], "robo_arena": [0]}

CODE = """
from rewardlab import Failure
from rewardlab.models.protocols import PARSERS

TEXTS = {texts!r}

class Recorded:
    def score(self, episodes):
        texts = [TEXTS[episode.instruction] for episode in episodes]
        return [Failure("no completion") if text is None else PARSERS["strict"](text) for text in texts]

class Percentages:
    def score(self, episodes):
        from rewardlab import Score
        return [Score(3.0, raw="Frame 1: Task Completion: 50%") for _ in episodes]
"""


@pytest.fixture(scope="module")
def benchmark_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the public dataset in small: a root with splits, of which the test split holds recorded questions."""
    root = tmp_path_factory.mktemp("RoboReward")
    rows = [
        {"file_name": f"{subset}/{number}.mp4", "task": f"question {number}", "reward": level}
        for number, (subset, level, _) in enumerate(RECORDED)
    ]
    write_rows(root / "test", rows)
    for row in rows:
        path = root / "test" / str(row["file_name"])
        path.parent.mkdir(exist_ok=True)
        encode(moving_square(path.name), path, fps=10)
    return root


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a model that says what was recorded."""
    texts = {f"question {number}": text for number, (_, _, text) in enumerate(RECORDED)}
    (tmp_path / "replay_lab.py").write_text(CODE.format(texts=texts))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "replay_lab", raising=False)
    return "replay_lab:Recorded"


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def benchmark(data: Path, out: Path, *models: str | NamedModel, duplicates: bool = False, **changes: object) -> Run:
    given: dict[str, object] = {"models": models, "data": data, "out": out, "engine": "local"} | changes
    return run_benchmark(bench_plan(given), duplicates=duplicates, against=None)


def test_recorded_answers_get_the_numbers_of_helm_and_of_the_strict_reading(
    benchmark_data: Path, recorded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["bench", recorded, str(benchmark_data), "--out", str(out), "--engine", "local"]) == 0
    found = json.loads((out / "bench.json").read_text())["models"][recorded]
    for way, errors in (("helm", HELM), ("strict", STRICT)):
        every = [error for part in errors.values() for error in part]
        assert found[way]["macro"]["value"] == pytest.approx(mean([mean(part) for part in errors.values()]))
        assert found[way]["micro"]["value"] == pytest.approx(mean(every))
        subsets = {name: row["value"] for name, row in found[way]["subsets"].items() if row["value"] is not None}
        assert subsets == pytest.approx({name: mean(part) for name, part in errors.items()})
    assert found["counts"] == {**{"asked": 8, "scored": 2, "texts": 7, "unread": 5, "unread_by_helm": 1, "missing": 1}}
    assert (found["helm"]["macro"]["scored"], found["helm"]["macro"]["asked"]) == (7, 8)  # the missing one was asked
    assert (found["strict"]["macro"]["scored"], found["strict"]["macro"]["asked"]) == (2, 8)
    said = capsys.readouterr().out
    helm = f"{mean([mean(part) for part in HELM.values()]):.3f}"
    for words in (helm, "2/8", "5/7", "3 of the 23 subsets", "frames fps:1", "berkeley_bridge", "duplicates: 0 of 8"):
        assert words in said, words
    assert "the mean over 2 of 3 subsets" in " ".join(said.split())  # droid has no strict score
    embodiments = {name: row["value"] for name, row in found["helm"]["embodiments"].items()}
    robots = {"WidowX": "bridge", "Franka": "droid", "DROID (Franka-based)": "robo_arena"}
    assert embodiments == pytest.approx({robot: mean(HELM[subset]) for robot, subset in robots.items()})
    exo = mean([mean(HELM[name]) for name in ("bridge", "droid")])  # the mean over its two subsets
    perspectives = {name: row["value"] for name, row in found["helm"]["perspectives"].items()}
    assert perspectives == pytest.approx({"exo": exo, "mix": mean(HELM["robo_arena"])})
    assert "MAE per embodiment" in said and "WidowX" in said and "MAE per perspective" in said


def test_agreement_with_preferences_stands_below_the_table_where_the_data_states_them(tmp_path: Path) -> None:
    stated = [("x", 5, "this"), ("x", 2, "other"), ("y", 3, "this"), ("y", 4, "other"), ("z", 3, "this")]
    stated += [("z", 3, "other"), ("tied", 1, "tie"), ("tied", 5, "tie"), ("alone", 5, "this")]
    rows = [
        {"file_name": f"robo_arena/{number}.mp4", "task": f"{pair} it", "reward": level}
        | {"preference": {"pair": pair, "preferred": word}}
        for number, (pair, level, word) in enumerate(stated)
    ]
    data = write_rows(tmp_path / "data", rows)
    (data / "robo_arena").mkdir()
    for row in rows:
        encode(moving_square(str(row["file_name"]), count=4), data / str(row["file_name"]), fps=10)
    run = benchmark(data, tmp_path / "run", "constant:2")
    found = json.loads((run.folder / "preferences.json").read_text())
    assert [(pair["pair"], pair["preferred"]) for pair in found["pairs"]] == [
        *(("x", "a"), ("y", "a"), ("z", "a"), ("tied", "tie"))
    ]
    oracle, constant = found["agreement"]["oracle"], found["agreement"]["constant:2"]
    assert oracle["value"] == pytest.approx((1 + 0 + 0.5) / 3) and (oracle["scored"], oracle["asked"]) == (3, 3)
    assert oracle["low"] < oracle["value"] < oracle["high"]
    assert (constant["value"], constant["low"], constant["high"]) == (0.5, None, None)  # three that agree
    (said,) = (text for text in known(load_benchmark(run)).sentences if "preferences" in text)
    assert said.startswith("agreement with people's preferences (3 pairs of rollouts, 1 tie left out; equal levels")
    assert "constant:2 0.500" in said
    assert "agreement with people" in write_report([run], run.folder / "report.html").read_text()


def test_models_that_say_nothing_in_words_are_scored_by_their_level_both_ways(
    benchmark_data: Path, recorded: str, tmp_path: Path
) -> None:
    joined, foreign = f"ensemble:{recorded},constant:2", "replay_lab:Percentages"
    run = benchmark(benchmark_data, tmp_path / "run", joined, foreign, "pocket")
    models = json.loads((run.folder / "bench.json").read_text())["models"]
    for name in ("constant", "random", "oracle", "pocket"):
        assert models[name]["helm"] == models[name]["strict"], name
        assert models[name]["helm_levels"] == "level"
    assert models["length"]["helm"] is None and models["length"]["helm_levels"] == "expectation"
    assert models["oracle"]["strict"]["macro"]["value"] == 0
    assert models["constant"]["strict"]["micro"]["value"] == pytest.approx(mean([abs(t - 3) for _, t, _ in RECORDED]))
    assert models[foreign]["helm"] is None and models[foreign]["strict"]["macro"]["scored"] == 8
    console = Console(width=80, record=True, file=(tmp_path / "out").open("w"))
    print_benchmark(known(load_benchmark(run)), console)
    console.file.close()
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert f"{foreign} does not answer in HELM's format" in " ".join(text.split())


def test_helm_scores_the_most_probable_level_of_a_model_that_answers_with_an_expectation(
    benchmark_data: Path, tmp_path: Path
) -> None:
    class Unsure:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            return [Score(2.6, (0.4, 0.0, 0.3, 0.2, 0.1))] * len(episodes)  # the expectation; the mode is 1

    unsure = NamedModel("unsure", "0", False, lambda _budget: Unsure())
    run = benchmark(benchmark_data, tmp_path / "run", unsure, controls=False)
    found = json.loads((run.folder / "bench.json").read_text())["models"]["unsure"]
    assert found["helm_levels"] == "mode"
    assert found["helm"]["micro"]["value"] == pytest.approx(mean([t - 1 for _, t, _ in RECORDED]))
    assert found["strict"]["micro"]["value"] == pytest.approx(mean([abs(t - 2.6) for _, t, _ in RECORDED]))
    console = Console(width=100, record=True, file=(tmp_path / "out").open("w"))
    print_benchmark(known(load_benchmark(run)), console)
    console.file.close()
    assert "(mode)" in console.export_text()


def test_a_model_that_never_answers_has_no_error_and_stops_nothing(benchmark_data: Path, tmp_path: Path) -> None:
    class Silent:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            return [Failure("[bold]no camera[/bold]")] * len(episodes)

    name = "<script>[red]silent"
    silent = NamedModel(name, "0", False, lambda _budget: Silent())
    run = benchmark(benchmark_data, tmp_path / "run", silent, duplicates=True)
    found = json.loads((run.folder / "bench.json").read_text())["models"][name]
    for way in ("helm", "strict"):
        assert found[way]["macro"]["value"] is None and found[way]["micro"]["value"] is None
    assert found["counts"]["missing"] == 8
    page = write_report([run], run.folder / "report.html").read_text()
    assert "<script>[red]" not in page and "&lt;script&gt;[red]silent" in page
    console = Console(width=80, record=True, file=(tmp_path / "out").open("w"))
    print_benchmark(known(load_benchmark(run)), console)
    console.file.close()
    assert "[red]" in console.export_text()


def test_a_bench_run_goes_on_costs_nothing_again_and_has_a_page(
    benchmark_data: Path, recorded: str, tmp_path: Path
) -> None:
    first = benchmark(benchmark_data, tmp_path / "run", recorded)
    before = first.trials()
    (first.folder / "bench.json").unlink()
    (part,) = first.parts()
    part.unlink()
    first.append(before.rows()[:20])  # as if it had been killed
    flags = ["--out", str(tmp_path / "run"), "--no-duplicates", "--engine", "local"]
    assert main(["bench", recorded, str(benchmark_data), *flags]) == 0
    again = Run(tmp_path / "run").trials()
    assert again.arrow.drop_columns(["seconds"]).equals(before.arrow.drop_columns(["seconds"]))
    kept = {t.id: t.seconds for t in again.rows()}
    assert all(kept[t.id] == t.seconds for t in before.rows()[:20])
    page = (tmp_path / "run" / "report.html").read_text()
    assert "MAE per subset" in page and "unread by HELM" in page and recorded in page
    assert first.record.command.startswith(f"rewardlab bench {recorded}")
    assert set(again.text("perturbation")) == {"clean"}


def test_counters_of_moving_pixels_stand_beside_the_table_of_the_protocol(benchmark_data: Path, tmp_path: Path) -> None:
    run = benchmark(benchmark_data, tmp_path / "run", "constant:2", "change")
    shown = known(load_benchmark(run)).models
    assert list(shown) == ["constant:2", "change", "constant", "random", "length", "oracle"]
    assert {"motion", "end-motion", "change"} <= set(run.summary.models)
    assert {c.control for c in run.summary.controls if c.model == "constant:2"} >= {"motion", "end-motion"}


@pytest.mark.slow
def test_grounding_asks_about_other_instructions_and_changes_no_number_of_the_protocol(tmp_path: Path) -> None:
    plain = benchmark(Path("sample"), tmp_path / "plain", "constant", limit=12)
    run = benchmark(Path("sample"), tmp_path / "run", "constant", limit=12, grounding=True)
    first, second = (json.loads((each.folder / "bench.json").read_text()) for each in (plain, run))
    assert first["models"] == second["models"]
    swapped = run.trials().where(run.trials().matches("perturbation", "instruction_swap"))
    assert swapped.matches("status", "scored").any() and set(swapped.number("severity")) == {1, 2, 3, 4}
    found = run.summary.measurement("motion", "instruction_swap", 1, "instruction_grounding")
    assert found.value == 0.5 and found.scored > 0, "what reads no words ties"
    assert known(load_benchmark(run)).errors.models.keys() == second["models"].keys()


def test_the_leaderboard_ranks_a_bench_run_by_the_mean_over_subsets_as_helm_scores_it(
    benchmark_data: Path, recorded: str, tmp_path: Path
) -> None:
    run = benchmark(benchmark_data, tmp_path / "run", recorded, "oracle")
    html = leaderboard([run], out=tmp_path / "site").read_text()
    mae = mean([mean(part) for part in HELM.values()])
    assert f'data-value="{mae}"' in html and f"<h2>{benchmark_data.name}/test, " in html
    assert "Protocol: RoboRewardBench, HELM scoring." in html and "RoboArena" in html
    assert "RoboReward 8B" not in html, "these are eight episodes, not the benchmark"
    assert html.index(">oracle<") < html.index(f">{recorded}<") and "not ranked" in html  # 7 of 8 answered


def test_several_models_have_a_winner_per_subset_and_ranks_that_swing(
    benchmark_data: Path, recorded: str, tmp_path: Path
) -> None:
    run = benchmark(benchmark_data, tmp_path / "run", recorded, "constant:1", controls=False)
    found = known(load_benchmark(run))
    # Errors of the constant 1: bridge (4 + 1 + 3) / 3, droid (2 + 4 + 3 + 3) / 4, RoboArena 0 as the recorded one has.
    assert found.winners == {"bridge": ("constant:1",), "droid": (recorded,), "robo_arena": (recorded, "constant:1")}
    swings = {swing.model: (swing.rank, swing.best.rank, swing.worst.rank) for swing in found.swings}
    assert swings == {recorded: (1, 1, 2), "constant:1": (2, 1, 2)}
    page = write_report([run], run.folder / "report.html").read_text()
    assert '<table class="swings">' in page and '<table class="winners">' in page
    site = leaderboard([run], out=tmp_path / "site").read_text()
    assert '<table class="swings">' not in site, "one of the two answered too little to be ranked"


def test_a_split_is_found_by_its_root_by_itself_and_on_the_hub(benchmark_data: Path) -> None:
    test = str(benchmark_data / "test")
    assert choose_split(str(benchmark_data), "test") == choose_split(test, "test") == test
    assert choose_split("sample", "test") == "sample"
    assert choose_split("hub:teetone/RoboReward", "val") == "hub:teetone/RoboReward/val"
    assert choose_split("hub:teetone/RoboReward/test", "val") == "hub:teetone/RoboReward/test"


def test_a_missing_split_names_those_there_are(benchmark_data: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="its folders that do: test"):
        benchmark(benchmark_data, tmp_path / "run", "length", split="val")


def test_data_without_rewards_is_refused(tmp_path: Path) -> None:
    encode(moving_square("x"), tmp_path / "x.mp4", fps=10)
    data = write_rows(tmp_path, [{"file_name": "x.mp4", "task": "t", "success": False}])
    with pytest.raises(DataError, match="no episode has a reward"):
        benchmark(data, tmp_path / "run", "length")


def test_demonstrations_without_rewards_are_successes_where_the_flag_says_so(tmp_path: Path) -> None:
    for name in ("x", "y"):
        encode(moving_square(name), tmp_path / f"{name}.mp4", fps=10)
    data = write_rows(tmp_path, [{"file_name": f"{name}.mp4", "task": f"move {name}"} for name in ("x", "y")])
    run = benchmark(data, tmp_path / "run", "constant:3", controls=False, demonstrations=True)
    assert known(load_benchmark(run)).errors.models["constant:3"].strict.macro.value == 2
    assert run.record.settings.demonstrations is True
    again = replay(run, allow_code=True)  # what the report shows is what was scored
    assert {episode.label.level for episode in again.episodes.values()} == {5}


def test_a_hub_that_cannot_be_reached_is_one_sentence_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert main(["bench", "length", "hub:teetone/RoboReward"]) == 4
    said = capsys.readouterr().err
    assert "hub:teetone/RoboReward/test cannot be fetched" in said and "name its folder" in said
    assert len(said.strip().splitlines()) == 1


def test_the_hub_needs_its_package_and_a_whole_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["bench", "length", "hub:teetone/RoboReward"]) == 4
    assert "pip install 'rewardlab[hub]'" in capsys.readouterr().err
    assert main(["bench", "length", "hub:RoboReward"]) == 4
    assert "expected hub:OWNER/NAME" in capsys.readouterr().err


def test_every_subset_has_its_column_in_the_published_table() -> None:
    assert len(SUBSETS) == 23
    assert all(set(SUBSETS.values()) == set(row.subsets) for row in published_rows())
