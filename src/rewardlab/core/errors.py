"""Errors a person can act on: what was expected, what came, what to do next."""


class RewardlabError(Exception):
    """Base of every error that rewardlab raises on purpose; the CLI prints it as one sentence."""


class DataError(RewardlabError):
    """A dataset, a row or a video is not what its format promises."""


class ModelError(RewardlabError):
    """A reward model cannot be loaded, or cannot answer for an episode."""


class ModelRaised(ModelError):
    """A model in a process of its own raised this, in its own words."""


class PlanError(RewardlabError):
    """The settings of a command do not make sense together."""


class RunError(RewardlabError):
    """A run folder cannot be read or written."""


class Interrupted(RunError):
    """A run was stopped before its end, by the user or by a model; what is finished is kept."""


class NotApplicable(RewardlabError):
    """A perturbation has no defined meaning for this episode; the cell is dropped and counted."""


class WorkerDied(RewardlabError):
    """A process that this one depends on died; its work is put back, or given up after it died of it again."""


class StopRun(RewardlabError):
    """A model asks that the whole run end here, such as when its budget is spent; what is finished is kept."""
