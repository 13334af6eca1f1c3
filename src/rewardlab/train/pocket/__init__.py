"""The training recipe of pocket, the small reward model that ships in the package: rollouts, frames, batches, weights."""
