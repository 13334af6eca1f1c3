"""The catalog of engines: where work runs. All of them give the same results, bit for bit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rewardlab.core.catalog_lookup import find
from rewardlab.core.errors import PlanError
from rewardlab.runner.engines.contract import Engine, EngineSettings
from rewardlab.runner.engines.local import LocalEngine
from rewardlab.runner.engines.process_pool import ProcessEngine


def _ray(settings: EngineSettings) -> Engine:
    try:
        from rewardlab.runner.engines.ray_cluster import RayEngine
    except ImportError as error:
        raise PlanError(f'--engine ray needs Ray ({error}); install it with `pip install "rewardlab[ray]"`') from error
    return RayEngine(settings)


ENGINES: dict[str, Callable[[EngineSettings], Engine]] = {
    "processes": lambda settings: ProcessEngine(),
    "local": lambda settings: LocalEngine(),
    "ray": _ray,
}


@contextmanager
def open_engine(settings: EngineSettings) -> Iterator[Engine]:
    """Give the engine that the settings name, and let go of it afterwards."""
    engine = find(ENGINES, settings.engine, "engine")(settings)
    try:
        yield engine
    finally:
        engine.close()
