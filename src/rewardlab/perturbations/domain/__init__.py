"""Domain perturbations in image space: another camera, another lamp, another room, another recorder."""

from rewardlab.perturbations.domain.camera import camera_move, lens_barrel, lens_crop
from rewardlab.perturbations.domain.distractors import distractor_objects
from rewardlab.perturbations.domain.lighting import hard_shadow, light_cool, light_gradient, light_temperature
from rewardlab.perturbations.domain.mirrored_scene import mirror
from rewardlab.perturbations.domain.rerendered_world import WORLD_PERTURBATIONS
from rewardlab.perturbations.domain.scene_appearance import background_replace, robot_recolour, table_texture
from rewardlab.perturbations.domain.sensor_and_codec import aspect_squeeze, codec, codec_h265, resolution, sensor_swap
from rewardlab.perturbations.domain.text_overlay import success_overlay

DOMAIN = (
    camera_move,
    lens_crop,
    lens_barrel,
    background_replace,
    table_texture,
    light_temperature,
    light_cool,
    light_gradient,
    hard_shadow,
    robot_recolour,
    distractor_objects,
    mirror,
    sensor_swap,
    resolution,
    aspect_squeeze,
    codec,
    codec_h265,
    success_overlay,
    *WORLD_PERTURBATIONS,
)
