"""Command `data verify`: serve the page, or write the verified split."""

import secrets
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rewardlab.core.errors import PlanError, require_packages
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help, Seed
from rewardlab.core.terminal import loading, one_line
from rewardlab.data import dataset_folder, split_camera
from rewardlab.data.convert import data_convert
from rewardlab.data.roboreward_rows import METADATA
from rewardlab.data.row_listing import RowListing, list_rows, split_folders
from rewardlab.data.safe_files import require_inside
from rewardlab.models.remote import TOKEN_VARIABLE, read_token
from rewardlab.serving.listening import PACKAGES, require_port

if TYPE_CHECKING:
    from rewardlab.serving.verification_state import VerificationServer
    from rewardlab.serving.verified_split import VerifiedSplit

VERDICTS = "verdicts.sqlite"
_DRAIN_SECONDS = 5
_PROBLEMS_SHOWN = 5


def data_verify(
    data: Annotated[str | Path, Help("dataset folder or name; DATA@CAMERA chooses a camera")],
    *,
    verdicts: Annotated[Path | str | None, Help("SQLite file of the verdicts; default: DATA/verdicts.sqlite")] = None,
    overlap: Annotated[
        float, Help("fraction of the rows that two people judge, from 0 to 1, to measure agreement")
    ] = 0.2,
    seed: Seed = 0,
    host: Annotated[str, Help("address to listen on; by default only this machine can reach it")] = "127.0.0.1",
    port: Annotated[
        int, Help(f"port to listen on; 0 takes a free one; the token is {TOKEN_VARIABLE}, else a new one")
    ] = 8010,
    export: Annotated[
        Path | str | None, Help("write verified rows and their videos to this new folder instead of serving")
    ] = None,
) -> "VerifiedSplit | None":
    """Serve a page on which people check the labels of a dataset, or write the split they have verified.

    A dataset in another layout than RoboReward's is copied once, into the current folder, with its verdicts. The
    page is served until SIGTERM or Ctrl-C. With `export` the split is written and returned. Needs the extra `serve`.

    Examples:
        rewardlab data verify my-data
        rewardlab data verify my-data --export verified-data
    """
    require_port(port)
    if not 0 <= overlap <= 1:
        raise PlanError(f"overlap must be a fraction from 0 to 1, got {overlap}")
    require_packages("data verify", *PACKAGES, extra="serve")
    with loading(f"reading the rows of {data}"):
        listing = _rows_of(str(data))
        server = open_verification(listing, None if verdicts is None else Path(verdicts), overlap, seed)
    for problem in listing.problems[:_PROBLEMS_SHOWN]:
        print(one_line(f"left out {problem}"), flush=True)
    if len(listing.problems) > _PROBLEMS_SHOWN:
        count = f"{len(listing.problems):,}"
        print(f"... {count} lines are left out in total; `rewardlab data check` lists them all", flush=True)
    if export is not None:
        from rewardlab.serving.verified_split import write_verified_split

        with closing(server):
            split = server.verified()
            write_verified_split(split, Path(export))
        return split
    from rewardlab.serving.http import serve_until_stopped, server_config
    from rewardlab.serving.verify_app import create_app

    token = read_token() or secrets.token_urlsafe(24)
    rows = f"{len(listing.rows):,} rows of {listing.folder}"
    started = lambda url: print(one_line(f"verify {rows} at {url}/#token={token}"), flush=True)
    config = server_config(create_app(server, host, token), drain=_DRAIN_SECONDS, websockets=False)
    serve_until_stopped(config, host, port, started)
    return None


def _rows_of(data: str) -> RowListing:
    """Return the rows of a dataset; of one in another layout those of its copy, which is made where there is none."""
    folder, camera = dataset_folder(data), split_camera(data)[1]
    if (folder / METADATA).is_file() or split_folders(folder):
        return list_rows(data)
    copy = Path(f"{folder.name}-verify-{digest(str(folder.resolve()), camera)[:6]}")
    if not copy.exists():
        data_convert(data, copy, keep_duplicates=True)
    return list_rows(str(copy))


def open_verification(listing: RowListing, verdicts: Path | None, overlap: float, seed: int) -> "VerificationServer":
    """Return the state of a server over these rows, with the verdicts already on disk."""
    from rewardlab.serving.verdicts import VerdictStore
    from rewardlab.serving.verification_state import Assignments, VerificationServer

    if verdicts is None:
        verdicts = listing.folder / VERDICTS
        require_inside(listing.folder, verdicts)  # no link in a stranger's dataset leads to another file
    return VerificationServer(listing, Assignments(listing.rows, overlap, seed), VerdictStore(verdicts))
