"""How fast this release is against named rivals, and whether it is slower than the release before it.

    python benchmarks/release.py [--release 0.2.0] [--only overhead,montecarlo] [--rival-venv FOLDER]

Each benchmark below runs in a process of its own, with few repetitions, and ends with `ratio: X`: ours against a rival
that takes turns with it in the same run, so that another machine changes it little. The ratios are written to
benchmarks/results/releases/RELEASE-MACHINE.json and compared with the latest release before it on such a machine. A
ratio below 0.7 of what it was is a regression: the exit status is 1. `perturbations` needs --rival-venv, a folder that
holds imagecorruptions or gets it installed. All but `perturbations` and `montecarlo` need a machine that is idle.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

import rewardlab

HERE = Path(__file__).parent
RELEASES = HERE / "results" / "releases"
REGRESSION = 0.7  # of the ratio of the release before: less is not the weather of a machine
BENCHMARKS = {  # name: command, and its rival
    "overhead": ("overhead.py --episodes 8", "a loop that opens the video again for every trial"),
    "bootstrap": ("bootstrap_speed.py --by-hand 50", "resampling one by one with scipy"),
    "montecarlo": ("montecarlo_speed.py", "a loop over episodes with scipy.stats.kendalltau"),
    "pocket": ("pocket_speed.py --clips 16", "the same network in torch"),
    "api": ("api_throughput.py --episodes 64", "one request at a time"),
    "serve": ("serve_load.py --requests 96", "one request at a time"),
    "sessions": ("serve_streaming.py", "whole clips to a plain FastAPI handler"),
    "perturbations": ("perturb_speed.py --rounds 1", "imagecorruptions 1.1.2"),
}


def measure(command: str) -> float:
    """Run a benchmark and return the last ratio that it prints."""
    script, *options = command.split()
    called = [sys.executable, str(HERE / script), *options]
    done = subprocess.run(called, stdout=subprocess.PIPE, text=True, check=True, cwd=HERE.parent)
    return float(re.findall(r"^ratio: ([\d.]+)", done.stdout, flags=re.MULTILINE)[-1])


def release_before(release: str, machine: str, folder: Path = RELEASES) -> Path | None:
    """Return the file of the latest release before this one on such a machine."""
    files = {Version(path.stem.removesuffix(f"-{machine}")): path for path in folder.glob(f"*-{machine}.json")}
    earlier = [version for version in files if version < Version(release)]
    return files[max(earlier)] if earlier else None


def regressions(now: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    """Return the benchmarks of both whose ratio fell too far."""
    return [name for name in now if name in before and now[name] < REGRESSION * before[name]]


def main() -> int:
    """Measure, keep and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default=rewardlab.__version__)
    parser.add_argument("--only", help="names of benchmarks; what is not named is kept as it was measured before")
    parser.add_argument("--rival-venv", type=Path)
    chosen = parser.parse_args()
    names = chosen.only.split(",") if chosen.only else [name for name in BENCHMARKS if name != "perturbations"]
    commands = {name: BENCHMARKS[name][0] for name in names}
    if chosen.rival_venv:
        commands["perturbations"] = f"{BENCHMARKS['perturbations'][0]} --rival-venv {chosen.rival_venv}"
    machine = platform.machine()
    file, earlier = RELEASES / f"{chosen.release}-{machine}.json", release_before(chosen.release, machine)
    ratios = json.loads(file.read_text(encoding="utf-8"))["ratios"] if chosen.only and file.exists() else {}
    before = json.loads(earlier.read_text(encoding="utf-8"))["ratios"] if earlier else {}
    content = {"release": chosen.release, "machine": machine, "cores": os.cpu_count()}
    content |= {"python": platform.python_version(), "ratios": ratios}
    if (load := os.getloadavg()[0]) > 0.5 * (os.cpu_count() or 1):
        print(f"other programs use this machine (load {load:.1f}): only perturbations and montecarlo mean much")
    RELEASES.mkdir(parents=True, exist_ok=True)
    broken = []
    for name, command in commands.items():
        started = time.perf_counter()
        try:
            ratios[name] = measure(command)
        except subprocess.CalledProcessError:
            broken.append(name)
            continue
        was = f", {before[name]:.2f} in {earlier.stem}" if earlier and name in before else ""
        told = f"{ratios[name]:.2f} times {BENCHMARKS[name][1]}{was}"
        print(f"{name:<14} {told} ({time.perf_counter() - started:.0f} s)", flush=True)
        file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    slower = regressions(ratios, before)
    for what, names in (("ended with an error", broken), (f"slower than {earlier}", slower)):
        if names:
            print(f"{what}: {', '.join(names)}", file=sys.stderr)
    return 1 if broken or slower else 0


if __name__ == "__main__":
    sys.exit(main())
