"""The page about a dataset: what it tells, planted leaks that it finds, and how it looks in a real browser."""

import json
import os
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import DataError
from rewardlab.core.video_encoding import encode
from rewardlab.data.row_listing import draw_videos
from rewardlab.reporting import data_report
from rewardlab.reporting.data_page import render_data_page
from rewardlab.reporting.data_report import measure_data, open_beside
from tests.conftest import moving_square
from tests.real_browser import Scheme

EVIL = "<img src=x onerror=alert(1)>"


def write_split(folder: Path, tasks: range, *, evil: str = "") -> list[dict[str, object]]:
    """Write, for each task, five clips that end ever later: a ladder that a length climbs."""
    rows: list[dict[str, object]] = []
    for task in tasks:
        whole = moving_square(f"task {task}", count=25, size=32)
        for level in (1, 2, 3, 4, 5):
            name = f"arm/{task}-{level}.mp4"
            (folder / "arm").mkdir(parents=True, exist_ok=True)
            encode(whole[: 5 * level], folder / name, fps=10)
            rows.append({"file_name": name, "task": f"push square {task}{evil}", "reward": level, "source": "lab"})
    save_rows(folder, rows)
    return rows


def save_rows(folder: Path, rows: list[dict[str, object]]) -> None:
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ladder")
    rows = write_split(folder, range(8), evil=f" {EVIL}")
    save_rows(
        folder, [*rows, rows[0], rows[1] | {"reward": 5}, {"file_name": "arm/gone.mp4", "task": "x"}, {"task": "y"}]
    )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_the_page_says_that_a_clock_solves_the_data_and_is_sound_for_everybody(
    browser: Browser, ladder: Path, tmp_path: Path, scheme: Scheme, width: int
) -> None:
    written = rewardlab.data_report(ladder, out=tmp_path / "page.html")
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(written.resolve().as_uri())
    assert [url for url in asked if not url.startswith("data:")] == [
        written.resolve().as_uri()
    ]  # nothing else is needed
    text = page.locator("main").inner_text()
    assert "solved without looking" in text and EVIL in text
    assert re.search(
        r"The length baseline, which sees only how long a clip is, removes \d+% of the error of a constant", text
    )
    assert "1 question is asked twice, with different answers" in text and "1 row is repeated" in text
    assert page.locator(".last-frames figure").count() == 20
    assert page.locator("#length-table tbody tr").count() == 5
    assert page.locator("#problems + ul li").count() == 2  # a row without a video's name, and a video that is not there
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [each["id"] for each in Axe().run(page).response["violations"]] == []
    page.close()


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("splits")
    for name, tasks in {"train": range(3), "val": range(3, 4), "test": range(4, 5)}.items():
        write_split(folder / name, tasks)
    return folder


def findings(data: Path) -> str:
    facts = measure_data(str(data), videos=200, near_duplicates=True, seed=0)
    return re.sub(r"\s+", " ", render_data_page(facts).partition('<ul class="findings">')[2].partition("</ul>")[0])


def test_a_planted_task_a_planted_video_and_a_planted_near_copy_are_found_across_splits(splits: Path) -> None:
    assert "The 3 splits share no task and no video." in findings(splits)
    test, train = splits / "test", splits / "train"
    rows = [json.loads(line) for line in (test / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    leaked_task = rows[0] | {"task": "Push  SQUARE 1."}  # the same task in other letters
    (test / "arm/bytes.mp4").write_bytes((train / "arm/0-5.mp4").read_bytes())
    darker = (moving_square("task 1", count=25, size=32) * 0.97).astype(np.uint8)
    encode(darker, test / "arm/near.mp4", fps=10)  # encoded anew
    copies = [{"file_name": f"arm/{name}.mp4", "task": f"only {name}", "reward": 5} for name in ("bytes", "near")]
    save_rows(test, [*rows, leaked_task, *copies])
    said = findings(splits)
    assert "Splits leak: 1 task is in more than one split." in said
    assert "Splits leak: 1 video is in more than one split, as exact copies." in said
    assert re.search(r"Splits leak: \d videos? (is|are) a near copy of one in another split", said)


def test_no_more_videos_are_opened_than_asked_for(tmp_path: Path) -> None:
    save_rows(tmp_path, [{"file_name": f"{n}.mp4", "task": f"task {n}", "reward": 1 + n % 5} for n in range(300)])
    facts = measure_data(str(tmp_path), videos=7, near_duplicates=False, seed=0)
    assert len(facts.unreadable) == 7 and facts.lengths == {} and len(facts.videos) == 300


def test_a_process_beside_this_one_opens_the_videos_of_a_large_dataset_and_the_page_is_the_same(
    ladder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = partial(measure_data, str(ladder), videos=200, near_duplicates=False, seed=0)
    here = render_data_page(measure())
    monkeypatch.setattr(data_report, "_MANY_BYTES", 0)
    assert render_data_page(measure()) == here


def test_videos_are_opened_here_where_the_process_beside_this_one_dies() -> None:
    parent = os.getpid()
    with open_beside(many=True) as opening:
        opened = opening.begin(lambda video: video if os.getpid() == parent else os._exit(3), ["a", "b"])
        assert opened() == ["a", "b"]
        assert opening.begin(str.upper, ["a", "b"])() == ["A", "B"]


def test_a_page_named_without_an_ending_gets_one(ladder: Path, tmp_path: Path) -> None:
    assert rewardlab.data_report(ladder, out=tmp_path / "dr", videos=1) == tmp_path / "dr.html"
    assert [path.name for path in tmp_path.iterdir()] == ["dr.html"]


def test_a_folder_with_nothing_to_report_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="rewardlab data convert"):
        rewardlab.data_report(tmp_path)
    (tmp_path / "metadata.jsonl").write_text("[]\n", encoding="utf-8")
    assert main(["data", "report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 4


def test_videos_are_drawn_from_rows_that_name_one_whatever_stands_between_them(tmp_path: Path) -> None:
    rows = [json.dumps({"file_name": f"videos/{number % 30}.mp4"}) for number in range(90)]
    odd = ["", "no JSON", "[1]", '{"task": "put"}', '{"file_name": "../out.mp4"}', '{"file_name": "' + "x" * 2_000_000]
    (tmp_path / "metadata.jsonl").write_text("\ufeff" + "\n".join([*rows, *odd]), "utf-8")

    def draw(most: int, seed: int) -> list[tuple[str, str]]:
        return draw_videos({"": tmp_path}, most, np.random.default_rng(seed))

    every = {("", f"videos/{number}.mp4") for number in range(30)}
    assert set(draw(40, 0)) == every
    few = draw(10, 1)
    assert len(set(few)) == 10 and set(few) < every and few == draw(10, 1) != draw(10, 2)
    (tmp_path / "metadata.jsonl").write_text("")
    assert draw(10, 0) == []


def test_rows_are_counted_by_embodiment_and_perspective_as_stated_or_as_published(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"file_name": "bridge/0.mp4", "task": "a", "reward": 5},
        {"file_name": "bridge/1.mp4", "task": "a", "reward": 1, "embodiment": "my arm", "perspective": "ego"},
        {"file_name": "taco_play/2.mp4", "task": "b", "reward": 2},
        {"file_name": "others/3.mp4", "task": "b", "reward": 3},
    ]
    save_rows(tmp_path, rows)
    facts = measure_data(str(tmp_path), videos=1, near_duplicates=False, seed=0)
    assert {group.name: group.rows for group in facts.counts.embodiments} == {
        **{"WidowX": 1, "my arm": 1, "Franka": 1, "not stated": 1}
    }
    assert {group.name: group.rows for group in facts.counts.perspectives} == {"ego": 2, "exo": 1, "not stated": 1}
    page = render_data_page(facts)
    assert 'id="embodiment-table"' in page and "WidowX" in page and 'id="perspective-table"' in page
