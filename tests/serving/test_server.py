"""The reward server: clips, batches and sessions over real connections on loopback."""

import asyncio
import io
import json
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from rewardlab.models.remote import Remote
from tests.narrowing import as_score, as_scores, known, of_type

pytest.importorskip("fastapi")

import httpx2

from rewardlab.cli import main
from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models import name_model
from rewardlab.serving.batching import load_served_model
from rewardlab.serving.sessions import Session
from rewardlab.testing import check_model
from tests.conftest import moving_square
from tests.serving.loopback_server import reward_server
from tests.serving.served_models import Recorder, judge


def npy(frames: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, frames)
    return buffer.getvalue()


def npz(frames: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, frames=frames)
    return buffer.getvalue()


FRAMES = moving_square("a", count=8, size=16)


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def client(recorder: Recorder, tiny_data: Path) -> Iterator[httpx2.Client]:
    with reward_server("recorder", recorder, root=tiny_data, queue=8, sessions=2) as made:
        yield made


@pytest.mark.parametrize("data", [npy(FRAMES), npz(FRAMES)], ids=["npy", "npz"])
def test_frames_in_a_form_are_scored_and_the_answer_carries_its_info(client: httpx2.Client, data: bytes) -> None:
    reply = client.post("/v1/score", files={"clip": data}, data={"instruction": "push", "fps": "5"})
    answer = reply.json()
    expected = as_score(judge(episode_from_frames(FRAMES, "push")))
    assert (reply.status_code, answer["level"], tuple(answer["progress"])) == (200, expected.level, expected.progress)
    assert answer["info"] == {"prediction_set": [4, 5], "novelty": 0.25} and answer["raw"] is None
    assert answer["fingerprint"] == "one"


def form(*parts: tuple[str, bytes], end: bytes = b"--between--\r\n") -> dict[str, Any]:
    body = b"".join(b"--between\r\n" + head.encode() + b"\r\n\r\n" + data + b"\r\n" for head, data in parts)
    return {"content": body + end, "headers": {"content-type": "multipart/form-data; boundary=between"}}


CLIP, TEXT = 'Content-Disposition: form-data; name="clip"; filename="c"', 'content-disposition: form-data; name="{}"'
PUSH = (TEXT.format("instruction"), b"push")


def test_a_form_is_read_as_it_was_written(client: httpx2.Client) -> None:
    nearly = b"\r\n--betwee" * 30 + b"\r\n--" * 21  # bytes of which some could begin the line between two parts
    tricky = npy(np.frombuffer(nearly, np.uint8).reshape(1, 8, 16, 3))
    plain = client.post("/v1/score", files={"clip": tricky}, data={"instruction": "push"}).json()
    assert client.post("/v1/score", **form((CLIP, tricky), PUSH)).json() == plain and plain["level"]


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        (form((CLIP, npy(FRAMES)), PUSH, end=b""), 422, "a text `instruction`"),  # cut off in its last part
        (form((CLIP, npy(FRAMES)), PUSH, end=b"--y--"), 422, "a text `instruction`"),
        (form((CLIP, npy(FRAMES)), (PUSH[0], b"\xff\xfe")), 400, "cannot be read (UnicodeDecodeError)"),
        (form((CLIP, npy(FRAMES)), ("Content-Disposition: form-data", b"push")), 400, "cannot be read (KeyError)"),
        (form(*[(TEXT.format(f"t{i}"), b"1") for i in range(9)]), 400, "more than 8 fields"),
        (form(*[(CLIP, b"1")] * 9), 400, "more than 8 files"),
        (form((CLIP, npy(FRAMES))), 422, "a text `instruction`"),
        (form(PUSH, (TEXT.format("clip"), b"no file")), 422, "a file `clip`"),
        (form((CLIP, npy(FRAMES)), PUSH, (TEXT.format("fsp"), b"30")), 422, "unknown fields: fsp"),
        ({"content": b"--x--", "headers": {"content-type": "multipart/form-data"}}, 422, "with a boundary"),
    ],
)
def test_a_form_that_is_none_is_refused_with_a_reason(
    client: httpx2.Client, asked: dict[str, Any], status: int, words: str
) -> None:
    reply = client.post("/v1/score", **asked)
    assert reply.status_code == status and words in reply.json()["error"]


def test_a_video_is_scored_as_the_command_line_shows_it(client: httpx2.Client, tiny_data: Path) -> None:
    video = (tiny_data / "arm/a.mp4").read_bytes()
    uploaded = client.post("/v1/score", files={"clip": video}, data={"instruction": "put"}).json()
    referenced = client.post("/v1/score", json={"instruction": "put", "reference": "arm/a.mp4"}).json()
    both = client.post("/v1/batch", json={"clips": [{"instruction": "put", "reference": "arm/a.mp4"}] * 2}).json()
    assert len(uploaded["progress"]) == 14
    assert uploaded == referenced == both[0] == both[1]


@pytest.mark.parametrize(
    ("method", "path", "asked", "status", "words"),
    [
        ("GET", "/nowhere", {}, 404, "no such address here; /docs"),
        ("GET", "/no/where", {}, 404, "no such address here; /docs"),
        ("GET", "/v1/score", {}, 405, "does not allow that method; /docs"),
        ("POST", "/v1/sessions", {"json": {"instruction": " "}}, 422, "say what the robot was asked to do"),
        ("POST", "/v1/sessions", {"json": {}}, 422, "instruction: Field required"),
        ("POST", "/v1/score", {"json": []}, 422, "the body: Input should be"),
    ],
)
def test_a_mistake_is_said_in_one_sentence(
    client: httpx2.Client, method: str, path: str, asked: dict[str, Any], status: int, words: str
) -> None:
    reply = client.request(method, path, **asked)
    assert reply.status_code == status and words in reply.json()["error"]
    assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"no frames", "got 9 bytes that are none of these"),
        (npy(np.zeros((4, 8, 8), np.uint8)), r"got uint8 (4, 8, 8);"),
    ],
)
def test_frames_that_are_none_are_refused_by_what_came(client: httpx2.Client, data: bytes, words: str) -> None:
    session = client.post("/v1/sessions", json={"instruction": "push"}).json()["session"]
    reply = client.post(f"/v1/sessions/{session}/frames", content=data)
    assert reply.status_code == 422 and words in reply.json()["error"]
    client.delete(f"/v1/sessions/{session}")


def test_a_model_that_gives_no_answer_says_why(client: httpx2.Client) -> None:
    answer = client.post("/v1/score", files={"clip": npy(FRAMES)}, data={"instruction": "refuse"}).json()
    assert answer["failure"] == "no robot in sight"
    assert "level" not in answer


def test_the_remote_model_gives_the_answers_of_the_served_one(client: httpx2.Client) -> None:
    sent = [episode_from_frames(moving_square(task, count=5, size=16), task) for task in ("a", "refuse")]
    model = name_model(f"remote:{client.base_url}").build()
    assert model.score(sent) == [judge(episode) for episode in sent]
    check_model(model, sent[:1])


def test_the_remote_model_is_asked_from_asynchronous_code(client: httpx2.Client) -> None:
    sent = [episode_from_frames(moving_square(task, count=5, size=16), task) for task in ("a", "b", "refuse")]
    model = of_type(Remote, name_model(f"remote:{client.base_url}").build())

    async def ask_all() -> list[Sequence[Answer]]:
        return await asyncio.gather(*(model.score_async([episode]) for episode in sent))

    assert asyncio.run(ask_all()) == [[judge(episode)] for episode in sent]


def test_a_session_is_asked_at_any_time_and_answers_as_the_whole_clip_would(client: httpx2.Client) -> None:
    opened = client.post("/v1/sessions", json={"instruction": "push"})
    path = f"/v1/sessions/{opened.json()['session']}"
    assert opened.status_code == 201
    assert client.get(path).status_code == 409
    assert client.post(f"{path}/frames", content=npy(FRAMES[:3])).json()["frames"] == 3
    assert client.get(path).json()["level"] == as_score(judge(episode_from_frames(FRAMES[:3], "push"))).level
    assert client.post(f"{path}/frames", content=npy(FRAMES[3])).json()["frames"] == 4
    assert client.post(f"{path}/frames", content=npy(moving_square("b", size=32))).status_code == 422
    assert client.get(path).json()["frames"] == 4
    assert client.get(f"{path}/frame").content.startswith(b"\xff\xd8")
    live = client.get("/v1/live").json()["sessions"][0]
    assert [point["frames"] for point in live["curve"]] == [3, 4]
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404


def test_an_append_is_answered_with_the_score_every_so_many_frames(client: httpx2.Client) -> None:
    opened = client.post("/v1/sessions", json={"instruction": "push", "score_every": 3})
    path = f"/v1/sessions/{opened.json()['session']}"
    replies = [client.post(f"{path}/frames", content=npy(FRAMES[at : at + 2])).json() for at in range(0, 8, 2)]
    assert [reply["frames"] for reply in replies] == [2, 4, 6, 8]
    expected = [as_score(judge(episode_from_frames(FRAMES[:end], "push"))).level for end in (4, 8)]
    assert [reply.get("level") for reply in replies] == [None, expected[0], None, expected[1]]
    assert client.post(f"{path}/frames", content=npy(FRAMES[:2])).json().keys() == {"session", "frames"}
    assert client.get(path).json()["frames"] == 10  # a question in between counts too
    assert "level" not in client.post(f"{path}/frames", content=npy(FRAMES[:2])).json()
    client.delete(path)
    refused = client.post("/v1/sessions", json={"instruction": "push", "score_every": 0})
    assert refused.status_code == 422 and "score_every" in refused.json()["error"]


def test_frames_that_a_full_server_cannot_score_are_not_taken() -> None:
    recorder = Recorder()
    image = cv2.imencode(".png", FRAMES[0])[1].tobytes()
    with reward_server("recorder", recorder, queue=1) as client:
        opened = client.post("/v1/sessions", json={"instruction": "push", "score_every": 1}).json()
        path = f"/v1/sessions/{opened['session']}"
        recorder.gate.clear()
        first = threading.Thread(target=client.post, args=[f"{path}/frames"], kwargs={"content": npy(FRAMES)})
        first.start()
        recorder.entered.acquire()
        statuses = [client.post(f"{path}/frames", content=sent).status_code for sent in (npy(FRAMES), image)]
        recorder.gate.set()
        first.join()
        assert statuses == [503, 503] and client.get(path).json()["frames"] == 8


def test_a_request_waits_for_others_only_where_there_are_others() -> None:
    recorder, hour = Recorder(), 3_600.0
    sent: dict[str, Any] = {"files": {"clip": npy(FRAMES)}, "data": {"instruction": "push"}}
    with reward_server("recorder", recorder, max_batch=2, max_wait=hour) as client:
        assert [client.post("/v1/score", **sent).status_code for _ in range(2)] == [200, 200]
        recorder.gate.clear()
        asking = [threading.Thread(target=client.post, args=["/v1/score"], kwargs=sent) for _ in range(3)]
        asking[0].start()
        for _ in range(3):
            recorder.entered.acquire()
        asking[1].start()
        while "rewardlab_pending_clips 2.0" not in client.get("/metrics").text:
            pass
        recorder.gate.set()
        asking[0].join()  # the second came while the model was busy: it waits for a third
        asking[2].start()
        for thread in asking[1:]:
            thread.join()
        assert recorder.batches == [1, 1, 1, 2]


def test_the_frames_of_a_session_are_read_in_any_order_whatever_parts_they_came_in() -> None:
    session = Session("a", "push", 10.0, 0.0)
    for start, end in ((0, 1), (1, 4), (4, 8)):
        session.append(FRAMES[start:end])
    shown = session.episode()
    session.append(FRAMES[:2])
    assert len(shown.clip) == 8 and np.array_equal(shown.frames, FRAMES)
    assert np.array_equal(shown.clip.source.read(np.array([7, 0, 3, 4, 3])), FRAMES[[7, 0, 3, 4, 3]])
    assert shown.clip.source.digest == episode_from_frames(FRAMES, "push").clip.source.digest
    assert session.nbytes == FRAMES.nbytes + FRAMES[:2].nbytes and session.count == 10


def test_sessions_are_bounded_in_number(client: httpx2.Client) -> None:
    replies = [client.post("/v1/sessions", json={"instruction": "push"}) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [201, 201, 503]
    assert int(replies[2].headers["retry-after"]) > 0
    for reply in replies[:2]:
        client.delete(f"/v1/sessions/{reply.json()['session']}")


def test_a_session_over_a_websocket(client: httpx2.Client) -> None:
    from websockets.sync.client import connect

    with connect(str(client.base_url).replace("http", "ws") + "/v1/stream") as socket:
        socket.send(json.dumps({"instruction": "push"}))
        opened = json.loads(socket.recv())
        socket.send(npy(FRAMES))
        assert json.loads(socket.recv()) == {"session": opened["session"], "frames": 8}
        socket.send("score")
        assert json.loads(socket.recv())["level"] == as_score(judge(episode_from_frames(FRAMES, "push"))).level
        socket.send(b"no frames")
        assert "error" in json.loads(socket.recv())
    with connect(str(client.base_url).replace("http", "ws") + "/v1/stream") as socket:
        socket.send(json.dumps({"instruction": "push", "score_every": 8}))
        assert json.loads(socket.recv())["frames"] == 0
        socket.send(npy(FRAMES))
        assert json.loads(socket.recv())["level"] == as_score(judge(episode_from_frames(FRAMES, "push"))).level
    assert client.get("/health").json()["status"] == "healthy"


def test_requests_that_wait_are_scored_together_and_too_many_are_refused(
    client: httpx2.Client, recorder: Recorder
) -> None:
    statuses: list[httpx2.Response] = []

    def ask() -> None:
        statuses.append(client.post("/v1/score", files={"clip": npy(FRAMES)}, data={"instruction": "push"}))

    while recorder.entered.acquire(blocking=False):
        pass
    recorder.gate.clear()
    first = threading.Thread(target=ask)
    first.start()
    recorder.entered.acquire()
    others = [threading.Thread(target=ask) for _ in range(20)]
    for thread in others:
        thread.start()
    while len(statuses) < 13:  # all but the eight that find a place are refused at once
        assert any(thread.is_alive() for thread in others)
    recorder.gate.set()
    for thread in [first, *others]:
        thread.join()
    codes = sorted(reply.status_code for reply in statuses)
    assert codes == [200] * 8 + [503] * 13
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in statuses if reply.status_code == 503)
    assert recorder.batches[-1] == 7


def test_what_was_counted_is_there_for_prometheus(client: httpx2.Client) -> None:
    client.post("/v1/score", files={"clip": npy(FRAMES)}, data={"instruction": "push"})
    text = client.get("/metrics").text
    assert 'rewardlab_requests_total{route="/v1/score",status="200"}' in text
    assert 'rewardlab_answers_total{outcome="scored"}' in text
    assert "rewardlab_pending_clips 0.0" in text
    assert client.get("/v1/models").json()["models"][0]["name"] == "recorder"
    assert {"/v1/score", "/v1/sessions", "/evaluate_batch_npy"} <= client.get("/openapi.json").json()["paths"].keys()


def test_robometers_client_is_answered(client: httpx2.Client) -> None:
    trajectory = {"task": "push", "id": "0", "metadata": {"subsequence_length": 8}, "video_embeddings": None}
    sample = {
        "sample_type": "progress",
        "trajectory": {**trajectory, "frames": {"__numpy_file__": "sample_0_trajectory_frames"}},
    }
    files = {"sample_0_trajectory_frames": ("sample_0_trajectory_frames.npy", npy(FRAMES), "application/octet-stream")}
    form = {"sample_0": json.dumps(sample), "use_frame_steps": "false"}
    whole = client.post("/evaluate_batch_npy", files=files, data=form).json()
    expected = as_score(judge(episode_from_frames(FRAMES, "push")))
    assert whole["outputs_progress"]["progress_pred"] == [list(known(expected.progress))]
    assert whole["outputs_success"]["success_probs"] == [[known(expected.probabilities)[4]]]
    steps = client.post("/evaluate_batch_npy", files=files, data=form | {"use_frame_steps": "true"}).json()
    prefixes = as_scores(judge(episode_from_frames(FRAMES[:end], "push")) for end in range(1, 9))
    assert steps["outputs_progress"]["progress_pred"] == [[known(score.progress)[-1] for score in prefixes]]
    assert steps["outputs_success"]["success_probs"] == [[known(score.probabilities)[4] for score in prefixes]]

    small = moving_square("b", count=4, size=32)[:, ::8, ::8]
    pair = {
        "sample_type": "preference",
        "chosen_trajectory": trajectory | {"frames": small.tolist()},
        "rejected_trajectory": trajectory | {"frames": small[:2].tolist()},
    }
    reply = client.post("/evaluate_batch", json={"samples": [pair]}).json()["outputs_preference"]
    assert reply["predictions"] == [1] and 0.5 < reply["prediction_probs"][0] <= 1


def test_a_clip_is_not_better_than_itself() -> None:
    class Hesitant:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            return [Score(3.0, (0.26, 0.11, 0.06, 0.02, 0.55)) for _ in episodes]

    clip = {"frames": FRAMES.tolist(), "task": "push"}
    pair = {"sample_type": "preference", "chosen_trajectory": clip, "rejected_trajectory": clip}
    with reward_server("hesitant", Hesitant()) as client:
        reply = client.post("/evaluate_batch", json={"samples": [pair]}).json()["outputs_preference"]
    assert reply["prediction_probs"] == [pytest.approx(0.5, abs=1e-12)] and reply["predictions"] == [0]


def test_a_token_is_asked_for_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARDLAB_TOKEN", "secret words")
    with reward_server("recorder", Recorder()) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/v1/models").status_code == 401
        assert client.get("/v1/models", headers={"authorization": "Bearer secret word"}).status_code == 401
        assert client.get("/v1/models", headers={"authorization": "Bearer secret words"}).status_code == 200
        model = name_model(f"remote:{client.base_url}").build()
        episode = episode_from_frames(FRAMES, "push")
        assert model.score([episode]) == [judge(episode)]


def test_a_server_that_others_can_reach_must_have_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "length", "--host", "0.0.0.0"]) == 2
    assert "set a token in REWARDLAB_TOKEN" in capsys.readouterr().err
    with pytest.raises(PlanError, match="reads the true label"):
        load_served_model("oracle")


def test_an_address_that_is_taken_is_said_in_one_sentence(
    client: httpx2.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert main(["serve", "length", "--port", str(client.base_url.port)]) == 2
    assert "choose another --port" in capsys.readouterr().err
    assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


def test_pocket_encodes_only_new_frames_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = load_served_model("pocket").model
    encoded: list[int] = []
    run = model.image_encoder.run

    class Counting:
        def run(self, rows: int, inputs: object) -> object:
            encoded.append(rows)
            return run(rows, inputs)

    monkeypatch.setattr(model, "image_encoder", Counting())
    frames = moving_square("pocket", count=12, size=64)
    with reward_server("pocket", model) as client:
        path = "/v1/sessions/" + client.post("/v1/sessions", json={"instruction": "push the block"}).json()["session"]
        answers = []
        for start in range(0, 12, 4):
            client.post(f"{path}/frames", content=npy(frames[start : start + 4]))
            answers.append(client.get(path).json())
    assert encoded == [4, 4, 4]
    fresh = load_served_model("pocket").model
    for end, answer in zip((4, 8, 12), answers, strict=True):
        (expected,) = fresh.score([episode_from_frames(frames[:end], "push the block")])
        assert not isinstance(expected, Failure)
        assert answer["level"] == expected.level
        assert answer["progress"] == pytest.approx(expected.progress, abs=1e-5)
