"""Peak memory of a process of its own."""

import json
import os
import subprocess
import sys
from inspect import getsource
from typing import Any


def peak_mb() -> float:
    """Return the peak of this process's memory in MB."""
    import pathlib
    import resource

    status = pathlib.Path("/proc/self/status")
    if status.exists():  # ru_maxrss would count the process that started this one
        return int(status.read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0]) / 1000
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def run_measured(script: str, *arguments: str) -> tuple[Any, float]:
    """Run a script that leaves its result in `found`; return that and the peak of its memory in MB."""
    whole = f"{getsource(peak_mb)}\n{script}\nimport json\nprint(json.dumps([found, peak_mb()]))"
    done = subprocess.run([sys.executable, "-c", whole, *arguments], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr[-2000:]
    found, peak = json.loads(done.stdout.splitlines()[-1])
    return found, peak
