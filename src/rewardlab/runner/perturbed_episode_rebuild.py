"""Showing a cell again: the episode of a finished run under one of its perturbations."""

from dataclasses import dataclass
from typing import Any

from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError
from rewardlab.core.run import Run
from rewardlab.data import open_dataset
from rewardlab.perturbations.contract import PerturbedEpisode
from rewardlab.runner.cell_scoring import Cell, EpisodeCells, ScoringContext, perturb_cells


@dataclass(frozen=True)
class CellReplay:
    """The dataset and the protocol of a run, ready to rebuild any of its cells."""

    episodes: dict[str, Episode]
    context: ScoringContext

    def change(self, episode: str, perturbation: str, severity: int) -> PerturbedEpisode:
        """Return the episode exactly as the models saw it."""
        if episode not in self.episodes:
            raise DataError(f"the dataset no longer holds episode {episode!r}")
        cell = Cell("", perturbation, severity, "")
        (group,) = perturb_cells(EpisodeCells(self.episodes[episode], (cell,)), self.context)
        if isinstance(group.outcome, str):
            raise DataError(group.outcome)
        return group.outcome


def replay(run: Run) -> CellReplay:
    """Open the dataset that a run was made from; DataError if it is no longer there."""
    settings: Any = run.record["settings"]
    episodes = open_dataset(settings["data"]).episodes[: settings["limit"]]
    return cell_replay(episodes, tuple(settings["perturbations"]), settings["frames"], settings["seed"])


def cell_replay(episodes: tuple[Episode, ...], perturbations: tuple[str, ...], frames: str, seed: int) -> CellReplay:
    """Return a CellReplay over episodes at hand, with no run behind it."""
    context = ScoringContext({}, perturbations, episodes, frames, seed, batch=1)
    return CellReplay({episode.id: episode for episode in episodes}, context)
