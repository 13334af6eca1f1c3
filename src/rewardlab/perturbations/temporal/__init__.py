"""Temporal perturbations: the stream loses, repeats or reorders frames before anyone looks at it."""
