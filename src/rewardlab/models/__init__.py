"""The catalog of reward models. A model is one string: a catalog name, or `package.module:name` for your own."""

from hashlib import sha256
from importlib.machinery import PathFinder
from importlib.util import find_spec
from inspect import getsource
from pathlib import Path

from rewardlab.core.catalog import find, load_object
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.seeding import digest
from rewardlab.core.version import __version__
from rewardlab.models.backends.contrastive import CONTRASTIVE
from rewardlab.models.backends.hf import QWEN
from rewardlab.models.backends.openai import OPENAI
from rewardlab.models.backends.remote import REMOTE
from rewardlab.models.calibrated import name_calibrated, split_calibration
from rewardlab.models.composite import name_compound
from rewardlab.models.contract import Budget, CompoundEntry, ModelEntry, NamedModel, RewardModel
from rewardlab.models.controls import CONTROLS
from rewardlab.models.ensemble import ENSEMBLE
from rewardlab.models.pocket import POCKET
from rewardlab.models.protocols.gvl import GVL
from rewardlab.models.protocols.topreward import TOPREWARD
from rewardlab.models.simulated import SIMULATED

LOCAL = {**QWEN, **CONTRASTIVE, **GVL, **TOPREWARD}
MODELS: dict[str, ModelEntry | CompoundEntry] = {
    **CONTROLS,
    **SIMULATED,
    **POCKET,
    **OPENAI,
    **REMOTE,
    **ENSEMBLE,
    **LOCAL,
}


def name_model(model: str | RewardModel) -> NamedModel:
    """Return the model meant by a string or an object, not built yet."""
    if not isinstance(model, str):
        return _given(model)
    calibrated = split_calibration(model)
    if calibrated is not None:
        return name_calibrated(model, name_model(calibrated[0]), calibrated[1])
    head, _, argument = model.partition(":")
    if head not in MODELS and argument and ("." in head or _is_module(head)):
        return _outside(model)
    known, plus, place = model.partition("+")
    if plus and known in MODELS:
        raise PlanError(f"there is no calibration in {place!r}; `rewardlab calibrate {known} DATA` makes one")
    entry = find(MODELS, head, "model")
    if isinstance(entry, CompoundEntry):
        recipe = entry.read(argument)
        return name_compound(model, recipe, [name_model(member) for member in recipe.members])
    if entry.identify is None:
        entry.build(argument, Budget())  # a wrong argument is said now, not in a worker
        identity = ""
    else:
        identity = entry.identify(argument)

    def build(budget: Budget) -> RewardModel:
        return entry.build(argument, budget)

    fingerprint = digest(__version__, model, identity)
    return NamedModel(model, fingerprint, entry.sees_truth, build, entry.one_copy, caveat=entry.caveat)


def _is_module(name: str) -> bool:
    """Tell whether code of this name is installed, or lies in the folder where the command was given."""
    try:
        return bool(find_spec(name) or PathFinder.find_spec(name, [str(Path.cwd())]))
    except ValueError:  # such as __main__
        return False


def _given(model: RewardModel) -> NamedModel:
    """Name a model given as an object; its code and its state identify it."""
    import cloudpickle

    if isinstance(model, type) or not isinstance(model, RewardModel):
        raise ModelError(f"expected an object with a score(episodes) method, got {model!r}; make one: MyModel()")
    try:
        code = getsource(type(model))
    except (OSError, TypeError):
        code = ""
    state = sha256(cloudpickle.dumps(vars(model) if hasattr(model, "__dict__") else None)).hexdigest()
    return NamedModel(type(model).__name__, digest(type(model).__qualname__, code, state), False, lambda budget: model)


def _called(path: str, found: object) -> object:
    if not callable(found):
        raise ModelError(f"{path} must be or make an object with a score(episodes) method, got {type(found).__name__}")
    return found()


def _outside(path: str) -> NamedModel:
    """Load `package.module:name`: a model object, or a class or function that makes one without arguments."""
    found, code = load_object(path)

    def build(budget: Budget) -> RewardModel:
        made = found if isinstance(found, RewardModel) and not isinstance(found, type) else _called(path, found)
        if not isinstance(made, RewardModel):
            raise ModelError(
                f"{path} must be or make an object with a score(episodes) method, got {type(made).__name__}"
            )
        return made

    return NamedModel(path, digest(path, code), False, build)
