"""guard.json: a fitted guard, the model that it was fitted for, and what it falls back to."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rewardlab.core.dataclass_json import record_from_json
from rewardlab.core.errors import PlanError
from rewardlab.core.sealed_json import read_sealed_json
from rewardlab.core.seeding import digest
from rewardlab.models.composite import name_composite
from rewardlab.models.contract import Composition, NamedModel, RewardModel
from rewardlab.models.guard.guarded_model import Guard, Guarded


@dataclass(frozen=True)
class GuardFile:
    """A guard as it is kept."""

    model: str
    fingerprint: str
    guard: Guard
    fallback: str


def read_guard(path: Path) -> GuardFile:
    """Return the guard in a file; one sentence says what is wrong with it."""
    try:
        record, _ = read_sealed_json(path)
        guard = record_from_json(Guard, record["guard"])
        texts = [str(record[key]) for key in ("model", "fingerprint", "fallback")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError(f"{path} cannot be read as a guard ({error}); run `rewardlab guard fit` again") from error
    return GuardFile(texts[0], texts[1], guard, texts[2])


def name_guarded(name: str, model: NamedModel, path: Path, name_model: Callable[[str], NamedModel]) -> NamedModel:
    """Name a model with the guard in this file, which must have been fitted for it."""
    found = read_guard(path)
    if found.fingerprint != model.fingerprint:
        other = "another version of it" if found.model == model.name else found.model
        raise PlanError(
            f"{path} was not fitted for {model.name} but for {other}; run `rewardlab guard fit {model.name} DATA`"
        )
    members = [model, *([name_model(found.fallback)] if found.fallback else [])]

    def combine(built: Sequence[RewardModel]) -> RewardModel:
        return Guarded(built[0], found.guard, built[1] if len(built) > 1 else None)

    identity = digest(json.dumps(asdict(found.guard), sort_keys=True))
    composition = Composition(tuple(member.name for member in members), identity, combine)
    return replace(name_composite(name, composition, members), prompt=model.prompt, caveat=model.caveat)
