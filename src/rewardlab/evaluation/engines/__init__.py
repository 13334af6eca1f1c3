"""The catalog of engines: where work runs. All of them give the same results, bit for bit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rewardlab.core.errors import PlanError
from rewardlab.core.old_settings import EngineSettings
from rewardlab.core.settings import Execution
from rewardlab.evaluation.engines.contract import Engine
from rewardlab.evaluation.engines.local import LocalEngine
from rewardlab.evaluation.engines.processes import ProcessEngine


def _ray(settings: Execution | EngineSettings, at_home: bool) -> Engine:
    try:
        from rewardlab.evaluation.engines.ray_cluster import RayEngine
    except ImportError as error:
        raise PlanError(f'--engine ray needs Ray ({error}); install it with `pip install "rewardlab[ray]"`') from error
    return RayEngine(settings, at_home=at_home)


ENGINES: dict[str, Callable[[Execution | EngineSettings, bool], Engine]] = {
    "processes": lambda settings, at_home: ProcessEngine(),
    "local": lambda settings, at_home: LocalEngine(),
    "ray": _ray,
}


@contextmanager
def open_engine(settings: Execution | EngineSettings, *, at_home: bool = False) -> Iterator[Engine]:
    """Give the engine that the settings name, and let go of it afterwards; `at_home`, all work is on this machine."""
    engine = ENGINES[settings.engine](settings, at_home)
    try:
        yield engine
    finally:
        engine.close()
