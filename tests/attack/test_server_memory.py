"""The memory of the reward server: whatever a request unpacks to is counted before it is there, and given back."""

import gc
import io
import json
import socket
import struct
import threading
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

import httpx2

from rewardlab.models.remote import EPISODES_TYPE
from tests.serving.loopback_server import reward_server
from tests.serving.served_models import Recorder
from tests.serving.test_server import npy, npz

MB = 1_000_000
FRAMES = np.zeros((4, 16, 16, 3), np.uint8)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def client(recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx2.Client]:
    monkeypatch.setenv("REWARDLAB_MAX_SERVER_MB", "8")
    monkeypatch.setenv("REWARDLAB_MAX_CLIP_MB", "4")
    monkeypatch.setenv("REWARDLAB_MAX_REQUEST_MB", "2")
    np.save(tmp_path / "large.npy", np.zeros((20, 200, 200, 3), np.uint8))
    with reward_server("recorder", recorder, root=tmp_path) as made:
        yield made


def held(client: httpx2.Client) -> float:
    lines = client.get("/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("rewardlab_memory_bytes ")))


@contextmanager
def traced_memory() -> Iterator[tuple[Callable[[], int], Callable[[], int]]]:
    """Give what Python and NumPy hold in this process in bytes, and the most since the beginning.

    What the system says a process has depends on when freed memory is given back; this does not.
    """
    tracemalloc.start()
    try:
        yield lambda: gc.collect() * 0 + tracemalloc.get_traced_memory()[0], lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def wait_until_nothing_is_held(client: httpx2.Client) -> None:
    while held(client):
        pass


def assert_refused(reply: httpx2.Response, *statuses: int) -> None:
    assert reply.status_code in statuses, reply.text
    assert "REWARDLAB_MAX_SERVER_MB" in reply.json()["error"] or "try again later" in reply.json()["error"]


def evaluated(client: httpx2.Client, frames: np.ndarray, **settings: str) -> httpx2.Response:
    sample = {"sample_type": "progress", "trajectory": {"task": "push", "frames": {"__numpy_file__": "f"}}}
    return client.post(
        "/evaluate_batch_npy", files={"f": npz(frames)}, data={"sample_0": json.dumps(sample)} | settings
    )


def test_the_prefixes_of_a_clip_are_counted_before_they_are_made(client: httpx2.Client, recorder: Recorder) -> None:
    clip = np.zeros((100, 32, 32, 3), np.uint8)
    assert evaluated(client, clip).status_code == 200
    assert_refused(evaluated(client, clip, use_frame_steps="true"), 413)
    assert recorder.batches == [1]
    assert evaluated(client, clip[:20], use_frame_steps="true").status_code == 200
    wait_until_nothing_is_held(client)


def test_a_file_that_is_named_often_is_counted_each_time(client: httpx2.Client, recorder: Recorder) -> None:
    named = {"instruction": "push", "reference": "large.npy"}
    assert client.post("/v1/batch", json={"clips": [named] * 3}).status_code == 200
    assert_refused(client.post("/v1/batch", json={"clips": [named] * 4}), 413)
    assert recorder.batches == [3]
    wait_until_nothing_is_held(client)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/v1/score", "/v1/batch", "/v1/sessions", "/evaluate_batch"])
@pytest.mark.parametrize("item", [b"[]", b"{}", b'"ab"', b"[[[]]]", b"300"])
def test_json_is_counted_as_what_it_becomes(client: httpx2.Client, path: str, item: bytes) -> None:
    body = b"[" + b",".join([item] * (1_900_000 // (len(item) + 1))) + b"]"
    assert_refused(client.post(path, content=body, headers={"content-type": "application/json"}), 413)
    wait_until_nothing_is_held(client)


@pytest.mark.parametrize("item", ["[]", "{}", '{"":0}', '"ab"', "[[[[[[1]]]]]]", "300", "1.5", "[0,0,0]", '"\\u4e00"'])
def test_parsed_json_takes_no_more_than_was_counted(item: str) -> None:
    from rewardlab.core.records import parse_json, parsed_bytes

    text = f"[{','.join([item] * 20_000)}]"
    with traced_memory() as (_, peak):
        found = parse_json(text)
        taken = peak()
    assert found and taken <= parsed_bytes(text)


def test_an_archive_with_a_long_directory_is_refused_before_it_is_read(client: httpx2.Client) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(10_000):
            archive.writestr(str(number), b"")
    sent = buffer.getvalue()
    assert_refused(client.post("/score", content=sent, headers={"content-type": EPISODES_TYPE}), 413)
    assert_refused(client.post("/v1/score", files={"clip": sent}, data={"instruction": "push"}), 413)
    wait_until_nothing_is_held(client)


def test_requests_that_wait_for_the_model_fill_the_memory_and_give_it_back(
    client: httpx2.Client, recorder: Recorder
) -> None:
    sent: dict[str, Any] = {
        "files": {"clip": npz(np.zeros((30, 200, 200, 3), np.uint8))},
        "data": {"instruction": "push"},
    }
    recorder.gate.clear()
    waiting = [threading.Thread(target=client.post, args=["/v1/score"], kwargs=sent) for _ in range(2)]
    for thread in waiting:
        thread.start()
    while held(client) < 7 * MB:
        pass
    assert_refused(client.post("/v1/score", **sent), 503)
    assert client.get("/health").status_code == 200
    recorder.gate.set()
    for thread in waiting:
        thread.join()
    wait_until_nothing_is_held(client)
    assert client.post("/v1/score", **sent).status_code == 200


def test_sessions_and_requests_share_the_memory_and_idle_sessions_are_closed_for_others(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, replies = npy(np.zeros((15, 200, 200, 3), np.uint8)), []
    for _ in range(4):
        name = client.post("/v1/sessions", json={"instruction": "push"}).json()["session"]
        replies.append(client.post(f"/v1/sessions/{name}/frames", content=frames))
    assert [reply.status_code for reply in replies] == [200, 200, 200, 503]
    clip = npz(np.zeros((30, 200, 200, 3), np.uint8))
    assert_refused(client.post("/v1/score", files={"clip": clip}, data={"instruction": "push"}), 503)
    monkeypatch.setattr("rewardlab.serving.sessions.IDLE_SECONDS", 0.0)
    assert client.post("/v1/score", files={"clip": clip}, data={"instruction": "push"}).status_code == 200
    wait_until_nothing_is_held(client)


def test_messages_of_websockets_are_counted_and_let_go_when_the_clients_vanish(client: httpx2.Client) -> None:
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect

    url = str(client.base_url).replace("http", "ws") + "/v1/stream"
    header = b"\x82\xff" + struct.pack(">Q", 1_900_000) + bytes(4)  # binary, masked with zeros
    with ExitStack() as stack:
        streams = [stack.enter_context(connect(url)) for _ in range(7)]
        for stream in streams:
            stream.send('{"instruction": "push"}')
            stream.recv()
        for number, stream in enumerate(streams[:5], start=1):
            stream.socket.sendall(header + bytes(1_500_000))  # and the rest never comes
            while held(client) < 1_500_000 * number:
                pass
        streams[5].socket.sendall(header + bytes(1_500_000))
        with pytest.raises(ConnectionClosed):
            streams[5].recv()
        assert streams[5].close_code == 1013 and "try again later" in str(streams[5].close_reason)
        assert client.get("/health").status_code == 200
        for stream in streams[:5]:
            stream.socket.shutdown(socket.SHUT_RDWR)
        wait_until_nothing_is_held(client)
        for count in range(1, 40):  # a session gives back each message it has read
            streams[6].send(npy(FRAMES))
            assert json.loads(streams[6].recv())["frames"] == 4 * count
            streams[6].send(b"no frames" * 50_000)
            assert "error" in json.loads(streams[6].recv())
        assert 0 < held(client) < 2 * MB
    wait_until_nothing_is_held(client)


def test_messages_of_websockets_cannot_be_bombs(client: httpx2.Client) -> None:
    from websockets.sync.client import connect

    with connect(str(client.base_url).replace("http", "ws") + "/v1/stream", compression="deflate") as stream:
        assert not stream.protocol.extensions


@pytest.mark.parametrize(
    "frame",
    [b"\x00\x80" + bytes(4), b"\x89\xfd" + bytes(4 + 125)],
    ids=["parts of one message", "pings whose answers are not read"],
)
def test_small_frames_without_end_are_refused(client: httpx2.Client, frame: bytes) -> None:
    upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    key = "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as stream:
        stream.sendall(f"GET /v1/stream HTTP/1.1\r\nhost: localhost\r\n{upgrade}{key}".encode())
        assert stream.recv(12) == b"HTTP/1.1 101"
        stream.sendall(b"\x02\x80" + bytes(4))  # the first part of a message
        assert _is_refused(stream, frame * 1_000)
    assert client.get("/health").status_code == 200
    wait_until_nothing_is_held(client)


def _is_refused(stream: socket.socket, sent: bytes) -> bool:
    """Return whether the server closes the connection while this is sent 1,000 times."""
    try:
        for _ in range(1_000):
            stream.sendall(sent)
    except OSError:
        return True
    return False


@pytest.mark.slow
def test_what_vanished_clients_sent_is_let_go() -> None:
    from websockets.sync.client import connect

    sent = npy(np.zeros((10, 1000, 1000, 3), np.uint8))
    with traced_memory() as (now, _), reward_server("recorder", Recorder()) as client:

        def send_and_vanish() -> int:
            with ExitStack() as stack:
                for _ in range(6):
                    stream = stack.enter_context(connect(str(client.base_url).replace("http", "ws") + "/v1/stream"))
                    stream.send('{"instruction": "push"}')
                    stream.recv()
                    stream.send(sent)
                    stream.recv()
                most = now()
            wait_until_nothing_is_held(client)
            return most

        client.get("/health")
        before, most = now(), send_and_vanish()
        assert most - before > 6 * len(sent)
        while now() - before > len(sent):  # a test that hangs here has found a leak
            client.get("/health")


def test_a_small_request_for_every_prefix_takes_little_memory() -> None:
    clip = np.zeros((15_000, 16, 16, 3), np.uint8)  # 12 MB, whose prefixes would be 86 GB
    with reward_server("recorder", Recorder()) as client:
        assert evaluated(client, np.zeros((10, 4, 4, 3), np.uint8), use_frame_steps="true").status_code == 200
        with traced_memory() as (now, peak):
            before = now()
            assert_refused(evaluated(client, clip, use_frame_steps="true"), 413)
            assert peak() - before < 150 * MB


def test_other_requests_are_answered_while_long_json_is_parsed() -> None:
    text = json.dumps({"clips": [], "more": list(range(1_000, 1_001)) * 700_000}).encode()
    order: list[str] = []
    with reward_server("recorder", Recorder()) as client:
        client.get("/health")

        def ask() -> None:
            client.post("/v1/batch", content=text, headers={"content-type": "application/json"})
            order.append("parsed")

        thread = threading.Thread(target=ask)
        thread.start()
        while held(client) < len(text):  # the body is there
            pass
        order.append("answered")
        thread.join()
    assert order == ["answered", "parsed"]
