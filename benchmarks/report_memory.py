"""How much memory a report of many cells takes: the peak of one process per command, over a run that is made up.

    python benchmarks/report_memory.py [--cells 500000] [--commands resume,compact,summary,report,compare,leaderboard]

No model is asked: the answers are drawn, the cells and their ids are those of a real plan over copies of the shipped
clips. Each command runs in a process of its own, of which the peak of resident memory and the processor time are
printed. `compact` joins the parts of a run and `summary` writes its summary.json, as `stress` does at its end; `resume`
reads which cells are finished, as `stress` does when it is started again.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = {
    "resume": ("made_up_run", "resume", "{run}"),
    "compact": ("made_up_run", "compact", "{run}"),
    "summary": ("made_up_run", "summary", "{run}"),
    "report": ("rewardlab", "report", "{run}", "--allow-code", "--out", "{scratch}/page.html"),
    "compare": ("rewardlab", "compare", "{run}::pocket", "{run}::random"),
    "leaderboard": ("rewardlab", "leaderboard", "{run}", "--allow-code", "--out", "{scratch}/leaderboard"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=500_000)
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--run", type=Path, help="make the run here and keep it, or measure the one that is here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run = options.run or Path(scratch) / "made-up"
        if not run.exists():
            peak_of("made_up_run", "make", str(run), str(options.cells))
        for name in options.commands.split(","):
            words = [word.format(run=run, scratch=scratch) for word in COMMANDS[name]]
            megabytes, seconds = peak_of(*words)
            print(f"{name}: {megabytes:.0f} MB, {seconds:.1f} s")


def peak_of(module: str, *words: str) -> tuple[float, float]:
    """Run a module and return the peak of its resident memory in MB, and its seconds of processor time.

    This process imports nothing large: a new process counts what it was forked from.
    """
    folders = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    child = subprocess.Popen(
        [sys.executable, "-m", module, *words],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": folders},
    )
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{module} {' '.join(words)} ended with {os.waitstatus_to_exitcode(status)}")
    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, kilobytes on Linux
    return usage.ru_maxrss * unit / 1e6, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
