"""Verbs that make data and models: record rollouts, train on them, put vision-language models together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from rewardlab.api.options import (
    AssembleOptions,
    CollectOptions,
    Place,
    TrainObjectiveOptions,
    TrainOptions,
    TrainVlmOptions,
    documented_by,
    plan_from,
)
from rewardlab.collection.collection_settings import CollectPlan
from rewardlab.training.objective_training.plan import ObjectivePlan
from rewardlab.training.pocket.plan import PocketPlan
from rewardlab.training.vlm.plan import VlmPlan
from rewardlab.training.vlm.train_command import train_vlm as train_vlm_by_plan
from rewardlab.training.vlm_assembly.plan import AssemblePlan


@documented_by(CollectPlan)
def collect(simulator: str = "metaworld", **settings: Unpack[CollectOptions]) -> Mapping[int, int]:
    """Record rollouts of every quality with exact progress as a dataset; return how many rows each level has."""
    from rewardlab.collection.dataset_collection import collect as collect_rollouts

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
    return train_vlm_by_plan(plan_from(VlmPlan, {"model": model, "data": [str(name) for name in several], **settings}))


@documented_by(ObjectivePlan)
def train_objective(objective: str = "", **settings: Unpack[TrainObjectiveOptions]) -> tuple[str, ...]:
    """Train a contrastive backbone with objectives, all of the catalog where none is named; return the model strings.

    The folder `out` then holds comparison.json and index.html. Needs torch and transformers (extra `vlm-train`).
    """
    from rewardlab.reporting.objective_page import write_objective_page
    from rewardlab.training.objective_training.train_command import train_objective as train_by_plan

    plan = plan_from(ObjectivePlan, {"objective": objective, **settings})
    models = train_by_plan(plan)
    if plan.does("evaluate"):
        write_objective_page(plan.out)
    return models


@documented_by(AssemblePlan)
def assemble_vlm(**settings: Unpack[AssembleOptions]) -> str:
    """Write a vision-language model made of two others as a folder, and return its model string.

    Needs torch and transformers, from the extra `assemble`.
    """
    from rewardlab.training.vlm_assembly.assembly import assemble

    return f"hf:{assemble(plan_from(AssemblePlan, settings))}"
