"""The catalog of reward models. A model is one string: a catalog name, or `package.module:name` for your own."""

import inspect
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeGuard

from rewardlab.core.catalog import Catalog, find, load_object
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.seeding import digest
from rewardlab.models.blank import blank_settings, name_blank
from rewardlab.models.calibration import name_calibrated
from rewardlab.models.composite import ENSEMBLE_SETTINGS, name_ensemble
from rewardlab.models.contract import (
    GUARD,
    AnyModel,
    ModelEntry,
    ModelString,
    NamedModel,
    RewardModel,
    canonical_name,
    content_digest,
    parse_model_string,
)
from rewardlab.models.contrastive import CONTRASTIVE
from rewardlab.models.controls import CONTROLS
from rewardlab.models.external import FunctionModel, is_module, maker_of, name_external, pickled
from rewardlab.models.guard import name_guarded
from rewardlab.models.normalise import name_normalised, normaliser_settings
from rewardlab.models.pocket import POCKET
from rewardlab.models.pooling import POOLING
from rewardlab.models.prefixes import name_prefixes
from rewardlab.models.protocols import RUBRIC, VLM_BACKENDS, backend_entry, protocol_entry
from rewardlab.models.protocols.abstain import ABSTAIN
from rewardlab.models.protocols.causes import CAUSES
from rewardlab.models.protocols.gvl import GVL
from rewardlab.models.protocols.topreward import TOPREWARD
from rewardlab.models.remote import REMOTE
from rewardlab.models.robometer import ROBOMETER
from rewardlab.models.simulated import SIMULATED


def load_model(model: str) -> RewardModel:
    """Return the model that a string names, ready to score; this may load weights."""
    return name_model(model).build()


def name_model(model: AnyModel) -> NamedModel:
    """Return the model meant by a string, an object or a function, not built yet.

    What identifies an object is the code of its class and its settings, the same in every process.
    """
    if isinstance(model, NamedModel):
        return model
    if not isinstance(model, str):
        if isinstance(model, type) or not (isinstance(model, RewardModel) or callable(model)):
            raise ModelError(
                f"expected an object with a score(episodes) method, or a function of an episode, got {model!r}; "
                "make one: MyModel()"
            )
        made = model if isinstance(model, RewardModel) else FunctionModel(model)
        name = getattr(model, "__name__", type(model).__name__)  # of a function its own
        pickled(name, vars(made) if hasattr(made, "__dict__") else None)  # what cannot be sent is said now
        return NamedModel(name, content_digest(model), False, lambda _: made, isolated=True)
    string = parse_model_string(model)
    named, text = _name_string(string), string.text
    for longer, path in string.calibrations:
        name, text = named.name + longer[len(text) :], longer
        if path.name == GUARD:
            named = name_guarded(name, named, path, partial(_name_fallback, path=path))
        else:
            named = name_calibrated(name, named, path)
    return replace(named, spec=model)


_FALLBACK = "REWARDLAB_FALLBACK"
_HARMLESS = (*CONTROLS, *SIMULATED, *POCKET, "hf", "contrastive")  # no code of others, no address, no model in a model


def _name_fallback(model: str, path: Path) -> NamedModel:
    """Name the model that a guard's file falls back to; PlanError where a stranger's file could do harm by it."""
    string = parse_model_string(model)
    if (string.name not in _HARMLESS or string.calibrations) and os.environ.get(_FALLBACK) != model:
        raise PlanError(
            f"{path} falls back to {model!r}, which may be code or a server; if you trust it, set {_FALLBACK} to "
            "that text"
        )
    return name_model(model)


def _name_string(string: ModelString) -> NamedModel:
    """Name the model of the catalog, or outside it, that a string means without what was fitted for it."""
    if string.name in _OWN:
        entry = _OWN[string.name]
    elif string.name not in MODELS and string.argument and is_module(string.name):
        entry = ModelEntry("", partial(_name_external, path=f"{string.name}:{string.argument}"))
    else:
        known, plus, place = string.text.partition("+")
        if plus and known in MODELS:
            raise PlanError(
                f"there is no calibration in {place!r}; `rewardlab fit calibration {known} DATA` makes one, "
                f"and `rewardlab fit guard {known} DATA` a guard"
            )
        entry = find(MODELS, string.name, "model")
    named = entry.name(string)
    return replace(named, fingerprint=digest(entry.version, named.fingerprint))


def _is_reward_model(thing: object) -> TypeGuard[RewardModel]:
    return isinstance(thing, RewardModel) and not isinstance(thing, type)


def _name_external(string: ModelString, path: str) -> NamedModel:
    """Name what stands at `package.module:name`: a model or a reward function, or what makes one of the options."""
    external = name_external(path, string.options, _is_reward_model, "a score(episodes) method")
    name = canonical_name(string, external.shown)
    return NamedModel(name, external.identity, False, lambda _: external.make(), isolated=True)


def _registered(_name: str, path: str) -> ModelEntry:
    """Return the line of the catalog for a model that another package registers."""
    found, _ = load_object(path)
    summary = (inspect.getdoc(found) or path).partition("\n")[0]
    options = (maker_of(found),) if callable(found) and not _is_reward_model(found) else ()
    return ModelEntry(summary, partial(_name_external, path=path), options)


_OWN: dict[str, ModelEntry] = {
    **CONTROLS,
    **SIMULATED,
    **POCKET,
    **{name: backend_entry(name, backend) for name, backend in VLM_BACKENDS.items()},
    "rubric": protocol_entry(RUBRIC),
    "causes": protocol_entry(CAUSES),
    "abstain": protocol_entry(ABSTAIN),
    "gvl": protocol_entry(GVL),
    "topreward": protocol_entry(TOPREWARD),
    "contrastive": CONTRASTIVE,
    "remote": REMOTE,
    "robometer": ROBOMETER,
    "pooling": POOLING,
    "ensemble": ModelEntry(
        "several models combined; ensemble:pocket,length?by=vote, or by=median, mean; weights=FILE; "
        "early_exit=yes skips the others if the first two agree",
        partial(name_ensemble, name_model=name_model),
        (ENSEMBLE_SETTINGS,),
    ),
    "normalise": ModelEntry(
        "rewrites the instruction in one canonical wording before a model sees it; normalise:pocket, by rules, or "
        "rewriter=openai:NAME@URL",
        partial(name_normalised, name_model=name_model),
        (normaliser_settings,),
        version=2,
        over="model",
    ),
    "blank": ModelEntry(
        "a control: the model sees grey frames at the times of the clip; blank:hf:FOLDER, or a single one: "
        "blank:hf:FOLDER?text_only=yes",
        partial(name_blank, name_model=name_model),
        (blank_settings,),
        over="model",
    ),
    "prefixes": ModelEntry(
        "progress for a model that gives only levels, from its levels of growing prefixes; prefixes:motion",
        partial(name_prefixes, name_model=name_model),
        over="model",
    ),
}
MODELS = Catalog(_OWN, "models", _registered)
