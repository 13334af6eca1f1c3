"""Visual perturbations: physics in time, growth with severity, exact noise, and inputs of any size."""

from dataclasses import replace
from functools import cache

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm, poisson

from rewardlab.core.episode import Episode, Frames, episode_from_frames, in_memory, whole_clip
from rewardlab.core.errors import NotApplicable
from rewardlab.data import open_dataset
from rewardlab.perturbations import CORRUPTIONS
from rewardlab.perturbations.contract import Perturbation
from rewardlab.perturbations.visual.noise import gaussian_table, low_light_table, shot_table, speckle_table
from rewardlab.perturbations.visual.occlusion import changed_region
from rewardlab.perturbations.visual.pixel_ops import NOISE_STEPS, shuffle_neighbours

BY_NAME = {p.name: p for p in CORRUPTIONS}
ANYWHERE = tuple(p for p in CORRUPTIONS if p.name != "occlusion_patch")  # it needs a clip in which something moves
EVERY = pytest.mark.parametrize("perturbation", CORRUPTIONS, ids=lambda p: p.name)
STEADY = [p for p in ANYWHERE if p.randomness in ("per_clip", "none")]


@cache
def real_clips() -> tuple[Episode, ...]:
    """Return six real clips of four frames, from all sources of the sample."""
    chosen = open_dataset("sample").episodes[2::8]
    frames = [e.frames[np.linspace(0, len(e.clip) - 1, 4).astype(int)] for e in chosen]
    return tuple(episode_from_frames(f, e.instruction) for f, e in zip(frames, chosen, strict=True))


@cache
def still_clip() -> Episode:
    """Return a clip of sixteen equal frames, dark enough that nothing is clipped at mild severities."""
    frame = cv2.resize(real_clips()[0].frames[0], (96, 64), interpolation=cv2.INTER_AREA)
    return episode_from_frames(np.repeat(frame[None] // 2 + 40, 16, axis=0), "open the drawer")


def flat_clip(value: int, shape: tuple[int, int, int] = (4, 128, 128)) -> Episode:
    return episode_from_frames(np.full((*shape, 3), value, np.uint8), "open the drawer")


def perturbed(perturbation: Perturbation, episode: Episode, severity: int, seed: int = 7) -> Frames:
    return perturbation(episode, severity, seed).episode.frames


def residual(perturbation: Perturbation, episode: Episode, severity: int, seed: int = 7) -> NDArray[np.float64]:
    return perturbed(perturbation, episode, severity, seed).astype(float) - episode.frames


def psnr(perturbation: Perturbation, episode: Episode, severity: int) -> float:
    try:
        error = residual(perturbation, episode, severity)
    except NotApplicable:
        return float("nan")
    return float(10 * np.log10(255**2 / max(float(np.mean(error**2)), 1e-9)))


def correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])


def test_every_entry_of_the_catalogue_is_there_and_says_what_happened() -> None:
    assert len(BY_NAME) == len(CORRUPTIONS) == 26
    for p in CORRUPTIONS:
        assert p.category == "visual"
        assert p.channel == "frames"
        assert p.expect == "same"
        assert p.summary.endswith(".")
        assert p.parameter
        assert p.label == ("keeps_if" if p.name in ("tilt", "occlusion_patch") else "keeps")


@pytest.mark.slow
@EVERY
def test_distortion_grows_with_severity(perturbation: Perturbation) -> None:
    table = np.array([[psnr(perturbation, clip, s) for s in (1, 2, 3, 4)] for clip in real_clips()])
    means = table[~np.isnan(table).any(axis=1)].mean(axis=0)
    assert (np.diff(means) < 0).all(), f"PSNR over severities 1-4 is {means.round(2)}"
    assert means[0] < 45, "severity 1 can hardly be seen"


@pytest.mark.parametrize("perturbation", STEADY, ids=lambda p: p.name)
def test_static_changes_are_the_same_in_every_frame(perturbation: Perturbation) -> None:
    frames = perturbed(perturbation, still_clip(), 3)
    assert (frames == frames[:1]).all()
    assert (frames != still_clip().frames).any()


@pytest.mark.parametrize("perturbation", [p for p in CORRUPTIONS if p.randomness == "per_frame"], ids=lambda p: p.name)
def test_sensor_noise_is_new_in_every_frame_and_pixel(perturbation: Perturbation) -> None:
    noise = residual(perturbation, flat_clip(100, (6, 96, 97)), 2)
    noise -= noise.mean()
    assert abs(correlation(noise[0], noise[1])) < 0.02
    assert abs(correlation(noise[:, :, 1:], noise[:, :, :-1])) < 0.01
    assert abs(correlation(noise[..., 0], noise[..., 1])) < 0.01


def test_flicker_drifts_so_that_neighbours_in_time_are_alike() -> None:
    flicker = BY_NAME["exposure_flicker"]
    gains = np.stack(
        [residual(flicker, flat_clip(100, (24, 4, 4)), 2, seed).mean(axis=(1, 2, 3)) for seed in range(80)]
    )
    near, far = correlation(gains[:, 1:], gains[:, :-1]), correlation(gains[:, 10:], gains[:, :-10])
    assert near == pytest.approx(0.8, abs=0.06)
    assert abs(far) < 0.25


def test_snow_falls_on_from_frame_to_frame() -> None:
    snow = residual(BY_NAME["snow"], flat_clip(60, (12, 128, 128)), 2)[..., 0]
    near, far = correlation(snow[1:], snow[:-1]), correlation(snow[8:], snow[:-8])
    assert near < 0.999, "the snow stands still"
    assert near > far + 0.2


def test_snow_moves_downwards() -> None:
    snow = residual(BY_NAME["snow"], flat_clip(60, (2, 256, 256)), 1)[..., 0]
    product = np.fft.ifft2(np.fft.fft2(snow[1]) * np.conj(np.fft.fft2(snow[0]))).real
    down = np.unravel_index(product.argmax(), product.shape)[0]
    assert 3 <= down <= 7


@EVERY
def test_chance_follows_the_seed(perturbation: Perturbation) -> None:
    tables = {"gaussian_blur", "defocus_blur", "zoom_blur", "brightness_up", "contrast_down", "desaturate"}
    tables |= {"oversaturate", "jpeg", "pixelate", "resample"}
    clip = real_clips()[0]
    seeds = [perturbed(perturbation, clip, 1, seed) for seed in range(6)]
    differs = any((frames != seeds[0]).any() for frames in seeds)
    assert differs == (perturbation.name not in tables)


@pytest.mark.parametrize("name", ["gaussian_noise", "speckle_noise", "fixed_pattern_noise", "exposure_flicker"])
def test_stronger_noise_is_the_weaker_noise_made_larger(name: str) -> None:
    weak, strong = (residual(BY_NAME[name], flat_clip(120), severity) for severity in (1, 2))
    assert correlation(weak, strong) > 0.97


def test_stronger_impulses_keep_the_weaker_ones() -> None:
    weak, strong = (residual(BY_NAME["impulse_noise"], flat_clip(120), severity) for severity in (1, 4))
    assert (strong[weak != 0] == weak[weak != 0]).all()


@pytest.mark.parametrize("value", [0, 9, 100, 250, 255])
@pytest.mark.parametrize("severity", [1, 4])
def test_gaussian_noise_has_the_published_distribution(value: int, severity: int) -> None:
    sigma = 255 * BY_NAME["gaussian_noise"].table[severity - 1]
    exact = norm.cdf((np.arange(1, 256) - value) / sigma)
    assert_distribution(gaussian_table(sigma / 255)[value], perturb_flat("gaussian_noise", value, severity), exact)


@pytest.mark.parametrize("value", [9, 100, 255])
@pytest.mark.parametrize("severity", [1, 4])
def test_speckle_noise_has_the_published_distribution(value: int, severity: int) -> None:
    sigma = BY_NAME["speckle_noise"].table[severity - 1]
    exact = norm.cdf((np.arange(1, 256) - value) / (value * sigma))
    assert_distribution(speckle_table(sigma)[value], perturb_flat("speckle_noise", value, severity), exact)


@pytest.mark.parametrize("value", [9, 100, 255])
@pytest.mark.parametrize("severity", [1, 4])
def test_shot_noise_has_the_published_distribution(value: int, severity: int) -> None:
    photons = BY_NAME["shot_noise"].table[severity - 1]
    most = np.ceil(np.arange(1, 256) * photons / 255 - 1e-9) - 1  # the counts that stay below each level
    exact = poisson.cdf(most, value / 255 * photons)
    assert_distribution(shot_table(photons)[value], perturb_flat("shot_noise", value, severity), exact)


@pytest.mark.parametrize("severity", [1, 3])
def test_dimmed_light_counts_photons(severity: int) -> None:
    gain = BY_NAME["low_light"].table[severity - 1]
    exact = poisson.cdf(np.arange(255), 200 * gain)
    assert_distribution(low_light_table(gain)[200], perturb_flat("low_light", 200, severity), exact)


@pytest.mark.parametrize("severity", [1, 2, 3, 4])
def test_impulses_hit_the_stated_share_half_black_and_half_white(severity: int) -> None:
    share = BY_NAME["impulse_noise"].table[severity - 1]
    values = perturb_flat("impulse_noise", 100, severity)
    assert np.mean(values == 0) == pytest.approx(share / 2, abs=0.003)
    assert np.mean(values == 255) == pytest.approx(share / 2, abs=0.003)
    assert set(np.unique(values)) == {0, 100, 255}


def perturb_flat(name: str, value: int, severity: int) -> Frames:
    return perturbed(BY_NAME[name], flat_clip(value), severity)


def assert_distribution(table: Frames, sampled: Frames, exact: NDArray[np.float64]) -> None:
    """Compare P(value <= k), k below 255: the table to its resolution, the sample to chance."""
    levels = np.arange(255)
    of_table = np.searchsorted(np.sort(table), levels, side="right") / table.size
    of_sample = np.searchsorted(np.sort(sampled.ravel()), levels, side="right") / sampled.size
    assert np.abs(of_table - exact).max() <= 1.01 / NOISE_STEPS
    assert np.abs(of_sample - exact).max() < 2 / np.sqrt(sampled.size) + 1 / NOISE_STEPS


def test_fixed_pattern_has_columns() -> None:
    pattern = residual(BY_NAME["fixed_pattern_noise"], flat_clip(128), 2)[0]
    assert pattern.std() == pytest.approx(255 * 0.04 * np.sqrt(2), rel=0.1)
    assert pattern.mean(axis=(0, 2)).std() == pytest.approx(255 * 0.04, rel=0.25)


def test_full_desaturation_is_grey_and_grey_stays_grey() -> None:
    grey = perturbed(BY_NAME["desaturate"], real_clips()[0], 4)
    assert (grey == real_clips()[0].frames.max(axis=3, keepdims=True)).all()
    assert (perturbed(BY_NAME["oversaturate"], flat_clip(90), 4) == 90).all()


def test_glass_moves_pixels_but_loses_none() -> None:
    order = np.arange(60 * 80, dtype=np.int32).reshape(60, 80)
    shuffle_neighbours(order, 2.0, 2, np.uint64(5))
    assert (np.sort(order.ravel()) == np.arange(order.size)).all()
    assert (order.ravel() != np.arange(order.size)).mean() > 0.8


@pytest.mark.parametrize("name", ["gaussian_blur", "defocus_blur", "motion_blur", "zoom_blur", "elastic"])
def test_a_frame_of_twice_the_size_changes_alike(name: str) -> None:
    frame = cv2.GaussianBlur(cv2.resize(real_clips()[1].frames[0], (256, 256)), (0, 0), 2)
    large = cv2.resize(frame, (512, 512), interpolation=cv2.INTER_LINEAR)
    small_change, large_change = (_change_with_one_seed(name, picture) for picture in (frame, large))
    shrunk = cv2.resize(large_change, (256, 256), interpolation=cv2.INTER_AREA).astype(float)
    before = np.abs(small_change.astype(float) - frame).mean()
    assert np.abs(shrunk - small_change).mean() < 0.5 * before


def _change_with_one_seed(name: str, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the changed picture; its source has one name for every size, hence the same draws."""
    episode = Episode("", "open the drawer", whole_clip(replace(in_memory(picture[None]), name="one name"), 10.0))
    (changed,) = perturbed(BY_NAME[name], episode, 3)
    return np.asarray(changed)


def changing_clip(top: int, left: int, size: int) -> Episode:
    """Return a clip that changes only inside one square."""
    frames = np.full((20, 100, 120, 3), 90, np.uint8)
    frames[10:, top : top + size, left : left + size] = 220
    return episode_from_frames(frames, "open the drawer")


@pytest.mark.parametrize("severity", [1, 2, 3, 4])
def test_the_patch_never_hides_where_the_task_ends(severity: int) -> None:
    clip = changing_clip(30, 80, 12)
    for seed in range(20):
        hidden = (perturbed(BY_NAME["occlusion_patch"], clip, severity, seed) != clip.frames).any(axis=3)
        assert (hidden == hidden[:1]).all(), "the patch moves"
        assert not hidden[0, 30:42, 80:92].any()
        assert hidden[0].mean() == pytest.approx(BY_NAME["occlusion_patch"].table[severity - 1], rel=0.06)


def test_the_patch_is_dropped_where_it_cannot_avoid_the_goal_or_nothing_moves() -> None:
    patch = BY_NAME["occlusion_patch"]
    with pytest.raises(NotApplicable, match="35%"):
        patch(changing_clip(5, 5, 90), 4, 7)
    with pytest.raises(NotApplicable, match="look like the first"):
        patch(flat_clip(90), 1, 7)


def test_the_changed_region_is_where_the_end_differs_from_the_start() -> None:
    region = changed_region(changing_clip(30, 80, 12).frames)
    assert region[30:42, 80:92].all()
    assert region.sum() < 20 * 20


@EVERY
def test_black_white_and_strided_frames_work_or_say_why_not(perturbation: Perturbation) -> None:
    base = np.random.default_rng(3).integers(0, 256, (4, 40, 60, 3), dtype=np.uint8)
    grey = np.repeat(base[..., :1], 3, axis=3)
    for frames in (base * 0, base * 0 + 255, grey, base[::-2, ::-1, 5:45]):
        _check_output(perturbation, frames, (3,))


@pytest.mark.slow
@EVERY
def test_a_4k_frame_works_or_says_why_not(perturbation: Perturbation) -> None:
    _check_output(perturbation, cv2.resize(real_clips()[0].frames[0], (3840, 2160))[None], (2,))


def _check_output(perturbation: Perturbation, frames: Frames, severities: tuple[int, ...]) -> None:
    before, dropped = frames.copy(), []
    for severity in severities:
        try:
            after = perturbed(perturbation, episode_from_frames(frames, "open the drawer"), severity)
        except NotApplicable as reason:
            dropped.append(str(reason))
            continue
        assert after.shape == frames.shape
        assert after.dtype == np.uint8
        assert not np.shares_memory(after, frames)
    assert (frames == before).all(), "the input was written to"
    assert not dropped or (perturbation.name == "occlusion_patch" and all(dropped))
