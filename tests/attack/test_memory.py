"""A run of many cells is reported in little memory: trials are columns, and no column is there twice."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.attack.peak_memory import run_measured

MADE_UP_RUN = Path(__file__).parents[2] / "benchmarks" / "made_up_run.py"
REPORT = """
import sys
import matplotlib.pyplot, pyarrow.compute, pyarrow.parquet, scipy.sparse, scipy.special
import rewardlab.reporting.report, rewardlab.reporting.run_page
from rewardlab.cli import main
before = peak_mb()  # what is imported takes as much as it takes
try:
    main(["report", sys.argv[1], "--out", sys.argv[2]])
except SystemExit as stop:
    assert not stop.code, stop.code
found = before
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is counted differently elsewhere")
def test_a_report_of_40_000_cells_adds_less_than_200_mb(tmp_path: Path) -> None:
    run, page = tmp_path / "run", tmp_path / "page.html"
    subprocess.run([sys.executable, str(MADE_UP_RUN), "make", str(run), "40000", "temporal"], check=True)
    before, peak = run_measured(REPORT, str(run), str(page))
    assert page.stat().st_size > 50_000
    assert peak - before < 200, f"{peak - before:.0f} MB on top of {before:.0f}"
