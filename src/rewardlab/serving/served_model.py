"""The model that a server holds now: loaded once, and again when it is told to."""

from dataclasses import dataclass

from rewardlab.core.errors import PlanError
from rewardlab.models import name_model
from rewardlab.models.composite import build_model
from rewardlab.models.contract import Budget, RewardModel


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model ready to score, its name and what identifies its weights."""

    name: str
    fingerprint: str
    model: RewardModel
    caveat: str


def load_served_model(name: str) -> ServedModel:
    """Load the model that a string names; one that needs the truth cannot be served."""
    named = name_model(name)
    if named.sees_truth:
        raise PlanError(f"{named.name} answers from the truth, which a robot does not have; serve another model")
    return ServedModel(named.name, named.fingerprint, build_model(named, Budget()), named.caveat)
