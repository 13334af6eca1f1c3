"""Pocket: small learned reward models that ship in the package and run on onnxruntime; they know simulation only."""

from hashlib import sha256
from pathlib import Path

from rewardlab.core.errors import ModelError, PlanError
from rewardlab.models.contract import ModelEntry, Purse, RewardModel

WEIGHTS = Path(__file__).with_name("weights")
_SUMMARIES = {
    "pocket": "small learned model, trained on simulated rollouts under perturbations; knows Meta-World only",
    "pocket-plain": "the same, trained on clean pictures only",
    "pocket-alt": "a vision transformer with a recurrent memory, trained like pocket",
}


def files_of(name: str) -> tuple[Path, ...]:
    """Return the files that a variant is made of."""
    return (WEIGHTS / "words.npz", *(WEIGHTS / f"{name}.{part}" for part in ("eyes.onnx", "head.onnx", "json")))


def _identify(name: str, argument: str) -> str:
    if argument:
        raise PlanError(f"{name} takes nothing after a colon, got {argument!r}")
    missing = [path.name for path in files_of(name) if not path.exists()]
    if missing:
        raise ModelError(f"{name} is not whole: {', '.join(missing)} missing; install rewardlab again")
    return sha256(b"".join(sha256(path.read_bytes()).digest() for path in files_of(name))).hexdigest()


def _build(name: str) -> RewardModel:
    from rewardlab.models.pocket.judge import open_pocket

    return open_pocket(name)


def _entry(name: str) -> ModelEntry:
    def build(argument: str, purse: Purse) -> RewardModel:
        return _build(name)

    return ModelEntry(_SUMMARIES[name], build, identify=lambda argument: _identify(name, argument))


POCKET = {name: _entry(name) for name in _SUMMARIES if (WEIGHTS / f"{name}.json").exists()}
