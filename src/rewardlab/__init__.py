"""rewardlab: find out when a vision-language reward for robots may be trusted.

The verbs of the command line are functions here: `rewardlab.stress("clock", "sample")` returns a Run, and
`help(rewardlab.stress)` lists every setting.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rewardlab.core import __version__

if TYPE_CHECKING:
    from rewardlab.api import (
        assemble_vlm,
        attack,
        augment,
        bench,
        calibrate,
        check,
        collect,
        compare,
        convert,
        data_report,
        export,
        guard_fit,
        leaderboard,
        load_model,
        merge,
        open_dataset,
        perturb,
        query,
        relabel,
        report,
        rl_report,
        rl_run,
        runs,
        score,
        serve,
        stress,
        study,
        train,
        train_objective,
        train_vlm,
        verify,
    )
    from rewardlab.core.episode import Episode, episode_from_frames
    from rewardlab.core.run import Run
    from rewardlab.core.trial import Failure, Score


_HOME = {
    **dict.fromkeys(("data_report", "verify"), "rewardlab.api"),
    **dict.fromkeys(("augment", "check", "convert", "open_dataset"), "rewardlab.api"),
    **dict.fromkeys(("attack", "bench", "calibrate", "load_model", "score", "stress"), "rewardlab.api"),
    **dict.fromkeys(("export", "merge", "query", "runs"), "rewardlab.api"),
    **dict.fromkeys(("compare", "leaderboard", "perturb", "report", "study"), "rewardlab.api"),
    **dict.fromkeys(("assemble_vlm", "collect", "train", "train_objective", "train_vlm"), "rewardlab.api"),
    **dict.fromkeys(("guard_fit", "relabel", "serve"), "rewardlab.api"),
    **dict.fromkeys(("rl_report", "rl_run"), "rewardlab.api"),
    **dict.fromkeys(("Episode", "episode_from_frames"), "rewardlab.core.episode"),
    **dict.fromkeys(("Score", "Failure"), "rewardlab.core.trial"),
    "Run": "rewardlab.core.run",
}

__all__ = [
    "Episode",
    "Failure",
    "Run",
    "Score",
    "__version__",
    "assemble_vlm",
    "attack",
    "augment",
    "bench",
    "calibrate",
    "check",
    "collect",
    "compare",
    "convert",
    "data_report",
    "episode_from_frames",
    "export",
    "guard_fit",
    "leaderboard",
    "load_model",
    "merge",
    "open_dataset",
    "perturb",
    "query",
    "relabel",
    "report",
    "rl_report",
    "rl_run",
    "runs",
    "score",
    "serve",
    "stress",
    "study",
    "train",
    "train_objective",
    "train_vlm",
    "verify",
]


def __getattr__(name: str) -> object:
    """Load a public name when it is first used, so that the import itself stays light."""
    if name not in _HOME:
        raise AttributeError(f"module 'rewardlab' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """Show the public names, whether they are loaded yet or not."""
    return __all__
