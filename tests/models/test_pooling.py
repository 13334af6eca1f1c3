"""`pooling:` against a server written here from vLLM's published Pooling API."""

import io
import json
import logging
import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.errors import PlanError, StopRun
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.models import load_model, name_model
from rewardlab.models.contract import Budget
from rewardlab.testing import check_model
from tests.conftest import IN_PROCESS, moving_square
from tests.models.loopback import Call, chat_server
from tests.models.test_robometer_client import comparable
from tests.narrowing import as_failure, as_score, as_scores
from tests.plans import stress_plan


def fraction(frames: int, task: str) -> float:
    """How much a model of the test takes for done."""
    return (frames + len(task)) % 11 / 10


class Counting:
    """The model that the server holds, asked directly."""

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        return [Score(1 + 4 * fraction(len(each.frames), each.instruction)) for each in episodes]


def pooled(call: Call, data: Any, tokens: int = 321) -> None:
    """Reply as vLLM does."""
    assert call.handler.path == "/pooling"
    entry = {"index": 0, "object": "pooling", "data": data}
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}
    reply = {"id": "pool-1", "object": "list", "created": 1, "model": call.body["model"], "data": [entry]}
    call.send(200, json.dumps({**reply, "usage": usage}).encode())


def parts(call: Call, kind: str) -> list[dict[str, Any]]:
    (message,) = call.body["messages"]
    assert message["role"] == "user"
    return [part for part in message["content"] if part["type"] == kind]


def counting(call: Call) -> None:
    pooled(call, [fraction(len(parts(call, "image_url")), call.text)])


def named(url: str, options: str = "") -> str:
    return f"pooling:judge@{url}" + (f"?{options}" if options else "")


def episodes(*tasks: str, count: int = 4) -> list[Episode]:
    return [episode_from_frames(moving_square(task, count=count, size=16), task) for task in tasks]


def test_the_contract_holds_and_what_is_shown_arrives() -> None:
    with chat_server(counting) as server:
        shown = episodes("a", "bb", "ccc")
        model = name_model(named(server.url, "task=classify")).build()
        check_model(model, shown)
        found = as_scores(model.score(shown))
    assert [score.level for score in found] == [as_score(each).level for each in Counting().score(shown)]
    assert {score.info.input_tokens for score in found} == {321}
    body = server.bodies[0]
    assert (body["model"], body["task"], body["encoding_format"]) == ("judge", "classify", "float")
    *pictures, text = body["messages"][0]["content"]
    assert text == {"type": "text", "text": "a"} or text["text"] in ("bb", "ccc")
    data = b64decode(pictures[0]["image_url"]["url"].removeprefix("data:image/jpeg;base64,"))
    assert np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)).shape == (16, 16, 3)


def test_a_stress_run_gives_the_trials_of_the_model_asked_directly(tiny_data: Path, tmp_path: Path) -> None:
    def trials(model: object, out: str) -> list[tuple[object, ...]]:
        chosen = dict(controls=False, execution=IN_PROCESS, out=tmp_path / out)
        plan = stress_plan((model,), str(tiny_data), ("truncate_end", "task_swap"), (2, 4), **chosen)
        rows = [
            replace(trial, info=ScoreInfo()) for trial in evaluate(plan).trials().rows()
        ]  # the server counts tokens
        return sorted(map(comparable, rows), key=str)

    with chat_server(counting) as server:
        asked = trials(named(server.url), "served")
    assert asked == trials(Counting(), "direct") and len(asked) == 30


SHAPES: dict[str, tuple[str, Any, float, tuple[float, ...] | None]] = {  # options, numbers, level, progress
    "a reward": ("", [0.25], 2.0, None),
    "a reward of another range": ("low=-2&high=2", [1.0], 4.0, None),
    "failure and success": ("", [0.25, 0.75], 4.0, None),
    "five levels": ("", [0.0, 0.0, 0.5, 0.5, 0.0], 3.5, None),
    "per token": ("task=token_classify", [[0.9], [0.1], [0.5]], 3.0, None),
    "per token, two labels": ("", [[1.0, 0.0], [0.5, 0.5]], 3.0, None),
    "per frame": ("rows=frames", [[0.0], [0.25], [0.5], [1.0]], 5.0, (0.0, 0.25, 0.5, 1.0)),
    "per frame, flat": ("rows=frames", [0.0, 0.25, 0.5, 0.75], 4.0, (0.0, 0.25, 0.5, 0.75)),
    "per frame, two labels": ("rows=frames", [[1.0, 0.0]] * 3 + [[0.25, 0.75]], 4.0, (0.0, 0.0, 0.0, 0.75)),
    "rounded": ("", [1.0004], 5.0, None),
}


@pytest.mark.parametrize("name", SHAPES)
def test_numbers_of_a_head_become_a_level_and_progress(name: str) -> None:
    options, data, level, progress = SHAPES[name]
    with chat_server(lambda call: pooled(call, data)) as server:
        score = as_score(load_model(named(server.url, options)).score(episodes("a"))[0])
    assert score.level == pytest.approx(level) and score.progress == progress
    assert score.probabilities == ((0.0, 0.0, 0.5, 0.5, 0.0) if name == "five levels" else None)


MALFORMED: dict[str, tuple[Any, str]] = {
    "an embedding": ([0.1] * 768, "expected 1 number .*, 2 .* or 5 .*, got 768; embeddings are no reward"),
    "a logit": ([7.3], "expected a reward from 0 to 1, got 7.3; set low and high"),
    "no probabilities": ([0.5, 0.9], "expected 2 probabilities that sum to 1, got 0.5, 0.9"),
    "a negative probability": ([1.2, -0.2], "expected 2 probabilities"),
    "nan": ([float("nan")], "expected finite numbers, got 'nan'"),
    "infinite": ([float("inf")], "expected finite numbers, got 'inf'"),
    "text": (["0.5"], "expected finite numbers, got '0.5'"),
    "truth": ([True], "expected finite numbers, got 'True'"),
    "base64": ("AACAPw==", "expected numbers, or a list of them per token, got 'AACAPw=='"),
    "nothing": ([], "expected numbers, or a list of them per token"),
    "an empty token": ([[]], "got 0; embeddings are no reward"),
    "mixed": ([[0.1], 0.2], "expected numbers, or a list of them per token"),
    "deeper": ([[[0.1]]], "expected finite numbers"),
    "null": (None, "expected numbers, or a list of them per token, got 'None'"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_numbers_that_are_no_reward_are_a_failure(name: str) -> None:
    data, words = MALFORMED[name]
    with chat_server(lambda call: pooled(call, data if call.text == "a" else [0.5])) as server:
        bad, good = load_model(named(server.url)).score(episodes("a", "b"))
    assert re.search(words, as_failure(bad).reason), bad
    assert as_score(good).level == 3
    assert server.asked.total() == 2  # what is wrong with an answer is not mended by asking again


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"data": 3}', b'{"error": "no"}', b"[" * 100_000])
def test_a_reply_that_is_none_is_a_failure(body: bytes) -> None:
    with chat_server(lambda call: call.send(200, body)) as server:
        (found,) = load_model(named(server.url, "retries=0")).score(episodes("a"))
    assert "the answer cannot be read" in as_failure(found).reason and len(as_failure(found).reason) <= 400


@pytest.mark.parametrize("data", [b'{"data": []}', b'{"data": [{"data": [1]}, {"data": [1]}]}', b'{"data": [7]}'])
def test_a_reply_about_another_number_of_prompts_is_a_failure(data: bytes) -> None:
    with chat_server(lambda call: call.send(200, data)) as server:
        (found,) = load_model(named(server.url)).score(episodes("a"))
    assert "expected the numbers of one prompt" in as_failure(found).reason


def test_fewer_lists_than_frames_are_no_progress() -> None:
    with chat_server(lambda call: pooled(call, [[0.5]] * 3)) as server:
        (found,) = load_model(named(server.url, "rows=frames")).score(episodes("a"))
    assert as_failure(found).reason == "expected 4 lists of numbers, one per frame, got 3"


def test_the_prompt_is_as_asked() -> None:
    with chat_server(lambda call: pooled(call, [[0.5]] * 2)) as server:
        options = "text=Task: {instruction}. Done%3F&after_frame=<extra_0>&rows=frames&order=text_first"
        load_model(named(server.url, options)).score(episodes("a", count=2))
        load_model(named(server.url, "send=video")).score(episodes("a", count=6))
    texts = [part.get("text", part["type"]) for part in server.bodies[0]["messages"][0]["content"]]
    assert texts == ["Task: a. Done?", "image_url", "<extra_0>", "image_url", "<extra_0>"]
    video, text = server.bodies[1]["messages"][0]["content"]
    data = b64decode(video["video_url"]["url"].removeprefix("data:video/mp4;base64,"))
    with av.open(io.BytesIO(data), "r") as container:
        assert len(list(container.decode(video=0))) == 6
    assert text["text"] == "a"


def test_a_server_that_falters_is_asked_again_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    faults: list[Callable[[Call], None]] = [
        lambda call: call.refuse(429, "slow down", retry_after="0.05"),
        lambda call: call.refuse(503, "loading", retry_after="1.1"),
        lambda call: call.refuse(500, "oops", retry_after="0.05"),
    ]
    with (
        chat_server(lambda call: faults.pop(0)(call) if faults else counting(call)) as server,
        caplog.at_level(logging.WARNING, "rewardlab"),
    ):
        (found,) = load_model(named(server.url)).score(episodes("a"))
    assert isinstance(found, Score)
    assert any(re.search(r"retrying \([123] of 6\)$", record.message) for record in caplog.records)


def test_a_refused_prompt_is_one_failure_and_a_wrong_model_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-marker-0123456789")

    def react(call: Call) -> None:
        assert call.authorization == "Bearer sk-marker-0123456789"
        if call.text == "long":
            call.refuse(400, "the prompt is longer than the model's maximum")
        elif call.text == "wrong":
            call.refuse(404, "The model `judge` does not exist. Your key: sk-marker-0123456789")
        else:
            counting(call)

    with chat_server(react) as server:
        model = load_model(named(server.url, "key_env=MY_KEY"))
        refused, good = model.score(episodes("long", "a"))
        assert refused == Failure("the server answered 400: the prompt is longer than the model's maximum")
        assert isinstance(good, Score)
        with pytest.raises(StopRun, match=r"answered 404: The model `judge` does not exist.*\[key\].*in MY_KEY"):
            model.score(episodes("wrong"))


def test_a_server_that_is_not_there_stops_the_run_in_one_sentence() -> None:
    with chat_server(counting) as server:
        pass
    model = name_model(named(server.url))
    with pytest.raises(StopRun, match=r"^cannot connect to .*/pooling .*is the server running"):
        model.build(Budget()).score(episodes("a", "b"))


def test_the_address_and_every_setting_are_the_model() -> None:
    base = name_model("pooling:judge@http://host:8000")
    for same in ("http://host:8000/v1", "http://host:8000/", "http://host:8000/pooling", "http://host:8000?timeout=3"):
        assert name_model(f"pooling:judge@{same}").fingerprint == base.fingerprint
    others = ("task=classify", "low=-1", "rows=frames", "text=Do {instruction}", "send=video", "order=text_first")
    found = {name_model(f"pooling:judge@http://host:8000?{other}").fingerprint for other in others}
    found |= {name_model(f"pooling:{other}").fingerprint for other in ("other@http://host:8000", "judge@http://b:8000")}
    assert len(found | {base.fingerprint}) == len(others) + 3
    assert base.server and base.name == "pooling:judge@http://host:8000"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pooling:judge", "pooling:MODEL@URL such as"),
        ("pooling:@http://host", "pooling:MODEL@URL such as"),
        ("pooling:judge@http://me:secret@host", "no name or password in it"),
        ("pooling:judge@http://host?text=done", r"option text must have \{instruction\} in it"),
        ("pooling:judge@http://host?low=1", "option low must be below high, got 1 and 1"),
        ("pooling:judge@http://host?after_frame=x&send=video", "after_frame needs send=images"),
        ("pooling:judge@http://host?task=embed", "task must be auto, classify or token_classify"),
    ],
)
def test_a_string_without_a_meaning_is_refused(text: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        name_model(text)
