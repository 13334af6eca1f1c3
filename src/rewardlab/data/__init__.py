"""`open_dataset` and `data_check`: shipped names, folders, hub, reader by name; the catalog of readers.

hub:OWNER/NAME or hub:OWNER/NAME/SPLIT   fetched from the Hugging Face hub
READER:FOLDER                            read by a reader of the catalog, whatever the folder looks like
package.module:name:FOLDER               read by a Reader outside the package

Where a format takes a file, FOLDER may be one. NAME@CAMERA reads what that camera saw, NAME@all what every camera saw,
each as an episode of its own; NAME@A,B reads one episode per rollout, whose frames are those of A and whose view is B.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote

from rewardlab.core.catalog import Catalog, did_you_mean, load_object, quoted
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.settings import Data, Demonstrations
from rewardlab.data.contract import Contents, Problem, Reader
from rewardlab.data.envlogger import ENVLOGGER
from rewardlab.data.hdf5 import HDF5
from rewardlab.data.images import IMAGES
from rewardlab.data.lerobot import LEROBOT
from rewardlab.data.reading import ALL_CAMERAS, CAMERAS, join_views, only_camera
from rewardlab.data.rlds import RLDS
from rewardlab.data.roboarena import ROBOARENA
from rewardlab.data.roboreward import ROBOREWARD
from rewardlab.data.safe_files import few, video_names
from rewardlab.data.sources import describe_contents
from rewardlab.data.table import TABLE
from rewardlab.data.video import VIDEO, check_videos

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


_SAMPLES = Path(__file__).parent / "samples"
_OUTSIDE = re.compile(r"([A-Za-z_][\w.]*:[A-Za-z_]\w*):(.+)")  # package.module:name, then a folder

DATASETS = {  # shipped in the package, usable by name
    "sample": _SAMPLES / "sample",
    "sample-sim": _SAMPLES / "sample-sim",
}
# The first that recognises a folder reads it.
_EVERY = (ROBOREWARD, LEROBOT, RLDS, ENVLOGGER, HDF5, ROBOARENA, TABLE, IMAGES, VIDEO)


def open_dataset(data: str | Path, *, demonstrations: bool = False) -> Contents:
    """Return the valid episodes and every problem of a dataset folder, a shipped name such as sample, or hub:NAME.

    An episode that states no outcome is a success if it is a demonstration: `demonstrations` says so of all, its row or
    its source in the registry of one. No frame is decoded; `data_check` does that.
    """
    name, camera = split_camera(str(data))
    readers, folder = _located(name)
    for reader in readers:
        if reader.recognises(folder):
            contents = _read(reader, folder, camera)
            return describe_contents(contents, demonstrations=demonstrations)
    raise DataError(_unrecognised(folder, readers))


def _read(reader: Reader, folder: Path, camera: str) -> Contents:
    """Read what one camera saw, every one, or several as views of one episode; the reader chooses without a name."""
    if not camera:
        return reader.read(folder)
    cameras = camera.split(",")
    if len(set(cameras)) < len(cameras) or (len(cameras) > 1 and {"", ALL_CAMERAS} & set(cameras)):
        raise DataError(f"expected the names of different cameras, such as DATA@front,wrist, got {quoted(camera)}")
    if reader.read_camera:
        seen = [reader.read_camera(folder, each) for each in cameras]
    else:
        whole = reader.read(folder)
        seen = [only_camera(whole, each) for each in cameras]
    return seen[0] if len(seen) == 1 else join_views(seen)


def refuse_problems(data: str | Path, problems: Sequence[Problem]) -> None:
    """Raise DataError with the first problems of a dataset that has some, for a command with --skip-invalid."""
    if problems:
        rows = "1 bad row" if len(problems) == 1 else f"{len(problems)} bad rows"
        first = "".join(f"\n  {problem}" for problem in problems[:5])
        more = f"\n  and {len(problems) - 5} more: run `rewardlab data check {data}`" if len(problems) > 5 else ""
        raise DataError(f"{data} has {rows}; correct the data, or leave bad rows out with --skip-invalid{first}{more}")


def data_check(data: Data, *, demonstrations: Demonstrations = False) -> Contents:
    """List every problem of a dataset with its place; every frame of every video is decoded.

    Examples:
        rewardlab data check sample
        rewardlab data check lerobot:demos@all
    """
    return check_videos(open_dataset(data, demonstrations=demonstrations))


def dataset_notes(data: str | Path) -> tuple[Problem, ...]:
    """Return what is odd in a dataset and stops no run."""
    name, camera = split_camera(str(data))
    readers, folder = _located(name)
    notes = next((reader.notes(folder) for reader in readers if reader.recognises(folder)), ())
    return tuple(note for note in notes if not (camera and note.place == CAMERAS))


def dataset_folder(name: str) -> Path:
    """Return the folder that a dataset is read from."""
    return _located(split_camera(name)[0])[1]


def recognised_folder(name: str) -> tuple[str, Path]:
    """Return the name of the reader that reads a dataset, empty if none does, and the folder."""
    readers, folder = _located(split_camera(name)[0])
    return next((reader.name for reader in readers if reader.recognises(folder)), ""), folder


def choose_split(name: str, split: str) -> str:
    """Return the name of one split where a dataset holds several, else the name as it is."""
    name, camera = split_camera(name)
    suffix = f"@{camera}" if camera else ""
    if name.startswith(HUB):
        return name + suffix if split_name(name)[1] else f"{name}/{split}{suffix}"
    readers, folder = _located(name)
    inside = not _recognised(folder, readers) and _recognised(folder / split, readers)
    return (f"{name.removesuffix('/')}/{split}" if inside else name) + suffix


def split_camera(name: str) -> tuple[str, str]:
    """Return the dataset and the camera of NAME@CAMERA; a path that is there may have an @ of its own.

    A reader that the name mentions is not loaded: the name may be a stranger's.
    """
    before, _, camera = name.rpartition("@")
    paths = (name, name.partition(":")[2], name.rpartition(":")[2])
    if not before or "/" in camera or any(path and Path(path).exists() for path in paths):
        return name, ""
    return before, camera


def _located(name: str) -> tuple[tuple[Reader, ...], Path]:
    """Return the readers to try, in order, and the folder."""
    if name.startswith(HUB):
        return _EVERY, fetch(name)
    readers: tuple[Reader, ...] = _EVERY
    path = name
    prefix, _, rest = name.partition(":")
    outside = _OUTSIDE.fullmatch(name)
    if rest and prefix in READERS:
        readers, path = (READERS[prefix],), rest
    elif outside and not os.path.isdir(name):
        readers, path = (_load_reader(outside[1]),), outside[2]
    folder = DATASETS.get(path, Path(path))
    if not os.path.isdir(folder) and not os.path.isfile(folder):  # pathlib raises where a name is too long
        near = did_you_mean(path, DATASETS)
        raise DataError(
            f"no dataset at {quoted(path)}; {near}name a folder or file that exists, or {' or '.join(DATASETS)}; "
            "`rewardlab list readers` shows the formats"
        )
    return readers, folder


def _load_reader(path: str) -> Reader:
    reader, _ = load_object(path)
    if not isinstance(reader, Reader):
        raise PlanError(f"{path} must be a rewardlab.data.contract.Reader, got {type(reader).__name__}")
    return reader


READERS = Catalog({reader.name: reader for reader in _EVERY}, "readers", lambda _name, path: _load_reader(path))


def _recognised(folder: Path, readers: Iterable[Reader]) -> bool:
    return any(reader.recognises(folder) for reader in readers)


def _unrecognised(folder: Path, readers: Sequence[Reader]) -> str:
    if folder.is_file():
        return f"{folder} is a file that {_no_reader_takes(readers)}; name another file"
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    datasets = [path.name for path in inside if path.is_dir() and _recognised(path, readers)]
    held = few([path.name for path in inside]) or "nothing"
    what = f"name one of its folders that do: {', '.join(datasets)}" if datasets else "name another folder"
    if not datasets and video_names(folder):
        what = f"`rewardlab data init {quote(str(folder))}` writes one row for each of its videos"
    return f"{folder} is a folder that {_no_reader_takes(readers)}; it holds {held}; {what}"


def _no_reader_takes(readers: Sequence[Reader]) -> str:
    if len(readers) == 1:
        return f"the reader {readers[0].name} does not take: it expects {readers[0].expects}"
    return f"no reader takes ({', '.join(reader.name for reader in readers)}: `rewardlab list readers`)"
