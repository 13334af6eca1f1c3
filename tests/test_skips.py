"""Skips are counted and explained, and one for want of a Debian package is a failure in CI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BROWSER = "tests/serving/test_live_page.py::test_a_streamed_session_is_drawn_with_its_curve_and_uncertainty"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no apt-get")
@pytest.mark.parametrize(("ci", "code", "counted"), [("", 0, "SKIPPED [1]"), ("true", 1, "ERROR tests/")])
def test_a_test_that_finds_no_browser_is_skipped_here_and_fails_in_ci(ci: str, code: int, counted: str) -> None:
    pytest.importorskip("playwright")
    pytest.importorskip("fastapi")
    environment = os.environ | {"CI": ci, "PATH": ""}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", BROWSER]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
    assert counted in done.stdout and "apt-get install chromium" in done.stdout
