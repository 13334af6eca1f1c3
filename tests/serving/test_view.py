"""The page over many runs in a real browser: list, side by side, a clip with its curves, live, strangers, from disk."""

import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("playwright")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

import rewardlab
from rewardlab.core.run import Run, start_run
from rewardlab.core.storage import locked
from rewardlab.core.trial import Trial
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.evaluation.findings import model_verdict
from rewardlab.evaluation.summary import save_summary
from rewardlab.reporting.runs_page import RunsPage
from rewardlab.serving.view import ViewServer
from tests.command_here import HEARS_CTRL_C
from tests.handmade_runs import record_of
from tests.plans import stress_plan
from tests.real_browser import Scheme

EVIL = "<img src=x onerror=alert(1)>"
JPEG = re.compile("^data:image/jpeg;base64,")
WAIT = 60_000  # milliseconds; a machine that tests with all cores is slow


@pytest.fixture(scope="module")
def runs(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: one of shipped clips, one of a dataset that a page opens for its owner only."""
    folder = tmp_path_factory.mktemp("view") / "runs"
    for name, data, models in (("shipped", "sample", ["length", "random"]), ("own", str(tiny_data), ["length"])):
        more = dict(limit=4 if name == "shipped" else None, engine="local", workers=1, quiet=True)
        evaluate(stress_plan(models, data, ("gaussian_noise", "task_swap"), (2, 4), out=folder / name, **more))
    return folder


@contextmanager
def served(folder: Path, *, allow_code: bool = False) -> Iterator[str]:
    """Serve the page until the block ends; give its address."""
    with ViewServer(RunsPage(folder, allow_code), 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


def opened(browser: Browser, url: str, width: int = 1280, scheme: Scheme = "light") -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    page.goto(url)
    expect(page.locator("#runs tbody tr, #unreadable li").first).to_be_visible(timeout=WAIT)
    expect(page.locator("#runs td", has_text=re.compile("^…$"))).to_have_count(0, timeout=WAIT)
    return page


def models(page: Page) -> list[str]:
    found: list[str] = page.locator("#runs tbody label").all_inner_texts()
    return found


def row_of(page: Page, name: str) -> Locator:
    return page.locator("#runs tbody tr").filter(has=page.get_by_role("checkbox", name=f"select {name}", exact=True))


def tick(page: Page, *names: str) -> None:
    for name in names:
        page.get_by_role("checkbox", name=f"select {name}", exact=True).check()


@pytest.mark.slow
def test_the_list_has_the_numbers_of_each_run_filters_sorts_and_opens_reports(browser: Browser, runs: Path) -> None:
    with served(runs) as url:
        page = opened(browser, url)
        assert sorted(models(page)) == ["length", "length", "random"]
        row = row_of(page, "random of shipped")
        measured = Run(runs / "shipped").summary.clean("random", "macro_mae")
        assert measured.value is not None and measured.low is not None
        cell = row.locator('[data-heading="MAE"]')
        expect(cell).to_contain_text(f"{measured.value:.2f}")
        expect(cell).to_contain_text(f"[{measured.low:.2f}, ")
        expect(cell).to_contain_text("best control")
        expect(row).to_contain_text("complete")
        page.keyboard.press("/")
        page.keyboard.type("shipped ran")
        assert models(page) == ["random"]
        page.locator("#words").fill("")
        page.locator("#model").select_option("length")
        assert models(page) == ["length", "length"]
        page.locator("#model").select_option("")
        page.locator("#baselines").check()
        assert {"oracle", "constant"} <= set(models(page))
        for _ in range(2):
            page.locator("#runs thead button", has_text=re.compile("^MAE$")).click()
        errors = [float(text) for text in page.locator('[data-heading="MAE"] > span > span').all_inner_texts()]
        assert errors == sorted(errors) and errors[0] == 0  # the oracle
        page.locator("#baselines").uncheck()
        page.get_by_role("link", name="shipped").first.click()
        expect(page.locator("h1")).to_have_text("length, random on sample", timeout=WAIT)
        page.get_by_role("button", name="light / dark").click()  # its own script may run
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.slow
def test_models_stand_side_by_side_with_their_differences_and_the_tests_of_compare(
    browser: Browser, runs: Path
) -> None:
    with served(runs) as url:
        page = opened(browser, url)
        tick(page, "length of shipped")
        expect(page.locator("#compare")).to_be_disabled()
        tick(page, "random of shipped")
        page.locator("#compare").click()
        page.get_by_role("button", name="MAE", exact=True).click()
        summary = Run(runs / "shipped").summary
        a, b = (summary.measurement(m, "visual", 4, "macro_mae").value for m in ("length", "random"))
        assert a is not None and b is not None
        row = page.locator("#sides tbody tr", has_text="visual, severity 4")
        expect(row.locator("td").nth(0)).to_contain_text(f"{a:.2f}")
        expect(row.locator("td").nth(1)).to_contain_text(f"{b:.2f}")
        sign = "−" if b < a else "+"
        expect(row.locator("td").nth(1)).to_contain_text(f"Δ {sign}{abs(b - a):.2f}")
        expect(page.locator("#verdicts dt")).to_have_text(["length", "random"])
        expect(page.locator("#verdicts dd").nth(0)).to_have_text(model_verdict(summary, "length"))
        made = rewardlab.compare(f"{runs / 'shipped'}::length", f"{runs / 'shipped'}::random")
        card = page.locator("#tests article")
        expect(card).to_contain_text("length and random", timeout=WAIT)
        card.locator("summary").click()
        assert card.locator("tbody tr").count() == len(made.tests)
        page.go_back()
        expect(page.locator("#list")).to_be_visible()
        assert page.locator("#count").inner_text() == "2 selected"  # a step back keeps the selection
        tick(page, "length of own")
        page.locator("#compare").click()
        expect(page.locator("#tests article")).to_have_count(2, timeout=WAIT)
        expect(page.locator("#tests article").nth(1)).to_contain_text("share no trial")


def cursor(page: Page) -> float:
    return float(page.locator("#chart .cursor").get_attribute("x1") or "nan")


@pytest.mark.slow
def test_a_clip_its_curves_and_the_cursor_move_together(browser: Browser, runs: Path) -> None:
    with served(runs) as url:
        page = opened(browser, url)
        tick(page, "length of shipped", "random of shipped")
        page.locator("#curves").click()
        frame, seek = page.locator("#frame"), page.locator("#seek")
        expect(frame).to_have_attribute("src", JPEG, timeout=WAIT)
        expect(page.locator("#at")).to_have_text("frame 1 of 16 · 0.00 s")  # it waits: less motion is asked for
        expect(page.locator("#keys")).to_contain_text("random: a level only, no progress per frame")
        assert page.locator("#chart .curve path.line").count() == 1 and page.locator("#chart .level").count() == 1
        first, at = frame.get_attribute("src"), cursor(page)
        seek.focus()
        for _ in range(9):
            page.keyboard.press("ArrowRight")
        expect(page.locator("#at")).to_contain_text("frame 10 of 16")
        assert frame.get_attribute("src") != first and cursor(page) > at
        box = page.locator("#chart").bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] - 14, box["y"] + 60)
        expect(page.locator("#at")).to_contain_text("frame 16 of 16")
        page.locator("#play").click()  # again from the beginning
        expect(page.locator("#at")).not_to_contain_text("frame 16 of 16")
        expect(page.locator("#play")).to_have_text("play", timeout=WAIT)  # it has come to the end
        expect(page.locator("#at")).to_contain_text("frame 16 of 16")
        before = frame.get_attribute("src")
        page.locator("#perturbation").select_option("gaussian_noise")
        expect(page.locator("#severity")).to_have_value("4")
        expect(page.locator("#clip")).not_to_have_attribute("aria-busy", "true", timeout=WAIT)
        expect(page.locator("#at")).to_contain_text("frame 1 of 16")
        assert frame.get_attribute("src") not in (before, first)
        assert page.locator("#clip-note").is_hidden()  # the very pixels that the models saw
        page.reload()  # the clip stands in the address
        expect(page.locator("#perturbation")).to_have_value("gaussian_noise", timeout=WAIT)
        expect(page.locator("#answers")).to_contain_text("true level")


@pytest.mark.slow
def test_a_dataset_that_a_run_names_is_opened_for_its_owner_only_and_curves_stay(browser: Browser, runs: Path) -> None:
    for allow_code in (False, True):
        with served(runs, allow_code=allow_code) as url:
            page = opened(browser, url)
            tick(page, "length of own")
            page.locator("#curves").click()
            labelled = page.locator("#episode option", has_text="wipe the table").get_attribute("value", timeout=WAIT)
            page.locator("#episode").select_option(labelled)
            expect(page.locator("#instruction")).to_have_text("“wipe the table”", timeout=WAIT)
            expect(page.locator("#chart .truth")).to_have_count(1)  # its true progress is known
            expect(page.locator("#chart .curve path.line")).to_have_count(1)
            if allow_code:
                expect(page.locator("#frame")).to_have_attribute("src", JPEG, timeout=WAIT)
            else:
                expect(page.locator("#no-frame")).to_contain_text("--allow-code")
                page.locator("#seek").fill("3")
                expect(page.locator("#at")).to_have_text("frame 4 of 16")


@pytest.mark.slow
def test_the_list_follows_a_run_while_it_is_written(browser: Browser, runs: Path, tmp_path: Path) -> None:
    source = Run(runs / "shipped")
    trials: Sequence[Trial] = source.trials().rows()
    record = source.stored("run.json")
    assert record is not None
    folder = tmp_path / "runs"
    folder.mkdir()
    clean = [trial for trial in trials if trial.perturbation == "clean"]
    rest = [trial for trial in trials if trial.perturbation != "clean"]
    with served(folder) as url:
        run = start_run(folder / "growing", {k: v for k, v in record.items() if k != "sha256"})
        with locked(run.folder):
            run.append(clean)
            page = opened(browser, url)
            page.evaluate("window.sameDocument = true")
            row = row_of(page, "random of growing")
            expect(row).to_contain_text(f"running{len(clean)} of {len(trials)} trials", timeout=WAIT)
            expect(row.locator('[data-heading="MAE"]')).to_contain_text("[", timeout=WAIT)
            expect(row.locator('[data-heading="kept"]')).to_have_text("–")
            tick(page, "random of growing")
            run.append(rest)
            expect(row).to_contain_text(f"running{len(trials)} of {len(trials)} trials", timeout=WAIT)
            expect(row.locator('[data-heading="kept"]')).to_contain_text("severity 4", timeout=WAIT)
            expect(page.locator("#status")).to_have_text("1 run · 1 running")
        expect(row).to_contain_text("stopped", timeout=WAIT)
        save_summary(run)
        expect(row).to_contain_text("complete", timeout=WAIT)
        assert page.evaluate("window.sameDocument") and page.locator("#count").inner_text() == "1 selected"


def hostile(runs: Path, folder: Path) -> Path:
    """Return a folder of strangers' runs: names and texts that are markup, damaged files, links that lead outside."""
    shutil.copytree(runs / "shipped", folder / f"a{EVIL.replace('/', '')}")
    trials = [trial for trial in Run(runs / "shipped").trials().rows() if trial.model == "length"]
    text = f"</script>{EVIL}"
    evil = [replace(trial, model=text, instruction=text, task=text) for trial in trials]
    run = start_run(folder / "texts", record_of(evil, evaluated=[text], created=text))
    run.append(evil)
    (folder / "no-record").mkdir()
    (folder / "no-record" / "run.json").write_text(json.dumps({text: 1}))
    (folder / "link").mkdir()
    (folder / "link" / "run.json").symlink_to(runs / "shipped" / "run.json")
    linked = shutil.copytree(runs / "own", folder / "linked-trials")
    shutil.rmtree(linked / "trials")
    (linked / "trials").symlink_to(runs / "own" / "trials")
    ledger = shutil.copytree(runs / "own", folder / "linked-ledger")
    (ledger / "calls.jsonl").symlink_to("/etc/hostname")
    damaged = shutil.copytree(runs / "own", folder / "damaged")
    (part,) = (damaged / "trials").glob("*.parquet")
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    return folder


@pytest.mark.slow
def test_strangers_runs_run_nothing_and_bad_ones_are_listed_with_a_sentence(
    browser: Browser, runs: Path, tmp_path: Path
) -> None:
    folder = hostile(runs, tmp_path / "runs")
    with served(folder) as url:
        page = opened(browser, url)
        bad = {item.split(" ")[0]: item for item in page.locator("#unreadable li").all_inner_texts()}
        assert set(bad) == {"no-record", "link", "linked-trials", "linked-ledger", "damaged"}
        assert all("leads out of this folder" in text for name, text in bad.items() if name.startswith("link"))
        assert "damaged or edited" in bad["damaged"]
        assert page.locator("main img[src=x]").count() == 0
        assert any(EVIL in text for text in page.locator("#runs tbody tr").all_inner_texts())
        for box in page.locator("#runs tbody input").all():
            box.check()
        page.locator("#curves").click()
        expect(page.locator("#answers tbody tr")).to_have_count(3, timeout=WAIT)
        assert EVIL in page.locator("#answers").inner_text() and page.locator("main img[src=x]").count() == 0
        made = rewardlab.view(folder, export=tmp_path / "site")  # every document can be written
        assert made is not None
        page = opened(browser, made.as_uri())
        assert page.locator("#unreadable li").count() == 5 and page.locator("main img[src=x]").count() == 0


@pytest.mark.slow
def test_the_static_copy_works_from_disk_without_a_network(browser: Browser, runs: Path, tmp_path: Path) -> None:
    index = rewardlab.view(runs, export=tmp_path / "site")
    assert index == tmp_path / "site" / "index.html"
    page = opened(browser, index.as_uri())
    page.context.set_offline(True)
    tick(page, "length of shipped", "random of shipped")
    page.locator("#compare").click()
    expect(page.locator("#tests article")).to_contain_text("length and random", timeout=WAIT)
    page.locator("#curves").click()
    expect(page.locator("#frame")).to_have_attribute("src", JPEG, timeout=WAIT)
    page.locator("#perturbation").select_option("task_swap")
    expect(page.locator("#clip")).not_to_have_attribute("aria-busy", "true", timeout=WAIT)
    page.locator("#home").click()
    page.get_by_role("link", name="shipped").first.click()
    expect(page.locator("h1")).to_have_text("length, random on sample")


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing_and_nothing_is_pushed_off_a_phone(
    browser: Browser, runs: Path, scheme: Scheme, width: int
) -> None:
    with served(runs) as url:
        page = opened(browser, url, width, scheme)

        def sound() -> None:
            assert [each["id"] for each in Axe().run(page).response["violations"]] == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width

        tick(page, "length of shipped", "random of shipped")
        sound()
        page.locator("#compare").click()
        expect(page.locator("#tests article")).to_be_visible(timeout=WAIT)
        sound()
        page.locator("#curves").click()
        expect(page.locator("#frame")).to_have_attribute("src", JPEG, timeout=WAIT)
        sound()


def asked(url: str, path: str = "", **headers: str) -> tuple[int, str, str]:
    """Return status, content security policy and body of a request below the address of the page."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    connection.request("GET", parts.path + path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    found = answer.status, answer.headers.get("content-security-policy", ""), answer.read().decode()
    connection.close()
    return found


def test_the_server_answers_its_own_page_only_and_names_no_files(runs: Path) -> None:
    with served(runs) as url:
        status, policy, html = asked(url)
        assert status == 200 and "default-src 'none'" in policy and "unsafe-inline'; img" in policy
        assert "script-src 'sha256-" in policy and "<h1" in html
        key = json.loads(asked(url, "data/runs.json")[2])["runs"][0]["key"]
        assert asked(url, f"report-{key}.html")[0] == 200
        assert asked(url, Host="rewards.example")[0] == 403  # a name of somebody else's that leads here
        assert asked(url, "data/runs.json", Sec_Fetch_Site="cross-site")[0] == 403
        assert asked(url.replace(urlsplit(url).path, "/another-secret/"), "data/runs.json")[0] == 404
        missing = ("data/../run.json", "shipped/run.json", "%2e%2e/run.json", f"data/run-{'0' * 16}.json")
        for path in (*missing, f"data/tests-{key}-99-{key}-0.json", f"data/frames-{key}-{key}-{key}.json"):
            status, _, body = asked(url, path)
            assert status == 404 and json.loads(body)["error"], path


def test_the_command_prints_the_address_and_ends_with_a_signal(runs: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HEARS_CTRL_C, "view", str(runs), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().rpartition(" at ")[2].strip()
        assert asked(url, "data/runs.json")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
