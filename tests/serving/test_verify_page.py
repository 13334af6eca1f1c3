"""The page in a real browser: two people at once, by keyboard alone, with undo, a reload, and a server that dies."""

import json
import re
import signal
import socket
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright")

import httpx2
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

import rewardlab
from rewardlab.core.episode import FailureEvent
from rewardlab.data import open_dataset
from tests.data.lerobot_writer import write_v3
from tests.real_browser import Scheme
from tests.serving.judged_data import REASON, TOKEN, judged_data, verification_server, verifying_process

ROWS = 50
EVIL = "<img src=x onerror=alert(1)>"
FRAME = re.compile(r"^frame \d")


def arrive(context: BrowserContext, url: str, name: str) -> Page:
    """Open the page and say who is judging, with the keyboard alone."""
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto(url)
    expect(page.locator("#name")).to_be_focused()
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    expect(page.locator("#frame")).to_have_text(FRAME)
    return page


def press(page: Page, key: str) -> None:
    """Give a verdict by key, and wait until it counts: the number of judged rows has gone up."""
    before = judged(page)
    page.keyboard.press(key)
    expect(page.locator("#counts")).to_contain_text(f": {before + 1} judged")


def judged(page: Page) -> int:
    found = re.search(r": (\d+) judged", page.locator("#counts").inner_text())
    assert found is not None
    return int(found[1])


@pytest.mark.slow
def test_two_people_judge_fifty_rows_by_keyboard_with_undo_and_a_reload(browser: Browser, tmp_path: Path) -> None:
    data = judged_data(tmp_path / "data", ROWS)
    with verification_server(data, overlap=0.2) as client:
        url = f"{client.base_url}/#token={TOKEN}"
        anna, ben = (arrive(browser.new_context(), url, name) for name in ("Anna", "Ben"))
        for page, key in ((anna, "a"), (ben, "a"), (anna, "3"), (ben, "r"), (anna, "f"), (ben, "5")):
            press(page, key)
        wrong = anna.locator("#instruction").inner_text()
        press(anna, "r")  # a slip
        anna.keyboard.press("u")
        expect(anna.locator("#instruction")).to_have_text(wrong)
        expect(anna.locator("#counts")).to_contain_text(": 3 judged")
        shown = ben.locator("#instruction").inner_text()
        ben.reload()
        expect(ben.locator("#instruction")).to_have_text(shown)
        expect(ben.locator("#counts")).to_contain_text(": 3 judged")
        while any(page.locator("#work").is_visible() for page in (anna, ben)):
            for page in (anna, ben):
                if page.locator("#work").is_visible():
                    press(page, "a")
        assert "Nothing is left" in anna.locator("#finished").inner_text()
        state = client.get("/api/state", params={"annotator": "Ben"}).json()
        assert state["progress"]["done"] + state["progress"]["disputed"] == ROWS
        agreement = client.get("/api/agreement").json()
        (pair,) = agreement["pairs"]
        assert pair["rows"] >= 5 and pair["kappa"] is not None and agreement["alpha"] is not None
    with closing(sqlite3.connect(data / "verdicts.sqlite")) as file, file:
        standing = file.execute("SELECT item, annotator FROM verdicts WHERE standing = 1").fetchall()
        (kept,) = file.execute("SELECT count(*) FROM verdicts").fetchone()
        (mode,) = file.execute("PRAGMA journal_mode").fetchone()
    assert len(standing) == len(set(standing)) == kept - 1 and mode == "wal"  # the slip is kept, and does not stand
    assert len({item for item, _ in standing}) == ROWS


def test_the_clip_steps_loops_and_is_enlarged_and_reasons_are_hidden_until_asked_for(
    browser: Browser, tmp_path: Path
) -> None:
    data = judged_data(tmp_path / "data", 1)
    with verification_server(data) as client:
        page = arrive(browser.new_context(reduced_motion="reduce"), f"{client.base_url}/#token={TOKEN}", "Anna")
        frame = page.locator("#frame")
        expect(frame).to_have_text("frame 1 of 8")  # it does not move where people ask for less motion
        for key, number in (("ArrowRight", 2), ("End", 8), ("ArrowRight", 8), ("ArrowLeft", 7), ("Home", 1)):
            page.keyboard.press(key)
            expect(frame).to_have_text(f"frame {number} of 8")
        page.keyboard.press("ArrowUp")
        assert page.locator("#speed").input_value() == "2"
        page.keyboard.press("End")
        page.keyboard.press("Space")
        expect(frame).not_to_have_text("frame 8 of 8")  # it begins again
        page.keyboard.press("e")
        expect(page.locator("#big-image")).to_be_visible()
        assert page.locator("#big-image").evaluate("image => image.naturalWidth") == 32
        page.keyboard.press("a")  # nothing is judged behind a dialog
        page.keyboard.press("Escape")
        assert REASON not in page.locator("body").inner_text()
        page.keyboard.press("v")
        expect(page.locator("#reasons-text")).to_contain_text(REASON)
        page.keyboard.press("n")
        page.keyboard.type("a 3 at best")  # keys write here
        page.keyboard.press("Escape")
        press(page, "2")
        row = client.get("/api/verified.jsonl").json()
        assert row["reward"] == 2 and row["success"] is False and row["provenance"]["proposed_level"] == 1
        mine = row["provenance"]["verdicts"][-1]
        assert (mine["rationale"], mine["rationale_seen"], mine["decision"]) == ("a 3 at best", True, "correct")
        page.goto(f"{client.base_url}/#token=that-of-another-day")
        page.reload()
        expect(page.locator("#trouble")).to_contain_text("Open the address that it printed")
        page.goto(str(client.base_url))
        page.reload()
        expect(page.locator("#locked")).to_be_visible()  # no token at all


def test_why_and_when_it_failed_is_chosen_by_keys_shown_where_it_is_known_and_exported(
    browser: Browser, tmp_path: Path
) -> None:
    data = judged_data(tmp_path / "data", 3)
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()]
    for row in rows:
        row |= {"reward": 2, "failure_cause": "collision", "failure_frame": 5}
    (data / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with verification_server(data, overlap=0) as client:
        page = arrive(browser.new_context(reduced_motion="reduce"), f"{client.base_url}/#token={TOKEN}", "Anna")
        expect(page.locator("#cause")).to_have_value("collision")
        expect(page.locator("#marked")).to_have_text("failed at frame 6")
        page.keyboard.press("c")
        page.keyboard.press("d")
        expect(page.locator("#cause")).to_have_value("dropped")
        for key in ("Home", "ArrowRight", "ArrowRight", "m"):
            page.keyboard.press(key)
        expect(page.locator("#marked")).to_have_text("failed at frame 3")
        press(page, "3")
        expect(page.locator("#result")).to_contain_text("Saved: level 3, dropped")
        expect(page.locator("#cause")).to_have_value("collision")  # of the next row
        for key in ("End", "m", "m"):
            page.keyboard.press(key)
        expect(page.locator("#marked")).to_have_text("")
        press(page, "a")
        press(page, "5")
        lines = client.get("/api/verified.jsonl").text.splitlines()
        found = [(row["reward"], row.get("failure_cause"), row.get("failure_frame")) for row in map(json.loads, lines)]
        assert sorted(found, key=str) == [(2, "collision", None), (3, "dropped", 2), (5, None, None)]
        split = rewardlab.data_verify(data, export=tmp_path / "out")
    assert split is not None
    failures = {episode.label.level: episode.label.failure for episode in open_dataset(str(tmp_path / "out")).episodes}
    assert failures == {2: FailureEvent("collision"), 3: FailureEvent("dropped", 2), 5: None}


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing_in_either_scheme_and_nothing_is_pushed_off_a_phone(
    browser: Browser, tmp_path: Path, scheme: Scheme, width: int
) -> None:
    data = judged_data(tmp_path / "data", 6)
    lines = (data / "metadata.jsonl").read_text(encoding="utf-8").replace("push square", f"push {EVIL} {'w' * 80}")
    (data / "metadata.jsonl").write_text(lines, encoding="utf-8")
    with verification_server(data, overlap=1) as client:
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
        page = arrive(context, f"{client.base_url}/#token={TOKEN}", "Anna")
        assert EVIL in page.locator("#instruction").inner_text()
        press(page, "a")
        for key in ("", "?", "g"):
            if key:
                page.keyboard.press(key)
                expect(page.locator("dialog[open]")).to_be_visible()
            assert [each["id"] for each in Axe().run(page).response["violations"]] == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.keyboard.press("Escape")
        context.close()


def judge_until_it_dies(url: str, name: str, acknowledged: list[str]) -> None:
    """Give verdicts without a pause, and note the request of each that was acknowledged."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    address = url.partition("#")[0]
    with httpx2.Client(base_url=address, headers=headers, timeout=10) as client, suppress(httpx2.TransportError):
        while rows := client.get("/api/state", params={"annotator": name}).json()["rows"]:
            given = {"request": f"{name}-{len(acknowledged):08d}", "annotator": name, "item": rows[0]["key"]}
            client.post("/api/verdicts", json=given | {"decision": "accept"}).raise_for_status()
            acknowledged.append(given["request"])


@pytest.mark.slow
def test_a_server_killed_while_people_click_loses_no_acknowledged_verdict(browser: Browser, tmp_path: Path) -> None:
    data, acknowledged = judged_data(tmp_path / "data", 5_000), [list[str](), list[str]()]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with verifying_process(data, port) as (process, url):
        others = [
            threading.Thread(target=judge_until_it_dies, args=(url, name, kept))
            for name, kept in zip(("Ben-Ben", "Carl-Carl"), acknowledged, strict=True)
        ]
        page = arrive(browser.new_context(), url, "Anna")
        for other in others:
            other.start()
        for _ in range(3):
            press(page, "a")
        waiting = threading.Event()
        while not all(acknowledged):
            waiting.wait(0.01)
        page.keyboard.press("a")  # this one may be under way when the server dies
        process.send_signal(signal.SIGKILL)
        process.wait()
    for other in others:
        other.join()
    page.locator("#accept").click()
    expect(page.locator("#trouble")).to_contain_text("not saved yet")
    told = judged(page)
    assert told >= 3 and all(acknowledged)
    with verifying_process(data, port):
        expect(page.locator("#counts")).to_contain_text(f": {told + 1} judged")  # sent again, by itself
        expect(page.locator("#trouble")).to_be_hidden()
        page.reload()
        expect(page.locator("#counts")).to_contain_text(f": {told + 1} judged")
    with closing(sqlite3.connect(data / "verdicts.sqlite")) as file, file:
        requests = {request for (request,) in file.execute("SELECT request FROM verdicts WHERE standing = 1")}
        mine = file.execute("SELECT count(*), count(DISTINCT item) FROM verdicts WHERE annotator = 'Anna'").fetchone()
    assert requests >= {*acknowledged[0], *acknowledged[1]}  # nothing lost
    assert mine == (told + 1, told + 1)  # and nothing said twice


def test_a_dataset_in_another_layout_is_labelled_on_a_copy_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_v3(tmp_path / "lerobot")
    here = tmp_path / "here"
    here.mkdir()
    with verifying_process(data, 0, cwd=here) as (_, address):
        headers = {"authorization": f"Bearer {TOKEN}"}
        with httpx2.Client(base_url=address.partition("#")[0], headers=headers, timeout=60) as client:
            rows = client.get("/api/state", params={"annotator": "Ann"}).json()["rows"]
            given = {"request": "Ann-00000000", "annotator": "Ann", "item": rows[0]["key"], "decision": "correct"}
            client.post("/api/verdicts", json=given | {"level": 4}).raise_for_status()
    monkeypatch.chdir(here)
    split = rewardlab.data_verify(data, export="labelled")
    assert split is not None and split.sentence().startswith("1 verified rows (1 at a corrected level)")
    row = json.loads((here / "labelled" / "metadata.jsonl").read_text(encoding="utf-8"))
    assert row["reward"] == 4 and row["task"] == rows[0]["instruction"]
    assert [path.name for path in here.glob("lerobot-verify-*")] != [] and not list(data.glob("*.sqlite"))
