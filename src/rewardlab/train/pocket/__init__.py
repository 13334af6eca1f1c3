"""The recipe of pocket, the small reward model that ships in the package: rollouts, pictures, lessons, weights."""
