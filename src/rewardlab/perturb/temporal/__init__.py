"""Temporal perturbations: the stream loses, repeats or reorders frames before anyone looks at it."""

from rewardlab.perturb.temporal.sampling import drop_uniform, hold_last, truncate_end

TEMPORAL = (drop_uniform, hold_last, truncate_end)
