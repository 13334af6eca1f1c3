"""What a live session saves: 200 frames with a question every 10, against sending the whole clip so far each time.

    python benchmarks/serve_streaming.py [--side 320]

Whole clips go to a plain FastAPI handler with the same model, which keeps nothing between requests, and to
`rewardlab serve`, which knows frames that it has encoded for an earlier request. All are asked on loopback, each a
fresh server, and must give the same answers. The last line is `ratio: X`, the time with whole clips and the handler
that keeps nothing over the time with a session.
"""

import argparse
import io
import sys
import time

import cv2
import httpx2
import numpy as np

from rewardlab.data import open_dataset
from serve_load import PLAIN, PORT, processor_seconds, rewardlab, served

FRAMES, EVERY, INSTRUCTION = 200, 10, "open the drawer"
FORGETFUL = PLAIN.replace("with lock:\n", "with lock:\n        model.token_cache.clear()\n")
URL = f"http://127.0.0.1:{PORT}"


def npy(frames: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, frames)
    return buffer.getvalue()


def clip(side: int, count: int) -> np.ndarray:
    """Return frames of rollouts one after the other, each frame another."""
    frames = np.concatenate([episode.frames for episode in open_dataset("sample-sim").episodes[:8]])[:count]
    return np.stack([cv2.resize(frame, (side, side)) for frame in frames])


def with_session(client: httpx2.Client, frames: np.ndarray) -> list[float]:
    asked = {"instruction": INSTRUCTION, "score_every": EVERY}
    path = f"/v1/sessions/{client.post('/v1/sessions', json=asked).json()['session']}/frames"
    parts = [frames[start : start + EVERY] for start in range(0, len(frames), EVERY)]
    return [client.post(path, content=npy(part)).json()["progress"][-1] for part in parts]


def with_whole_clips(client: httpx2.Client, frames: np.ndarray) -> list[float]:
    answers = []
    for end in range(EVERY, len(frames) + 1, EVERY):
        reply = client.post("/v1/score", files={"clip": npy(frames[:end])}, data={"instruction": INSTRUCTION})
        answers.append(reply.json()["progress"][-1])
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=320)
    frames = clip(parser.parse_args().side, FRAMES)
    ways = {
        "session": (with_session, rewardlab("pocket")),
        "whole clips": (with_whole_clips, rewardlab("pocket")),
        "whole clips, nothing kept": (with_whole_clips, [sys.executable, "-c", FORGETFUL, str(PORT), "pocket"]),
    }
    seconds, busy, answers = {}, {}, {}
    for name, (ask, server) in ways.items():
        with served(server) as process, httpx2.Client(base_url=URL, timeout=300) as client:
            warm = np.random.default_rng(0).integers(0, 256, (16, 64, 64, 3), np.uint8)
            client.post("/v1/score", files={"clip": npy(warm)}, data={"instruction": INSTRUCTION})
            started, before = time.perf_counter(), processor_seconds(process)
            answers[name] = ask(client, frames)
            seconds[name], busy[name] = time.perf_counter() - started, processor_seconds(process) - before
        print(f"{name}: {seconds[name]:.2f} s for {len(answers[name])} questions, {busy[name]:.2f} s of a core there")
    largest = max(np.abs(np.subtract(answers["session"], other)).max() for other in answers.values())
    print(f"largest difference of progress: {largest:.1e}")
    for name in list(ways)[1:]:
        processor, wall = busy[name] / busy["session"], seconds[name] / seconds["session"]
        print(f"{name} over session: {processor:.2f} of the server's processor time")
        print(f"ratio: {wall:.2f}")


if __name__ == "__main__":
    main()
