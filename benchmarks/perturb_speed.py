"""Time the visual perturbations against imagecorruptions 1.1.2, on one core, at 256 x 256, in turns in one run.

python benchmarks/perturb_speed.py --rival-venv ~/.cache/rewardlab/imagecorruptions
python benchmarks/perturb_speed.py              # ours with the extra `fast` against ours without it
"""

import argparse
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_threads] = "1"

import cv2  # noqa: E402
import numpy as np  # noqa: E402

if TYPE_CHECKING:
    from rewardlab.core.episode import Episode

SIZE, FRAMES = 256, 32
SLOW = "glass_blur as shipped"
DRAWN_ONCE = ("glass_blur", "snow", "frost", "fog", "spatter", "elastic_transform")
PINS = ("setuptools<81", "numpy>=2", "scipy", "scikit-image", "opencv-python-headless", "pillow", "numba")
PATCHES = """the rival runs on current numpy and scikit-image, patched at run time: `np.float_` and the argument
`multichannel` are given back to it (fog, gaussian_blur, glass_blur), and the pure Python loop of glass_blur
(its slowest by far) is compiled in its favour; the loop as shipped is timed too, but not counted"""
# Their name, our name, our severity: equal parameters to their level 3, except glass_blur (2 rounds of swaps, not 3).
PAIRS = (
    ("gaussian_noise", "gaussian_noise", 3),
    ("shot_noise", "shot_noise", 3),
    ("impulse_noise", "impulse_noise", 3),
    ("speckle_noise", "speckle_noise", 3),
    ("gaussian_blur", "gaussian_blur", 3),
    ("defocus_blur", "defocus_blur", 3),
    ("glass_blur", "glass_blur", 3),
    ("motion_blur", "motion_blur", 3),
    ("zoom_blur", "zoom_blur", 3),
    ("snow", "snow", 3),
    ("frost", "frost", 3),
    ("fog", "fog", 3),
    ("spatter", "spatter", 3),
    ("elastic_transform", "elastic", 3),
    ("brightness", "brightness_up", 3),
    ("contrast", "contrast_down", 3),
    ("saturate", "oversaturate", 2),
    ("pixelate", "pixelate", 3),
    ("jpeg_compression", "jpeg", 3),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rival-venv", type=Path, help="where imagecorruptions is, or gets, installed")
    parser.add_argument("--rounds", type=int, default=5, help="turns per operation; the best one counts")
    parser.add_argument("--as-rival", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    if options.as_rival:
        serve_rival(np.load(options.as_rival))
        return
    import numba  # noqa: F401  # else the first second would go through NumPy

    if options.rival_venv:
        compare(install_rival(options.rival_venv), options.rounds)
    else:
        compare_without_fast(options.rounds)


def compare(python: Path, rounds: int) -> None:
    """Print the table, the suite, what ours costs beside it, and the ratio."""
    episode = sample_episode()
    with rival(python, episode.frames) as time_theirs:
        print(f"{'operation':20s}{'theirs fps':>12s}{'ours fps':>12s}{'ratio':>9s}")
        pairs = [(name, *race(time_theirs, name, ours_of(ours, level, episode), rounds)) for name, ours, level in PAIRS]
        for name, theirs, ours in pairs:
            print(f"{name:20s}{1 / theirs:12.1f}{1 / ours:12.0f}{theirs / ours:8.1f}x")
        shipped = time_theirs(SLOW)
    theirs, ours = (1000 * sum(pair[side] for pair in pairs) for side in (1, 2))
    compiled = 1000 * next(pair[1] for pair in pairs if pair[0] == "glass_blur")
    print(f"\n{' '.join(PATCHES.split())}")
    print(f"suite of {len(pairs)}: theirs {theirs:.1f} ms/frame, ours {ours:.1f} ms/frame")
    print(f"with glass_blur as shipped: theirs {theirs - compiled + 1000 * shipped:.0f} ms/frame")
    rest = [sum(pair[side] for pair in pairs if pair[0] not in DRAWN_ONCE) for side in (1, 2)]
    print(f"without the {len(DRAWN_ONCE)} that draw one layer or map per clip of {FRAMES}: {rest[0] / rest[1]:.1f}x")
    print_fingerprint(episode)
    print_order(episode)
    print(f"ratio: {theirs / ours:.1f}")


def compare_without_fast(rounds: int) -> None:
    """Print what each operation costs in machine code and in NumPy, and how many times longer NumPy takes for all."""
    episode, total = sample_episode(), np.zeros(2)
    print(f"{'operation':20s}{'fast fps':>12s}{'without fps':>14s}{'ratio':>9s}")
    for name, ours, level in PAIRS:
        run = ours_of(ours, level, episode)

        def timed_in_numpy(_: str, run: Callable[[], object] = run) -> float:
            with in_numpy():
                return timed(run) / FRAMES

        without, fast = race(timed_in_numpy, name, run, rounds)
        total += fast, without
        print(f"{name:20s}{1 / fast:12.0f}{1 / without:14.0f}{without / fast:8.1f}x")
    print(f"suite of {len(PAIRS)}: with numba {1000 * total[0]:.1f} ms/frame, without {1000 * total[1]:.1f} ms/frame")
    names, fast, without = catalogue_cost(episode)
    print(f"all {names} visual perturbations that apply: {1000 * fast:.0f} and {1000 * without:.0f} ms/frame")
    print(f"ratio: {total[1] / total[0]:.1f}")


def catalogue_cost(episode: "Episode") -> tuple[int, float, float]:
    """Return how many visual perturbations apply at severity 3, and the seconds per frame of all, fast and without."""
    from rewardlab.core.errors import NotApplicable
    from rewardlab.perturbations import PERTURBATIONS

    costs = []
    for name, perturbation in PERTURBATIONS.items():
        if perturbation.category != "visual" or perturbation.channel != "frames":
            continue
        run = ours_of(name, 3, episode)
        try:
            run()
        except NotApplicable:
            continue
        with in_numpy():
            without = timed(run)
        costs.append((timed(run) / FRAMES, without / FRAMES))
    return len(costs), sum(fast for fast, _ in costs), sum(without for _, without in costs)


@contextmanager
def in_numpy() -> Iterator[None]:
    """Run the loops over pixels as where numba is not installed."""
    from rewardlab.core.jit import Compiled
    from rewardlab.perturbations.visual import pixel_ops

    loops = [value for value in vars(pixel_ops).values() if isinstance(value, Compiled) and value.in_numpy]
    for loop in loops:
        vars(loop)["chosen"] = loop.in_numpy
    try:
        yield
    finally:
        for loop in loops:
            del vars(loop)["chosen"]


def race(
    time_theirs: Callable[[str], float], name: str, run_ours: Callable[[], object], rounds: int
) -> tuple[float, float]:
    """Return the best seconds per frame of both, taking turns, as the clock of a shared machine is not steady."""
    run_ours()
    turns = [(time_theirs(name), timed(run_ours) / FRAMES) for _ in range(rounds)]
    return min(turn[0] for turn in turns), min(turn[1] for turn in turns)


def timed(run: Callable[[], object], repeats: int = 3) -> float:
    """Return the least seconds of processor time that a call took."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


# Ours: rewardlab is imported here only, as this file also runs in the environment of the rival.


def sample_episode() -> "Episode":
    from rewardlab.core.episode import episode_from_frames
    from rewardlab.data import open_dataset

    source = max(open_dataset("sample").episodes[:8], key=lambda episode: len(episode.clip))
    picks = np.linspace(0, len(source.clip) - 1, FRAMES).astype(int)
    frames = [cv2.resize(frame, (SIZE, SIZE), interpolation=cv2.INTER_AREA) for frame in source.frames[picks]]
    return episode_from_frames(np.stack(frames), source.instruction)


def ours_of(name: str, severity: int, episode: "Episode") -> Callable[[], object]:
    """Return a call that perturbs the clip; the new frames are not fingerprinted, as the rival does not either."""
    from rewardlab.perturbations import PERTURBATIONS, contract

    def run() -> object:
        kept, contract.with_frames = contract.with_frames, lambda episode, _frames: episode
        try:
            return PERTURBATIONS[name](episode, severity, 7)
        finally:
            contract.with_frames = kept

    return run


def print_fingerprint(episode: "Episode") -> None:
    from rewardlab.core.episode import fingerprint_frames

    cost = 1000 * timed(lambda: fingerprint_frames(episode.frames)) / FRAMES
    print(f"not counted: naming the new frames by their bytes, {cost:.2f} ms/frame and operation")


def print_order(episode: "Episode") -> None:
    """Print the speed of changes of order: the index arithmetic, and the gathering of frames, each alone."""
    from rewardlab.core.errors import NotApplicable
    from rewardlab.perturbations import PERTURBATIONS

    for name, perturbation in PERTURBATIONS.items():
        if perturbation.channel != "order":
            continue
        try:
            moved = perturbation(episode, 3, 7).episode
        except NotApplicable as reason:
            print(f"order {name:20s} not applicable: {reason}")
            continue
        picking = timed(lambda chosen=perturbation: chosen(episode, 3, 7), 20)
        gathering = timed(lambda clip=moved.clip: clip.read(), 20)
        print(
            f"order {name:20s}{FRAMES / picking:14,.0f} fps indices{len(moved.clip) / gathering:14,.0f} fps gathering"
        )


# Theirs: a process in its own environment, which times one operation per line it reads.


def install_rival(venv: Path) -> Path:
    """Return the interpreter of an environment that has the rival, built if it is not there."""
    venv = venv.expanduser().resolve()
    python = venv / "bin" / "python"
    if not (venv / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *PINS], check=True)
        subprocess.run([*pip, "--no-deps", "imagecorruptions==1.1.2"], check=True)
        (venv / "ready").touch()
    return python


@contextmanager
def rival(python: Path, frames: np.ndarray) -> Iterator[Callable[[str], float]]:
    """Yield a function that returns the seconds per frame of one of the rival's operations."""
    with TemporaryDirectory() as folder:
        clip = Path(folder) / "clip.npy"
        np.save(clip, frames)
        command = [str(python), __file__, "--rival-venv", str(python), "--as-rival", str(clip)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdin is not None and worker.stdout is not None
            questions, answers = worker.stdin, worker.stdout

            def ask(name: str) -> float:
                print(name, file=questions, flush=True)
                return float(answers.readline())

            yield ask
            questions.close()


def serve_rival(frames: np.ndarray) -> None:
    """Answer each operation named on a line with its seconds per frame at level 3."""
    warnings.simplefilter("ignore")
    package = patched_rival()
    shipped, compiled = package.corruption_dict["glass_blur"], compiled_glass_blur()
    for line in sys.stdin:
        name = line.strip()
        package.corruption_dict["glass_blur"] = shipped if name == SLOW else compiled
        corruption, count = ("glass_blur", 1) if name == SLOW else (name, 4)
        package.corrupt(frames[0], 3, corruption)
        repeats = 1 if name == SLOW else 2
        run = lambda: [package.corrupt(frame, 3, corruption) for frame in frames[:count]]  # noqa: B023
        print(timed(run, repeats) / count, flush=True)


def patched_rival():
    import skimage.filters

    plain = skimage.filters.gaussian

    def gaussian(*values, multichannel=False, **options):
        return plain(*values, channel_axis=-1 if multichannel else None, **options)

    skimage.filters.gaussian = gaussian
    np.float_ = np.float64
    import imagecorruptions

    return imagecorruptions


def compiled_glass_blur():
    """Return their glass_blur with its loop over pixels compiled."""
    from numba import njit
    from skimage.filters import gaussian

    @njit
    def shuffle(image, reach, rounds):
        for _ in range(rounds):
            for y in range(image.shape[0] - reach, reach, -1):
                for x in range(image.shape[1] - reach, reach, -1):
                    right, down = x + np.random.randint(-reach, reach), y + np.random.randint(-reach, reach)
                    for c in range(3):
                        image[y, x, c], image[down, right, c] = image[down, right, c], image[y, x, c]

    def glass_blur(picture, severity):
        sigma, reach, rounds = [(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)][severity - 1]
        image = np.uint8(gaussian(np.array(picture) / 255.0, sigma=sigma, multichannel=True) * 255)
        shuffle(image, reach, rounds)
        return np.clip(gaussian(image / 255.0, sigma=sigma, multichannel=True), 0, 1) * 255

    return glass_blur


if __name__ == "__main__":
    main()
