"""Hostile requests to the reward server: each is refused with 4xx and a reason, and the server goes on."""

import io
import json
import pickle
import socket
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

import httpx2

from rewardlab.core.video_encoding import encode
from tests.conftest import moving_square
from tests.serving.loopback_server import reward_server
from tests.serving.served_models import Recorder

FRAMES = moving_square("a", count=3, size=16)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    (folder / "clips").mkdir()
    encode(moving_square("v", count=8), folder / "clips/sound.mp4", fps=10)
    encode(moving_square("v", count=8), folder / "secret.mp4", fps=10)
    (folder / "clips/link.mp4").symlink_to(folder / "secret.mp4")
    (folder / "clips/circle.mp4").symlink_to(folder / "clips/circle.mp4")
    (folder / "clips/text.mp4").write_text("no video")
    return folder


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[httpx2.Client]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWARDLAB_MAX_REQUEST_MB", "2")
        patch.setenv("REWARDLAB_MAX_CLIP_MB", "4")
        patch.setenv("REWARDLAB_MAX_CLIP_FRAMES", "100")
        patch.setenv("REWARDLAB_MAX_REQUEST_SECONDS", "1")
        with reward_server("recorder", Recorder(), root=root / "clips") as made:
            yield made


def saved(array: np.ndarray, **entries: Any) -> bytes:
    buffer = io.BytesIO()
    if entries:
        np.savez_compressed(buffer, array, **entries)
    else:
        np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def header(shape: str, descr: str = "'|u1'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def zipped(content: bytes, name: str = "frames.npy", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


class Bomb:
    """Unpickling it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


def pickled(path: Path) -> bytes:
    body = pickle.dumps(np.array([Bomb(path)], dtype=object))
    return header("(1,)", "'|O'") + body


HOSTILE = {
    "nothing": b"",
    "no zip": b"PK\x03\x04 not really",
    "half an archive": zipped(saved(FRAMES))[:-20],
    "a flipped archive": flipped(zipped(saved(FRAMES)), 120),
    "a zip bomb": zipped(header("(30000, 16, 16, 3)") + bytes(30_000 * 768)),
    "two arrays": saved(FRAMES, other=FRAMES),
    "floats": saved(FRAMES.astype(np.float32)),
    "four channels": saved(np.zeros((2, 4, 4, 4), np.uint8)),
    "a single number": saved(np.array(7, np.uint8)),
    "no frames": saved(np.zeros((0, 4, 4, 3), np.uint8)),
    "a claim of terabytes": header("(1000000, 1000, 1000, 3)"),
    "a negative shape": header("(-1, 4, 4, 3)") + bytes(480),
    "a shape that is no number": header("(True, 2, 2, 3)") + bytes(12),
    "a bzip2 bomb": zipped(header("(3, 1000, 1000, 3)") + bytes(9_000_000), method=zipfile.ZIP_BZIP2),
    "an endless header": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b"(" * 1000,
    "a header that is code": header("__import__('os').abort()"),
    "too many frames": saved(np.zeros((200, 4, 4, 3), np.uint8)),
    "a giant image": b"\x89PNG\r\n\x1a\n" + b"\x00\x00\x00\rIHDR" + struct.pack(">II", 60_000, 60_000) + bytes(20),
    "random bytes": np.random.default_rng(0).integers(0, 256, 5_000, np.uint8).tobytes(),
}


def ask(client: httpx2.Client, data: bytes, instruction: str = "push") -> httpx2.Response:
    return client.post("/v1/score", files={"clip": data}, data={"instruction": instruction})


def assert_refused(reply: httpx2.Response, *statuses: int) -> None:
    assert reply.status_code in (statuses or (400, 422)), reply.text
    assert len(reply.json()["error"]) > 10


@pytest.mark.parametrize("name", HOSTILE)
def test_a_clip_that_is_none_is_refused(client: httpx2.Client, name: str) -> None:
    assert_refused(ask(client, HOSTILE[name]), 422)
    session = client.post("/v1/sessions", json={"instruction": "push"}).json()["session"]
    assert_refused(client.post(f"/v1/sessions/{session}/frames", content=HOSTILE[name]), 422)
    client.delete(f"/v1/sessions/{session}")
    assert ask(client, saved(FRAMES)).status_code == 200


def test_a_pickled_array_is_never_unpickled(client: httpx2.Client, tmp_path: Path) -> None:
    target = tmp_path / "was here"
    np.load(io.BytesIO(pickled(target)), allow_pickle=True)
    assert target.exists(), "the bomb must be live for this test to mean anything"
    target.unlink()
    for data in (pickled(target), zipped(pickled(target))):
        assert_refused(ask(client, data), 422)
    sample = {"sample_type": "progress", "trajectory": {"task": "a", "frames": {"__numpy_file__": "f"}}}
    reply = client.post("/evaluate_batch_npy", files={"f": pickled(target)}, data={"sample_0": json.dumps(sample)})
    assert_refused(reply, 422)
    body = {"content-type": "application/x-rewardlab-episodes"}
    assert_refused(client.post("/score", content=zipped(pickled(target), "episodes.npy"), headers=body), 422)
    assert not target.exists()


def test_a_video_of_more_frames_than_are_taken_is_refused(client: httpx2.Client, root: Path) -> None:
    encode(moving_square("long", count=150, size=32), root / "clips/long.mp4", fps=1)
    assert_refused(ask(client, (root / "clips/long.mp4").read_bytes()), 422)
    reply = client.post("/v1/score", json={"instruction": "a", "reference": "long.mp4"})
    assert_refused(reply, 422)
    assert str(root) not in reply.text


@pytest.mark.parametrize(
    ("reference", "status"),
    [
        ("../secret.mp4", 403),
        ("link.mp4", 403),
        ("/etc/passwd", 403),
        ("clips/../../../../../etc/passwd", 403),
        ("circle.mp4", 422),
        ("gone.mp4", 404),
        (".", 404),
        ("a" * 3_000, 422),
        ("a\0b", 422),
        ("text.mp4", 422),
    ],
)
def test_a_reference_leads_nowhere_but_below_the_root(client: httpx2.Client, reference: str, status: int) -> None:
    reply = client.post("/v1/score", json={"instruction": "a", "reference": reference})
    assert reply.status_code in {status, 404 if status == 422 else status}, reply.text
    assert client.post("/v1/score", json={"instruction": "a", "reference": "sound.mp4"}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 100_000,
        b'{"instruction": "\\ud800", "reference": "sound.mp4"}',
        b'{"instruction": "a", "reference": "\\udfff"}',
        b'{"instruction": "a", "reference": "sound.mp4", "fps": NaN}',
        b'{"instruction": "a", "reference": "sound.mp4", "fps": 1' + b"0" * 5_000 + b"}",
        b'{"\\ud800": 1}',
        b"\xff\xfe",
        b"3",
    ],
)
@pytest.mark.parametrize("path", ["/v1/score", "/v1/batch", "/v1/sessions", "/evaluate_batch"])
def test_odd_json_is_refused(client: httpx2.Client, path: str, body: bytes) -> None:
    reply = client.post(path, content=body, headers={"content-type": "application/json"})
    assert_refused(reply)


@pytest.mark.parametrize(
    "frames", [0, [], "a", None, [[[0, 0, 0]]], [[[[0, 0, 0]], [[0, 0]]]], [[[[0, 0, 256]]]], [[[[0.5, 0, 0]]]]]
)
def test_odd_frames_in_json_are_refused(client: httpx2.Client, frames: object) -> None:
    sample = {"sample_type": "progress", "trajectory": {"task": "push", "frames": frames}}
    assert_refused(client.post("/evaluate_batch", json={"samples": [sample]}), 422)


def test_odd_forms_are_refused(client: httpx2.Client) -> None:
    form = {"content-type": "multipart/form-data; boundary=x"}
    part = b'--x\r\nContent-Disposition: form-data; name="instruction"\r\n\r\n\xff\xfe\r\n--x--\r\n'
    for body in (b"", b"--x", b"no form at all", part, part * 20):
        for path in ("/v1/score", "/evaluate_batch_npy"):
            assert_refused(client.post(path, content=body, headers=form))
    for headers in ({"content-type": "multipart/form-data"}, {"content-type": "text/plain"}, {}):
        assert_refused(client.post("/v1/score", content=b"abc", headers=headers))
    assert_refused(ask(client, saved(FRAMES), "a" * 20_000), 422)


def test_a_request_that_is_too_long_is_refused_whatever_length_it_claims(client: httpx2.Client) -> None:
    assert_refused(client.post("/v1/score", content=bytes(3_000_000)), 413)
    chunks = (bytes(100_000) for _ in range(30))
    assert_refused(client.post("/v1/score", content=chunks), 413)
    reply = raw(
        client, b"POST /v1/score HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999999\r\n\r\n"
    )
    assert b" 400 " in reply.splitlines()[0]


def raw(client: httpx2.Client, sent: bytes) -> bytes:
    """Return everything that the server says to these bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=20) as connection:
        connection.sendall(sent)
        said = b""
        while part := connection.recv(65_536):
            said += part
    return said


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HTTP/1.1\r\nhost: loc",
        b"POST /v1/score HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\nabc",
    ],
    ids=["silence", "half a header", "half a body"],
)
def test_a_client_that_never_finishes_is_told_so_and_let_go(client: httpx2.Client, sent: bytes) -> None:
    said = raw(client, sent)
    assert b" 408 " in said.splitlines()[0]
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * 70_000,
        b"GET /health HTTP/1.1\r\nx: " + b"a" * 70_000,
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 12_000,
    ],
    ids=["address", "header", "headers"],
)
def test_a_header_without_end_is_refused(client: httpx2.Client, sent: bytes) -> None:
    said = raw(client, sent)
    assert b" 431 " in said.splitlines()[0]
    assert b"too long" in said


def test_a_body_may_come_in_small_chunks_but_no_trailer_without_end_after_it(client: httpx2.Client) -> None:
    session = client.post("/v1/sessions", json={"instruction": "push"}).json()["session"]
    frames = saved(np.zeros((100, 32, 32, 3), np.uint8))
    chunks = (frames[start : start + 100] for start in range(0, len(frames), 100))
    assert client.post(f"/v1/sessions/{session}/frames", content=chunks).json()["frames"] == 100
    head = b"POST /v1/score HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    assert raw(client, head + b"3\r\nabc\r\n0\r\nx: " + b"a" * 70_000) == b""
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_page_from_elsewhere_cannot_reach_a_server_on_loopback(host: str) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    with reward_server("recorder", Recorder(), host=host) as client:
        netloc = client.base_url.netloc.decode()
        for name in ("evil.example", "evil.example:80", "[::2]:8000", ""):
            assert client.get("/v1/live", headers={"host": name}).status_code == 400
        for name in (netloc, "localhost", "LOCALHOST:80", "[::1]:8000", "[::1]"):
            assert client.get("/v1/live", headers={"host": name}).status_code == 200
        stream = f"ws://{netloc}/v1/stream"
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            reply = client.post("/evaluate_batch", json={"samples": []}, headers={"origin": origin})
            assert_refused(reply, 403)
            with pytest.raises(InvalidStatus, match="403"), connect(stream, additional_headers={"origin": origin}):
                pass
        with pytest.raises(InvalidStatus), connect(stream, additional_headers={"sec-fetch-site": "cross-site"}):
            pass
        own = {"origin": f"http://{netloc}", "sec-fetch-site": "same-origin"}
        assert client.get("/v1/live", headers=own).status_code == 200
        with connect(stream, additional_headers=own) as opened:
            opened.send('{"instruction": "push"}')
            assert json.loads(opened.recv())["frames"] == 0


def test_a_websocket_that_misbehaves_is_closed_with_a_reason(client: httpx2.Client) -> None:
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect

    for first in (b"\x00\x01", "[]", '{"instruction": ""}', "[" * 1000):
        with connect(str(client.base_url).replace("http", "ws") + "/v1/stream") as stream:
            stream.send(first)
            with pytest.raises(ConnectionClosed):
                stream.recv()
            assert stream.close_code == 1008


@pytest.mark.parametrize("part", [b"\x82\xfe\x03\xe8" + bytes(14), b"\x02\x80" + bytes(4)], ids=["frame", "frames"])
def test_a_message_that_never_ends_is_refused(client: httpx2.Client, part: bytes) -> None:
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect

    with connect(str(client.base_url).replace("http", "ws") + "/v1/stream") as stream:
        stream.send('{"instruction": "push"}')
        stream.recv()
        stream.socket.sendall(part)
        with pytest.raises(ConnectionClosed, match="did not arrive within 1 s"):
            stream.recv()
