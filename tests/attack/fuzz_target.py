"""One target of the coverage-guided fuzzer, run as a process of its own: `python -m tests.attack.fuzz_target NAME ...`.

The other arguments are libFuzzer's. Whatever is not the error that the target may raise ends the process with a code.
"""

import io
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["rewardlab.core.bounded_json", "rewardlab.data"]):
    from rewardlab.core.bounded_json import parse_json
    from rewardlab.core.errors import DataError
    from rewardlab.data.mp4_tables import require_sane_tables
    from rewardlab.data.roboreward_row import fps_of, instruction_of, origin_of, parse_row, truth_of, world_of


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
