"""Single bits flipped in the files of a run, one at a time, and what the report then shows."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.errors import RewardlabError
from rewardlab.core.run import Run
from rewardlab.core.seeding import rng_for
from rewardlab.evaluation.summary import load_summary
from rewardlab.reporting.report import robustness_card
from rewardlab.reporting.run_page import render_page

Show = Callable[[Path], str]


@dataclass(frozen=True)
class FlipCounts:
    """How often a flipped bit was refused in one sentence, changed nothing, changed what is shown, or raised."""

    refused: int = 0
    same: int = 0
    changed: int = 0
    raised: int = 0
    first_bad: str = ""  # file, byte and bit of the first flip that changed something or raised, and what it raised


def shown_by_report(folder: Path) -> str:
    """Return a digest of everything that the report of a run shows; the stored summary is read too."""
    run = Run(folder)
    summary = load_summary(run)
    texts = [render_page([run], [summary], allow_code=False), robustness_card(summary, [run.record]), repr(run.summary)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def run_files(folder: Path) -> list[Path]:
    """Return the files of a run that a report is made of."""
    return sorted([*folder.glob("*.json"), *(folder / "trials").glob("*.parquet")])


def flip_bits(folder: Path, count: int, seed: int, show: Show = shown_by_report) -> FlipCounts:
    """Flip so many single bits, each in a file drawn evenly, look what is shown, and put the bit back."""
    before, files = show(folder), run_files(folder)
    found = dict.fromkeys(("refused", "same", "changed", "raised"), 0)
    first_bad = ""
    for number in range(count):
        rng = rng_for(seed, "flip", number)
        path = files[int(rng.integers(len(files)))]
        data = path.read_bytes()
        place, bit = int(rng.integers(len(data))), int(rng.integers(8))
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :])
        try:
            outcome, said = _outcome(folder, before, show)
        finally:
            path.write_bytes(data)
        found[outcome] += 1
        if outcome in ("changed", "raised"):
            first_bad = first_bad or f"{path.name}, byte {place}, bit {bit} {said}".strip()
    return FlipCounts(**found, first_bad=first_bad)


def _outcome(folder: Path, before: str, show: Show) -> tuple[str, str]:
    try:
        return ("same" if show(folder) == before else "changed"), ""
    except RewardlabError as error:
        return ("raised", str(error)) if "\n" in str(error) else ("refused", "")
    except Exception as error:
        return "raised", repr(error)
