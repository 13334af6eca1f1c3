"""One target of the coverage-guided fuzzer, run as a process of its own: `python -m tests.attack.fuzz_target NAME ...`.

The other arguments are libFuzzer's. Whatever is not the error that the target may raise ends the process with a code.
"""

import io
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["rewardlab.core.records", "rewardlab.data"]):
    from rewardlab.core.errors import DataError
    from rewardlab.core.records import parse_json
    from rewardlab.data.roboreward_rows import fps_of, instruction_of, parse_row
    from rewardlab.data.roboreward_rows import label_of as truth_of
    from rewardlab.data.roboreward_rows import provenance_of as origin_of
    from rewardlab.data.roboreward_rows import sim_state_of as world_of
    from rewardlab.data.safe_video import require_sane_tables


def read_row(data: bytes) -> None:
    """Read a row of metadata as a dataset does."""
    row = parse_row(data.decode("utf-8", "surrogateescape"))
    instruction_of("a.mp4", row)
    truth_of("a.mp4", row, 8)
    fps_of("a.mp4", row)
    origin_of("a.mp4", row)
    world_of(Path("/data"), "a.mp4", row)


def read_json(data: bytes) -> None:
    """Read JSON from outside."""
    parse_json(data)


def read_mp4(data: bytes) -> None:
    """Read the tables of an mp4 before a demuxer does."""
    require_sane_tables(io.BytesIO(data))


TARGETS: dict[str, tuple[Callable[[bytes], None], type[Exception]]] = {
    "row": (read_row, DataError),
    "json": (read_json, ValueError),
    "mp4": (read_mp4, ValueError),
}


def main() -> None:
    """Fuzz the target that is named."""
    read, allowed = TARGETS[sys.argv[1]]

    def once(data: bytes) -> None:
        with suppress(allowed):
            read(data)

    atheris.Setup([sys.argv[0], *sys.argv[2:]], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
