"""How much faster many requests at once are than one after the other.

    python benchmarks/api_throughput.py [--episodes N]

A server in a process of its own answers each chat completion after 100 ms, as many at once as it is asked. The same
episodes (8 frames of 256 x 256 each) are scored one request at a time and with 32 under way, both with every reply
written to the ledger on disk. The last line is `ratio: X`, the serial time over ours, in turns in one run.
"""

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import cv2
import numpy as np

from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.trial import Score
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.models import name_model
from rewardlab.models.contract import Budget

LATENCY = 0.1
ANSWER = json.dumps(
    {
        "choices": [{"message": {"content": "ANSWER: 3"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 4000, "completion_tokens": 5},
    }
).encode()
REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection, each after the latency."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            await asyncio.sleep(LATENCY)
            writer.write(REPLY)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def serve(pipe: Connection) -> None:
    """Tell the port, then serve until the process is ended."""

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=256)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def made_episodes(count: int) -> list[Episode]:
    """Return a shipped clip under so many instructions."""
    clip = sample_frames(open_dataset("sample").episodes[0], frame_policy("uniform:8")).frames
    clip = np.stack([cv2.resize(frame, (256, 256), interpolation=cv2.INTER_CUBIC) for frame in clip])
    episode = episode_from_frames(clip, "")
    return [replace(episode, instruction=f"task {number}") for number in range(count)]


def seconds(port: int, episodes: list[Episode], concurrency: int) -> float:
    """Return the time for scoring all episodes with a fresh ledger and fresh connections."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"openai:judge@http://127.0.0.1:{port}/v1?concurrency={concurrency}&deadline=600"
        model = name_model(name).build(Budget(folder=Path(folder)))
        started = time.perf_counter()
        answers = model.score(episodes)
        taken = time.perf_counter() - started
    assert all(isinstance(each, Score) for each in answers)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=128)
    count = parser.parse_args().episodes
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    port = ours.recv()
    episodes = made_episodes(count)
    seconds(port, episodes[:32], 32)  # warm up
    alone, together = [], []
    for _ in range(3):
        together.append(seconds(port, episodes, 32))
        alone.append(seconds(port, episodes, 1))
    server.terminate()
    print(f"{count} episodes: serial {count / min(alone):.1f}/s, 32 under way {count / min(together):.1f}/s")
    print(f"ratio: {min(alone) / min(together):.1f}")


if __name__ == "__main__":
    main()
