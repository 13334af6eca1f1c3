"""Simulated reward models: the truth plus correlated noise that grows as competence falls.

Competence is Eq. 1 of "Perturbation-Based Robustness Analysis of Vision-Language Reward Models for Robotics", here
called the perturbation paper.

A model sees an episode, never which perturbation made it. So `simulated:general` judges everything with the
competence of clean episodes, and `simulated:general@visual=4` everything with the competence that Eq. 1 gives
to visual severity 4. Neither can find out that an episode was perturbed: their curves over severity are flat.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.catalog import find
from rewardlab.core.episode import Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.contract import ModelEntry, ModelString, NamedModel, canonical_name, identity, read_arguments

LOWEST, HIGHEST = 0.1, 0.99  # Eq. 1 clips competence to these
RHO = 0.40  # correlation of the noise from one step to the next
NOISE = 0.42  # k: standard deviation of the noise is k (1 - competence)


@dataclass(frozen=True)
class Competence:
    """One model of Eq. 1: `alpha` when nothing is perturbed, less `sigma` of the category per severity."""

    alpha: float
    sigma: Mapping[str, float]

    def at(self, category: str, severity: float, factor: float = 1.0) -> float:
        """Return alpha - sigma * severity before noise and clipping; `factor` scales sigma for a harder task."""
        return self.alpha - self.sigma[category] * factor * severity


PAPER = {  # alpha and the first two sigmas of general and tuned are stated, the other sigmas fitted to its table
    "general": Competence(0.72, {"visual": 0.08, "semantic": 0.03, "temporal": 0.062, "domain": 0.075}),
    "tuned": Competence(0.85, {"visual": 0.04, "semantic": 0.06, "temporal": 0.026, "domain": 0.056}),
    "ensemble": Competence(0.83, {"visual": 0.028, "semantic": 0.029, "temporal": 0.025, "domain": 0.040}),
}


def correlated(normals: NDArray[np.float64], rho: float) -> NDArray[np.float64]:
    """Return unit-variance noise over the last axis, each step correlated with the one before by `rho`."""
    noise = normals.copy()
    fresh = np.sqrt(1 - rho**2)
    for step in range(1, noise.shape[-1]):
        noise[..., step] = rho * noise[..., step - 1] + fresh * normals[..., step]
    return noise


@dataclass(frozen=True)
class Simulated:
    """Knows the truth and adds the noise of one competence, the same for the same question."""

    name: str
    competence: float

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the noisy truth per episode; a Failure where the true level is unknown."""
        return [self._score(episode) for episode in episodes]

    def _score(self, episode: Episode) -> Answer:
        truth = episode.label
        if truth.level is None:
            return Failure("the true level of this trial is unknown, and a simulated model does not guess")
        normals = rng_for(0, "simulated", self.name, episode.hash).standard_normal(len(episode.clip))
        error = NOISE * (1 - self.competence) * correlated(normals, RHO)
        level = float(np.clip(truth.level + 4 * error[-1], 1, 5))  # levels 1 to 5 span progress 0 to 1
        if truth.progress is None:
            return Score(level)
        return Score(level, progress=tuple((np.asarray(truth.progress) + error).tolist()))


def _name(string: ModelString) -> NamedModel:
    """Name `simulated:NAME` or `simulated:NAME@CATEGORY=SEVERITY`, with the competence that Eq. 1 gives it."""
    read_arguments(string.name, lambda: None, string.options)
    text = string.argument or "general"
    name, _, condition = text.partition("@")
    competence = find(PAPER, name, "simulated model")
    match = re.fullmatch(r"([a-z]+)=([0-4])", condition or "visual=0")
    if match is None:
        raise PlanError(f"after @ say a category and a severity from 0 to 4, such as visual=4, got {condition!r}")
    category, severity = match[1], int(match[2])
    find(competence.sigma, category, "category of a simulated model")
    model = Simulated(text, float(np.clip(competence.at(category, severity), LOWEST, HIGHEST)))
    fingerprint = identity("simulated", vars(model))
    return NamedModel(canonical_name(string, ()), fingerprint, True, lambda _: model, deterministic=True)


SIMULATED = {
    "simulated": ModelEntry(
        "Eq. 1 of the perturbation paper: the truth plus noise; simulated:general, tuned or ensemble; "
        "simulated:general@visual=4 for the noise of visual severity 4, whatever it is shown",
        _name,
        sees_truth=True,
    )
}
