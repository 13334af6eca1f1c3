"""The perturbation paper: its simulation reproduced, and its claims measured on real models."""
