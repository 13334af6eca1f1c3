"""Servers that want to fill the memory, hang the client or break its parser: each ends as a Failure in one sentence."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event

import pytest

from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.errors import ModelError, StopRun
from rewardlab.core.trial import Failure, Score
from rewardlab.models import name_model
from rewardlab.models.contract import Budget
from rewardlab.models.remote import Health, pack_answers, pack_health, unpack_answers, unpack_health
from tests.attack.hostile_http import ENDLESS, NO_JSON, Attack, answer, endless, raw
from tests.attack.peak_memory import run_measured
from tests.conftest import moving_square
from tests.models.loopback import Call, LoopbackHandler, chat_server, serving
from tests.narrowing import as_failure, as_scores

PEAK_MB = 800
OPENAI = """
import sys
from rewardlab.core.episode import episode_from_frames
from rewardlab.models import name_model
import numpy as np
url, tasks = sys.argv[1], sys.argv[2:]
model = name_model(f"openai:judge@{url}/v1?retries=1&timeout=300").build()
shown = [episode_from_frames(np.zeros((2, 16, 16, 3), np.uint8), task) for task in tasks]
found = [answer.reason for answer in model.score(shown)]
"""
REMOTE = """
import sys
from rewardlab.core.errors import ModelError
from rewardlab.models import name_model
found = []
for place in sys.argv[2:]:
    try:
        name_model(f"KIND:{sys.argv[1]}/{place}")
    except ModelError as error:
        found.append(str(error))
"""


def episodes(*tasks: str) -> list[Episode]:
    return [episode_from_frames(moving_square(task, count=3, size=16), task) for task in tasks]


class Asked(Counter[str]):
    """How often each thing was asked."""


@contextmanager
def hostile(choose: Callable[[str], Attack], asked: Asked | None = None) -> Iterator[str]:
    """Serve an attack for each request, chosen by its task or by its path."""

    class Handler(LoopbackHandler):
        def do_GET(self) -> None:
            self.react(self.path.strip("/"))

        def do_POST(self) -> None:
            self.react(self.body().decode("utf-8", "replace").rpartition("Task: ")[2].partition('"')[0])

        def react(self, key: str) -> None:
            if asked is not None:
                asked[key] += 1
            choose(key)(self)

    with serving(Handler) as url:
        yield url


@pytest.mark.slow
def test_no_answer_fills_the_memory_and_each_becomes_one_failure() -> None:
    asked, tasks = Asked(), [f"{name}|0" for name in ENDLESS] + [f"until it closes|{copy}" for copy in range(1, 31)]
    with hostile(lambda task: ENDLESS[task.partition("|")[0]], asked) as url:
        reasons, peak = run_measured(OPENAI, url, *tasks)
    assert peak < PEAK_MB, f"{peak:.0f} MB"
    assert all(reasons) and max(map(len, reasons)) <= 450
    said = dict(zip(tasks, reasons, strict=True))
    for name in ("until it closes", "chunks", "a terabyte is promised"):
        assert "longer than 8 MB" in said[f"{name}|0"] and "REWARDLAB_MAX_BODY_MB" in said[f"{name}|0"]
        assert asked[f"{name}|0"] == 1  # asking again would bring no less
    for name in ("gzip", "deflate", "br", "zstd in gzip"):
        assert "compressed its answer" in said[f"{name}|0"]
    for name in ("an error", "gzip in an error", "zlib as a charset"):
        assert "answered 413" in said[f"{name}|0"]
    assert "too many characters" in said["one long text|0"]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "words"), [("remote", "rewardlab"), ("robometer", "Robometer")])
def test_the_question_which_model_a_server_holds_is_bounded_too(kind: str, words: str) -> None:
    places = [name for name in ENDLESS if name != "lists"]  # that is tried above, and slow
    numbers = {str(number): name for number, name in enumerate(places)}
    with hostile(lambda path: ENDLESS[numbers[path.partition("/")[0]]]) as url:
        said, peak = run_measured(REMOTE.replace("KIND", kind), url, *numbers)
    assert peak < PEAK_MB, f"{peak:.0f} MB"
    assert len(said) == len(places) and all(f"no {words} server answers at" in sentence for sentence in said)


@pytest.mark.parametrize("name", NO_JSON)
def test_json_that_is_none_is_a_failure_of_its_episode(name: str) -> None:
    attack = answer(NO_JSON[name])
    with hostile(lambda task: attack if task == "bad" else answer(_said("ANSWER: 3"))) as url:
        bad, good = name_model(f"openai:judge@{url}/v1?retries=0").build().score(episodes("bad", "good"))
        assert isinstance(bad, Failure) and "the answer cannot be read" in bad.reason and len(bad.reason) <= 400
        assert isinstance(good, Score)
    for read in (unpack_health, lambda body: unpack_answers(body, [3])):
        with pytest.raises(ValueError):
            read(NO_JSON[name])


def _said(text: str) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).encode()


def test_a_byte_at_a_time_does_not_outlast_the_deadline() -> None:
    gone = Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while not gone.wait(0.02):
            try:
                handler.wfile.write(b" ")
            except OSError:
                return

    with hostile(lambda _task: drip) as url:
        (found,) = name_model(f"openai:judge@{url}/v1?retries=0&timeout=0.5").build().score(episodes("a"))
    gone.set()
    assert found == Failure("no answer within 0 s")


@pytest.mark.parametrize(
    "attack",
    [
        raw(b""),
        raw(b"\x00" * 1000),
        raw(b"HTTP/1.1 2000 OK\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n{}"),
        raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\ncontent-length: 3\r\n\r\n{}"),
        raw(b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n{}"),
        raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nZZZ\r\n"),
        raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"F" * 17 + b"\r\n"),
        raw(b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"),
        raw(b"HTTP/1.1 204 Nothing\r\n\r\n"),
        raw(b"HTTP/1.1 503 Busy\r\nretry-after: nan\r\ncontent-length: 0\r\n\r\n"),
        raw(b"HTTP/1.1 503 Busy\r\nretry-after: 1e999\r\ncontent-length: 0\r\n\r\n"),
        raw(b"HTTP/1.1 503 Busy\r\nretry-after: Mon, 01 Jan 2040 00:00:00 +9999999999999999\r\n\r\n"),
        raw(b"HTTP/1.1 500 \x1b[31m\xff\r\ncontent-length: 2\r\n\r\n\xff\xfe"),
        endless(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_what_is_no_http_is_a_failure(attack: Attack) -> None:
    with hostile(lambda _task: attack) as url:
        (found,) = name_model(f"openai:judge@{url}/v1?retries=0&timeout=0.6").build().score(episodes("a"))
    assert isinstance(found, Failure) and len(found.reason) <= 400 and "\n" not in found.reason


def test_a_redirect_is_not_followed_and_cookies_are_not_kept() -> None:
    elsewhere, cookies = Asked(), []

    def spoil(call: Call) -> None:
        cookies.append(call.handler.headers.get("cookie"))
        call.send(200, _said("ANSWER: 3"), set_cookie=f"name{call.number}=value")

    with hostile(lambda _path: raw(b""), elsewhere) as target:
        moved = raw(f"HTTP/1.1 302 Moved\r\nlocation: {target}/x\r\ncontent-length: 0\r\n\r\n".encode())
        with hostile(lambda _task: moved) as url, pytest.raises(StopRun, match="answered 302"):
            name_model(f"openai:judge@{url}/v1").build().score(episodes("a"))
    assert not elsewhere
    with chat_server(spoil) as server:
        model = name_model(server.model("concurrency=1")).build()
        assert all(isinstance(found, Score) for found in model.score(episodes("a", "b", "c")))
    assert cookies == [None] * 3


def test_a_text_that_is_too_long_is_a_failure_paid_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with chat_server(lambda call: call.say("ANSWER: 3" + " " * 300)) as server:
        name, budget = server.model("input_price=2&output_price=10"), Budget(folder=tmp_path)
        (sound,) = name_model(name).build(budget).score(episodes("a"))
        monkeypatch.setenv("REWARDLAB_MAX_ANSWER_CHARACTERS", "200")
        model = name_model(name).build(budget)
        (found,) = model.score(episodes("b"))
        assert model.score(episodes("b")) == [found]
    assert isinstance(sound, Score) and server.asked.total() == 2
    assert (
        "too many characters, at most 200 are taken in; set REWARDLAB_MAX_ANSWER_CHARACTERS" in as_failure(found).reason
    )


def test_log_probabilities_without_end_are_not_kept(tmp_path: Path) -> None:
    listed = [{"token": f"t{number}", "logprob": -1.0} for number in range(20_000)]
    place = {"token": "4", "logprob": -0.1, "top_logprobs": listed}
    long = {"token": "4" * 100_000, "logprob": -0.1, "top_logprobs": []}

    def react(call: Call) -> None:
        call.say("ANSWER: 4", finish_reason="z" * 50_000, logprobs={"content": [place if call.task == "a" else long]})

    with chat_server(react) as server:
        found = name_model(server.model()).build(Budget(folder=tmp_path)).score(episodes("a", "b"))
    assert [answer.level for answer in as_scores(found)] == [4, 4]
    assert (tmp_path / "ledger.jsonl").stat().st_size < 10_000


FAULTS = {
    "no object": (7, "expected an answer as a JSON object"),
    "no level": ({}, "level must be a number"),
    "a long text": ({"level": 3, "raw": "x" * 200_000}, "characters"),
    "a long reason": ({"failure": "y" * 50_000}, "yyy"),
    "many probabilities": ({"level": 3, "probabilities": [0.1] * 50_000}, "probabilities must be five numbers"),
    "a long level": ({"level": "4" * 50_000}, "level must be a number"),
    "progress as text": ({"level": 3, "progress": "abc"}, ""),
    "nested": ({"level": [[3]]}, ""),
    "info as text": ({"level": 3, "info": "novel"}, "a ScoreInfo must be a JSON object"),
    "novelty as text": ({"level": 3, "info": {"novelty": "high"}}, "info.novelty must be a finite number"),
    "levels beyond the rubric": ({"level": 3, "info": {"prediction_set": [4, 6]}}, "info.prediction_set"),
    "a set as text": ({"level": 3, "info": {"prediction_set": "45"}}, "info.prediction_set"),
    "members as a list": ({"level": 3, "info": {"member_levels": [1]}}, "info.member_levels must be values by name"),
    "a long name": ({"level": 3, "info": {"frame_quality": {"x" * 200_000: 1}}}, "characters"),
    "a guard of its own": ({"level": 3, "info": {"guard": {"decision": "trust me", "risk": 0}}}, "info.guard"),
    "a guard without risk": ({"level": 3, "info": {"guard": {"decision": "pass"}}}, "info.guard.risk"),
    "tokens below 0": ({"level": 3, "info": {"input_tokens": -1}}, "info.input_tokens must be a whole number"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_odd_answer_of_a_reward_server_is_a_short_failure(name: str) -> None:
    row, words = FAULTS[name]
    body = json.dumps({"fingerprint": "one", "answers": [row]}).encode()
    sound = pack_answers([Score(3)], "one")

    def choose(key: str) -> Attack:
        return answer(pack_health(Health("judge", "one"))) if key == "health" else answer(replies.pop())

    replies = [sound, body]
    with hostile(choose) as url:
        model = name_model(f"remote:{url}?retries=0").build()
        (found,) = model.score(episodes("a"))
        assert isinstance(found, Failure) and words in found.reason and len(found.reason) <= 2_000
        assert model.score(episodes("a")) == [Score(3)]


@pytest.mark.parametrize(
    "health",
    [
        {"protocol": 1, "name": "n", "fingerprint": "f" * 10_000},
        {"protocol": 1, "name": "n" * 10_000, "fingerprint": "f"},
        {"protocol": True, "name": "n", "fingerprint": ["f"] * 10_000},
    ],
)
def test_a_server_cannot_give_itself_a_name_without_end(health: dict[str, object]) -> None:
    with (
        hostile(lambda _path: answer(json.dumps(health).encode())) as url,
        pytest.raises(ModelError, match="at most 200 letters"),
    ):
        name_model(f"remote:{url}")
