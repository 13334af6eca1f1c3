"""Domain perturbations: another scene, with another robot, background, table or things, or seen in a mirror."""
