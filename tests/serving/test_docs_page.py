"""The page at `/docs`: what it shows holds for a real server, and it works in a browser without the internet."""

import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright")

import cv2
import httpx2
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.conftest import moving_square
from tests.serving.loopback_server import reward_server
from tests.serving.served_models import Recorder
from tests.serving.test_server import npy

FRAMES = moving_square("a", count=3, size=16)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with reward_server("recorder", Recorder()) as made:
        yield made


def endpoint(html: str, name: str) -> str:
    """Return the part of the page about one endpoint."""
    found = re.search(rf'<details id="{name}">.*?</details>', html, flags=re.DOTALL)
    assert found is not None, name
    return found[0]


def answer_shown(html: str, name: str) -> Any:
    return json.loads(unescape(endpoint(html, name).partition('aria-label="answer">')[2].partition("</pre>")[0]))


def test_every_endpoint_of_the_openapi_document_is_on_the_page(client: httpx2.Client) -> None:
    html = client.get("/docs").text
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            assert f'data-method="{method.upper()}" data-path="{path}"' in html
            assert unescape(html).count(operation["description"].split("`")[0].split("\n")[0]) >= 1
    assert "/v1/stream" in html


def test_nothing_on_the_page_comes_from_elsewhere(client: httpx2.Client) -> None:
    reply = client.get("/docs")
    assert set(re.findall(r"https?://[^/\s\"&<]+", reply.text)) == {"http://127.0.0.1:8000"}
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert client.get("/redoc").status_code == 404


def test_examples_of_answers_have_the_fields_of_real_ones(client: httpx2.Client) -> None:
    html = client.get("/docs").text
    clip, instruction = {"clip": npy(FRAMES)}, {"instruction": "open the drawer"}
    opened = client.post("/v1/sessions", json={"instruction": "push", "score_every": 3})
    path = f"/v1/sessions/{opened.json()['session']}"
    sample = json.loads(re.findall(r"<textarea[^>]*>(.*?)</textarea>", endpoint(html, "post-evaluate_batch"))[0])
    real = {
        "post-v1-score": client.post("/v1/score", files=clip, data=instruction),
        "post-v1-sessions": opened,
        "post-v1-sessions-name-frames": client.post(f"{path}/frames", content=npy(FRAMES)),
        "get-v1-sessions-name": client.get(path),
        "post-evaluate_batch": client.post("/evaluate_batch", json=sample),
        "get-v1-live": client.get("/v1/live"),
        **{f"get-{name}": client.get(f"/{name}") for name in ("health", "model_info", "gpu_status")},
        "get-v1-models": client.get("/v1/models"),
    }
    for name, reply in real.items():
        assert reply.is_success, reply.text
        assert answer_shown(html, name).keys() <= reply.json().keys(), name
    shown, live = answer_shown(html, "get-v1-live")["sessions"][0], real["get-v1-live"].json()["sessions"][0]
    assert shown.keys() == live.keys() and shown["curve"][0].keys() <= live["curve"][0].keys()
    client.delete(path)


def opened_page(browser: Browser, client: httpx2.Client, scheme: str = "light") -> tuple[Page, list[str]]:
    """Return the page with every endpoint unfolded, and a list that collects complaints and requests elsewhere."""
    page = browser.new_page(color_scheme=scheme, viewport={"width": 390, "height": 800})
    complaints = list[str]()
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    own = (str(client.base_url), "data:", "blob:")
    page.on("request", lambda request: None if request.url.startswith(own) else complaints.append(request.url))
    page.goto(f"{client.base_url}/docs")
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    return page, complaints


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_session_is_tried_on_a_narrow_screen(browser: Browser, client: httpx2.Client, scheme: str) -> None:
    page, complaints = opened_page(browser, client, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#post-v1-sessions button").click()
    page.wait_for_selector("#post-v1-sessions output .good")
    image = cv2.imencode(".png", FRAMES[0])[1].tobytes()
    append = page.locator("#post-v1-sessions-name-frames")
    append.locator("input[type=file]").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": image})
    append.locator("button").click()
    page.wait_for_selector("#post-v1-sessions-name-frames output .good")
    page.locator("#get-v1-sessions-name button").click()
    page.wait_for_selector("#get-v1-sessions-name output .good")
    assert json.loads(page.locator("#get-v1-sessions-name output pre").inner_text())["frames"] == 1
    page.locator("#get-v1-sessions-name-frame button").click()
    page.wait_for_selector("#get-v1-sessions-name-frame output img")
    page.locator("#delete-v1-sessions-name button").click()
    page.wait_for_selector("#delete-v1-sessions-name output .good")
    assert page.locator("#delete-v1-sessions-name output").inner_text() == "status 204\nnothing"
    assert [each["id"] for each in Axe().run(page).response["violations"]] == []
    assert complaints == []
    page.close()


def test_a_clip_is_tried_and_an_error_is_shown(browser: Browser, client: httpx2.Client) -> None:
    page, _ = opened_page(browser, client)
    as_form, as_json = (page.locator("#post-v1-score form").nth(each) for each in (0, 1))
    clip = {"name": "a.npy", "mimeType": "application/octet-stream", "buffer": npy(FRAMES)}
    as_form.locator("input[type=file]").set_input_files(clip)
    as_form.locator("button").click()
    as_form.locator("output .good").wait_for()
    assert json.loads(as_form.locator("output pre").inner_text())["level"] == 4.0
    as_json.locator("button").click()
    as_json.locator("output .bad").wait_for()
    assert "start it with --root" in as_json.locator("output pre").inner_text()
    page.close()


def test_pages_of_a_server_with_a_token_ask_for_it(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARDLAB_TOKEN", "secret words")
    with reward_server("recorder", Recorder()) as client:
        page, _ = opened_page(browser, client)
        tried = page.locator("#get-v1-models")
        tried.locator("button").click()
        tried.locator("output .bad").wait_for()
        page.locator("#token").fill("secret words")
        page.locator("#access button").click()
        tried.locator("button").click()
        tried.locator("output .good").wait_for()
        page.goto(str(client.base_url))  # the live page
        page.locator("#token").fill("secret words")
        page.locator("#access button").click()
        page.locator("#model", has_text="recorder").wait_for()
        page.close()
