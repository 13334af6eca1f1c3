"""Throughput and latency of `rewardlab serve MODEL` under load, on loopback, server and load in one run.

    python benchmarks/serve_load.py [--model pocket] [--clients 32] [--requests 192] [--frames 16] [--soak SECONDS]

Servers: dynamic batching, the same with one request at a time, the model behind a plain FastAPI handler with a lock,
and behind LitServe where that is installed. Every request is a clip of its own, so that no cache answers it. With
--soak the batching server, with a short queue, is then loaded twice over: every request must be answered or refused
with 503, its memory must stay flat, and SIGTERM must end it well.
The last line is `ratio: X`, the throughput of batching over one request at a time.
"""

import argparse
import asyncio
import io
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import httpx2
import numpy as np

from rewardlab.data import open_dataset

PLAIN = """
import io, threading, sys
import numpy as np, uvicorn
from fastapi import FastAPI, UploadFile, Form
from rewardlab.core.episode import Episode, in_memory, whole_clip
from rewardlab.models import name_model
app, model, lock = FastAPI(), name_model(sys.argv[2]).build(), threading.Lock()
@app.post("/v1/score")
def score(clip: UploadFile, instruction: str = Form()):
    frames = np.load(io.BytesIO(clip.file.read()), allow_pickle=False)
    with lock:
        answer = model.score([Episode("", instruction, whole_clip(in_memory(frames), 10.0))])[0]
    return {"level": answer.level, "progress": answer.progress}
@app.get("/health")
def health():
    return {}
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
"""
LITSERVE = """
import io, sys
import numpy as np, litserve
from fastapi import Request
from rewardlab.core.episode import Episode, in_memory, whole_clip
from rewardlab.models import name_model
class Api(litserve.LitAPI):
    def setup(self, device):
        self.model = name_model(sys.argv[2]).build()
    def decode_request(self, request: Request):
        frames = np.load(io.BytesIO(request["clip"].file.read()), allow_pickle=False)
        return Episode("", request["instruction"], whole_clip(in_memory(frames), 10.0))
    def batch(self, inputs):
        return inputs
    def unbatch(self, outputs):
        return outputs
    def predict(self, episodes):
        return self.model.score(episodes)
    def encode_response(self, answer):
        return {"level": answer.level}
if __name__ == "__main__":
    api = Api(max_batch_size=32, batch_timeout=0.005, api_path="/v1/score")
    litserve.LitServer(api, accelerator="cpu").run(port=int(sys.argv[1]), generate_client_file=False)
"""
PORT, TENTHS = 8765, 10


@contextmanager
def served(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                httpx2.get(f"http://127.0.0.1:{PORT}/health", timeout=2)
                break
            except httpx2.TransportError:
                time.sleep(0.2)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        with suppress(ProcessLookupError):  # workers that outlive it would keep the port
            os.killpg(process.pid, signal.SIGKILL)


def rewardlab(model: str, *settings: str) -> list[str]:
    return [sys.executable, "-m", "rewardlab", "serve", model, "--port", str(PORT), *settings]


def bodies(count: int, frames: int) -> list[bytes]:
    """Return clips as .npy, each with pixels of its own."""
    clips = [episode.frames for episode in open_dataset("sample-sim").episodes[:8]]
    made = []
    for number in range(count):
        clip = clips[number % len(clips)][:frames].copy()
        clip[:, :8, :8] = np.random.default_rng(number).integers(0, 256, (8, 8, 3))
        buffer = io.BytesIO()
        np.save(buffer, clip)
        made.append(buffer.getvalue())
    return made


async def ask(client: httpx2.AsyncClient, body: bytes) -> tuple[int, float]:
    started = time.perf_counter()
    try:
        reply = await client.post("/v1/score", files={"clip": ("c.npy", body)}, data={"instruction": "open the drawer"})
        status = reply.status_code
    except httpx2.TransportError as error:
        print(f"lost: {error!r}")
        status = 0
    return status, time.perf_counter() - started


async def closed_loop(clips: list[bytes], clients: int) -> tuple[float, list[float]]:
    """Return requests per second and the latencies where so many clients each ask again as soon as answered."""
    left, latencies = list(clips), list[float]()

    async def robot(client: httpx2.AsyncClient) -> None:
        while left:
            status, seconds = await ask(client, left.pop())
            assert status == 200, status
            latencies.append(seconds)

    limits = httpx2.Limits(max_connections=clients)
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", timeout=300, limits=limits) as client:
        started = time.perf_counter()
        await asyncio.gather(*(robot(client) for _ in range(clients)))
        return len(clips) / (time.perf_counter() - started), latencies


async def open_loop(clips: list[bytes], rate: float, seconds: float) -> tuple[Counter[int], list[float]]:
    """Return how requests at a fixed rate were answered, and the latencies of those answered with 200."""
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", timeout=300, limits=limits) as client:
        tasks, started = [], time.perf_counter()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
            tasks.append(asyncio.create_task(ask(client, clips[number % len(clips)])))
        replies = await asyncio.gather(*tasks)
    return Counter(status for status, _ in replies), [seconds for status, seconds in replies if status == 200]


def percentiles(latencies: list[float]) -> str:
    p50, p95, p99 = 1000 * np.percentile(latencies, [50, 95, 99])
    return f"p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms"


def processor_seconds(process: "subprocess.Popen[bytes]") -> float:
    """Return the processor time of a server so far, which other programs on the machine change little."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(process: subprocess.Popen[bytes]) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1000


def soak(model: str, clips: list[bytes], capacity: float, seconds: float) -> None:
    with served(rewardlab(model, "--queue", "32")) as process:
        asyncio.run(closed_loop(clips, 16))  # what is kept of every clip is there already
        asyncio.run(open_loop(clips, 2 * capacity, 20))  # and buffers are as large as they get
        memory, counts, latencies = [memory_mb(process)], Counter[int](), list[float]()
        for _ in range(TENTHS):
            some, times = asyncio.run(open_loop(clips, 2 * capacity, seconds / TENTHS))
            counts, latencies = counts + some, latencies + times
            memory.append(memory_mb(process))
        print(f"soak at {2 * capacity:.1f} requests/s for {seconds:.0f} s: {dict(counts)}; {percentiles(latencies)}")
        print(f"lost: {counts[0]} of {counts.total()}; memory in MB: {' '.join(f'{each:.0f}' for each in memory)}")
        process.send_signal(signal.SIGTERM)
        print(f"exit code after SIGTERM: {process.wait(60)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=192)
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--soak", type=float, default=0.0)
    parser.add_argument("--capacity", type=float, help="requests/s, to soak at twice that and measure nothing else")
    asked = parser.parse_args()
    clips = bodies(asked.requests, asked.frames)
    if asked.capacity:
        return soak(asked.model, clips, asked.capacity, asked.soak)
    servers = {
        "batching": rewardlab(asked.model),
        "one at a time": rewardlab(asked.model, "--max-batch", "1", "--max-wait", "0"),
        "plain FastAPI": [sys.executable, "-c", PLAIN, str(PORT), asked.model],
    }
    if find_spec("litserve"):
        script = Path("/tmp") / "rewardlab_litserve.py"
        script.write_text(LITSERVE)
        servers["LitServe"] = [sys.executable, str(script), str(PORT), asked.model]
    rates = {}
    for name, command in servers.items():
        with served(command) as process:
            asyncio.run(closed_loop(clips[: asked.clients], asked.clients))
            fresh = bodies(2 * asked.requests, asked.frames)[asked.requests :]
            before = processor_seconds(process)
            rates[name], latencies = asyncio.run(closed_loop(fresh, asked.clients))
            each = 1e3 * (processor_seconds(process) - before) / len(fresh)
            counts, half = asyncio.run(open_loop(clips[::-1], rates[name] / 2, 8))
        rate = f"{rates[name]:.1f} requests/s at {asked.clients} clients, {each:.1f} ms of a core each"
        print(f"{name}: {rate} ({percentiles(latencies)}); "
              f"at half of that: {percentiles(half)}, {dict(counts)}", flush=True)  # fmt: skip
    if asked.soak:
        soak(asked.model, clips, rates["batching"], asked.soak)
    print(f"ratio: {rates['batching'] / rates['one at a time']:.2f}")


if __name__ == "__main__":
    main()
