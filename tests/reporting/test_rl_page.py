"""The page of studies of rewards and policies, in a browser."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from rewardlab.core.errors import RunError
from rewardlab.rl.results import FalseSuccess, HackedEpisode, OfflineMeasures, accuracy_at, write_results
from rewardlab.studies.rl.page import study_rl_page
from tests.evaluation.test_rl_findings import TASKS, study, training


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one study of each figure; a hacked clip points outside its folder."""
    place = tmp_path_factory.mktemp("rl")
    hacked = HackedEpisode("../../secret.mp4", 5.0, 1, 0.1, (0.1, 0.0, 0.0), (0.0, 0.0, 0.0), 0.2)
    (place / "secret.mp4").write_bytes(b"secret")
    fooled = replace(training("door", "pocket", 0.2), hacked=(hacked,), after=FalseSuccess(8, 6, 10))
    types = [training(task, reward, 0.8) for task in TASKS for reward in ("true", "head:binary", "head:levels")]
    quality = [training(task, f"model {n}", n / 12) for n in range(10) for task in TASKS]
    offline = [OfflineMeasures(f"model {n}", task, 40, {"mae": 2 - n / 6}) for n in range(10) for task in (*TASKS, "")]
    worlds = [training("door", "pocket", 0.9 - level / 5, condition=f"noise@{level}") for level in range(1, 5)]
    right = {accuracy_at("noise", level): 0.9 for level in range(5)}
    studies = {
        "types": study("types", [*types, fooled]),
        "quality": study("quality", quality, tuple(offline)),
        "severity": study("severity", [training("door", "pocket", 0.9), *worlds], (_measured(right),)),
    }
    for name, results in studies.items():
        (place / "runs" / name).mkdir(parents=True)
        write_results(results, place / "runs" / name)
    return study_rl_page([place / "runs" / name for name in studies], out=place / "page.html")


def _measured(right: dict[str, float]) -> OfflineMeasures:
    return OfflineMeasures("pocket", "", 60, dict(right))


@pytest.mark.slow
def test_the_page_is_readable_by_everyone_and_fits_a_telephone(page: Path, browser: Browser) -> None:
    view = browser.new_page(viewport={"width": 390, "height": 800})
    view.goto(page.as_uri())
    assert view.evaluate("document.documentElement.scrollWidth") <= 390
    assert view.locator("svg.chart").count() == 4 + 1 + 4 + 1 + 1 + 1
    found = Axe().run(view).response["violations"]
    view.close()
    assert [(each["id"], each["nodes"][0]["html"][:120]) for each in found] == []


def test_the_three_figures_say_what_came_out(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "head:levels against head:binary: +0 points, one seed per task: inconclusive" in text
    assert "r = 1.00 [1.00, 1.00]" in text
    assert "learning holds up to 1, certified up to 4" in text


def test_no_clip_from_outside_the_folder_is_shown(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "the object is not moved" in text and "data:video/mp4" not in text and "c2VjcmV0" not in text


def test_a_folder_without_a_study_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"rl\.json cannot be read .*rewardlab study rl PLAN"):
        study_rl_page(tmp_path, out=tmp_path / "page.html")


@pytest.mark.slow
def test_the_kept_records_give_the_numbers_that_are_published(tmp_path: Path) -> None:
    kept = Path(__file__).parents[2] / "results" / "rl"
    studies = [kept / name for name in ("dsrl_true", "reward_types", "quality", "severity")]
    text = study_rl_page(studies, out=tmp_path / "page.html").read_text(encoding="utf-8")
    found = re.search(r"r = 0\.\d\d \[[\d., ]+\]", text)
    assert found and found[0] in (kept / "README.md").read_text(encoding="utf-8")
    assert "plate-slide from 18% to 100%, window-open from 40% to 100%" in text
    assert "head:levels against head:binary: -11 points [-22, -2], worse" in text
    assert "pocket under gaussian_noise: success 94%, 92%, 93%, 92%, 33% at severities 0 to 4" in text
    assert "pocket-plain under gaussian_noise: success 91%, 60%, 49%, 31%, 16% at severities 0 to 4" in text
