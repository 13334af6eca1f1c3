"""The live page in a real browser: a session streamed from a real clip."""

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright")

import httpx2
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext

from rewardlab.core.episode import Episode
from rewardlab.data import open_dataset
from rewardlab.serving.batching import load_served_model
from tests.serving.loopback_server import reward_server
from tests.serving.test_server import npy

EVIL = "<img src=x onerror=alert(1)> "


@pytest.mark.slow
def test_a_streamed_session_is_drawn_with_its_curve_and_uncertainty(browser: Browser) -> None:
    episode = open_dataset("sample-sim").episodes[0]
    frames = episode.frames[:24]
    with reward_server("pocket", load_served_model("pocket").model) as client:
        opened = client.post("/v1/sessions", json={"instruction": EVIL + episode.instruction}).json()
        path = f"/v1/sessions/{opened['session']}"
        for start in range(0, len(frames), 8):
            client.post(f"{path}/frames", content=npy(frames[start : start + 8]))
            client.get(path)
        for scheme in ("light", "dark"):
            check_page(
                browser.new_context(color_scheme=scheme, viewport={"width": 390, "height": 800}), client, episode
            )


def check_page(context: BrowserContext, client: httpx2.Client, episode: Episode) -> None:
    page, complaints = context.new_page(), list[str]()
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(str(client.base_url))
    page.wait_for_selector("section img[src^=blob]")
    points = page.locator("polyline.progress").get_attribute("points")
    assert points is not None and len(points.split()) == 3
    assert page.locator("h2").inner_text() == EVIL + episode.instruction
    assert {"level", "success", "prediction set", "familiarity"} <= set(page.locator("dt").all_inner_texts())
    assert "within its training data (distance " in page.locator("dl").inner_text()
    assert page.locator("section img").evaluate("image => image.naturalWidth") == episode.frames.shape[2]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert [each["id"] for each in Axe().run(page).response["violations"]] == []
    assert complaints == []
    context.close()
