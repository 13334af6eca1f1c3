"""Errors a person can act on: what was expected, what came, what to do next; each knows its exit code."""

from importlib.util import find_spec
from typing import ClassVar

GATE_FAILED, WRONG_USE, MODEL_FAILED, BAD_DATA, FAULT, CTRL_C = 1, 2, 3, 4, 70, 130  # exit codes; 0 is fine


class RewardlabError(Exception):
    """Base of every error that rewardlab raises on purpose; the CLI prints it as one sentence."""

    exit_code: ClassVar[int] = WRONG_USE


class DataError(RewardlabError):
    """A dataset, a row or a video is not what its format promises."""

    exit_code = BAD_DATA


class ModelError(RewardlabError):
    """A reward model cannot be loaded, or cannot answer for an episode."""

    exit_code = MODEL_FAILED


class NoServerError(ModelError):
    """The address of a model's server refuses connections."""


class WrongAnswerCount(ModelError):
    """A model answered a batch with more or fewer answers than it has episodes: which belongs to which is unknown."""


class ModelRaised(ModelError):
    """A model in a process of its own raised this, in its own words; `traceback` shows where in its code."""

    def __init__(self, said: str, traceback: str | None = None) -> None:
        super().__init__(said)
        self.traceback = traceback


class PlanError(RewardlabError):
    """The settings of a command do not make sense together."""


class RunError(RewardlabError):
    """A run folder cannot be read or written."""


class Interrupted(RunError):
    """A run was stopped before its end by the user; what is finished is kept."""

    exit_code = CTRL_C


class StoppedByModel(Interrupted):
    """A run was stopped before its end because a model cannot go on; what is finished is kept."""

    exit_code = MODEL_FAILED


class SimulatorError(RewardlabError):
    """A simulator cannot reset to a scene, or was given an action that is no number."""

    exit_code = MODEL_FAILED


class NotApplicable(RewardlabError):
    """A perturbation has no defined meaning for this episode; the trial is skipped and counted."""


class WorkerFailed(RewardlabError):
    """A process that this one depends on has ended; its work is retried, then given up."""

    exit_code = MODEL_FAILED


class StopRun(RewardlabError):
    """A model asks that the whole run end here, such as when its budget is spent; what is finished is kept."""

    exit_code = MODEL_FAILED


def require_packages(what: str, *packages: str, extra: str, error: type[RewardlabError] = PlanError) -> None:
    """Raise an error that names the extra of rewardlab to install, if a package that `what` needs is missing."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        noun = "package" if len(missing) == 1 else "packages"
        raise error(f"{what} needs the {noun} {', '.join(missing)}: pip install 'rewardlab[{extra}]'")
