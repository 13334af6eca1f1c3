"""What our models and tasks stand for in the perturbation paper: its three configurations, and its kinds of tasks."""

from collections.abc import Sequence

from rewardlab.analysis.display_names import derived_name
from rewardlab.studies.perturbation_paper.paper_results import STATED_ACCURACY
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS

ROLES = tuple(STATED_ACCURACY)  # general, tuned, ensemble
CATEGORIES = tuple(STATED_ACCURACY["general"])
WORST, TASK_SEVERITY = 4, 3  # the severities of its Table 1 and of its Figure 3
RELIABLE_AT = 0.70
PRECISE, COARSE = ("insertion", "assembly"), ("pick-place", "pushing", "stacking")

_STANDS_FOR = {**{role: role for role in ROLES}, "pocket-plain": "general", "pocket": "tuned"}
_TRAINING = {"pocket-plain": "clean-trained", "pocket": "perturbation-trained"}  # what our own models are
_GROUP_OF_FAMILY = {
    "carry": "pick-place",
    "slide": "pushing",
    "swing": "doors, buttons",
    "press": "doors, buttons",
    "reach": "reach, tools",
    "tool": "reach, tools",
}
_GROUP_OF_TASK = {  # what is carried must also fit
    **dict.fromkeys(("hand-insert", "peg-insert-side", "peg-unplug-side"), "insertion"),
    **dict.fromkeys(("assembly", "disassemble", "box-close"), "assembly"),
}
GROUPS = (*COARSE, *PRECISE, *dict.fromkeys(g for g in _GROUP_OF_FAMILY.values() if g not in COARSE))


def roles_of(models: Sequence[str]) -> dict[str, str]:
    """Return the model that plays each configuration of the paper; of several ensembles, none does."""
    found = {_STANDS_FOR[model]: model for model in models if model in _STANDS_FOR}
    ensembles = [model for model in models if model.startswith("ensemble:")]
    return found | ({"ensemble": ensembles[0]} if len(ensembles) == 1 else {})


def name_of_part(role: str, model: str) -> str:
    """Return what a model in the place of one of the paper's configurations is, in words that claim no more."""
    if model.startswith("ensemble:"):
        return "vote"
    return _TRAINING.get(model) or (derived_name(model) if model else f"no {role} model")


def group_of(task: str) -> str | None:
    """Return the kind of a Meta-World task, None for any other task; no Meta-World task stacks."""
    if task not in PROGRESS_SPECS:
        return None
    return _GROUP_OF_TASK.get(task) or _GROUP_OF_FAMILY[PROGRESS_SPECS[task].family]
