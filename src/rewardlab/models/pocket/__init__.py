"""The entries, the files of a variant, the split it was trained with."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.records import read_json
from rewardlab.models.contract import Budget, ModelEntry, NamedModel, RewardModel
from rewardlab.models.external import identity, path_digest, read_arguments
from rewardlab.models.model_string import ModelString, canonical_name
from rewardlab.models.pocket.parallel_onnx import Precision, choose_precision, int8_image_encoder

WEIGHTS = Path(__file__).with_name("weights")
WORD_VECTORS = WEIGHTS / "word_vectors.npz"
_CAVEAT = "It has seen nothing but simulation (Meta-World): on recordings of real robots its answers mean little."
_SUMMARIES = {
    "pocket": "small learned model, trained on simulated rollouts under perturbations; knows Meta-World only; "
    "pocket:FOLDER/VARIANT for one that you trained",
    "pocket-plain": "the same, trained on clean frames only",
}


def variant_files(stem: Path) -> tuple[Path, ...]:
    """Return the files of a variant; `stem` is their path without the ending."""
    parts = ("image_encoder.onnx", "temporal_encoder.onnx", "familiar_states.npy", "json")
    return (WORD_VECTORS, *(stem.with_name(f"{stem.name}.{part}") for part in parts))


def _trained_tasks(stem: Path) -> tuple[str, ...]:
    """Return the tasks that a variant was trained on, as its settings say; nothing where they do not."""
    try:
        found = read_json(variant_files(stem)[-1])["trained_tasks"]
    except (OSError, ValueError, KeyError, TypeError):  # what is wrong with them is said when the model is loaded
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _name(string: ModelString, variant: str) -> NamedModel:
    """Name a variant that ships, or `pocket:FOLDER/VARIANT`, as `rewardlab train pocket` writes it."""
    read_arguments(string.name, lambda: None, string.options)
    stem = Path(string.argument) if string.argument else WEIGHTS / variant
    word_vectors, image_encoder, *others = variant_files(stem)
    missing = [path for path in (word_vectors, image_encoder, *others) if not path.exists()]
    if missing:
        raise PlanError(f"no pocket is at {stem}: {missing[0]} is missing; name it as FOLDER/VARIANT, without ending")
    precision = choose_precision(stem)
    encoder = int8_image_encoder(stem) if precision == "int8" else image_encoder
    files = (word_vectors, encoder, *others)
    return NamedModel(
        canonical_name(string, ()),
        identity("pocket", {"precision": precision}, *map(path_digest, files)),
        False,
        partial(_build, stem, precision),
        caveat=_CAVEAT,
        trained_tasks=_trained_tasks(stem),
    )


def _build(stem: Path, precision: Precision, budget: Budget) -> RewardModel:
    from rewardlab.models.pocket.inference import open_pocket

    return open_pocket(stem, precision)


POCKET = {name: ModelEntry(summary, partial(_name, variant=name)) for name, summary in _SUMMARIES.items()}


# The catalog split of a variant: what it was trained with and what was held out, as its own file records it.
#
# The lists were drawn from the catalog when training began. Later entries of the catalog are in neither list.

Names = tuple[str, ...]


@dataclass(frozen=True)
class CatalogSplit:
    """Perturbations and changed worlds that a variant was trained with, and those held out to test it by."""

    train_perturbations: Names
    train_worlds: Names
    held_out_perturbations: Names
    held_out_worlds: Names

    @property
    def held_out(self) -> Names:
        """Return every held-out name of the catalog."""
        return (*self.held_out_perturbations, *self.held_out_worlds)

    def to_json(self) -> dict[str, dict[str, list[str]]]:
        """Return the two entries of a variant's JSON file."""
        return {
            "trained_with": {"perturbations": list(self.train_perturbations), "worlds": list(self.train_worlds)},
            "held_out": {"perturbations": list(self.held_out_perturbations), "worlds": list(self.held_out_worlds)},
        }


def read_split(path: Path) -> CatalogSplit:
    """Return the split that a JSON file records; DataError if it records none."""
    try:
        facts = read_json(path)
        train, held_out = facts["trained_with"], facts["held_out"]
        lists = (train["perturbations"], train["worlds"], held_out["perturbations"], held_out["worlds"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} does not record what was held out ({error!r}); train the model again") from error
    return CatalogSplit(*(tuple(map(str, names)) for names in lists))


def shipped_split(variant: str) -> CatalogSplit:
    """Return what a model of the package was trained with, and what was held out."""
    return read_split(WEIGHTS / f"{variant}.json")
