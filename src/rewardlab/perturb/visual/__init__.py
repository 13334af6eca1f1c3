"""Visual perturbations: what a camera does to the pixels while the scene stays as it is."""

from rewardlab.perturb.visual.noise import gaussian_blur, gaussian_noise, low_light

VISUAL = (gaussian_noise, gaussian_blur, low_light)
