"""What the paper states, and which of our models and tasks stand for its.

Source: Table 1, section 3.3 and section 3.4 of "Perturbation-Based Robustness Analysis of Vision-Language Reward
Models for Robotics".
"""

from collections.abc import Sequence

from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS

STATED_ACCURACY = {  # Table 1: accuracy at severity 4
    "general": {"visual": 0.805, "semantic": 0.884, "temporal": 0.832, "domain": 0.815},
    "tuned": {"visual": 0.918, "semantic": 0.841, "temporal": 0.938, "domain": 0.889},
    "ensemble": {"visual": 0.926, "semantic": 0.920, "temporal": 0.931, "domain": 0.883},
}
STATED_THRESHOLD = {"general": "1", "tuned": "3-5", "ensemble": "4-5"}  # severity at which each becomes unreliable
STATED_TAU = {"general": {0: 0.97, 4: 0.82}}  # Kendall's tau within an episode, mean over categories, by severity


# What our models and tasks stand for in the perturbation paper: its three configurations, and its kinds of tasks.

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


def name_of_part(role: str, model: str, short: str) -> str:
    """Return what a model in the place of one of the paper's configurations is, in words that claim no more."""
    if model.startswith("ensemble:"):
        return "ensemble"
    return _TRAINING.get(model) or (short if model else f"no {role} model")


def group_of(task: str) -> str | None:
    """Return the kind of a Meta-World task, or of stacking on the tabletop; None for any other task."""
    if task == "stack":
        return "stacking"
    if task not in PROGRESS_SPECS:
        return None
    return _GROUP_OF_TASK.get(task) or _GROUP_OF_FAMILY[PROGRESS_SPECS[task].family]
