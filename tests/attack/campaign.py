"""The long attack, `make attack`: kills, flipped bits, mutated videos and rows, counted by outcome.

It prints and keeps a table; anything that went wrong is said, and the exit code is 1.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rewardlab.api import bench_plan, stress_plan
from rewardlab.evaluation.bench import run_benchmark
from rewardlab.evaluation.evaluate import evaluate
from tests.attack.bit_flips import flip_bits
from tests.attack.kills import kill_campaign
from tests.attack.mutations import mutated_rows, mutated_videos

FULL = {"kills": 200, "flips": 2_000, "videos": 500, "rows": 2_000}


@dataclass(frozen=True)
class AttackResult:
    """One line of the table: what was tried how often, what came of it, and how much of that is bad."""

    attack: str
    tried: int
    outcomes: dict[str, int]
    bad: int
    seconds: float


def attack_kills(count: int, seed: int, folder: Path) -> tuple[dict[str, int], int]:
    """Kill runs at random moments; bad is a run that ends otherwise than the undisturbed one, or lost a cell."""
    found = kill_campaign(folder, count, seed)
    print(*found.bad, sep="\n", file=sys.stderr)
    return {f"{victim} killed": found.by_victim[victim] for victim in sorted(found.by_victim)}, len(found.bad)


def attack_bits(count: int, seed: int, folder: Path) -> tuple[dict[str, int], int]:
    """Flip bits in the files of a stress test and of a benchmark; bad is another number shown, or a traceback."""
    settings = {"models": ("length",), "data": "sample"}
    perturbed = settings | {"perturbations": ("polite_filler", "jpeg"), "severities": (1, 4), "out": folder / "stress"}
    stress = evaluate(stress_plan(perturbed))
    bench = run_benchmark(bench_plan(settings | {"out": folder / "bench"}), duplicates=True, against=None)
    found = [flip_bits(run.folder, count // 2, seed) for run in (stress, bench)]
    names = ("refused", "same", "changed", "raised")
    return {name: sum(vars(flips)[name] for flips in found) for name in names}, sum(f.changed + f.raised for f in found)


def attack_videos(count: int, seed: int, folder: Path) -> tuple[dict[str, int], int]:
    """Decode mutated videos; bad is a traceback, a crash, a hang, or memory beyond the limit."""
    found = mutated_videos(count, seed, folder)
    return dict(found), sum(found[name] for name in ("traceback", "crash", "hang", "memory"))


def attack_rows(count: int, seed: int, folder: Path) -> tuple[dict[str, int], int]:
    """Read mutated metadata; bad is a traceback."""
    found = mutated_rows(count, seed, folder)
    return dict(found), found["traceback"]


ATTACKS: dict[str, Callable[[int, int, Path], tuple[dict[str, int], int]]] = {
    "kills": attack_kills,
    "flips": attack_bits,
    "videos": attack_videos,
    "rows": attack_rows,
}


def attack(name: str, count: int, seed: int) -> AttackResult:
    """Run one attack in a folder of its own."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcomes, bad = ATTACKS[name](count, seed, Path(folder))
    return AttackResult(name, count, outcomes, bad, round(time.monotonic() - started, 1))


def table(record: dict[str, Any]) -> str:
    """Return the Markdown table that results/reliability/README.md holds."""
    lines = ["| attack | tried | outcome | silent changes, tracebacks, lost trials |", "|---|---|---|---|"]
    for result in record["attacks"]:
        outcomes = ", ".join(f"{number:,} {name}" for name, number in sorted(result["outcomes"].items()))
        lines.append(f"| {result['attack']} | {result['tried']:,} | {outcomes} | {result['bad']} |")
    return "\n".join(lines)


def main() -> int:
    """Run the attacks that are asked for and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of tries")
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--out", type=Path, default=Path("results/reliability/campaign.json"))
    asked = parser.parse_args()
    results = []
    for name in asked.attacks.split(","):
        results.append(attack(name, max(1, round(FULL[name] * asked.share)), asked.seed))
        print(json.dumps(asdict(results[-1])), flush=True)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    record = {"seed": asked.seed, "machine": platform.machine(), "python": platform.python_version()}
    asked.out.write_text(json.dumps(record | {"attacks": [asdict(result) for result in results]}, indent=2) + "\n")
    print(table(json.loads(asked.out.read_text())))
    return 1 if any(result.bad for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
