"""Datasets on the Hugging Face hub, in any layout that is read, by name: hub:OWNER/NAME or hub:OWNER/NAME/SPLIT."""

from pathlib import Path

from rewardlab.core.errors import DataError

HUB = "hub:"


def fetch(name: str) -> Path:
    """Return the local folder of a dataset on the hub, downloaded where it is not there yet."""
    repository, split = split_name(name)
    by_hand = "or download it by hand and name its folder"
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise DataError(f"{name} needs the package huggingface_hub: pip install 'rewardlab[hub]', {by_hand}") from None
    wanted = f"{split}/*" if split else None
    try:
        folder = Path(snapshot_download(repository, repo_type="dataset", allow_patterns=wanted))
    except Exception as error:  # whatever the network or the hub does
        why = " ".join(str(error).split())
        raise DataError(f"{name} cannot be fetched ({type(error).__name__}: {why}); try again, {by_hand}") from error
    return folder / split


def split_name(name: str) -> tuple[str, str]:
    """Return repository and split of hub:OWNER/NAME/SPLIT; the split may be missing."""
    parts = name.removeprefix(HUB).split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise DataError(f"expected hub:OWNER/NAME or hub:OWNER/NAME/SPLIT, got {name!r}")
    return "/".join(parts[:2]), "".join(parts[2:])
