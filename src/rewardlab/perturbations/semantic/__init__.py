"""Semantic perturbations: the same goal in other words, or another goal for the same video."""
