"""Pocket: small learned reward models that ship in the package and run on onnxruntime; they know simulation only."""

from hashlib import sha256
from pathlib import Path

from rewardlab.core.errors import PlanError
from rewardlab.models.contract import Budget, ModelEntry, RewardModel

WEIGHTS = Path(__file__).with_name("weights")
WORDS = WEIGHTS / "words.npz"
_CAVEAT = "It has seen nothing but simulation (Meta-World): on recordings of real robots its answers mean little."
_SUMMARIES = {
    "pocket": "small learned model, trained on simulated rollouts under perturbations; knows Meta-World only; "
    "pocket:FOLDER/VARIANT for one that you trained",
    "pocket-plain": "the same, trained on clean pictures only",
    "pocket-alt": "a vision transformer with a recurrent memory, trained like pocket",
}


def files_of(place: Path) -> tuple[Path, ...]:
    """Return the files of a variant; `place` is their path without the ending."""
    return (WORDS, *(place.with_name(f"{place.name}.{part}") for part in ("eyes.onnx", "head.onnx", "json")))


def _place(name: str, argument: str) -> Path:
    """Return where the files are: those that ship, or those of a model trained by `rewardlab train pocket`."""
    return Path(argument) if argument else WEIGHTS / name


def _identify(place: Path) -> str:
    missing = [str(path) for path in files_of(place) if not path.exists()]
    if missing:
        raise PlanError(f"no pocket is at {place}: {missing[0]} is missing; name it as FOLDER/VARIANT, without ending")
    return sha256(b"".join(sha256(path.read_bytes()).digest() for path in files_of(place))).hexdigest()


def _build(place: Path) -> RewardModel:
    from rewardlab.models.pocket.inference import open_pocket

    return open_pocket(place)


def _entry(name: str) -> ModelEntry:
    def build(argument: str, budget: Budget) -> RewardModel:
        return _build(_place(name, argument))

    def identify(argument: str) -> str:
        return _identify(_place(name, argument))

    return ModelEntry(_SUMMARIES[name], build, identify=identify, caveat=_CAVEAT)


POCKET = {name: _entry(name) for name in _SUMMARIES}
