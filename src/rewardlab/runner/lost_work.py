"""What the death of a worker costs: nothing at first; the job is put back, then halved until the poison is alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rewardlab.runner.cell_scoring import Cell, Job

_ALONE = 2  # deaths after which cells that no split can part are given up


@dataclass(frozen=True)
class UnderWay:
    """The cells that a worker is at: those a model scores, or those of one episode or condition that it prepares.

    Those that are prepared together cannot be told apart: they are one suspect.
    """

    cells: frozenset[str] = frozenset()
    prepared: bool = False


@dataclass(frozen=True)
class Recovery:
    """What is left after a death: jobs to do, and cells that are given up."""

    jobs: tuple[Job, ...]
    given_up: tuple[Cell, ...] = ()


def after_death(job: Job, done: frozenset[str], under_way: UnderWay) -> Recovery:
    """Put the job back at its first death; later part the cells under way from the others, and halve them.

    A memory killer strikes anyone: only cells that die again, and then alone, are given up.
    """
    left = tuple(cell for cell in job.cells if cell.id not in done)
    if not left:
        return Recovery(())
    if job.deaths == 0:
        return Recovery((job.keep(left, deaths=1),))
    suspects = tuple(cell for cell in left if cell.id in under_way.cells) or left
    others = tuple(cell for cell in left if cell not in suspects)
    rest = (job.keep(others, deaths=0),) if others else ()
    if len(suspects) == 1 or under_way.prepared:
        if job.deaths >= _ALONE and not others:
            return Recovery(rest, suspects)
        return Recovery((*rest, job.keep(suspects, deaths=_ALONE)))
    return Recovery((*rest, *(job.keep(half, deaths=1) for half in _halves(suspects))))


def after_hang(job: Job, done: frozenset[str], under_way: UnderWay) -> Recovery:
    """Give up a cell that hangs alone; of several, each is asked alone from now on: waiting again for all is dear."""
    left = tuple(cell for cell in job.cells if cell.id not in done)
    suspects = tuple(cell for cell in left if cell.id in under_way.cells)
    others = tuple(cell for cell in left if cell not in suspects)
    if len(suspects) > 1 and not under_way.prepared:
        return Recovery((replace(job.keep(left, deaths=job.deaths), alone=job.alone | under_way.cells),))
    return Recovery((job.keep(others, deaths=job.deaths),) if others else (), suspects)


def _halves(cells: Sequence[Cell]) -> tuple[tuple[Cell, ...], tuple[Cell, ...]]:
    middle = len(cells) // 2
    return tuple(cells[:middle]), tuple(cells[middle:])
