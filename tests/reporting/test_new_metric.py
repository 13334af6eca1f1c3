"""A metric from outside: one function and one line in the catalog, and it is on the page with its interval."""

import csv
import importlib
import re
from pathlib import Path

import pytest

import rewardlab
from rewardlab.metrics import METRICS
from tests.conftest import IN_PROCESS
from tests.evaluation.test_stress import short_clips

CODE = '''
import numpy as np

from rewardlab.metrics.contract import Display, mean_metric, metric


@metric(better="lower", display=Display("median error", axis=(0, 4), headline=True, curve=True, heat_map=True))
def median_error(trials):
    """Median absolute error in levels."""
    errors = np.abs(trials.number("level") - trials.number("truth_level"))
    return float(np.median(errors)) if len(errors) else float("nan")


@mean_metric(better="lower", display=Display("squared error", axis=(0, 16), terminal=True, perturbation_table=True))
def squared_error(trials):
    """Mean squared error in levels."""
    return (trials.number("level") - trials.number("truth_level")) ** 2
'''


@pytest.mark.slow
def test_a_new_metric_is_on_the_page_with_its_interval_where_it_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_metrics.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = importlib.import_module("my_metrics")
    for metric in (mine.median_error, mine.squared_error):
        monkeypatch.setitem(METRICS, metric.name, metric)  # the one line
    data = short_clips(tmp_path / "data", per_level=2)
    run = rewardlab.stress(
        "random", data, perturbations=("gaussian_noise",), severities=(2,), execution=IN_PROCESS, out=tmp_path / "run"
    )
    html = (run.folder / "report.html").read_text()
    tile = re.search(r"<span>median error, clean</span><b>([\d.]+)</b><small>\[([\d.]+), ([\d.]+)\]", html)
    assert tile, "no tile with an interval"
    value, low, high = map(float, tile.groups())
    assert low <= value <= high and low < high
    assert 'data-show="median_error"' in html and "Median error under visual change" in html
    assert '<button type="button">squared error</button>' in html
    rows = [
        row
        for row in csv.DictReader((run.folder / "report" / "numbers.csv").read_text().splitlines())
        if row["metric"] == "squared_error" and (row["group"], row["severity"]) == ("gaussian_noise", "2")
    ]
    assert rows and all(float(row["low"]) <= float(row["value"]) <= float(row["high"]) for row in rows)
