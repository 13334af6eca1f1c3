"""Which of two clips is better: pairs of known order, answers of a server in both orders, and what scores say."""

import base64
import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from rich.console import Console

from rewardlab.api import bench_plan
from rewardlab.cli import main
from rewardlab.core.errors import PlanError, StoppedByModel
from rewardlab.core.run import Run
from rewardlab.core.storage import is_locked
from rewardlab.core.video_encoding import encode
from rewardlab.data import open_dataset
from rewardlab.evaluation.bench import run_benchmark
from rewardlab.evaluation.preferences import draw_level_pairs
from rewardlab.reporting.benchmark_tables import load_benchmark, print_benchmark
from rewardlab.reporting.report import write_report
from tests.conftest import write_rows
from tests.models import tiny
from tests.models.loopback import Call, ChatServer, chat_server
from tests.narrowing import known

LIGHT = {1: 40, 2: 80, 3: 120, 4: 160, 5: 200}  # of a clip of each level, so that a server can tell them apart


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two instructions with clips of three levels, one of two clips, and one of one level alone."""
    levels = {"open the drawer": (1, 3, 5), "fold the towel": (2, 4, 5), "wipe it": (5, 1), "push it": (3, 3)}
    rows: list[dict[str, object]] = [
        {"file_name": f"lab/{task[:4]}{n}.mp4", "task": task, "reward": level}
        for task, some in levels.items()
        for n, level in enumerate(some)
    ]
    people = {"lab/push0.mp4": "this", "lab/push1.mp4": "other"}
    for row in rows:
        if row["file_name"] in people:
            row["preference"] = {"pair": "a person", "preferred": people[str(row["file_name"])]}
    folder = write_rows(tmp_path_factory.mktemp("graded"), rows)
    (folder / "lab").mkdir()
    for number, row in enumerate(rows):
        light = LIGHT[int(str(row["reward"]))]
        frames = np.full((6, 32, 32, 3), light, np.uint8)
        frames[:, :4, : 2 + number] = 255 - light  # no two clips are the same
        encode(frames, folder / str(row["file_name"]), fps=10)
    return folder


def bench(data: Path | str, out: Path, *models: str, preferences: int = 40, **more: Any) -> Run:
    given = {"models": models, "data": data, "out": out, "engine": "local", "preferences": preferences} | more
    return run_benchmark(bench_plan(given), duplicates=False, against=None, preferences=preferences)


def stored(run: Run) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run.folder / "preferences.json").read_text())
    return content


def clip_lights(call: Call) -> list[float]:
    """Return how bright each of the shown pictures is."""
    parts = [part for part in call.body["messages"][0]["content"] if part["type"] == "image_url"]
    data = (base64.b64decode(part["image_url"]["url"].partition(",")[2]) for part in parts)
    return [float(np.median(known(cv2.imdecode(np.frombuffer(each, np.uint8), cv2.IMREAD_COLOR)))) for each in data]


def judge(letter: Callable[[float, float], str]) -> Callable[[Call], None]:
    """Return a server that gives level 3 to every clip, and a letter by how bright clips A and B are."""

    def react(call: Call) -> None:
        if "Clip A" not in call.text:
            return call.say("ANSWER: 3")
        shown = clip_lights(call)
        call.say(f"ANSWER: {letter(shown[0], shown[-1])}")

    return react


def brighter(a: float, b: float) -> str:
    return "C" if abs(a - b) < 10 else "A" if a > b else "B"


def asked_model(run: Run, server: ChatServer) -> dict[str, Any]:
    found: dict[str, Any] = stored(run)["models"][server.model()]
    return found


def test_pairs_are_of_one_instruction_and_a_higher_number_has_those_of_a_lower(graded: Path) -> None:
    episodes = open_dataset(graded).episodes
    by_name = {each.id: each for each in episodes}
    every = draw_level_pairs(episodes, 100, seed=1)
    assert len(every) == 3 + 3 + 1  # all pairs of different levels there are; of one level alone nothing is known
    assert every[:4] == draw_level_pairs(episodes, 4, seed=1) and draw_level_pairs(episodes, 0, seed=1) == ()
    for pair in every:
        a, b = by_name[pair.a], by_name[pair.b]
        assert a.instruction == b.instruction and a.label.level != b.label.level
        assert pair.preferred == ("a" if known(a.label.level) > known(b.label.level) else "b")
    left = draw_level_pairs(episodes, 100, seed=1, known=[frozenset((every[0].a, every[0].b))])
    assert {frozenset((p.a, p.b)) for p in left} == {frozenset((p.a, p.b)) for p in every[1:]}


@pytest.mark.parametrize("data", ["sample", "sample-sim"])
def test_the_shipped_clips_have_pairs_with_circles_to_find(data: str) -> None:
    episodes = open_dataset(data).episodes
    pairs = draw_level_pairs(episodes, 1000, seed=0)
    names = {frozenset((pair.a, pair.b)) for pair in pairs}
    assert len(names) == len(pairs) > 9
    levels: dict[tuple[str, str], list[int]] = {}
    for each in episodes:
        if each.label.level is not None:
            levels.setdefault((each.provenance.task, each.instruction), []).append(each.label.level)
    different = sum(a != b for some in levels.values() for a, b in combinations(some, 2))
    assert sum(pair.preferred != "tie" for pair in pairs) == different


@pytest.mark.slow
def test_scores_order_the_pairs_as_their_levels_say(tmp_path: Path) -> None:
    run = bench("sample", tmp_path / "run", "motion", "length", preferences=30)
    found, trials = stored(run), run.trials()
    for model in ("motion", "length", "constant", "oracle", "random"):
        mine = trials.where(trials.matches("model", model))
        level = dict(zip(mine.text("episode"), mine.number("level"), strict=True))
        right = [
            float(np.sign(level[p["a"]] - level[p["b"]]) * (1 if p["preferred"] == "a" else -1) + 1) / 2
            for p in found["level_pairs"]
            if p["preferred"] != "tie"
        ]
        scores = found["models"][model]["scores"]
        if model != "length":  # whose probabilities its expected level is made of
            assert scores["levels"]["value"] == pytest.approx(np.mean(right)), model
        assert scores["levels"]["asked"] == len(right) and found["models"][model]["asked"] is None
        assert scores["transitive"]["value"] in (1.0, None) and scores["consistent"] is None
    assert found["models"]["oracle"]["scores"]["levels"]["value"] == 1
    assert found["models"]["constant"]["scores"]["levels"]["value"] == 0.5
    assert found["models"]["constant"]["scores"]["transitive"]["scored"] == 0  # ties decide no triple


def test_a_model_that_sees_both_clips_is_asked_in_both_orders(graded: Path, tmp_path: Path) -> None:
    with chat_server(judge(brighter)) as server:
        run = bench(graded, tmp_path / "run", server.model())
        pairs = [body for body in server.bodies if "Clip A" in json.dumps(body)]
        found = asked_model(run, server)
    content = stored(run)
    assert len(pairs) == 2 * (len(content["level_pairs"]) + 1) == 16  # with the pair of a person
    assert content["answers"][server.model()]["people"][0] == {**BOTH_TIES, "reason": ""}
    asked, scores = found["asked"], found["scores"]
    assert (asked["levels"]["value"], asked["levels"]["asked"]) == (1, 7)
    assert (asked["people"]["value"], asked["transitive"]["value"], asked["transitive"]["scored"]) == (0.5, 1, 2)
    assert (asked["consistent"]["value"], asked["consistent"]["asked"], asked["first_preferred"]) == (1, 8, 0.5)
    assert scores["levels"]["value"] == 0.5 and scores["consistent"] is None  # every clip has level 3


BOTH_TIES = {"a_first": [0, 0, 1], "b_first": [0, 0, 1]}


def test_a_judge_that_takes_the_first_clip_is_told_by_its_bias(graded: Path, tmp_path: Path) -> None:
    with chat_server(judge(lambda _a, _b: "A")) as server:
        asked = asked_model(bench(graded, tmp_path / "run", server.model()), server)["asked"]
    assert (asked["levels"]["value"], asked["consistent"]["value"], asked["first_preferred"]) == (0.5, 0, 1)
    assert asked["transitive"]["scored"] == 0 and asked["transitive"]["asked"] == 2  # both orders together are a tie


def test_a_circle_is_found(graded: Path, tmp_path: Path) -> None:
    beats = {(40, 120), (120, 200), (200, 40), (80, 160), (160, 200), (80, 200)}  # the first three are a circle

    def letter(a: float, b: float) -> str:
        near = tuple(min(LIGHT.values(), key=lambda light: abs(light - each)) for each in (a, b))
        return "A" if near in beats else "B"

    with chat_server(judge(letter)) as server:
        asked = asked_model(bench(graded, tmp_path / "run", server.model()), server)["asked"]
    assert (asked["transitive"]["value"], asked["transitive"]["scored"]) == (0.5, 2)


def test_what_cannot_be_read_is_counted_and_nothing_is_asked_twice(graded: Path, tmp_path: Path) -> None:
    def letter(a: float, b: float) -> str:
        return "neither of them" if {round(a / 40), round(b / 40)} == {1, 3} else brighter(a, b)

    with chat_server(judge(letter)) as server:
        first = stored(bench(graded, tmp_path / "run", server.model()))
        again = len(server.bodies)
        second = stored(bench(graded, tmp_path / "run", server.model()))
        assert len(server.bodies) == again and first == second
        more = bench(graded, tmp_path / "run", server.model(), preferences=3)
        assert len(server.bodies) == again and len(stored(more)["level_pairs"]) == 2
    asked = first["models"][server.model()]["asked"]
    assert (asked["levels"]["scored"], asked["levels"]["asked"], asked["levels"]["value"]) == (6, 7, 1)
    reasons = [each["reason"] for each in first["answers"][server.model()]["levels"]]
    assert sorted(reasons)[-1].startswith("unreadable answer: expected one 'ANSWER: '") and reasons.count("") == 6


def test_the_run_is_held_while_pairs_are_compared(graded: Path, tmp_path: Path) -> None:
    held: list[bool] = []

    def react(call: Call) -> None:
        if "Clip A" in call.text:
            held.append(is_locked(tmp_path / "run"))
        judge(brighter)(call)

    with chat_server(react) as server:
        bench(graded, tmp_path / "run", server.model())
    assert held and all(held)


def test_a_spent_budget_stops_the_questions_and_the_same_command_goes_on(graded: Path, tmp_path: Path) -> None:
    with chat_server(judge(brighter)) as server:
        with pytest.raises(StoppedByModel, match="not every pair is compared"):
            bench(graded, tmp_path / "run", server.model(), max_requests=13, batch_size=1)
        assert len(server.bodies) == 13
        run = bench(graded, tmp_path / "run", server.model())
        assert asked_model(run, server)["asked"]["levels"]["value"] == 1 and len(server.bodies) == 10 + 16


def test_the_page_and_the_terminal_show_the_answers_beside_the_controls(graded: Path, tmp_path: Path) -> None:
    with chat_server(judge(brighter)) as server:
        run = bench(graded, tmp_path / "run", server.model())
        names = run.record.names
    report = known(load_benchmark(run))
    rows = {(row.model, row.way): row.numbers for row in report.orders}
    assert (
        rows["oracle", "scores"]["levels"].startswith("1.000") and rows["motion", "scores"]["both orders alike"] == "-"
    )
    ((_, asked),) = ((key, row) for key, row in rows.items() if key[1] == "asked")
    assert asked["levels"].startswith("1.000") and asked["first preferred"].startswith("0.5"), names
    console = Console(width=100, record=True, file=(tmp_path / "out").open("w"))
    print_benchmark(report, console)
    console.file.close()
    text = " ".join(console.export_text().split())
    assert "7 pairs of different true levels, and 1 of which a person preferred one" in text and "no circle" in text
    page = write_report([run], run.folder / "report.html").read_text()
    assert "Which of two clips is better" in page and "pairs with the same answer whichever clip" in page


def test_data_without_pairs_and_negative_numbers_are_refused_before_anything_is_scored(
    tmp_path: Path, graded: Path
) -> None:
    alone = write_rows(tmp_path / "data", [{"file_name": "a.mp4", "task": "open it", "reward": 5}])
    encode(np.zeros((4, 32, 32, 3), np.uint8), alone / "a.mp4", fps=10)
    with pytest.raises(PlanError, match="no two clips of one instruction with different levels"):
        bench(alone, tmp_path / "run", "length")
    with pytest.raises(PlanError, match=r"with --limit 1 has no two clips .*; use a larger --limit"):
        bench(graded, tmp_path / "run", "length", limit=1)
    with pytest.raises(PlanError, match="preferences must be 0 or more"):
        bench(graded, tmp_path / "run", "length", preferences=-1)
    assert not (tmp_path / "run").exists()


def test_the_command_takes_the_number_of_pairs(
    graded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words: Sequence[str] = ("bench", "pocket", str(graded), "--preferences", "5", "--out", str(tmp_path / "run"))
    assert main([*words, "--engine", "local", "--no-duplicates"]) == 0
    assert "4 pairs of different true levels" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("torch") is None or find_spec("transformers") is None, reason="torch and transformers: extra hf"
)
def test_a_local_model_is_asked_for_the_probabilities_of_its_answers(graded: Path, tmp_path: Path) -> None:
    name = f"hf:{tiny.save_qwen3(tmp_path / 'qwen')}?pixels=4096"
    run = bench(graded, tmp_path / "run", name, controls=False)
    ((_, found),) = stored(run)["answers"].items()
    for answer in (*found["people"], *found["levels"]):
        assert sum(answer["a_first"]) == pytest.approx(1) and sum(answer["b_first"]) == pytest.approx(1)
        assert min(answer["a_first"]) > 0 and answer["reason"] == ""
