"""What a person meets on the page: names that fit, legends, paper, a phone, clips, and what the models said."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

import rewardlab
from rewardlab.core.run import Run
from rewardlab.evaluation.display import format_date
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.models.contract import NamedModel
from rewardlab.reporting.report import write_report
from rewardlab.reporting.run_page import unscored_trials
from rewardlab.reporting.trial_cards import MOST_TRIALS, RENDERED
from tests.plans import stress_plan
from tests.reporting.test_page import EVIL, FOREIGN

SERVED = "openai:Qwen/Qwen3-VL-8B-Instruct@http://a.rather.long.name.of.a.host.example:8000/v1?temperature=0&fps=2"
SHORT = "Qwen3-VL-8B-Instruct"
SOME = ("jpeg", "task_swap", "truncate_end", "typo_keyboard")


class Wordy:
    """Says 5 of everything in words, and of drawers nothing that can be read."""

    def score(self, episodes: Sequence[rewardlab.Episode]) -> list[rewardlab.Score | rewardlab.Failure]:
        unread = rewardlab.Failure("the answer could not be read: hm", raw=f"hm {EVIL}")
        five = rewardlab.Score(5, raw=f"{EVIL}\nANSWER: 5")
        return [unread if "drawer" in episode.instruction else five for episode in episodes]


@pytest.fixture(scope="module")
def run(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    scoring = dict(workers=1, engine="local", out=tmp_path_factory.mktemp("served") / "run")
    asked = lambda instruction: f"{EVIL} Task: {instruction}"
    served = NamedModel(SERVED, "0", False, lambda _budget: Wordy(), prompt=asked)
    made = evaluate(stress_plan(served, tiny_data, SOME, (1, 4), **scoring))
    write_report([made], made.page, allow_code=True)
    return made


def opened(browser: Browser, run: Run, width: int = 1280) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(run.page.resolve().as_uri())
    return page


@pytest.mark.parametrize("width", [1280, 390])
def test_a_long_model_string_stands_once_and_pushes_nothing_off_the_page(
    browser: Browser, run: Run, width: int
) -> None:
    page = opened(browser, run, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h1").inner_text().startswith(f"{SHORT} on ")
    assert page.locator("#names dd").all_inner_texts() == [SERVED]
    for table in ("#clean", "#perturbations", "#controls", ".cards table"):
        assert SERVED not in page.locator(table).first.inner_text() and SHORT in page.locator(table).first.inner_text()
    if width == 1280:  # every number of the first table is on the screen without scrolling
        assert page.evaluate("document.querySelector('#clean').getBoundingClientRect().right") <= width


def test_every_column_of_numbers_has_a_legend_and_is_aligned_to_the_right(browser: Browser, run: Run) -> None:
    page = opened(browser, run)
    for table in ("#clean", "#perturbations", "#controls", "#drops"):
        legend = page.locator(f"{table} >> xpath=../following-sibling::p[1]").inner_text()
        columns = page.evaluate(
            """table => { const row = document.querySelector(table + " tbody tr");
            return [...document.querySelectorAll(table + " thead th")].map((head, place) => [head.innerText,
              row.cells[place].dataset.value !== undefined, getComputedStyle(row.cells[place]).textAlign]); }""",
            table,
        )
        for heading, number, align in columns:
            assert not number or (heading in legend and align == "right"), (table, heading)


def test_on_paper_clips_are_stills_colours_stay_and_nothing_is_cut(browser: Browser, run: Run) -> None:
    page = opened(browser, run, 740)
    page.emulate_media(media="print")
    assert page.locator("article video:visible").count() == 0
    stills = page.locator("article img.still:visible")
    assert stills.count() == 2 * page.locator("article").count() > 0
    assert page.locator("[data-panel]:visible").count() == page.locator("[data-panel]").count()
    cut = "[...document.querySelectorAll('.scroll, pre, #viewer')].filter(e => e.scrollWidth > e.clientWidth + 1 &&"
    assert page.evaluate(f"{cut} getComputedStyle(e).overflowX !== 'visible').length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 740
    adjust = "getComputedStyle(document.querySelector('.heat td[data-good]')).webkitPrintColorAdjust"
    assert page.evaluate(adjust) == "exact"


def test_the_controls_of_clips_stand_below_them_and_move_both(browser: Browser, run: Run) -> None:
    page = opened(browser, run)
    card = page.locator("article").first
    clips, controls = card.locator("video"), card.locator(".transport")
    assert clips.first.get_attribute("controls") is None
    below, clip = controls.bounding_box(), clips.first.bounding_box()
    assert below is not None and clip is not None and below["y"] >= clip["y"] + clip["height"]
    page.wait_for_function("[...document.querySelectorAll('article video')].every(clip => clip.duration > 0)")
    card.locator(".seek").fill("0.5")
    times = card.evaluate("card => [...card.querySelectorAll('video')].map(clip => clip.currentTime / clip.duration)")
    assert times == pytest.approx([0.5, 0.5], abs=0.05)


def test_what_a_model_was_asked_and_said_can_be_read_and_filtered(browser: Browser, run: Run) -> None:
    page = opened(browser, run)
    trials = page.locator("#viewer .trial")
    assert 0 < trials.count() <= MOST_TRIALS and 0 < page.locator("#viewer img.strip").count() <= RENDERED
    assert trials.first.get_attribute("data-verdict") == "failed"  # the worst come first
    trials.first.locator("summary").first.press("Enter")  # no place on a page whose pictures still come
    trials.first.locator(".prompt summary").press("Enter")
    text = trials.first.inner_text()
    for words in (f"{EVIL} Task: ", f"hm {EVIL}", "nothing: the answer could not be read: hm", "drawer"):
        assert words in text, words
    page.locator("#said-verdict").select_option("right")
    shown = page.locator("#viewer .trial:visible")
    assert 0 < shown.count() < trials.count()
    assert {trial.get_attribute("data-verdict") for trial in shown.all()} == {"right"}
    page.locator("#said-filter").fill("no such word")
    assert shown.count() == 0 and page.locator("#said-count").inner_text().startswith("0 of ")
    assert page.title() != "owned" and page.locator(FOREIGN).count() == 0


def test_the_time_of_a_run_is_readable(run: Run) -> None:
    assert format_date("2026-11-15T19:30:31+00:00") == "15 November 2026, 19:30 UTC"
    assert format_date("yesterday <b>") == "yesterday <b>"
    assert format_date(run.record.created) in run.page.read_text()


def test_what_the_oracle_drops_stands_below_what_judged_models_failed_and_dropped(run: Run) -> None:
    rows = unscored_trials([run.trials()], run.record.evaluated)
    assert rows[0].model == SERVED and rows[0].status == "failed"
    dropped = [row.model == SERVED for row in rows if row.status == "dropped"]
    assert dropped == sorted(dropped, reverse=True) and "oracle" in {row.model for row in rows}
    shared = [row for row in rows if row.model == "every model"]
    assert shared and not any(row.reason == one.reason and row is not one for one in shared for row in rows)
    assert sum(row.trials for row in rows) == len(run.trials().where(~run.trials().matches("status", "scored")))


def test_a_report_stays_small_and_needs_no_dataset(run: Run, tmp_path: Path) -> None:
    page = write_report([run], tmp_path / "page.html").read_text()  # a stranger's: no dataset is opened
    assert "ANSWER: 5" in page and 'class="strip"' not in page.partition("<body>")[2]
