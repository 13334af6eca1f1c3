"""The study of the perturbation paper, measured: its table, its figures and its claims, from one run of real models."""
