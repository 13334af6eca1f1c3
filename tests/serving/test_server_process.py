"""The server as a process of its own: it drains on SIGTERM and loads its model again on SIGHUP."""

import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

import httpx2

from rewardlab.serving.listening import listen
from tests.conftest import moving_square
from tests.serving.test_server import npy

ROOT = Path(__file__).parents[2]


@contextmanager
def serving(model: str, *settings: str, descriptors: int = 0) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Run `rewardlab serve` until the block ends; give the process and its address."""
    command = [sys.executable, "-m", "rewardlab", "serve", model, "--port", "0", *settings]
    if descriptors:
        command = ["bash", "-c", f'ulimit -n {descriptors}; exec "$@"', "bash", *command]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert line.startswith("serving "), process.stderr.read()
            yield process, line.split()[-1]
        finally:
            if process.poll() is None:
                process.kill()


def test_no_part_of_an_answer_waits_until_the_client_acknowledges_the_one_before() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_what_was_asked_before_sigterm_is_answered_and_the_process_ends_well(tmp_path: Path) -> None:
    gate, replies = tmp_path / "gate", list[httpx2.Response]()

    def ask() -> None:
        data = {"clip": npy(moving_square("a", count=4, size=16))}
        replies.append(httpx2.post(f"{url}/v1/score", files=data, data={"instruction": "push"}, timeout=60))

    with serving(f"tests.serving.served_models:GatedByFile?path={gate}") as (process, url):
        clients = [threading.Thread(target=ask) for _ in range(4)]
        for client in clients:
            client.start()
        waiting = threading.Event()
        while "rewardlab_pending_clips 4.0" not in httpx2.get(f"{url}/metrics").text:
            waiting.wait(0.02)
        process.send_signal(signal.SIGTERM)
        while _accepts(url):
            waiting.wait(0.02)
        gate.touch()
        for client in clients:
            client.join()
        assert process.wait(30) == 0
    assert [reply.status_code for reply in replies] == [200] * 4


@pytest.mark.slow
def test_connections_are_bounded_below_the_limit_on_descriptors_and_this_is_logged_once() -> None:
    with serving("length", descriptors=256) as (process, url):
        assert process.stderr is not None
        place = ("127.0.0.1", int(url.rsplit(":", 1)[1]))
        idle = [socket.create_connection(place) for _ in range(400)]
        refused = [connection for connection in idle if select.select([connection], [], [], 0)[0]]
        while len(refused) < 400 - 128:
            refused = [connection for connection in idle if select.select([connection], [], [], 0.01)[0]]
        assert {connection.recv(12) for connection in refused} == {b"HTTP/1.1 503"}
        for connection in idle:
            connection.close()
        while not _accepts(url):
            pass
        assert httpx2.get(f"{url}/health").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.stderr.read().count("\n") == 1


def _accepts(url: str) -> bool:
    try:
        httpx2.get(f"{url}/health")
    except httpx2.TransportError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no SIGHUP here")
def test_sighup_loads_the_model_again_and_a_broken_one_leaves_it_in_place(tmp_path: Path) -> None:
    from rewardlab.models.pocket import WEIGHTS, variant_files

    for path in variant_files(WEIGHTS / "pocket")[1:]:
        (tmp_path / path.name).symlink_to(path)
    with serving(f"pocket:{tmp_path / 'pocket'}") as (process, url):
        assert process.stdout is not None and process.stderr is not None
        first = httpx2.get(f"{url}/health").json()["fingerprint"]
        settings = tmp_path / "pocket.json"
        text = settings.read_text()
        settings.unlink()
        process.send_signal(signal.SIGHUP)
        assert "the model stays as it is" in process.stderr.readline()
        assert httpx2.get(f"{url}/health").json()["fingerprint"] == first
        settings.write_text(text + "\n")
        process.send_signal(signal.SIGHUP)
        assert "again" in process.stdout.readline()
        assert httpx2.get(f"{url}/health").json()["fingerprint"] != first
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
