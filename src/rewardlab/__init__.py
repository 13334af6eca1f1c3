"""rewardlab: find out when you can trust a vision-language reward for robots.

Each command is a function here: `rewardlab.stress("pocket", "sample")` returns a Run, and `help(rewardlab.stress)`
lists every setting. `rewardlab data check` is `rewardlab.data_check`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rewardlab.core import __version__

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
    from rewardlab.evaluation.runs import runs_join as runs_join
    from rewardlab.evaluation.runs import runs_list as runs_list
    from rewardlab.evaluation.runs import runs_prune as runs_prune
    from rewardlab.evaluation.runs import runs_sql as runs_sql
    from rewardlab.evaluation.score import score as score
    from rewardlab.models import load_model as load_model
    from rewardlab.reporting.data_page import data_report as data_report
    from rewardlab.reporting.leaderboard import leaderboard as leaderboard
    from rewardlab.reporting.perturbed_copies import data_perturb as data_perturb
    from rewardlab.reporting.report import report as report
    from rewardlab.reporting.trackers import runs_export as runs_export
    from rewardlab.rl.relabel import relabel as relabel
    from rewardlab.serving.serve import serve as serve
    from rewardlab.serving.verify import data_verify as data_verify
    from rewardlab.studies.objectives import study_objectives as study_objectives
    from rewardlab.studies.perturbation_paper.commands import study_montecarlo as study_montecarlo
    from rewardlab.studies.perturbation_paper.commands import study_perturbation as study_perturbation
    from rewardlab.studies.rl.page import study_rl as study_rl
    from rewardlab.studies.rl.page import study_rl_page as study_rl_page
    from rewardlab.training.objectives import train_objective as train_objective
    from rewardlab.training.pocket import train_pocket as train_pocket
    from rewardlab.training.vlm import train_assemble as train_assemble
    from rewardlab.training.vlm import train_vlm as train_vlm

_HOME = {  # where each public name is; it is loaded on first use, so that the import itself stays light
    # Judge a reward model
    "score": "rewardlab.evaluation.score:score",
    "stress": "rewardlab.api:stress",
    "bench": "rewardlab.api:bench",
    "attack": "rewardlab.api:attack",
    "compare": "rewardlab.evaluation.compare:compare",
    "report": "rewardlab.reporting.report:report",
    "leaderboard": "rewardlab.reporting.leaderboard:leaderboard",
    "load_model": "rewardlab.models:load_model",
    # Prepare data
    "open_dataset": "rewardlab.data:open_dataset",
    "data_check": "rewardlab.data:data_check",
    "data_convert": "rewardlab.data.convert:data_convert",
    "data_report": "rewardlab.reporting.data_page:data_report",
    "data_augment": "rewardlab.augmentation.augment:data_augment",
    "data_verify": "rewardlab.serving.verify:data_verify",
    "data_perturb": "rewardlab.reporting.perturbed_copies:data_perturb",
    "data_init": "rewardlab.data.roboreward_rows:data_init",
    "collect": "rewardlab.api:collect",
    # Improve a model
    "train_pocket": "rewardlab.training.pocket:train_pocket",
    "train_vlm": "rewardlab.training.vlm:train_vlm",
    "train_objective": "rewardlab.training.objectives:train_objective",
    "train_assemble": "rewardlab.training.vlm:train_assemble",
    "fit_calibration": "rewardlab.evaluation.fit_calibration:fit_calibration",
    "fit_guard": "rewardlab.evaluation.fit_guard:fit_guard",
    # Use it on a robot
    "serve": "rewardlab.serving.serve:serve",
    "relabel": "rewardlab.rl.relabel:relabel",
    # Study what rewards do
    "study_montecarlo": "rewardlab.studies.perturbation_paper.commands:study_montecarlo",
    "study_perturbation": "rewardlab.studies.perturbation_paper.commands:study_perturbation",
    "study_objectives": "rewardlab.studies.objectives:study_objectives",
    "study_rl": "rewardlab.studies.rl.page:study_rl",
    "study_rl_page": "rewardlab.studies.rl.page:study_rl_page",
    # Keep house
    "runs_list": "rewardlab.evaluation.runs:runs_list",
    "runs_merge": "rewardlab.evaluation.merge:runs_merge",
    "runs_export": "rewardlab.reporting.trackers:runs_export",
    "runs_sql": "rewardlab.evaluation.runs:runs_sql",
    "runs_join": "rewardlab.evaluation.runs:runs_join",
    "runs_prune": "rewardlab.evaluation.runs:runs_prune",
    # Nouns
    "Episode": "rewardlab.core.episode:Episode",
    "episode_from_frames": "rewardlab.core.episode:episode_from_frames",
    "Score": "rewardlab.core.trial:Score",
    "Failure": "rewardlab.core.trial:Failure",
    "Run": "rewardlab.core.run:Run",
    "Execution": "rewardlab.core.settings:Execution",
    "Scoring": "rewardlab.core.settings:Scoring",
    "Budget": "rewardlab.core.settings:Budget",
    "Sharding": "rewardlab.core.settings:Sharding",
}

__all__ = [
    "Budget",
    "Episode",
    "Execution",
    "Failure",
    "Run",
    "Score",
    "Scoring",
    "Sharding",
    "__version__",
    "attack",
    "bench",
    "collect",
    "compare",
    "data_augment",
    "data_check",
    "data_convert",
    "data_init",
    "data_perturb",
    "data_report",
    "data_verify",
    "episode_from_frames",
    "fit_calibration",
    "fit_guard",
    "leaderboard",
    "load_model",
    "open_dataset",
    "relabel",
    "report",
    "runs_export",
    "runs_join",
    "runs_list",
    "runs_merge",
    "runs_prune",
    "runs_sql",
    "score",
    "serve",
    "stress",
    "study_montecarlo",
    "study_objectives",
    "study_perturbation",
    "study_rl",
    "study_rl_page",
    "train_assemble",
    "train_objective",
    "train_pocket",
    "train_vlm",
]


def __getattr__(name: str) -> object:
    """Load a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module 'rewardlab' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """Show the public names, whether they are loaded yet or not."""
    return __all__
