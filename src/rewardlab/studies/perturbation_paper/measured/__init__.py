"""The first paper's study, measured: its table, its figures and its claims, from one run of real models."""
