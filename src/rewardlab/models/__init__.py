"""The catalog of reward models. A model is one string: a catalog name, or `package.module:name` for your own."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from inspect import getsource
from pathlib import Path
from typing import Any, TypeGuard

from rewardlab.core import __version__
from rewardlab.core.catalog import find
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.seeding import digest
from rewardlab.models.backends import VLM_BACKENDS
from rewardlab.models.calibration import name_calibrated
from rewardlab.models.composite import name_composite
from rewardlab.models.contract import Budget, CompositeEntry, Describer, ModelEntry, NamedModel, RewardModel
from rewardlab.models.contrastive import CONTRASTIVE
from rewardlab.models.controls import CONTROLS
from rewardlab.models.ensemble import ENSEMBLE
from rewardlab.models.external import is_module, make_external, name_external, pickled
from rewardlab.models.guard import name_guarded
from rewardlab.models.model_string import GUARD, ModelString, leave_to_members, parse_model_string, without_speed
from rewardlab.models.pocket import POCKET
from rewardlab.models.protocols import backend_entry, protocol_entry
from rewardlab.models.protocols.gvl import GVL
from rewardlab.models.protocols.rubric import RUBRIC
from rewardlab.models.protocols.topreward import TOPREWARD
from rewardlab.models.remote import REMOTE
from rewardlab.models.simulated import SIMULATED

MODELS: dict[str, ModelEntry[Any] | CompositeEntry] = {
    **CONTROLS,
    **SIMULATED,
    **POCKET,
    **{name: backend_entry(backend, RUBRIC) for name, backend in VLM_BACKENDS.items()},
    "rubric": protocol_entry(RUBRIC),
    "gvl": protocol_entry(GVL),
    "topreward": protocol_entry(TOPREWARD),
    "contrastive": CONTRASTIVE,
    "remote": REMOTE,
    "ensemble": ENSEMBLE,
}


def name_model(model: str | RewardModel) -> NamedModel:
    """Return the model meant by a string or an object, not built yet."""
    if not isinstance(model, str):
        return _name_object(model)
    string = parse_model_string(model)
    named, text = _name_uncalibrated(string), string.text
    for longer, path in string.calibrations:
        named, text = _name_fitted(named.name + longer[len(text) :], named, path), longer
    return replace(named, written=model)


def _name_fitted(name: str, model: NamedModel, path: Path) -> NamedModel:
    """Name a model with what was fitted for it: a guard or a calibration."""
    if path.name == GUARD:
        return name_guarded(name, model, path, name_model)
    return name_calibrated(name, model, path)


def _name_uncalibrated(string: ModelString) -> NamedModel:
    if string.name not in MODELS and string.argument and is_module(string.name):
        return _name_external(string)
    known, plus, place = string.text.partition("+")
    if plus and known in MODELS:
        raise PlanError(
            f"there is no calibration in {place!r}; `rewardlab fit calibration {known} DATA` makes one, "
            f"and `rewardlab fit guard {known} DATA` a guard"
        )
    entry = find(MODELS, string.name, "model")
    if isinstance(entry, CompositeEntry):
        return _name_composite(string, entry)
    spec = entry.parse(string)

    def build(budget: Budget) -> RewardModel:
        return entry.build(spec, budget)

    name = without_speed(string, entry.speed(spec))
    fingerprint = digest(__version__, name, entry.identify(spec))
    return NamedModel(
        name,
        fingerprint,
        entry.sees_truth,
        build,
        entry.one_copy,
        caveat=entry.caveat,
        trained_tasks=entry.trained_tasks(spec),
        apart=entry.apart(spec),
        prompt=entry.prompt,
        server=entry.server(spec),
        describe=_describe(entry, spec),
    )


def _describe(entry: ModelEntry[Any], spec: Any) -> Callable[[Budget], Describer] | None:
    """Return what makes a model say what it sees; code from outside is asked for scores alone."""
    make = entry.describe
    return None if make is None or entry.apart(spec) else lambda budget: make(spec, budget)


def _name_composite(string: ModelString, entry: CompositeEntry) -> NamedModel:
    """Name a model made of others; its members go by the names that leave out their speed."""
    string = leave_to_members(string, {key for own in entry.options for key in vars(own)})
    composition = entry.parse(string)
    members = [name_model(member) for member in composition.members]
    names = tuple(member.name for member in members)
    if names == composition.members:
        return name_composite(string.text, composition, members)
    _, mark, options = string.text.rpartition("?")
    argument = ",".join(names)
    text = f"{string.name}:{argument}" + (f"?{options}" if mark and string.options else "")
    return name_composite(text, entry.parse(replace(string, text=text, argument=argument)), members)


def _is_reward_model(thing: object) -> TypeGuard[RewardModel]:
    return isinstance(thing, RewardModel) and not isinstance(thing, type)


def _name_object(model: RewardModel) -> NamedModel:
    """Name a model given as an object; its code and its state identify it."""
    if not _is_reward_model(model):
        raise ModelError(f"expected an object with a score(episodes) method, got {model!r}; make one: MyModel()")
    try:
        code = getsource(type(model))
    except (OSError, TypeError):
        code = ""
    name = type(model).__name__
    state = sha256(pickled(name, vars(model) if hasattr(model, "__dict__") else None)).hexdigest()
    fingerprint = digest(type(model).__qualname__, code, state)
    return NamedModel(name, fingerprint, False, lambda budget: model, apart=True)


def _name_external(string: ModelString) -> NamedModel:
    """Name `package.module:name?argument=value`: a model, or a class or function that makes one of the arguments."""
    external = name_external(f"{string.name}:{string.argument}", string.options, _is_reward_model)

    def build(budget: Budget) -> RewardModel:
        return make_external(external, _is_reward_model, "a score(episodes) method")

    return NamedModel(string.text, external.identity, False, build, apart=True)
