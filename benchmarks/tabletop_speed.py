"""How fast the tabletop makes clips for training: frames a second of all processes together, and of processor time.

python benchmarks/tabletop_speed.py [processes] [clips of each] [pixels]
"""

import sys
import time
from collections.abc import Sequence
from multiprocessing import get_context

from rewardlab.worlds.offscreen import backend
from rewardlab.worlds.tabletop.recording import training_clips

FRAMES = 16


def seconds_of(task: tuple[int, int, int]) -> tuple[float, float, float]:
    """Return when a process began and ended to make its clips, and its processor time.

    The first clip opens the renderer and is not counted.
    """
    number, clips, size = task
    first = 1_000_000 * (number + 1)
    list(training_clips([first], size=size, frames=FRAMES))
    start, before = time.time(), time.process_time()
    for _ in training_clips(range(first + 1, first + 1 + clips), size=size, frames=FRAMES):
        pass
    return start, time.time(), time.process_time() - before


def main(arguments: Sequence[str]) -> None:
    processes, clips, size = (*(int(text) for text in arguments), *(1, 10, 168)[len(arguments) :])
    with get_context("spawn").Pool(processes) as pool:
        times = pool.map(seconds_of, [(number, clips, size) for number in range(processes)], chunksize=1)
    start, end = max(begin for begin, _, _ in times), min(last for _, last, _ in times)
    rates = [FRAMES * clips / (last - begin) for begin, last, _ in times]
    print(f"{backend()}: {sum(rates):.0f} frames/s at {size} px in {processes} processes, {end - start:.1f} s together")
    processor = FRAMES * clips * processes / sum(used for _, _, used in times)
    print(f"{processor:.0f} frames per second of processor time")


if __name__ == "__main__":
    main(sys.argv[1:])
