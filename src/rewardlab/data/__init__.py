"""Datasets: where episodes come from. `open_dataset` takes a folder or the name of a shipped sample."""

from pathlib import Path

from rewardlab.core.errors import DataError
from rewardlab.data.folder import Contents, read_folder

_SAMPLES = Path(__file__).parent / "samples"

DATASETS = {  # shipped in the package, usable by name
    "sample": _SAMPLES / "sample",
    "sample-sim": _SAMPLES / "sample-sim",
}


def dataset_folder(name: str) -> Path:
    """Return the folder of a shipped sample or the folder itself."""
    folder = DATASETS.get(name, Path(name))
    if not folder.is_dir():
        raise DataError(
            f"no dataset at {name!r}; give a folder with a metadata.jsonl, or one of: {', '.join(DATASETS)}"
        )
    return folder


def open_dataset(name: str) -> Contents:
    """Read a dataset by folder or shipped name: its sound episodes and its problems."""
    return read_folder(dataset_folder(name))
