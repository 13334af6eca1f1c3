"""Tuning with the same budget for every objective: so many settings on one seed, chosen by validation agreement."""

import math
import shutil
from collections.abc import Sequence

from rewardlab.core.errors import PlanError
from rewardlab.training.live_view import LiveView
from rewardlab.training.objective_training.jobs import TrainingPlace, make_job
from rewardlab.training.objective_training.plan import ObjectivePlan
from rewardlab.training.objective_training.training_loop import WORK, Workbench, fit
from rewardlab.training.objectives import NamedObjective

RATES = (1.0, 3.0, 1 / 3, 10.0, 0.1, 30.0, 1 / 30)  # times the plan's rate, in the order in which they are tried
Setting = tuple[NamedObjective, float]  # an objective with its option, and a learning rate


def settings_to_try(objective: NamedObjective, plan: ObjectivePlan) -> list[Setting]:
    """Return as many settings as the plan tries for each objective: its own option first, then learning rates."""
    if plan.tuning == 1:
        return [(objective, plan.rate)]
    entry = objective.entry
    tuned = bool(entry.values) and entry.option not in objective.options
    options = [objective.tuned(value) for value in entry.values] if tuned else [objective]
    if plan.tuning > len(RATES) * len(options):
        raise PlanError(f"tuning tries at most {len(RATES) * len(options)} settings of {objective.text}")
    return [(option, plan.rate * times) for times in RATES for option in options][: plan.tuning]


def tune(
    objective: NamedObjective, plan: ObjectivePlan, bench: Workbench, place: TrainingPlace, view: LiveView
) -> Setting:
    """Return the setting with the best validation agreement; of one alone nothing is trained."""
    tried = settings_to_try(objective, plan)
    if len(tried) == 1:
        return tried[0]
    scores = []
    for number, setting in enumerate(tried):
        job = make_job(plan, setting, plan.seeds[0], place.trial(number))
        scores.append(fit(job, bench, view, place.steps_before + number * plan.steps).agreement)
        shutil.rmtree(job.folder / WORK, ignore_errors=True)  # only the score is of use
    return tried[_best(scores)]


def _best(scores: Sequence[float]) -> int:
    """Return the place of the highest score, the first where there is none."""
    known = [-math.inf if math.isnan(score) else score for score in scores]
    return known.index(max(known))
