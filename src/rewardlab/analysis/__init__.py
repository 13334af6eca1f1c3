"""From trials to findings: measurements with intervals, significance tests, comparisons."""
