"""rewardlab: find out when you can trust a vision-language reward for robots.

Each command is a function here: `rewardlab.stress("pocket", "sample")` returns a Run, and `help(rewardlab.stress)`
lists every setting. `rewardlab data check` is `rewardlab.data_check`.
"""

from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING

from rewardlab.core import __version__ as __version__

if TYPE_CHECKING:
    from rewardlab.api import attack as attack
    from rewardlab.api import bench as bench
    from rewardlab.api import collect as collect
    from rewardlab.api import stress as stress
    from rewardlab.augmentation.augment import data_augment as data_augment
    from rewardlab.core.episode import Episode as Episode
    from rewardlab.core.episode import episode_from_frames as episode_from_frames
    from rewardlab.core.run import Run as Run
    from rewardlab.core.settings import Budget as Budget
    from rewardlab.core.settings import Execution as Execution
    from rewardlab.core.settings import Scoring as Scoring
    from rewardlab.core.settings import Sharding as Sharding
    from rewardlab.core.trial import Failure as Failure
    from rewardlab.core.trial import Score as Score
    from rewardlab.data import data_check as data_check
    from rewardlab.data import open_dataset as open_dataset
    from rewardlab.data.convert import data_convert as data_convert
    from rewardlab.data.roboreward_rows import data_init as data_init
    from rewardlab.evaluation.compare import compare as compare
    from rewardlab.evaluation.fit_calibration import fit_calibration as fit_calibration
    from rewardlab.evaluation.fit_guard import fit_guard as fit_guard
    from rewardlab.evaluation.merge import runs_merge as runs_merge
    from rewardlab.evaluation.rank import data_rank as data_rank
    from rewardlab.evaluation.runs import runs_join as runs_join
    from rewardlab.evaluation.runs import runs_list as runs_list
    from rewardlab.evaluation.runs import runs_prune as runs_prune
    from rewardlab.evaluation.runs import runs_sql as runs_sql
    from rewardlab.evaluation.score import score as score
    from rewardlab.models import load_model as load_model
    from rewardlab.models.session import connect as connect
    from rewardlab.reporting.data_page import data_report as data_report
    from rewardlab.reporting.leaderboard import leaderboard as leaderboard
    from rewardlab.reporting.perturbed_copies import data_perturb as data_perturb
    from rewardlab.reporting.publish import runs_publish as runs_publish
    from rewardlab.reporting.report import report as report
    from rewardlab.reporting.trackers import runs_export as runs_export
    from rewardlab.rl.relabel import relabel as relabel
    from rewardlab.serving.serve import serve as serve
    from rewardlab.serving.verify import data_verify as data_verify
    from rewardlab.serving.view import view as view
    from rewardlab.studies.objectives import study_objectives as study_objectives
    from rewardlab.studies.perturbation_paper.commands import study_montecarlo as study_montecarlo
    from rewardlab.studies.perturbation_paper.commands import study_perturbation as study_perturbation
    from rewardlab.studies.rl.page import study_rl as study_rl
    from rewardlab.studies.rl.page import study_rl_page as study_rl_page
    from rewardlab.training.objectives import train_objective as train_objective
    from rewardlab.training.pocket import train_pocket as train_pocket
    from rewardlab.training.vlm import train_assemble as train_assemble
    from rewardlab.training.vlm import train_vlm as train_vlm

_NAMES = {  # the public names by module; one is loaded on first use, so that the import itself stays light
    "api": "attack bench collect stress",
    "augmentation.augment": "data_augment",
    "core.episode": "Episode episode_from_frames",
    "core.run": "Run",
    "core.settings": "Budget Execution Scoring Sharding",
    "core.trial": "Failure Score",
    "data": "data_check open_dataset",
    "data.convert": "data_convert",
    "data.roboreward_rows": "data_init",
    "evaluation.compare": "compare",
    "evaluation.fit_calibration": "fit_calibration",
    "evaluation.fit_guard": "fit_guard",
    "evaluation.merge": "runs_merge",
    "evaluation.rank": "data_rank",
    "evaluation.runs": "runs_join runs_list runs_prune runs_sql",
    "evaluation.score": "score",
    "models": "load_model",
    "models.session": "connect",
    "reporting.data_page": "data_report",
    "reporting.leaderboard": "leaderboard",
    "reporting.perturbed_copies": "data_perturb",
    "reporting.publish": "runs_publish",
    "reporting.report": "report",
    "reporting.trackers": "runs_export",
    "rl.relabel": "relabel",
    "serving.serve": "serve",
    "serving.verify": "data_verify",
    "serving.view": "view",
    "studies.objectives": "study_objectives",
    "studies.perturbation_paper.commands": "study_montecarlo study_perturbation",
    "studies.rl.page": "study_rl study_rl_page",
    "training.objectives": "train_objective",
    "training.pocket": "train_pocket",
    "training.vlm": "train_assemble train_vlm",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(["__version__", *_MODULES])


def __getattr__(name: str) -> object:
    """Load a public name when it is first used; a function checks its arguments when it is called from here."""
    if name not in _MODULES:
        raise AttributeError(f"module 'rewardlab' has no attribute {name!r}")
    value = getattr(import_module(f"rewardlab.{_MODULES[name]}"), name)
    if not isinstance(value, FunctionType):
        return value
    from rewardlab.core.settings import checked

    return checked(value)


def __dir__() -> list[str]:
    """Show the public names, whether they are loaded yet or not."""
    return __all__
