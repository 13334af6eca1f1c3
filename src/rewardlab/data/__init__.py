"""Datasets: where episodes come from. `open_dataset` takes a folder, a shipped name, or hub:OWNER/NAME/SPLIT."""

from pathlib import Path

from rewardlab.core.errors import DataError
from rewardlab.data.folder import METADATA, Contents, read_folder
from rewardlab.data.hub import HUB, fetch, split_name

_SAMPLES = Path(__file__).parent / "samples"

DATASETS = {  # shipped in the package, usable by name
    "sample": _SAMPLES / "sample",
    "sample-sim": _SAMPLES / "sample-sim",
}


def dataset_folder(name: str) -> Path:
    """Return the folder of a shipped sample, of a dataset on the hub, or the folder itself."""
    if name.startswith(HUB):
        return fetch(name)
    folder = DATASETS.get(name, Path(name))
    if not folder.is_dir():
        raise DataError(
            f"no dataset at {name!r}; give a folder with a metadata.jsonl, or one of: {', '.join(DATASETS)}"
        )
    return folder


def open_dataset(name: str) -> Contents:
    """Read a dataset by folder or shipped name: its sound episodes and its problems."""
    return read_folder(dataset_folder(name))


def choose_split(name: str, split: str) -> str:
    """Return the name of one split where a dataset holds several, else the name as it is."""
    if name.startswith(HUB):
        return name if split_name(name)[1] else f"{name}/{split}"
    folder = dataset_folder(name)
    inside = not (folder / METADATA).exists() and (folder / split / METADATA).exists()
    return str(folder / split) if inside else name
