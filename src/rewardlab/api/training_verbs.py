"""Verbs that make data and models: record rollouts, and train on them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from rewardlab.api.options import CollectOptions, Place, TrainOptions, TrainVlmOptions, documented_by, plan_from
from rewardlab.collection.collection_settings import CollectPlan
from rewardlab.collection.dataset_collection import collect as collect_rollouts
from rewardlab.training.pocket.plan import PocketPlan
from rewardlab.training.vlm.plan import VlmPlan
from rewardlab.training.vlm.train_command import train_vlm as train_by_plan


@documented_by(CollectPlan)
def collect(simulator: str = "metaworld", **settings: Unpack[CollectOptions]) -> Mapping[int, int]:
    """Record rollouts of every quality with exact progress as a dataset; return how many rows each level has."""
    return collect_rollouts(plan_from(CollectPlan, {"simulator": simulator, **settings}))


@documented_by(PocketPlan)
def train(recipe: str = "pocket", **settings: Unpack[TrainOptions]) -> tuple[str, ...]:
    """Train by a recipe and return the model strings of what came out; needs torch, from the extra `train`."""
    from rewardlab.training.pocket.training_loop import train_pocket

    plan = plan_from(PocketPlan, {"recipe": recipe, **settings})
    train_pocket(plan)
    return tuple(f"pocket:{plan.out / training.name}" for training in plan.trainings)


@documented_by(VlmPlan)
def train_vlm(model: str, data: Place | Sequence[Place], **settings: Unpack[TrainVlmOptions]) -> tuple[str, ...]:
    """Fine-tune a vision-language model to answer the 1-5 prompt and return the model strings of what came out.

    Needs torch and transformers, from the extra `vlm-train`.
    """
    several = [data] if isinstance(data, str | Path) else data
    return train_by_plan(plan_from(VlmPlan, {"model": model, "data": [str(name) for name in several], **settings}))
