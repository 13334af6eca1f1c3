"""Objectives that look away from everything that does not end in success: what could be learnt without the factory."""

from torch import Tensor

from rewardlab.training.objectives.contract import ClipBatch
from rewardlab.training.objectives.contrastive import triplet
from rewardlab.training.objectives.regression import classification


def triplet_of_successes(batch: ClipBatch) -> Tensor:
    """Triplet loss of the successes of a batch: earlier frames and other tasks are its negatives."""
    return triplet(batch.successes)


def classification_of_successes(batch: ClipBatch) -> Tensor:
    """Classification of the successes of a batch, whose level is always 5."""
    return classification(batch.successes)
