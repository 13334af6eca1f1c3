"""The training recipe of pocket, the small reward model that ships: rollouts, frames, batches, weights."""
