"""The catalog split of a variant: what it was trained with and what was held out, as its own file records it.

The lists were drawn from the catalog when training began. Later entries of the catalog are in neither list.
"""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.bounded_json import read_json
from rewardlab.core.errors import DataError
from rewardlab.models.pocket import WEIGHTS

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
