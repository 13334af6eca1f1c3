"""Plans of small runs from settings given flat, as on the command line, for tests that write no report."""

from typing import Any

from rewardlab import api
from rewardlab.evaluation.plan import Plan


def stress_plan(
    models: Any, data: Any, perturbations: Any = "quick", severities: Any = (1, 2, 3, 4), **more: Any
) -> Plan:
    """Return the plan of a stress test; `evaluate` makes the run of it."""
    given = {"models": models, "data": data, "perturbations": perturbations, "severities": severities}
    return api.stress_plan(given | more)
