"""Semantic perturbations: the same wish in other words, or another wish for the same video."""

from rewardlab.perturb.instruction.surface import polite_filler, task_swap, typo_keyboard

INSTRUCTION = (typo_keyboard, polite_filler, task_swap)
