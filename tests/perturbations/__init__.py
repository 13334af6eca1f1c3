from collections.abc import Sequence

from rewardlab.core.episode import Episode
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import Perturbation, PerturbedEpisode


def attempt(
    perturbation: Perturbation, episode: Episode, severity: int, seed: int = 0, dataset: Sequence[Episode] = ()
) -> PerturbedEpisode | str:
    """Return the change, or the reason for which the perturbation does not apply."""
    try:
        return perturbation(episode, severity, seed, dataset)
    except NotApplicable as reason:
        return str(reason)
