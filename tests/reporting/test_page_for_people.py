"""What a person meets on the page: names that fit, legends, paper, a phone, clips, and what the models said."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

import rewardlab
from rewardlab.core.run import Run
from rewardlab.core.video_encoding import encode
from rewardlab.evaluation.display import format_date
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.evaluation.findings import verdict
from rewardlab.models.contract import NamedModel
from rewardlab.reporting.report import write_report
from rewardlab.reporting.run_page import perturbation_views, unscored_trials
from rewardlab.reporting.trial_cards import MOST_TRIALS, RENDERED
from tests.conftest import IN_PROCESS, moving_square, write_rows
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


@pytest.fixture(scope="module")
def unlabelled(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("no labels")  # with a space, which a shell needs quoted
    rows = [{"file_name": f"{n}.mp4", "task": "open the drawer"} for n in range(3)]
    for row in rows:
        encode(moving_square(row["file_name"]), folder / row["file_name"], fps=10)
    some = ("jpeg", "typo_keyboard", "task_swap")
    return rewardlab.stress(
        ("random", "motion"), write_rows(folder, rows), perturbations=some, severities=(2, 4),
        execution=IN_PROCESS, out=folder / "run",
    )  # fmt: skip


def opened(browser: Browser, run: Run, width: int = 1280) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(run.page.resolve().as_uri())
    return page


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_a_long_model_string_stands_once_and_pushes_nothing_off_the_page(
    browser: Browser, run: Run, width: int
) -> None:
    page = opened(browser, run, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h1").inner_text().startswith(f"{SHORT} on ")
    assert page.locator("#names dd").all_inner_texts() == [SERVED]
    for table in ("#clean", "#perturbations", "#controls", ".cards table"):
        text = page.locator(table).first.text_content() or ""  # of a closed part too
        assert SERVED not in text and SHORT in text, table
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


def test_the_page_begins_with_the_verdict_and_its_parts_are_in_the_order_of_the_bar(browser: Browser, run: Run) -> None:
    page = opened(browser, run)
    assert page.locator("#verdict p").all_inner_texts() == [
        line.replace(SERVED, SHORT) for line in verdict(run.summary)
    ]
    top = "document.querySelector('#verdict').getBoundingClientRect().bottom"
    assert page.evaluate(top) < page.evaluate("document.querySelector('h2').getBoundingClientRect().top")
    linked = [link.get_attribute("href") for link in page.locator("nav a").all()]
    assert linked == [f"#{heading.get_attribute('id')}" for heading in page.locator("h2").all()]


def test_six_tiles_have_six_different_headings(browser: Browser, run: Run) -> None:
    headings = opened(browser, run).locator("#model-1 .tiles span").all_inner_texts()
    assert len(headings) == len(set(headings)) == 6


def test_lines_are_told_apart_without_colour_and_carry_their_names(browser: Browser, run: Run) -> None:
    page = opened(browser, run)
    looks = page.locator(".legend .key").evaluate_all(
        """keys => keys.map(key => key.querySelector(".line").style.strokeDasharray + " " +
        (key.querySelector(".dot")?.getAttribute("d") ?? "circle"))"""
    )
    assert len(looks) == len(set(looks)) == len(run.summary.models)
    chart = page.locator("[data-group=metric]:not([hidden]) svg.chart").first
    names = chart.locator("text.name").all_text_contents()
    assert len(names) == chart.locator("path.line").count() and "constant" in names
    heights = [float(text.get_attribute("y") or 0) for text in chart.locator("text.name").all()]
    assert min(b - a for a, b in pairwise(heights)) > 8  # none lies on another


@pytest.mark.parametrize("width", [1280, 390])
def test_no_word_of_a_table_is_broken(browser: Browser, run: Run, width: int) -> None:
    broken = opened(browser, run, width).evaluate(
        """() => [...document.querySelectorAll("th, td")].flatMap(cell => {
          const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), found = [];
          for (let node; (node = walker.nextNode());) for (const word of node.data.matchAll(/[A-Za-z_]{3,24}/g)) {
            const range = document.createRange();
            range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
            if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) found.push(word[0]);
          }
          return found; })"""
    )
    assert broken == []


def test_on_a_phone_long_parts_are_closed_and_wide_tables_show_that_they_scroll(browser: Browser, run: Run) -> None:
    page = opened(browser, run, 390)
    assert page.locator("details.long").count() > 0 and page.locator("details.long[open]").count() == 0
    assert opened(browser, run, 1280).locator("details.long:not([open])").count() == 0
    box = page.locator(".scroll:has(#clean)")
    page.wait_for_function("document.querySelector('#clean').closest('.scroll').classList.contains('beyond')")
    box.evaluate("box => box.scrollTo(box.scrollWidth, 0)")
    page.wait_for_function("!document.querySelector('#clean').closest('.scroll').classList.contains('beyond')")


def test_the_worst_clips_are_those_whose_error_rose_most(browser: Browser, run: Run) -> None:
    cards = opened(browser, run).locator("article")
    assert cards.count() > 0
    said = [card.locator(".shift").inner_text() for card in cards.all() if card.is_visible()]
    rises = [float(text.rpartition("worse by ")[2]) for text in said]
    assert rises == sorted(rises, reverse=True) and min(rises) >= 0.5
    trials = [
        t for t in run.trials().rows() if t.model == SERVED and t.level is not None and t.expectation != "undefined"
    ]
    highest = {t.perturbation: max(o.severity for o in trials if o.perturbation == t.perturbation) for t in trials}
    known = [(t, abs(t.level - t.truth_level)) for t in trials if t.level is not None and t.truth_level is not None]
    clean = {trial.episode: error for trial, error in known if trial.category == "clean"}
    changed = [(t, error) for t, error in known if t.category != "clean" and t.severity == highest[t.perturbation]]
    assert rises[0] == max(error - clean[t.episode] for t, error in changed if t.episode in clean)


def test_skipped_trials_say_where_a_perturbation_applies_and_what_would_make_it_apply(
    browser: Browser, run: Run
) -> None:
    page = opened(browser, run)
    assert any(
        "task_swap applies to " in said and " of 12 cases" in said
        for said in page.locator(".applies li").all_inner_texts()
    )
    row = page.locator("#outcomes tr", has_text="known to be a success").first
    assert "rewardlab data verify" in row.inner_text() and "skipped" in row.inner_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_without_labels_the_page_says_so_first_and_shows_the_expectations_kept(
    browser: Browser, unlabelled: Run, width: int
) -> None:
    page = opened(browser, unlabelled, width)
    note = page.locator("main [role=note]").first
    assert note.inner_text().startswith("No labels.") and note.bounding_box() is not None
    assert note.locator("code").inner_text() == f"rewardlab data verify '{unlabelled.folder.parent}'"
    tiles = page.locator("#model-1 .tiles div")
    assert tiles.first.inner_text().startswith("expectations kept") and "kept" in tiles.first.inner_text()
    assert not [cell for cell in page.locator("td").all_inner_texts() if cell.partition("\n")[0] == "-"]
    for absent in ("#clean", "#controls", "#drops", ".thresholds", "#calibration", "#wrong"):
        assert page.locator(absent).count() == 0, absent
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    card = (unlabelled.folder / "report" / "card.md").read_text()
    assert "These episodes have no labels" in card and "| - |" not in card.partition("| category |")[0]


def test_a_perturbation_with_nothing_to_measure_has_no_row(unlabelled: Run) -> None:
    views = perturbation_views(unlabelled.summary, [unlabelled.trials()], {})
    assert {(view.name, view.severity) for view in views} == {("jpeg", 4), ("typo_keyboard", 4)}


def test_a_row_counts_the_skipped_trials_of_its_own_model_and_severity(run: Run) -> None:
    trials = [trial for trial in run.trials().rows() if trial.status == "dropped"]
    views = perturbation_views(run.summary, [run.trials()], {})
    for view in views:
        own = [t for t in trials if (t.model, t.perturbation, t.severity) == (view.model, view.name, view.severity)]
        assert view.dropped == len(own)
    assert sum(view.dropped for view in views) > 0
