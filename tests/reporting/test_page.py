"""The page in a real browser."""

import csv
import json
import math
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import cv2
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

import rewardlab
from rewardlab.core.errors import PlanError, RunError
from rewardlab.core.run import Run
from rewardlab.core.trial import Answer
from rewardlab.core.video_encoding import encode
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.evaluation.replay import wrong_rewards
from rewardlab.models.contract import NamedModel
from rewardlab.reporting.leaderboard import leaderboard
from rewardlab.reporting.report import write_report
from rewardlab.reporting.severity_curves import calibration_curves
from tests.conftest import IN_PROCESS, moving_square, write_rows
from tests.narrowing import known
from tests.plans import stress_plan
from tests.real_browser import Scheme

EVIL = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"

FOREIGN = 'main img:not([src^="data:image/jpeg;base64,"]), main script'  # stills are ours


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("page")
    rows = [{"file_name": f"s/{n}.mp4", "task": f"{EVIL} {n}", "reward": 1 + n} for n in range(4)]
    (folder / "s").mkdir()
    for row in rows:
        encode(moving_square(str(row["file_name"])), folder / str(row["file_name"]), fps=10)
    some = ("gaussian_noise", "typo_keyboard", "truncate_end", "mirror")
    made = rewardlab.stress(
        "random", write_rows(folder, rows), perturbations=some, execution=IN_PROCESS, out=folder / "run"
    )
    return made


def opened(browser: Browser, run: Run, width: int) -> tuple[Page, list[str]]:
    page = browser.new_page(viewport={"width": width, "height": 900})
    complaints: list[str] = []
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if request.url.startswith("http") else None)
    page.goto((run.folder / "report.html").resolve().as_uri())
    return page, complaints


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_drawn_without_complaint_or_network_at_any_width(browser: Browser, run: Run, width: int) -> None:
    page, complaints = opened(browser, run, width)
    charts = page.locator("[data-group=metric]:not([hidden]) svg.chart")
    assert charts.count() == 3
    for index in range(3):
        assert charts.nth(index).locator("g.curve path.line").count() == 7  # one curve per model
        box = charts.nth(index).bounding_box()
        assert box is not None and box["width"] > 150 and box["height"] > 90
    (why,) = page.locator("[data-group=metric]:not([hidden]) .empty").all_inner_texts()  # truncate_end has no labels
    assert why == "No value: no trial here has a true success or failure after the change."
    assert page.locator(".heat td[data-good]").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert complaints == []


def test_tabs_change_the_figures_by_mouse_and_keyboard_and_clips_play(browser: Browser, run: Run) -> None:
    page, complaints = opened(browser, run, 1280)
    page.get_by_role("tab", name="MAE").click()
    assert page.locator('[data-panel="macro_mae"]').is_visible()
    assert not page.locator('[data-panel="success_accuracy"]').is_visible()
    page.keyboard.press("ArrowRight")
    assert page.locator('[data-panel="expectation_kept"]').is_visible()
    assert page.locator("article").count() >= 1
    page.locator("article .play").first.click()
    page.wait_for_function("document.querySelector('article video').currentTime > 0.2")
    assert complaints == []


def test_tables_sort_and_filter_and_a_link_leads_to_its_line(browser: Browser, run: Run) -> None:
    page, complaints = opened(browser, run, 1280)
    page.locator("#perturbations th button", has_text="success").click()
    shown = [
        float(cell.get_attribute("data-value") or "-1") for cell in page.locator("#perturbations td:nth-child(6)").all()
    ]
    assert shown == sorted(shown, reverse=True) and len(shown) == 3  # truncate_end does not apply
    page.keyboard.press("/")
    page.keyboard.type("typo")
    assert page.locator("#perturbations tbody tr:visible").count() == 1
    page.locator("#filter").fill("")
    page.locator("#category").select_option("domain")
    assert page.locator("#perturbations tbody tr:visible").all_inner_texts()[0].startswith("mirror")
    page.goto(page.url.split("#")[0] + "#mirror")
    assert page.evaluate("document.querySelector('tr:target').dataset.category") == "domain"
    assert complaints == []


def test_dark_mode_follows_the_system_and_the_reader(browser: Browser, run: Run) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto((run.folder / "report.html").resolve().as_uri())
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light == "rgb(255, 255, 255)"
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_serious_accessibility_findings(
    browser: Browser, run: Run, tmp_path: Path, scheme: Scheme
) -> None:
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    for path in (run.page, *leaderboard([run], out=tmp_path / "site").parent.glob("[im]*.html")):
        page.goto(path.resolve().as_uri())
        found = Axe().run(page).response["violations"]
        assert [(f["id"], f["nodes"][0]["html"]) for f in found if f["impact"] in ("serious", "critical")] == []
    context.close()


def test_hostile_instructions_appear_as_text(browser: Browser, run: Run) -> None:
    page, complaints = opened(browser, run, 1280)
    assert page.title() != "owned"
    assert page.locator(FOREIGN).count() == 0
    assert "<script>" in page.locator("article q").first.inner_text()
    assert complaints == []


def test_the_page_still_opens_when_the_dataset_is_gone(tiny_data: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(tiny_data, data)
    run = rewardlab.stress(
        "length", data, perturbations=("gaussian_noise",), severities=(4,), execution=IN_PROCESS, out=tmp_path / "run"
    )
    shutil.rmtree(data)
    assert "The clips cannot be shown" in write_report([run], run.folder / "report.html").read_text()


def test_the_page_has_the_errors_of_every_model_over_all_severities(run: Run) -> None:
    html = (run.folder / "report.html").read_text()
    table = html.partition('<table id="robustness">')[2].partition("</table>")[0]
    mce = dict(re.findall(r"<tr[^>]*><td>([^<]+)</td><td>([^<]+)</td>", table))
    assert mce["constant"] == "1.00" and mce["oracle"] == "0.00" and set(mce) == set(run.summary.models)


def test_the_page_says_what_it_was_made_with(run: Run) -> None:
    html = (run.folder / "report.html").read_text()
    record = json.loads((run.folder / "run.json").read_text())
    for name, version in record["versions"].items():
        assert f"{name} {version}" in html


@pytest.mark.slow
def test_the_report_also_comes_as_figures_numbers_and_a_card(run: Run, tmp_path: Path) -> None:
    write_report([run], tmp_path / "none.html")
    assert not list((tmp_path / "none").glob("*.svg")) and (tmp_path / "none" / "card.md").exists()
    folder = write_report([run], tmp_path / "report.html", figures=True).with_suffix("")
    for name in ("success_accuracy-visual", "macro_mae-temporal", "expectation_kept-domain"):
        assert ElementTree.parse(folder / f"{name}.svg").getroot().tag.endswith("svg")
        picture = known(cv2.imread(str(folder / f"{name}.png")))
        assert picture.shape[1] == 700 and picture.std() > 10
    rows = list(csv.DictReader((folder / "numbers.csv").read_text().splitlines()))
    assert len(rows) == len(run.summary.measurements)
    card = (folder / "card.md").read_text()
    assert "**random**" in card and "| visual |" in card and "rewardlab stress random" in card


def test_the_page_shows_wrong_rewards_and_calibration_over_severity_beside_its_null(run: Run) -> None:
    html = run.page.read_text()
    chosen = wrong_rewards(run.trials(), "random")
    assert chosen and html.count('<span class="tag wrong">false success</span>') == len(chosen)
    assert "Ordinal ECE, visual" in html and "Brier score, temporal" in html
    bands = [curves.null[1] for curves in calibration_curves(run.summary, "random")]
    drawn = [ends for ends in bands if sum(not math.isnan(end) for end in ends) > 1]
    assert html.count('class="null"') == len(drawn) > 0
    assert "ceiling 1.00" in html  # four episodes of four levels: no tie
    off = [entry for entry in run.summary.calibration_nulls if entry.model == "random" and entry.miscalibrated]
    assert off, "sure and wrong"


@pytest.mark.parametrize(("out", "page"), [("a", "a.html"), ("a.html", "a.html"), ("v1.2", "v1.2.html")])
def test_a_page_is_written_with_its_ending_and_the_folder_of_its_name(
    run: Run, tmp_path: Path, out: str, page: str
) -> None:
    (tmp_path / "a").mkdir()
    assert rewardlab.report(run, out=tmp_path / out) == tmp_path / page
    assert (tmp_path / page.removesuffix(".html") / "card.md").is_file()


def test_what_stands_in_the_way_of_a_report_is_said_before_anything_is_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(RunError, match="file is a file"):
        rewardlab.report(run, out=tmp_path / "file")
    for folder in (tmp_path / "folder.html", "."):
        with pytest.raises(PlanError, match="which is a folder"):
            rewardlab.report(run, out=folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.html"]


@pytest.mark.slow
def test_runs_stand_side_by_side_and_a_model_in_both_carries_its_run(tiny_data: Path, tmp_path: Path) -> None:
    some: dict[str, Any] = {"perturbations": ("gaussian_noise",), "severities": (4,)}
    one = rewardlab.stress("length", tiny_data, execution=IN_PROCESS, out=tmp_path / "one", **some)
    two = rewardlab.stress("length:50", tiny_data, execution=IN_PROCESS, out=tmp_path / "two", **some)
    html = write_report([one, two], tmp_path / "both.html").read_text()
    for name in ("<h3>length (one)</h3>", "<h3>length:50</h3>", "random (one)", "random (two)"):
        assert name in html, name


def test_the_leaderboard_ranks_the_models_of_a_stress_test_without_published_rows(run: Run, tmp_path: Path) -> None:
    html = leaderboard([run], out=tmp_path / "site").read_text()
    assert "Protocol: clean episodes of a stress test." in html and "RoboReward 8B" not in html
    assert {kind: html.count(f'<li class="is-{kind}">') for kind in ("model", "control", "published")} == {
        "model": 1, "control": 5, "published": 0,
    }  # fmt: skip
    link = re.search(r'<a href="(model-1-[\w.-]+\.html)"', html)
    assert link is not None  # to the page of the model, and from there to the report
    report = re.search(r'href="(run-1\.html)#model-1"', (tmp_path / "site" / link[1]).read_text())
    assert report and (tmp_path / "site" / report[1]).exists()


def test_hostile_names_and_reasons_appear_as_text_and_stay_in_the_folder(
    browser: Browser, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spiteful:
        def score(self, episodes: Sequence[rewardlab.Episode]) -> list[Answer]:
            return [rewardlab.Failure(EVIL) if "drawer" in e.instruction else rewardlab.Score(3) for e in episodes]

    monkeypatch.chdir(tmp_path)
    name = f"../../{EVIL}"
    spiteful = NamedModel(name, "0", False, lambda _budget: Spiteful())
    run = evaluate(stress_plan(spiteful, tiny_data, "jpeg", 4))
    assert run.folder.resolve().parent == tmp_path / "runs"
    write_report([run], run.folder / "report.html")
    page, complaints = opened(browser, run, 1280)
    assert page.title() != "owned"
    assert page.locator(FOREIGN).count() == 0
    assert "<script>" in page.locator("#outcomes td.words").nth(2).inner_text()
    assert "<script>" in page.locator("h1").inner_text()
    assert complaints == []
    index = leaderboard([run], out=tmp_path / "site")
    assert "<script>document" not in index.read_text()
    assert {path.parent for path in (tmp_path / "site").rglob("*")} == {tmp_path / "site"}


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_the_window(
    browser: Browser, run: Run, tmp_path: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    index = leaderboard([run], out=tmp_path / "site")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    for path in (run.page, *index.parent.glob("*.html")):
        page.goto(path.resolve().as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path.name
        if width == 1280:  # every column of a table of ranks is on the screen
            cut = "[...document.querySelectorAll('.board')].filter(board => board.closest('.scroll').scrollWidth >"
            assert page.evaluate(f"{cut} board.closest('.scroll').clientWidth + 1).length") == 0
    context.close()
