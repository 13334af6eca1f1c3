"""Visual perturbations: the scene stays as it is, but light, camera or recording differ."""
