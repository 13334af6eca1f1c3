"""Showing a cell again: the episode of a finished run under one of its perturbations."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError
from rewardlab.core.run import Run
from rewardlab.data import DATASETS, open_dataset, split_camera
from rewardlab.perturbations import is_in_catalogue
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


def replay(run: Run, *, trust: bool) -> CellReplay:
    """Open the dataset that a run was made from; DataError if it is no longer there.

    Without `trust` the run is a stranger's: no code that it names is imported, no dataset outside its folder opened.
    """
    settings = run.record.settings
    data = settings.data if trust else _harmless_dataset(run, settings.data)
    names = tuple(name for name in settings.perturbations if trust or is_in_catalogue(name))
    return cell_replay(open_dataset(data).episodes[: settings.limit], names, settings.frames, settings.seed)


def _harmless_dataset(run: Run, data: str) -> str:
    """Return a dataset that is shipped, or the whole path of one in the run folder, which names no reader or hub."""
    if data in DATASETS:
        return data
    name, camera = split_camera(data)
    folder = Path(name).resolve()
    if folder.is_relative_to(run.folder.resolve()):
        return f"{folder}@{camera}" if camera else str(folder)
    raise DataError(
        f"a report opens no dataset that a run names ({data!r}), unless the run is yours: give --trust (trust=True)"
    )


def cell_replay(episodes: tuple[Episode, ...], perturbations: tuple[str, ...], frames: str, seed: int) -> CellReplay:
    """Return a CellReplay over episodes at hand, with no run behind it."""
    context = ScoringContext({}, perturbations, episodes, frames, seed, batch=1)
    return CellReplay({episode.id: episode for episode in episodes}, context)
