"""Domain perturbations in image space: another camera, another lamp, another recorder."""

from rewardlab.perturb.domain.camera import camera_move, codec, light_temperature

DOMAIN = (camera_move, light_temperature, codec)
