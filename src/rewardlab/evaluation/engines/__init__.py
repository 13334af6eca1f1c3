"""The catalog of engines: where work runs. All of them give the same results, bit for bit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rewardlab.core.errors import PlanError
from rewardlab.core.settings import Execution
from rewardlab.evaluation.engines.contract import Engine
from rewardlab.evaluation.engines.local import LocalEngine
from rewardlab.evaluation.engines.processes import ProcessEngine


def _ray(settings: Execution, local_only: bool) -> Engine:
    try:
        from rewardlab.evaluation.engines.ray_cluster import RayEngine
    except ImportError as error:
        raise PlanError(f'--engine ray needs Ray ({error}); install it with `pip install "rewardlab[ray]"`') from error
    return RayEngine(settings, local_only=local_only)


ENGINES: dict[str, Callable[[Execution, bool], Engine]] = {
    "processes": lambda settings, local_only: ProcessEngine(),
    "local": lambda settings, local_only: LocalEngine(),
    "ray": _ray,
}


@contextmanager
def open_engine(settings: Execution, *, local_only: bool = False) -> Iterator[Engine]:
    """Give the engine that the settings name, and close it afterwards; `local_only` keeps all work on this machine."""
    engine = ENGINES[settings.engine](settings, local_only)
    try:
        yield engine
    finally:
        engine.close()
