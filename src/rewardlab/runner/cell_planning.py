"""The cells of a run: which are planned, which are open, and how they are bundled into jobs."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from rewardlab.core.episode import Episode
from rewardlab.core.seeding import digest
from rewardlab.core.trial import CLEAN
from rewardlab.models.contract import NamedModel
from rewardlab.perturbations.contract import Perturbation
from rewardlab.runner.cell_scoring import Cell, EpisodeCells, Job, ScoringContext

Condition = tuple[str, int, str]  # perturbation, severity, and what identifies its definition
CLEAN_CONDITION: Condition = (CLEAN, 0, "")


def conditions(context: ScoringContext, severities: Sequence[int]) -> list[Condition]:
    """Return what is done to every episode; it is always shown clean too."""
    instructions = instructions_digest(context)
    found: list[Condition] = [CLEAN_CONDITION]
    for perturbation in context.perturbations.values():
        definition = definition_of(perturbation, instructions)
        found += [(perturbation.name, severity, definition) for severity in sorted({*severities} - {0})]
    return found


def instructions_digest(context: ScoringContext) -> str:
    """Identify the instructions of the whole dataset, which some perturbations borrow from."""
    return digest(*(episode.instruction for episode in context.dataset))


def definition_of(perturbation: Perturbation, instructions: str) -> str:
    """Identify what a perturbation does, in a dataset of these instructions."""
    return perturbation.fingerprint + (instructions if perturbation.uses_dataset else "")


def plan_cells(
    episodes: Iterable[Episode], context: ScoringContext, severities: Sequence[int], finished: Collection[str] = ()
) -> Iterator[EpisodeCells]:
    """Yield each episode with its cells, less those that are finished; an episode without open cells is left out."""
    shown = conditions(context, severities)
    for episode in episodes:
        cells = (planned_cell(context, episode, model, each) for each in shown for model in context.models.values())
        left = tuple(cell for cell in cells if cell.id not in finished)
        if left:
            yield EpisodeCells(episode, left)


def bundle_jobs(planned: Iterable[EpisodeCells], cells: int) -> Iterator[Job]:
    """Yield jobs of at least so many cells, so that a batch fills up where each episode has but a few."""
    waiting: list[EpisodeCells] = []
    for episode_cells in planned:
        waiting.append(episode_cells)
        if sum(len(each.cells) for each in waiting) >= cells:
            yield Job(tuple(waiting))
            waiting = []
    if waiting:
        yield Job(tuple(waiting))


def planned_cell(context: ScoringContext, episode: Episode, model: NamedModel, condition: Condition) -> Cell:
    """Return the cell; its id is made of everything that its score depends on."""
    name, severity, definition = condition
    identity = (model.fingerprint, episode.hash, episode.id, name, severity, definition, context.seed, context.frames)
    return Cell(digest(*identity), name, severity, model.name)
