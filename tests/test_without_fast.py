"""Without the extras `fast` and `fit` every loop and what is made of them come to the same bits."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

import rewardlab
from rewardlab.core.episode import episode_from_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.core.jit import Compiled
from rewardlab.core.seeding import digest, rng_for
from rewardlab.metrics.clustered_bootstrap import draw_clusters, percentile_interval
from rewardlab.metrics.rank_correlation import pair_draws
from rewardlab.perturbations import PERTURBATIONS
from rewardlab.perturbations.visual import blur, lighting, noise, pixel_ops, sensor_and_codec
from rewardlab.studies.perturbation_paper import sampler
from rewardlab.studies.perturbation_paper.equation import Condition, StudyConfig

SIZES = ((1, 1), (5, 7), (33, 18), (90, 71), (130, 400))
Call = tuple[str, tuple[object, ...]]


def calls_of_pixel_ops(height: int, width: int) -> Iterator[Call]:
    """Yield every loop over pixels with what it is called with; outputs come last, except of `shuffle_neighbours`."""
    rng = rng_for(0, "without fast", height, width)
    frames = rng.integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    frames[:, : height // 2] = rng.choice(np.array((0, 1, 254, 255), np.uint8), (2, height // 2, width, 3))
    seeds = rng.integers(0, 2**64, 2, dtype=np.uint64)
    flat, pixels = frames.reshape(2, -1), frames[0].reshape(-1, 3)
    rows, scale = pixel_ops.flat_rows(frames[0]), height / pixel_ops.REFERENCE_HEIGHT
    keep, add, snow = (rng.uniform(*ends, flat.shape[1]).astype(np.float32) for ends in ((0, 2), (-90, 300), (-60, 90)))
    yield "look_up_noise", (flat, noise.shot_table(12).reshape(-1), seeds, np.empty_like(flat))
    yield "salt_and_pepper", (flat, 0.27, seeds, np.empty_like(flat))
    yield "multiply_add", (flat, keep, add, np.empty_like(flat))
    yield "look_up_by_max_channel", (pixels, lighting.brightness_table(0.2), np.empty_like(pixels))
    for change in ((0.5, 0.0), (20.0, 0.2)):
        yield "scale_saturation", (pixels, lighting.saturation_table(*change), np.empty_like(pixels))
    shifts, weights = blur.motion_kernel((15, 8), scale, float(rng.uniform(-45, 45)))
    left, right = max(0, -int(shifts[:, 1].min())), max(0, int(shifts[:, 1].max()))
    padded = cv2.copyMakeBorder(frames[0], 0, 0, left, right, cv2.BORDER_REPLICATE)
    moved = np.stack([shifts[:, 0], 3 * (shifts[:, 1] + left)], axis=1)
    yield "sum_shifted", (pixel_ops.flat_rows(padded), moved, weights, np.empty_like(rows))
    for reach in ((0,), (0, 1, 0), (2, 3, 4, 4, 4, 3, 2)):
        pad = len(reach) // 2
        bordered = cv2.copyMakeBorder(frames[0], pad, pad, pad, pad, cv2.BORDER_REPLICATE)
        most = np.minimum(reach, pad).astype(np.int64)
        yield "disk_blur", (pixel_ops.flat_rows(bordered), most, np.empty_like(rows))
    for places in blur.zoom_coordinates(height, np.arange(1, 1.31, 0.06)):
        yield "interpolate_rows", (rows, places, np.empty_like(rows))
    order = np.arange(height * width, dtype=np.int32).reshape(height, width)
    yield "shuffle_neighbours", (order, 4 * scale, 2, seeds[0])
    yield "gather_pixels", (pixels, rng.permutation(order.reshape(-1)), np.empty_like(pixels))
    yield "bleach_and_add_snow", (pixels, np.float32(0.7), snow[: len(pixels)].clip(0), np.empty_like(pixels))
    cells = (sensor_and_codec.pixel_cells(side, 0.4) for side in (height, width))
    yield "fill_cells", (rows, *cells, np.empty_like(rows))


def calls_of_sampler() -> Iterator[Call]:
    """Yield every loop of the sampler; ties, a block that goes on in the next batch, and one step at one half."""
    for steps in (2, 5, 30):
        truth = StudyConfig(steps=steps).truth
        rng = rng_for(0, "without fast", steps)
        drawn = truth + 0.4 * rng.standard_normal((3, 70, steps))
        yield "sample_predictions", (rng_for(1, "without fast"), truth, 0.3, 0.7, np.empty((70, steps)))
        yield "median_of_three", tuple(drawn[::-1])
        for values in (drawn[0], np.round(drawn[0] * 3) / 3):
            yield "accumulate_measures", (values, truth, 9, 5, rng.standard_normal((9, sampler.WIDTH)))


CALLS = [(pixel_ops, size, call) for size in SIZES for call in calls_of_pixel_ops(*size)]
CALLS += [(sampler, (0, 0), call) for call in calls_of_sampler()]
LOOPS = {f"{module.__name__}.{name}" for module, _, (name, _) in CALLS}


def copied(values: tuple[object, ...]) -> list[object]:
    """Return arguments that may be written to; a generator begins anew."""
    fresh = [rng_for(1, "without fast") if isinstance(value, np.random.Generator) else value for value in values]
    return [value.copy() if isinstance(value, np.ndarray) else value for value in fresh]


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_a_loop_in_numpy_writes_what_machine_code_writes(loop: str) -> None:
    pytest.importorskip("numba")
    module_name, _, name = loop.rpartition(".")
    kernel = getattr(sys.modules[module_name], name)
    for module, size, (called, values) in CALLS:
        if (module.__name__, called) == (module_name, name):
            ours, theirs = copied(values), copied(values)
            kernel.machine_code(*ours)
            kernel.in_numpy(*theirs)
            for one, other in zip(ours, theirs, strict=True):
                if isinstance(one, np.ndarray):
                    np.testing.assert_array_equal(one, other, err_msg=f"{loop} at {size}")


def test_every_compiled_loop_is_compared() -> None:
    both = {
        f"{m.__name__}.{n}" for m in (pixel_ops, sampler) for n, value in vars(m).items() if type(value) is Compiled
    }
    helpers = {f"{pixel_ops.__name__}.splitmix64", f"{sampler.__name__}.tau_b"}  # which other loops call
    assert both == LOOPS | helpers


def fingerprints() -> Iterator[str]:
    """Yield what every visual perturbation, the Monte Carlo study and the bootstrap come to, each as one line."""
    rng = rng_for(0, "fingerprints")
    frames = cv2.GaussianBlur(rng.integers(0, 256, (48, 56, 9), dtype=np.uint8), (5, 5), 1)
    episode = episode_from_frames(np.moveaxis(frames.reshape(48, 56, 3, 3), 2, 0), "push the block")
    for name, perturbation in PERTURBATIONS.items():
        if perturbation.category == "visual" and not name.startswith("world_"):
            try:
                changed = [perturbation(episode, severity, 7).episode.frames for severity in (1, 4)]
            except NotApplicable:
                continue
            yield f"{name} {digest(*(some.tobytes() for some in changed))}"
    for vote in (False, True):
        found = sampler.sample(StudyConfig(episodes=3000), Condition("general", "visual", 2), 0.56, 0, vote=vote)
        yield f"sample {[(name, mean.value.hex(), mean.error.hex()) for name, mean in found.items()]}"
    level, truth, cluster = (rng.integers(1, 6, 700).astype(np.float64) for _ in range(3))
    for scores in (level, level + rng.random(700)):
        taus = pair_draws(scores, truth, cluster.astype(np.int64), draw_clusters(6, 300, 0)).tau_b()
        ends = percentile_interval(taus[None], np.array([6.0]))
        yield f"bootstrap {digest(taus.tobytes(), *(end.tobytes() for end in ends))}"


def test_perturbations_study_and_bootstrap_are_the_same_without_numba_and_scipy() -> None:
    pytest.importorskip("numba")
    code = "import sys; sys.modules['numba'] = sys.modules['scipy'] = None\n"
    code += "from tests.test_without_fast import fingerprints; print(*fingerprints(), sep='\\n')"
    roots = (Path(rewardlab.__file__).parents[1], Path(__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, roots))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(fingerprints())


def test_numba_is_loaded_once_many_frames_have_gone_through_numpy() -> None:
    pytest.importorskip("numba")
    code = """
import sys, numpy as np
from rewardlab.core.episode import episode_from_frames
from rewardlab.perturbations import PERTURBATIONS
def change(*size): PERTURBATIONS["low_light"](episode_from_frames(np.full((*size, 3), 90, np.uint8), "go"), 4, 0)
change(1, 8, 8)
assert "numba" not in sys.modules
while "numba" not in sys.modules: change(16, 500, 500)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
