"""Visual perturbations: the scene stays as it is, but light, camera or recording differ."""

from rewardlab.perturbations.visual.blur import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur
from rewardlab.perturbations.visual.camera import camera_move, elastic, lens_barrel, lens_crop, tilt
from rewardlab.perturbations.visual.lighting import (
    brightness_up,
    contrast_down,
    desaturate,
    exposure_flicker,
    hard_shadow,
    light_cool,
    light_gradient,
    light_temperature,
    oversaturate,
)
from rewardlab.perturbations.visual.noise import (
    fixed_pattern_noise,
    gaussian_noise,
    impulse_noise,
    low_light,
    shot_noise,
    speckle_noise,
)
from rewardlab.perturbations.visual.occlusion import occlusion_patch, success_overlay
from rewardlab.perturbations.visual.sensor_and_codec import (
    aspect_squeeze,
    codec,
    codec_h265,
    jpeg,
    pixelate,
    resample,
    resolution,
    sensor_swap,
)
from rewardlab.perturbations.visual.weather import fog, frost, snow, spatter
from rewardlab.perturbations.world import WORLD_PERTURBATIONS

# Corruptions of the pixels, the same wherever the camera stands:
CORRUPTIONS = (
    gaussian_noise,
    shot_noise,
    impulse_noise,
    speckle_noise,
    fixed_pattern_noise,
    gaussian_blur,
    defocus_blur,
    motion_blur,
    zoom_blur,
    glass_blur,
    brightness_up,
    low_light,
    exposure_flicker,
    contrast_down,
    desaturate,
    oversaturate,
    jpeg,
    pixelate,
    resample,
    elastic,
    tilt,
    spatter,
    frost,
    fog,
    snow,
    occlusion_patch,
)
VISUAL = (
    *CORRUPTIONS,
    camera_move,
    lens_crop,
    lens_barrel,
    light_temperature,
    light_cool,
    light_gradient,
    hard_shadow,
    sensor_swap,
    resolution,
    aspect_squeeze,
    codec,
    codec_h265,
    success_overlay,
    *(p for p in WORLD_PERTURBATIONS if p.category == "visual"),
)
