"""What the death of a worker costs: nothing at first; work is put back, then halved until the poison is alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rewardlab.runner.cell_scoring import Cell, Job


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
    """Ask again what a worker died of, alone; cells that no split can part are given up when they die a second time.

    Of a batch nobody knows which cell it was: the job is put back at its first death, for a memory killer strikes
    anyone, and the batch is halved at the next, until the poison is alone.
    """
    left = tuple(cell for cell in job.cells if cell.id not in done)
    suspects = tuple(cell for cell in left if cell.id in under_way.cells) or left
    others = tuple(cell for cell in left if cell not in suspects)
    rest = (job.keep(others, deaths=0),) if others else ()
    if not left:
        return Recovery(())
    if len(suspects) == 1 or under_way.prepared:
        if job.deaths and not others:
            return Recovery((), suspects)
        return Recovery((*rest, job.keep(suspects, deaths=1)))
    if job.deaths == 0:
        return Recovery((job.keep(left, deaths=1),))
    return Recovery((*rest, *(job.keep(half, deaths=int(len(half) > 1)) for half in _halves(suspects))))


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
