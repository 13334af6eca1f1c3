"""How much disk an installation of rewardlab takes, package by package; fails where it is more than --limit.

    python benchmarks/install_size.py                                # the core of this checkout, in a fresh environment
    python benchmarks/install_size.py ".[fast]" --limit 900          # with an extra
    python benchmarks/install_size.py --python VENV/bin/python       # what is in an environment that is there

Megabytes are 2**20 bytes of disk blocks, as `du -m` counts them. pip and setuptools do not count. The second column is
without compiled bytecode, which uv does not write and pip does.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
MEGABYTE = 2**20
LISTED = """
import json
from importlib.metadata import distributions
print(json.dumps({d.name: [str(f.locate()) for f in d.files or ()] for d in distributions()}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default=".", help="what pip installs")
    parser.add_argument("--python", type=Path, help="the interpreter of an environment to measure as it is")
    parser.add_argument("--limit", type=float, default=600.0, help="megabytes of all other packages, with bytecode")
    options = parser.parse_args()
    if options.python:
        report(options.python, options.limit)
        return
    with TemporaryDirectory() as folder:
        report(installed(options.what, Path(folder)), options.limit)


def installed(what: str, folder: Path) -> Path:
    """Return the interpreter of a fresh environment with this, in the versions that CI has."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    held = ROOT / "constraints" / f"py{sys.version_info.major}{sys.version_info.minor}.txt"
    command = [python, "-m", "pip", "install", "--quiet", "--constraint", held, what]
    subprocess.run(command, check=True, cwd=ROOT)
    return python


def report(python: Path, limit: float) -> None:
    """Print the size of each package, largest first, and leave with 1 where the others together pass the limit."""
    found = subprocess.run([python, "-c", LISTED], stdout=subprocess.PIPE, text=True, check=True)
    files = {name: paths for name, paths in json.loads(found.stdout).items() if name not in ("pip", "setuptools")}
    sizes = {
        name: (size(paths), size(path for path in paths if not path.endswith(".pyc"))) for name, paths in files.items()
    }
    print(f"{'package':28s}{'MB':>8s}{'without bytecode':>20s}")
    for name, (whole, plain) in sorted(sizes.items(), key=lambda item: -item[1][0]):
        print(f"{name:28s}{whole:8.1f}{plain:20.1f}")
    own = sizes.get("rewardlab", (0.0, 0.0))
    total = [sum(each[column] for each in sizes.values()) for column in (0, 1)]
    print(f"{'all':28s}{total[0]:8.1f}{total[1]:20.1f}")
    print(f"{'all without rewardlab':28s}{total[0] - own[0]:8.1f}{total[1] - own[1]:20.1f}")
    if total[0] - own[0] > limit:
        sys.exit(f"the packages that rewardlab brings take {total[0] - own[0]:.0f} MB, more than {limit:.0f}")


def size(paths) -> float:
    """Return the megabytes on disk of those files that are there."""
    return sum(path.stat().st_blocks * 512 for path in {Path(each) for each in paths} if path.is_file()) / MEGABYTE


if __name__ == "__main__":
    main()
