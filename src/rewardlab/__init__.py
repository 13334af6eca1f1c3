"""rewardlab: find out when you can trust a vision-language reward for robots.

Each command is a function here: `rewardlab.stress("pocket", "sample")` returns a Run, and `help(rewardlab.stress)`
lists every setting. `rewardlab data check` is `rewardlab.data_check`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rewardlab.core import __version__

if TYPE_CHECKING:
    from rewardlab.api import assemble_vlm as train_assemble
    from rewardlab.api import attack as attack
    from rewardlab.api import augment as data_augment
    from rewardlab.api import bench as bench
    from rewardlab.api import check as data_check
    from rewardlab.api import collect as collect
    from rewardlab.api import convert as data_convert
    from rewardlab.api import data_report as data_report
    from rewardlab.api import export as runs_export
    from rewardlab.api import leaderboard as leaderboard
    from rewardlab.api import load_model as load_model
    from rewardlab.api import open_dataset as open_dataset
    from rewardlab.api import perturb as data_perturb
    from rewardlab.api import query as runs_sql
    from rewardlab.api import relabel as relabel
    from rewardlab.api import report as report
    from rewardlab.api import rl_report as study_rl_page
    from rewardlab.api import rl_run as study_rl
    from rewardlab.api import runs as runs_list
    from rewardlab.api import serve as serve
    from rewardlab.api import stress as stress
    from rewardlab.api import train as train_pocket
    from rewardlab.api import train_objective as train_objective
    from rewardlab.api import train_vlm as train_vlm
    from rewardlab.api import verify as data_verify
    from rewardlab.core.episode import Episode as Episode
    from rewardlab.core.episode import episode_from_frames as episode_from_frames
    from rewardlab.core.run import Run as Run
    from rewardlab.core.trial import Failure as Failure
    from rewardlab.core.trial import Score as Score
    from rewardlab.evaluation.compare import compare as compare
    from rewardlab.evaluation.fit_calibration import fit_calibration as fit_calibration
    from rewardlab.evaluation.fit_guard import fit_guard as fit_guard
    from rewardlab.evaluation.merge import runs_merge as runs_merge
    from rewardlab.evaluation.score import score as score
    from rewardlab.studies.perturbation_paper.commands import study_perturbation as study_perturbation

_HOME = {  # where each public name is; it is loaded on first use, so that the import itself stays light
    # Judge a reward model
    "score": "rewardlab.evaluation.score:score",
    "stress": "rewardlab.api:stress",
    "bench": "rewardlab.api:bench",
    "attack": "rewardlab.api:attack",
    "compare": "rewardlab.evaluation.compare:compare",
    "report": "rewardlab.api:report",
    "leaderboard": "rewardlab.api:leaderboard",
    "load_model": "rewardlab.api:load_model",
    # Prepare data
    "open_dataset": "rewardlab.api:open_dataset",
    "data_check": "rewardlab.api:check",
    "data_convert": "rewardlab.api:convert",
    "data_report": "rewardlab.api:data_report",
    "data_augment": "rewardlab.api:augment",
    "data_verify": "rewardlab.api:verify",
    "data_perturb": "rewardlab.api:perturb",
    "collect": "rewardlab.api:collect",
    # Improve a model
    "train_pocket": "rewardlab.api:train",
    "train_vlm": "rewardlab.api:train_vlm",
    "train_objective": "rewardlab.api:train_objective",
    "train_assemble": "rewardlab.api:assemble_vlm",
    "fit_calibration": "rewardlab.evaluation.fit_calibration:fit_calibration",
    "fit_guard": "rewardlab.evaluation.fit_guard:fit_guard",
    # Use it on a robot
    "serve": "rewardlab.api:serve",
    "relabel": "rewardlab.api:relabel",
    # Study what rewards do
    "study_perturbation": "rewardlab.studies.perturbation_paper.commands:study_perturbation",
    "study_rl": "rewardlab.api:rl_run",
    "study_rl_page": "rewardlab.api:rl_report",
    # Keep house
    "runs_list": "rewardlab.api:runs",
    "runs_merge": "rewardlab.evaluation.merge:runs_merge",
    "runs_export": "rewardlab.api:export",
    "runs_sql": "rewardlab.api:query",
    # Nouns
    "Episode": "rewardlab.core.episode:Episode",
    "episode_from_frames": "rewardlab.core.episode:episode_from_frames",
    "Score": "rewardlab.core.trial:Score",
    "Failure": "rewardlab.core.trial:Failure",
    "Run": "rewardlab.core.run:Run",
}

__all__ = [
    "Episode",
    "Failure",
    "Run",
    "Score",
    "__version__",
    "attack",
    "bench",
    "collect",
    "compare",
    "data_augment",
    "data_check",
    "data_convert",
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
    "runs_list",
    "runs_merge",
    "runs_sql",
    "score",
    "serve",
    "stress",
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
