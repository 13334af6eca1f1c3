"""Visual perturbations: the scene stays as it is, but light, camera or recording differ."""

from rewardlab.perturbations.rerendered_world import WORLD_PERTURBATIONS
from rewardlab.perturbations.visual.blur import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur
from rewardlab.perturbations.visual.camera import camera_move, lens_barrel, lens_crop
from rewardlab.perturbations.visual.digital_artifacts import jpeg, pixelate, resample
from rewardlab.perturbations.visual.geometric_distortion import elastic, tilt
from rewardlab.perturbations.visual.lighting import hard_shadow, light_cool, light_gradient, light_temperature
from rewardlab.perturbations.visual.noise import (
    fixed_pattern_noise,
    gaussian_noise,
    impulse_noise,
    low_light,
    shot_noise,
    speckle_noise,
)
from rewardlab.perturbations.visual.occlusion import occlusion_patch
from rewardlab.perturbations.visual.photometric_shift import (
    brightness_up,
    contrast_down,
    desaturate,
    exposure_flicker,
    oversaturate,
)
from rewardlab.perturbations.visual.sensor_and_codec import aspect_squeeze, codec, codec_h265, resolution, sensor_swap
from rewardlab.perturbations.visual.text_overlay import success_overlay
from rewardlab.perturbations.visual.weather import fog, frost, snow, spatter

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
