"""The page in a real browser."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import rewardlab
from rewardlab.core.run import Run
from rewardlab.data.video import encode
from tests.conftest import moving_square, write_rows

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
EVIL = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("page")
    rows = [{"file_name": f"s/{n}.mp4", "task": f"{EVIL} {n}", "reward": 1 + n} for n in range(4)]
    (folder / "s").mkdir()
    for row in rows:
        encode(moving_square(str(row["file_name"])), folder / str(row["file_name"]), fps=10)
    some = ("gaussian_noise", "typo_keyboard", "truncate_end", "resolution")
    made = rewardlab.stress("clock", write_rows(folder, rows), perturbations=some, out=folder / "run")
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


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


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_drawn_without_complaint_or_network_at_any_width(browser: Browser, run: Run, width: int) -> None:
    page, complaints = opened(browser, run, width)
    charts = page.locator(".charts:visible svg.chart")
    assert charts.count() == 4
    for index in range(4):
        assert charts.nth(index).locator("g.curve path").count() == 4  # one curve per model
        box = charts.nth(index).bounding_box()
        assert box is not None and box["width"] > 150 and box["height"] > 90
    assert page.locator("#heat td[data-good]").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert complaints == []


@needs_browser
def test_tabs_change_the_figures_and_clips_play(browser: Browser, run: Run) -> None:
    page, complaints = opened(browser, run, 1280)
    page.get_by_role("tab", name="MAE").click()
    assert page.locator('[data-panel="macro_mae"]').is_visible()
    assert not page.locator('[data-panel="success_accuracy"]').is_visible()
    assert page.locator("article").count() >= 4
    page.locator("article .play").first.click()
    page.wait_for_function("document.querySelector('article video').currentTime > 0.2")
    assert complaints == []


@needs_browser
def test_hostile_instructions_appear_as_text(browser: Browser, run: Run) -> None:
    page, complaints = opened(browser, run, 1280)
    assert page.title() != "owned"
    assert page.locator("main img, main script").count() == 0
    assert "<script>" in page.locator("article q").first.inner_text()
    assert complaints == []


def test_the_page_still_opens_when_the_dataset_is_gone(tiny_data: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(tiny_data, data)
    run = rewardlab.stress("clock", data, perturbations=("gaussian_noise",), severities=(4,), out=tmp_path / "run")
    shutil.rmtree(data)
    assert "The clips cannot be shown" in rewardlab.write_report(run).read_text()


def test_the_page_says_what_it_was_made_with(run: Run) -> None:
    html = (run.folder / "report.html").read_text()
    record = json.loads((run.folder / "run.json").read_text())
    for name, version in record["versions"].items():
        assert f"{name} {version}" in html
