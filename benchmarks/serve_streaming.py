"""What a live session saves: 200 frames with a question every 10, against sending the whole clip so far each time.

    python benchmarks/serve_streaming.py [--side 128]

Both ask `rewardlab serve pocket` on loopback, each a fresh server, and must get the same answers.
The last line is `ratio: X`, the time with whole clips over the time with a session.
"""

import argparse
import io
import time

import cv2
import httpx2
import numpy as np

from rewardlab.data import open_dataset
from serve_load import PORT, processor_seconds, rewardlab, served

FRAMES, EVERY, INSTRUCTION = 200, 10, "open the drawer"
URL = f"http://127.0.0.1:{PORT}"


def npy(frames: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, frames)
    return buffer.getvalue()


def clip(side: int) -> np.ndarray:
    """Return frames of rollouts one after the other, each frame another."""
    frames = np.concatenate([episode.frames for episode in open_dataset("sample-sim").episodes[:8]])[:FRAMES]
    return np.stack([cv2.resize(frame, (side, side)) for frame in frames])


def with_session(client: httpx2.Client, frames: np.ndarray) -> list[float]:
    path = "/v1/sessions/" + client.post("/v1/sessions", json={"instruction": INSTRUCTION}).json()["session"]
    answers = []
    for start in range(0, FRAMES, EVERY):
        client.post(f"{path}/frames", content=npy(frames[start : start + EVERY])).raise_for_status()
        answers.append(client.get(path).json()["progress"][-1])
    return answers


def with_whole_clips(client: httpx2.Client, frames: np.ndarray) -> list[float]:
    answers = []
    for end in range(EVERY, FRAMES + 1, EVERY):
        reply = client.post("/v1/score", files={"clip": npy(frames[:end])}, data={"instruction": INSTRUCTION})
        answers.append(reply.json()["progress"][-1])
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=128)
    frames = clip(parser.parse_args().side)
    seconds, busy, answers = [], [], []
    for ask in (with_session, with_whole_clips):
        with served(rewardlab("pocket")) as process, httpx2.Client(base_url=URL, timeout=300) as client:
            warm = np.random.default_rng(0).integers(0, 256, (16, 64, 64, 3), np.uint8)
            client.post("/v1/score", files={"clip": npy(warm)}, data={"instruction": INSTRUCTION})
            started, before = time.perf_counter(), processor_seconds(process)
            answers.append(ask(client, frames))
            seconds.append(time.perf_counter() - started)
            busy.append(processor_seconds(process) - before)
        print(f"{ask.__name__}: {seconds[-1]:.2f} s for {len(answers[-1])} questions, {busy[-1]:.2f} s of a core there")
    print(f"largest difference of progress: {np.abs(np.subtract(*answers)).max():.1e}")
    print(f"ratio of the server's processor time: {busy[1] / busy[0]:.2f}")
    print(f"ratio: {seconds[1] / seconds[0]:.2f}")


if __name__ == "__main__":
    main()
