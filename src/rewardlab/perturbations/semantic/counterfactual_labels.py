"""The label of a rollout under an instruction that it did not follow."""

from dataclasses import replace

from rewardlab.core.episode import Episode, Truth
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import PerturbedEpisode, with_unknown_truth


def is_known_success(truth: Truth) -> bool:
    """Tell whether the video is known to show the whole instruction carried out."""
    return truth.success is not False and (truth.level == 5 or (truth.level is None and truth.success is True))


def require_known_success(episode: Episode) -> None:
    """Raise NotApplicable unless the rollout is a success: only then is another instruction known not to be done."""
    if not is_known_success(episode.truth):
        raise NotApplicable("not known to be a success: a failure may have done just what is asked for now")


def relabel_as_undone(episode: Episode, text: str) -> PerturbedEpisode:
    """Return the episode under an instruction of which nothing was done."""
    return PerturbedEpisode(replace(episode, instruction=text, truth=Truth(1, False)), "relabel")


def expect_lower(episode: Episode, text: str) -> PerturbedEpisode:
    """Return the episode under an instruction that was carried out less well, by an unknown amount."""
    return with_unknown_truth(replace(episode, instruction=text), "lower")
