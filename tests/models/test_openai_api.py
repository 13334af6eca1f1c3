"""Models behind an OpenAI-compatible endpoint, against a real server on loopback that misbehaves on purpose."""

import io
import json
import math
import re
import threading
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.errors import PlanError, StoppedByModel, StopRun
from rewardlab.core.run import Run
from rewardlab.core.settings import Execution
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.models import name_model
from rewardlab.models.backends.openai import OpenAIEndpoint, OpenAIOptions
from rewardlab.models.contract import Budget, RewardModel
from rewardlab.models.vlm import AnswerFormat, Completion, Image, Prompt
from rewardlab.testing import check_model
from tests.conftest import moving_square
from tests.models.loopback import Call, ChatServer, chat_server
from tests.narrowing import as_failure, as_score, as_scores
from tests.plans import stress_plan

KEY = "sk-marker-0123456789abcdef"


def episodes(*tasks: str) -> list[Episode]:
    return [episode_from_frames(moving_square(task, count=3, size=16), task) for task in tasks]


def good(call: Call) -> None:
    call.say(f"ANSWER: {1 + len(call.task) % 5}")


def ledger_lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def test_the_contract_holds_and_what_is_shown_arrives() -> None:
    with chat_server(good) as server:
        shown = episodes("a", "bb", "ccc")
        model = name_model(server.model()).build()
        check_model(model, shown)
        assert [answer.level for answer in as_scores(model.score(shown))] == [2, 3, 4]
        assert len(server.bodies) == 3  # what was asked before is not asked again
    body = server.bodies[0]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("judge", 0, 128)
    *pictures, text = body["messages"][0]["content"]
    assert text["text"].endswith(("Task: a", "Task: bb", "Task: ccc"))
    data = b64decode(pictures[0]["image_url"]["url"].removeprefix("data:image/jpeg;base64,"))
    picture = np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))[..., ::-1]
    frames = next(e.frames for e in shown if text["text"].endswith(f"Task: {e.instruction}"))
    assert len(pictures) == len(frames)
    assert np.abs(picture.astype(int) - frames[0]).mean() < 5


def test_a_video_and_the_text_first_where_the_model_wants_that() -> None:
    with chat_server(good) as server:
        episode = episode_from_frames(moving_square("x", count=6, size=32), "x", fps=4)
        assert isinstance(name_model(server.model("send=video&order=text_first")).build().score([episode])[0], Score)
    text, video = server.bodies[0]["messages"][0]["content"]
    assert text["type"] == "text"
    data = b64decode(video["video_url"]["url"].removeprefix("data:video/mp4;base64,"))
    with av.open(io.BytesIO(data), "r") as container:
        assert container.streams.video[0].average_rate == 4
        assert sum(1 for _ in container.decode(video=0)) == 6


HELD = threading.Event()  # never set: a server that waits for it does not answer; its threads end with this process


def send_half(call: Call) -> None:
    call.send(200, b"{}", content_length="50")
    call.drop()


ONCE: dict[str, Callable[[Call], object]] = {  # what goes wrong the first time, and not the second
    "limited": lambda call: call.refuse(429, "slow down", retry_after="0.05"),
    "dated": lambda call: call.refuse(503, "busy", retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
    "broken": lambda call: call.refuse(500, "oops"),
    "cut": lambda call: call.send(200, b'{"choices": [{"message": {"content": "ANSW'),
    "short": send_half,
    "error in 200": lambda call: call.send(200, b'{"error": {"message": "upstream is down"}}'),
    "dropped": lambda call: call.drop(),
}
ALWAYS: dict[str, tuple[Callable[[Call], object], str]] = {  # what goes wrong every time, and the reason that is given
    "always broken": (lambda call: call.refuse(500, "oops"), "the server answered 500: oops"),
    "empty choices": (lambda call: call.send(200, b'{"choices": []}'), "missing answer: the server sent no text"),
    "null": (lambda call: call.say(None, finish_reason="content_filter"), "missing answer: .*'content_filter'"),
    "odd": (lambda call: call.send(200, b'{"choices": [7], "usage": "many"}'), "missing answer"),
    "no object": (lambda call: call.send(200, b"[]"), "the answer cannot be read: expected a JSON object, got list"),
    "too long": (lambda call: call.refuse(400, "8 tokens at most"), "the server answered 400: 8 tokens at most"),
    "prose": (lambda call: call.say("Well done"), "unreadable answer: expected one 'ANSWER: n' with n from 1 to 5"),
    "endless": (lambda call: call.say("Let me", finish_reason="length"), r"cut off at 128 tokens, .*\?tokens="),
}


def test_every_episode_ends_as_a_score_or_a_failure_however_the_server_misbehaves() -> None:
    def react(call: Call) -> None:
        if call.task in ALWAYS:
            ALWAYS[call.task][0](call)
        elif call.task in ONCE and call.before == 0:
            ONCE[call.task](call)
        else:
            call.say("ANSWER: 3")

    tasks = [*ONCE, *ALWAYS, "fine"]
    with chat_server(react) as server:
        answers = dict(zip(tasks, name_model(server.model("retries=2")).build().score(episodes(*tasks)), strict=True))
    for task in [*ONCE, "fine"]:
        assert as_score(answers[task]).level == 3, (task, answers[task])
    for task, (_, words) in ALWAYS.items():
        assert re.search(words, as_failure(answers[task]).reason), (task, answers[task])


def test_a_server_that_does_not_answer_is_asked_again_and_then_given_up() -> None:
    def react(call: Call) -> None:
        HELD.wait() if call.task == "hangs" or call.before == 0 else good(call)

    with chat_server(react) as server:
        (never,) = name_model(server.model("timeout=0.2&retries=2")).build().score(episodes("hangs"))
        assert set(server.asked.values()) == {3}
        (late,) = name_model(server.model("timeout=1&retries=50")).build().score(episodes("a"))  # however slow we are
    assert re.search("no answer within", as_failure(never).reason)
    assert isinstance(late, Score)


def test_a_refusal_that_repeats_is_final_where_the_server_never_answered() -> None:
    tasks = [f"task {n}" for n in range(8)]
    with chat_server(lambda call: call.refuse(500, "cannot read this prompt")) as server:
        answers = name_model(server.model()).build().score(episodes(*tasks))
    assert {as_failure(answer).reason for answer in answers} == {"the server answered 500: cannot read this prompt"}
    assert set(server.asked.values()) == {2} and len(server.asked) == len(tasks)


def test_a_server_that_has_answered_may_break_for_a_while() -> None:
    with chat_server(
        lambda call: call.refuse(500, "oops") if call.task == "b" and call.before < 3 else good(call)
    ) as s:
        model = name_model(s.model()).build()
        model.score(episodes("a"))
        assert isinstance(model.score(episodes("b"))[0], Score)


def test_a_limit_per_second_is_waited_out() -> None:
    taken: list[float] = []
    lock = threading.Lock()

    def react(call: Call) -> None:
        with lock:
            recent = [moment for moment in taken if moment > time.monotonic() - 0.25]
            if len(recent) >= 6:
                call.refuse(429, "too many requests")
                return
            taken.append(time.monotonic())
        good(call)

    with chat_server(react) as server:
        answers = name_model(server.model()).build().score(episodes(*(f"task {n}" for n in range(30))))
    assert all(isinstance(answer, Score) for answer in answers)
    assert server.answered.total() == 30


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        (401, f"the key {KEY} is wrong", r"answered 401: the key \[key\] is wrong; check .* key in MY_KEY"),
        (404, "no model called judge", "answered 404: no model called judge; check the model's name"),
        (429, "you have no credit: insufficient_quota", "insufficient_quota"),
        (400, "API key not valid. Please pass a valid API key.", "answered 400: API key not valid"),
        (400, "The model judge does not exist", "answered 400: The model judge does not exist"),
        (500, "image input is not supported - hint: you may need to provide the mmproj", "answered 500: image input"),
    ],
)
def test_a_wrong_key_model_or_account_stops_the_run_at_once(
    status: int, message: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with chat_server(lambda call: call.refuse(status, message)) as server:
        model = name_model(server.model("key_env=MY_KEY&concurrency=2")).build()
        with pytest.raises(StopRun, match=words) as error:
            model.score(episodes(*(f"task {n}" for n in range(20))))
    assert KEY not in str(error.value)
    assert server.asked.total() <= 3


def test_half_a_key_is_not_shown_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)

    def react(call: Call) -> None:
        said = "x" * int(call.task) + KEY  # the end of what is kept falls inside the key for some
        if int(call.task) % 2:
            call.refuse(413, said)
        else:
            call.send(200, json.dumps({"error": said}).encode())

    with chat_server(react) as server:
        model = name_model(server.model("key_env=MY_KEY&retries=0")).build()
        for answer in model.score(episodes(*map(str, range(320, 410)))):
            reason = as_failure(answer).reason
            assert "xxx" in reason and "sk-m" not in reason


def test_a_server_that_is_not_there_or_asks_for_an_hour_stops_the_run(tmp_path: Path) -> None:
    def react(call: Call) -> None:
        if call.task == "a":
            call.refuse(429, "come back later", retry_after="3600")
        else:
            call.refuse(500)

    with chat_server(react) as server:
        model = name_model(server.model("retries=1")).build(Budget(folder=tmp_path))
        with pytest.raises(StopRun, match="come back later; run the same command again later"):
            model.score(episodes("a", "b"))  # what is tried again meanwhile does not wait for the hour
    assert server.asked.total() == 3
    with pytest.raises(StopRun, match=r"cannot connect to http://127\.0\.0\.1:.*is the server running"):
        name_model(server.model("retries=0")).build(Budget(max_requests=1, folder=tmp_path)).score(episodes("a"))
    assert Counter(next(iter(line)) for line in ledger_lines(tmp_path)) == {"sent": 4, "refused": 4}


def test_a_server_that_was_never_there_is_given_up_unless_it_is_waited_for(tmp_path: Path) -> None:
    with chat_server(good) as server:
        gone = server.model()
    port = int(gone.partition("127.0.0.1:")[2].partition("/")[0])

    def sent(seconds: float) -> int:
        ledger = tmp_path / str(seconds) / "ledger.jsonl"
        return ledger.read_text().count('{"sent"') if ledger.exists() else 0

    def ask(seconds: float) -> list[Answer]:
        folder = tmp_path / str(seconds)
        folder.mkdir()
        model = name_model(gone).build(Budget(max_requests=99, folder=folder, connect_seconds=seconds))
        return list(model.score(episodes("a")))

    with pytest.raises(StopRun, match="cannot connect"):
        ask(0.0)
    assert sent(0.0) == 1
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, 3600.0)
        while sent(3600.0) < 2 and not asked.done():
            threading.Event().wait(0.01)
        with chat_server(good, port):
            assert isinstance(asked.result()[0], Score)


def test_a_run_whose_server_refuses_connections_ends_before_anything_is_asked_and_a_finished_one_needs_no_server(
    tiny_data: Path, tmp_path: Path
) -> None:
    def run(out: Path) -> Run:
        given = dict(perturbations="none", severities=(0,), controls=False, execution=Execution(engine="local"))
        return evaluate(stress_plan(server.model(), str(tiny_data), out=out, **given))

    with chat_server(good) as server:
        finished = run(tmp_path / "finished").trials().rows()
    with pytest.raises(StoppedByModel, match=r"stopped with 0 of 6 .* cannot connect to .*is the server running"):
        run(tmp_path / "refused")
    assert not (tmp_path / "refused" / "ledger.jsonl").exists()
    assert run(tmp_path / "finished").trials().rows() == finished


def test_a_retry_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def react(call: Call) -> None:
        call.refuse(503, "busy") if call.number < 2 else call.say("ANSWER: 4")

    with chat_server(react) as server:
        (answer,) = name_model(server.model("retries=5")).build().score(episodes("a"))
    assert as_score(answer).level == 4
    assert "the server answered 503: busy; retrying (1 of 5)" in caplog.text


def test_a_date_to_wait_for_is_read_by_the_clock_of_the_server() -> None:
    def react(call: Call) -> None:
        ahead = time.time() + 3600
        vars(call.handler)["date_time_string"] = lambda: formatdate(ahead, usegmt=True)
        good(call) if call.before else call.refuse(429, retry_after=formatdate(ahead, usegmt=True))

    with chat_server(react) as server:
        (answer,) = name_model(server.model("retries=1")).build().score(episodes("a"))
    assert isinstance(answer, Score)


def with_logprobs(digits: dict[str, float], written: str = " 4") -> dict[str, Any]:
    def token(text: str, top: dict[str, float]) -> dict[str, object]:
        listed = [{"token": name, "logprob": math.log(p)} for name, p in top.items()]
        return {"token": text, "logprob": -0.1, "top_logprobs": listed}

    head = [token("AN", {"AN": 0.9, "True": 0.02, " True": 0.03}), token("SWER", {"SWER": 1.0}), token(":", {":": 1})]
    return {"logprobs": {"content": [*head, token(written, digits)]}}


def test_log_probabilities_of_the_digit_become_probabilities_of_levels() -> None:
    def react(call: Call) -> None:
        digits = {" 4": 0.5, "4": 0.1, " 5": 0.2, "the": 0.2}
        call.say("ANSWER: 4.5" if call.task == "decimal" else "ANSWER: 4", **with_logprobs(digits))

    with chat_server(react) as server:
        asked_for = episodes("plain", "decimal")
        plain, decimal = as_scores(name_model(server.model("parser=helm")).build().score(asked_for))
        (off,) = as_scores(name_model(server.model("logprobs=off")).build().score(asked_for[:1]))
    assert plain.level == 4
    assert plain.probabilities == pytest.approx((0, 0, 0, 0.75, 0.25))
    assert (decimal.level, decimal.probabilities) == (4.5, None)
    assert off.level == 4
    asked = [(body.get("logprobs"), body.get("top_logprobs")) for body in server.bodies]
    assert asked == [(True, 20), (True, 20), (None, None)]


def test_a_digit_that_is_not_among_the_likeliest_counts_as_likely_as_it_was_written() -> None:
    with chat_server(lambda call: call.say("ANSWER: 4", **with_logprobs({" 5": math.exp(-0.1)}))) as server:
        (answer,) = as_scores(name_model(server.model()).build().score(episodes("a")))
    assert answer.probabilities == pytest.approx((0, 0, 0, 0.5, 0.5))


@pytest.mark.parametrize("likelihood", [math.inf, math.nan, 1000.0])
def test_likelihoods_that_cannot_be_leave_the_answer_as_it_was_written(likelihood: float) -> None:
    def react(call: Call) -> None:
        said = with_logprobs({" 4": 1.0})
        said["logprobs"]["content"][-1]["top_logprobs"][0]["logprob"] = likelihood
        call.say("ANSWER: 4", **said)

    with chat_server(react) as server:
        (answer,) = as_scores(name_model(server.model()).build().score(episodes("a")))
    assert (answer.level, answer.probabilities) == (4, None)


def test_a_server_with_other_habits_is_understood_and_the_habits_are_remembered() -> None:
    rejected: list[str] = []

    def react(call: Call) -> None:
        for word, hint in (("max_tokens", "use max_completion_tokens"), ("temperature", "temperature is fixed")):
            if word in call.body:
                rejected.append(word)
                return call.refuse(400, f"unsupported: {hint}")
        if "logprobs" in call.body:
            rejected.append(f"logprobs {call.body['top_logprobs']}")
            return call.refuse(400, "no")
        return good(call)

    with chat_server(react) as server:
        model = name_model(server.model()).build()
        assert isinstance(model.score(episodes("a"))[0], Score)
        assert rejected == ["max_tokens", "temperature", "logprobs 20", "logprobs 5"]
        assert all(isinstance(answer, Score) for answer in model.score(episodes("b", "c", "d")))
        assert len(rejected) == 4
        (wanted,) = name_model(server.model("logprobs=on")).build().score(episodes("a"))
    assert isinstance(wanted, Failure) and "the server answered 400" in wanted.reason


def test_the_same_question_in_one_batch_is_asked_once() -> None:
    with chat_server(good) as server:
        answers = as_scores(name_model(server.model()).build().score(episodes("a", "b", "a", "a")))
    assert [answer.level for answer in answers] == [2, 2, 2, 2]
    assert server.asked.total() == 2


def test_nothing_is_paid_for_twice_and_a_torn_line_is_passed_over(tmp_path: Path) -> None:
    budget = Budget(folder=tmp_path)
    with chat_server(good) as server:
        first = name_model(server.model()).build(budget).score(episodes("a", "bb", "ccc"))
        with (tmp_path / "ledger.jsonl").open("a") as file:
            file.write('{"key": "torn", "model": "jud')
        again = name_model(server.model()).build(budget).score(episodes("a", "bb", "ccc", "dddd"))
        assert again[:3] == first
        assert set(server.asked.values()) == {1}
        after = name_model(server.model()).build(budget).score(episodes("dddd"))
        assert after == again[3:]
        assert set(server.asked.values()) == {1}
        other = name_model(server.model(name="other")).build(budget).score(episodes("a"))
        assert isinstance(other[0], Score)
    assert server.asked.total() == 5


def test_the_budget_of_requests_holds_over_models_and_restarts(tmp_path: Path) -> None:
    def react(call: Call) -> None:
        call.refuse(500, "again", retry_after="0") if call.task == "a" and call.before == 0 else good(call)

    with chat_server(react) as server:
        budget = Budget(max_requests=4, folder=tmp_path)
        one, other = (name_model(server.model(name=name)).build(budget) for name in ("judge", "other"))
        one.score(episodes("a", "bb"))  # the 500 cost nothing and does not count
        with pytest.raises(StopRun, match="the budget of 4 requests is spent; allow more with --max-requests"):
            other.score(episodes("a", "bb", "ccc"))
        assert server.answered.total() == 4
        restarted = name_model(server.model(name="other")).build(budget)
        kept = [task for task in ("a", "bb", "ccc") if _answers_for_free(restarted, task)]
        assert len(kept) == 2
        more = name_model(server.model(name="other")).build(Budget(max_requests=5, folder=tmp_path))
        assert all(isinstance(answer, Score) for answer in more.score(episodes("a", "bb", "ccc")))
    assert server.answered.total() == 5


def _answers_for_free(model: RewardModel, task: str) -> bool:
    try:
        return isinstance(model.score(episodes(task))[0], Score)
    except StopRun:
        return False


def test_the_budget_of_money_is_not_overdrawn_by_requests_under_way(tmp_path: Path) -> None:
    prices = "input_price=2&output_price=10"  # 1,000 tokens in and 10 out cost 0.0021
    with chat_server(good) as server:
        model = name_model(server.model(prices)).build(Budget(max_cost=0.01, folder=tmp_path))
        with pytest.raises(StopRun, match=r"may cost 0\.0021, and 0\.0084 of 0\.01 are spent; allow .*--max-cost"):
            model.score(episodes(*(f"task {n}" for n in range(20))))
        assert server.answered.total() == 4
        costs = [line["cost"] for line in ledger_lines(tmp_path) if "key" in line]
        assert costs == pytest.approx([0.0021] * 4)
        with pytest.raises(PlanError, match="--max-cost needs the prices of judge"):
            name_model(server.model()).build(Budget(max_cost=1.0))


def test_a_dear_model_does_not_go_out_at_the_price_of_a_cheap_one(tmp_path: Path) -> None:
    budget = Budget(max_cost=1.0, folder=tmp_path)
    with chat_server(good) as server:
        name_model(server.model("input_price=0.01&output_price=0", "cheap")).build(budget).score(episodes("a"))
        dear = name_model(server.model("input_price=100&output_price=0", "dear")).build(budget)  # 0.1 for a reply
        with pytest.raises(StopRun, match=r"may cost 0\.1, and 0\.9 of 1 are spent"):
            dear.score(episodes(*(f"task {n}" for n in range(20))))
    assert server.answered.total() == 1 + 9


@pytest.mark.parametrize("tokens", [{"prompt_tokens": -1000, "completion_tokens": 10}, {}])
def test_a_cost_limit_without_counted_tokens_stops_after_one_request(tokens: dict[str, int]) -> None:
    def react(call: Call) -> None:
        choices = [{"message": {"content": "ANSWER: 2"}}]
        call.send(200, json.dumps({"choices": choices, "usage": tokens}).encode())

    with chat_server(react) as server:
        model = name_model(server.model("input_price=1&output_price=1")).build(Budget(max_cost=1.0))
        with pytest.raises(StopRun, match="does not say how many tokens it used"):
            model.score(episodes("a", "b", "c"))
    assert server.asked.total() == 1


def endpoint(server: ChatServer) -> Any:
    return OpenAIEndpoint("judge", f"{server.url}/chat/completions", OpenAIOptions(), Budget())


def test_it_offers_what_a_vision_language_model_does() -> None:
    def react(call: Call) -> None:
        said = with_logprobs({" 4": 0.5, "5": 0.25, "no": 0.25})
        if "never" in call.text:
            said["logprobs"]["content"][0]["top_logprobs"] = [{"token": "True", "logprob": -9999.0}]
        call.say("ANSWER: 4", **({} if "plain" in call.text else said))

    image, rubric = Image(moving_square("x", count=1, size=16)[0]), AnswerFormat("ANSWER: ", ("3", "4", "5"))
    asked, plain, never = Prompt(("look", image, "well?")), Prompt(("plain",)), Prompt(("never", image))
    with chat_server(react) as server:
        vlm = endpoint(server)
        written, without = vlm.complete([asked, plain], 50, rubric)
        probs, missing = vlm.answer_probs([asked, plain], rubric)
        logprobs = vlm.continuation_logprob([asked, plain, never], " True")
        (unlisted,) = vlm.continuation_logprob([asked], " False")
    tokens = ScoreInfo(input_tokens=1000, output_tokens=10)
    assert (written.text, written.finish, written.info) == ("ANSWER: 4", "stop", tokens)
    assert without == Completion("ANSWER: 4", info=tokens)
    assert written.choice_logprobs == pytest.approx({" 4": math.log(0.5), "5": math.log(0.25), "no": math.log(0.25)})
    assert probs == pytest.approx((0, 2 / 3, 1 / 3))
    assert "gives no log-probabilities after 'ANSWER:'" in missing.reason and missing.raw == "ANSWER: 4"
    assert logprobs[0] == pytest.approx(math.log(0.05))
    assert logprobs[2] == -9999  # as some servers put it; its probability is 0 in a float
    assert "gives no log-probabilities" in logprobs[1].reason
    assert "'False' is not among the 3 likeliest tokens" in unlisted.reason
    kinds = [[part["type"] for part in body["messages"][0]["content"]] for body in server.bodies]
    assert ["text", "image_url", "text"] in kinds and ["text"] in kinds
    assert {body["max_tokens"] for body in server.bodies} == {50, 128, 1}


def test_the_expected_level_can_be_asked_for_instead_of_the_written_one() -> None:
    with chat_server(lambda call: call.say("ANSWER: 4", **with_logprobs({" 4": 0.5, "2": 0.5}))) as server:
        (answer,) = as_scores(name_model(server.model("answer=logits")).build().score(episodes("a")))
    assert answer.level == pytest.approx(3) and answer.probabilities == pytest.approx((0, 0.5, 0, 0.5, 0))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("openai:", "expected openai:MODEL@URL"),
        ("openai:gpt", "expected openai:MODEL@URL"),
        ("openai:@http://host/v1", "expected openai:MODEL@URL"),
        ("openai:gpt@localhost:8000", "expected openai:MODEL@URL"),
        ("openai:gpt@http://me:secret@host/v1", "no name or password in it"),
        ("openai:gpt@http://[host/v1", "expected openai:MODEL@URL"),
        ("openai:gpt@http://host:port/v1", "expected openai:MODEL@URL"),
        ("openai:gpt@http://host/v1?key=abc", "openai takes no option 'key'"),
        ("openai:gpt@http://host/v1?api_key=secret?parser=helm", "the address holds api_key="),
        ("openai:gpt@http://host/v1?key_env=sk-secret", "key_env must be the name of an environment variable"),
        ("openai:gpt@http://host/v1?parser=loose", "option parser must be strict, helm or robometer"),
        ("openai:gpt@http://host/v1?concurrency=0", "concurrency must be at least 1"),
    ],
)
def test_a_wrong_name_is_said_before_anything_is_asked(name: str, words: str) -> None:
    with pytest.raises(PlanError, match=words) as error:
        name_model(name)
    assert "secret" not in str(error.value)


def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abc\ndef")
    with pytest.raises(PlanError, match="OPENAI_API_KEY") as error:
        name_model("openai:gpt@http://host/v1")
    assert "abc" not in str(error.value)
