"""Agreement with the published ImageNet-C formulas, written out here the slow and plain way."""

import colorsys
import math
from collections.abc import Callable
from io import BytesIO
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage

from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.seeding import rng_for
from rewardlab.data import open_dataset
from rewardlab.perturbations import CORRUPTIONS
from rewardlab.perturbations.visual.weather import fog_layer, frost_layer, liquid_thickness, mud_opacity, water_layer

BY_NAME = {p.name: p for p in CORRUPTIONS}
SEVERITIES = pytest.mark.parametrize("severity", [1, 2, 3, 4])
SEED = 11
Picture = NDArray[np.uint8]


def _pictures() -> dict[str, Picture]:
    real = open_dataset("sample").episodes[1].frames[-1]
    rng = np.random.default_rng(5)
    return {
        "real": cv2.resize(real, (256, 256), interpolation=cv2.INTER_AREA),
        "random": rng.integers(0, 256, (256, 256, 3), dtype=np.uint8),
    }


PICTURES = _pictures()
ON_BOTH = pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES.keys())


def as_clip(picture: Picture) -> Episode:
    return episode_from_frames(picture[None], "open the drawer")


def ours(name: str, picture: Picture, severity: int) -> NDArray[np.int64]:
    changed: NDArray[np.int64] = BY_NAME[name](as_clip(picture), severity, SEED).episode.frames[0].astype(np.int64)
    return changed


def draws(name: str, picture: Picture) -> np.random.Generator:
    """Return the generator that the perturbation gets."""
    clip = as_clip(picture)
    return rng_for(SEED, name, clip.clip.source.digest, clip.instruction)


def assert_close(name: str, picture: Picture, severity: int, published: NDArray[np.floating], most: int) -> None:
    """Compare with the published value in 0-255, which the public code rounds down."""
    expected = np.clip(published + 1e-6, 0, 255).astype(np.uint8).astype(np.int64)
    assert np.abs(ours(name, picture, severity) - expected).max() <= most


def parameter(name: str, severity: int) -> Any:
    return BY_NAME[name].table[severity - 1]


@ON_BOTH
@SEVERITIES
def test_contrast_is_exact(picture: Picture, severity: int) -> None:
    x = picture / 255.0
    means = x.mean(axis=(0, 1), keepdims=True)
    assert_close(
        "contrast_down", picture, severity, ((x - means) * parameter("contrast_down", severity) + means) * 255, 0
    )


@ON_BOTH
@SEVERITIES
def test_jpeg_is_what_pillow_writes_and_reads(picture: Picture, severity: int) -> None:
    image = pytest.importorskip("PIL.Image")
    stored = BytesIO()
    image.fromarray(picture).save(stored, "JPEG", quality=parameter("jpeg", severity))
    assert_close("jpeg", picture, severity, np.array(image.open(stored)).astype(float), 1)


@ON_BOTH
@SEVERITIES
def test_pixelate_is_pillows_box_and_nearest(picture: Picture, severity: int) -> None:
    image = pytest.importorskip("PIL.Image")
    side = int(256 * parameter("pixelate", severity))
    small = image.fromarray(picture).resize((side, side), image.Resampling.BOX)
    published = np.array(small.resize((256, 256), image.Resampling.NEAREST)).astype(float)
    assert_close("pixelate", picture, severity, published, 1)


@SEVERITIES
def test_brightness_lifts_the_value_in_hsv(severity: int) -> None:
    picture = PICTURES["random"][:64, :64]
    lift = parameter("brightness_up", severity)
    assert_close("brightness_up", picture, severity, in_hsv(picture, lambda h, s, v: (h, s, min(v + lift, 1))), 1)


@SEVERITIES
@pytest.mark.parametrize("name", ["desaturate", "oversaturate"])
def test_saturation_is_scaled_in_hsv(name: str, severity: int) -> None:
    picture = PICTURES["random"][:64, :64]
    change = parameter(name, severity)
    factor, add = change if name == "oversaturate" else (change, 0.0)
    published = in_hsv(picture, lambda h, s, v: (h, min(s * factor + add, 1), v))
    assert_close(name, picture, severity, published, 1)


def in_hsv(picture: Picture, change: Callable[..., tuple[float, float, float]]) -> NDArray[np.floating]:
    pixels = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*pixel))) for pixel in picture.reshape(-1, 3) / 255.0]
    return np.array(pixels).reshape(picture.shape) * 255


@ON_BOTH
@SEVERITIES
def test_gaussian_blur_agrees(picture: Picture, severity: int) -> None:
    sigma = parameter("gaussian_blur", severity)
    published = ndimage.gaussian_filter(picture.astype(float), (sigma, sigma, 0), mode="nearest", truncate=4)
    assert_close("gaussian_blur", picture, severity, published, 2)


@ON_BOTH
@SEVERITIES
def test_defocus_averages_over_a_disk_with_soft_edges(picture: Picture, severity: int) -> None:
    radius, softness = parameter("defocus_blur", severity)
    half = radius + 6  # room for the soft edge, which the public code cuts off at radius 10
    y, x = np.mgrid[-half : half + 1, -half : half + 1]
    disk = (x**2 + y**2 <= radius**2).astype(float)
    taps = np.exp(-0.5 * (np.arange(-1, 2) / softness) ** 2)
    kernel = ndimage.convolve(disk / disk.sum(), np.outer(taps, taps) / taps.sum() ** 2, mode="constant")
    published = [ndimage.convolve(picture[..., c].astype(float), kernel, mode="mirror") for c in range(3)]
    assert_close("defocus_blur", picture, severity, np.stack(published, axis=2), 1)


@ON_BOTH
@SEVERITIES
def test_motion_blur_agrees(picture: Picture, severity: int) -> None:
    radius, sigma = parameter("motion_blur", severity)
    angle = math.radians(draws("motion_blur", picture).uniform(-45, 45))
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    rows, columns = np.arange(256), np.arange(256)
    total = np.zeros(picture.shape)
    for step, weight in enumerate(weights / weights.sum()):
        down, right = math.ceil(step * math.sin(angle) - 0.5), math.ceil(step * math.cos(angle) - 0.5)
        moved = picture[np.clip(rows + down, 0, 255)][:, np.clip(columns + right, 0, 255)]
        total += weight * moved
    assert_close("motion_blur", picture, severity, total, 1)


@ON_BOTH
@SEVERITIES
def test_zoom_blur_agrees(picture: Picture, severity: int) -> None:
    zooms = np.arange(1, *parameter("zoom_blur", severity))
    total = picture.astype(float)
    for zoom in zooms:
        side = math.ceil(256 / zoom)
        start = (256 - side) // 2
        inner = picture[start : start + side, start : start + side].astype(float)
        total += ndimage.zoom(inner, (zoom, zoom, 1), order=1)[:256, :256]
    assert_close("zoom_blur", picture, severity, total / (len(zooms) + 1), 1)


@SEVERITIES
def test_elastic_moves_pixels_by_smooth_noise(severity: int) -> None:
    picture, rng = PICTURES["real"], draws("elastic", PICTURES["real"])
    reach = 0.005 * 256
    fields = [rng.uniform(-reach, reach, (256, 256)) for _ in range(2)]
    smooth = [ndimage.gaussian_filter(field, 0.01 * 256, mode="reflect", truncate=3) for field in fields]
    across, down = (field * parameter("elastic", severity) for field in smooth)
    y, x = np.mgrid[:256, :256]
    published = [
        ndimage.map_coordinates(picture[..., c].astype(float), (y + down, x + across), order=1, mode="reflect")
        for c in range(3)
    ]
    difference = np.abs(ours("elastic", picture, severity) - np.stack(published, axis=2))
    # OpenCV places pixels to 1/32 of a pixel.
    assert difference.mean() < 0.6
    assert difference.max() < 8


@SEVERITIES
def test_fog_is_added_and_the_whole_is_scaled_back(severity: int) -> None:
    picture, (amount, decay) = PICTURES["real"], parameter("fog", severity)
    veil = fog_layer((256, 256), decay, draws("fog", picture))[..., None]
    assert float(veil.min()) == 0 and float(veil.max()) == 1
    x = picture / 255.0
    assert_close("fog", picture, severity, (x + amount * veil) * x.max() / (x.max() + amount) * 255, 1)


@SEVERITIES
def test_frost_is_a_weighted_sum_of_scene_and_ice(severity: int) -> None:
    picture, (scene, cover) = PICTURES["real"], parameter("frost", severity)
    texture = frost_layer((256, 256), draws("frost", picture))
    assert 120 < texture.mean() < 200, "the photographs of the public code have means of 90 to 207"
    assert_close("frost", picture, severity, scene * picture + cover * texture, 1)


@SEVERITIES
def test_spatter_adds_water_or_covers_with_mud(severity: int) -> None:
    picture = PICTURES["real"]
    kind, mean, spread, sigma, threshold, strength = parameter("spatter", severity)
    noise = draws("spatter", picture).standard_normal((256, 256)) * spread + mean
    thickness = ndimage.gaussian_filter(noise, sigma, mode="nearest", truncate=4)
    drawn = liquid_thickness((256, 256), mean, spread, sigma, draws("spatter", picture))
    assert np.abs(drawn - thickness).max() < 1e-4
    if kind == "mud":
        cover = ndimage.gaussian_filter((drawn > threshold).astype(float), strength, mode="nearest", truncate=4)
        cover = np.where(cover < 0.8, 0, cover)[..., None]
        assert np.abs(mud_opacity(drawn, threshold, strength)[..., None] - cover).mean() < 1e-4
        published = picture * (1 - cover) + cover * (63, 42, 20)
    else:
        published = picture + strength * water_layer(drawn, threshold)[..., None] * (175, 238, 238)
    difference = np.abs(ours("spatter", picture, severity) - np.clip(published, 0, 255))
    assert np.quantile(difference, 0.999) <= 1


@SEVERITIES
def test_snow_whitens_the_scene_before_flakes_are_added(severity: int) -> None:
    picture, keep = PICTURES["real"], parameter("snow", severity)[-1]
    x = picture / 255.0
    grey = (x @ (0.299, 0.587, 0.114))[..., None]
    bleached = keep * x + (1 - keep) * np.maximum(x, grey * 1.5 + 0.5)
    flakes = ours("snow", picture, severity) - np.clip(bleached, 0, 1) * 255
    assert flakes.min() > -1.01, "snow never darkens"
    assert np.median(flakes.max(axis=2)) < 60
    assert flakes.max() > 60
