"""The settings of a collection."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.catalog_lookup import find
from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError
from rewardlab.runner.engines.contract import EngineSettings
from rewardlab.worlds.metaworld.instructions import PHRASINGS
from rewardlab.worlds.metaworld.physics import MAX_STEPS, STEPS_PER_SECOND, TASKS
from rewardlab.worlds.metaworld.policies import POLICIES
from rewardlab.worlds.metaworld.render import camera_view


@dataclass(frozen=True)
class CollectPlan:
    """Record rollouts in a simulator with true progress, at any quality, in any world."""

    simulator: str = setting("the simulator: metaworld", positional=True)
    tasks: tuple[str, ...] = setting("tasks such as drawer-open, or all", ("all",))
    episodes: int = setting("episodes per task", 10)
    quality: tuple[str, ...] = setting("ways of doing the task such as expert or drops, or all", ("all",))
    world: tuple[str, ...] = setting(
        "plain, or changed worlds such as world_camera:3; each episode gets one", ("plain",)
    )
    camera: tuple[str, ...] = setting("cameras; each episode gets one of them", ("right",))
    balance: bool = setting("look for rollouts until every level is there equally often", False)
    things: int = setting("things of other tasks that stand in the scene, at most so many", 0)
    counterfactuals: int = setting("rows with another instruction for the same video, at most so many each", 0)
    captions: bool = setting("say in every row what the video shows, for training that aligns images with words", False)
    phrasings: str = setting("train or held_out phrasings of the instructions", "train")
    marker: bool = setting("show the goal as a marker; it gives the goal away", False)
    size: int = setting("side of the frame in pixels", 128)
    fps: float = setting("frames per second that are kept of the simulator's 80", 10.0)
    frames: tuple[int, ...] = setting("least and most frames of a video; the length is drawn without looking", (24, 48))
    seed: int = setting("seed of everything that is random", 0)
    workers: int = setting("processes; 0 takes one per core", 0)
    engine_settings: EngineSettings = EngineSettings()
    out: Path = setting("dataset folder to write to", Path("collected"))

    def __post_init__(self) -> None:
        if self.simulator != "metaworld":
            raise PlanError(f"the simulator must be metaworld, got {self.simulator!r}")
        for names, catalog, what in ((self.tasks, TASKS, "task"), (self.quality, POLICIES, "quality")):
            for name in names:
                find({**dict.fromkeys(catalog), "all": None}, name, what)
        for camera in self.camera:
            camera_view(camera, self.size, self.marker)
        for text in self.world:
            parse_world(text)
        if self.phrasings not in PHRASINGS:
            raise PlanError(f"phrasings must be one of {', '.join(PHRASINGS)}, got {self.phrasings!r}")
        if len(self.frames) != 2 or not 2 <= self.frames[0] <= self.frames[1]:
            raise PlanError(f"frames must be least,most with at least 2, got {self.frames}")
        if self.episodes < 1 or self.workers < 0 or self.things < 0 or self.fps <= 0 or not 16 <= self.size <= 512:
            raise PlanError("episodes must be at least 1, workers and things not negative, fps above 0, size 16 to 512")
        if (self.frames[1] - 1) * self.stride > MAX_STEPS:
            raise PlanError(
                f"{self.frames[1]} frames at {self.fps:g} fps are more than the {MAX_STEPS} steps there are"
            )

    @property
    def stride(self) -> int:
        """Return how many steps lie between two frames."""
        return max(1, round(STEPS_PER_SECOND / self.fps))


def parse_world(text: str) -> tuple[str, int]:
    """Return name and severity of a world such as `world_camera:3`; `plain` has severity 0."""
    if text == "plain":
        return text, 0
    from rewardlab.perturbations.rerendered_world import WORLD_EDITS

    name, _, severity = text.partition(":")
    find(WORLD_EDITS, name, "changed world")
    if severity not in ("1", "2", "3", "4"):
        raise PlanError(f"a changed world needs a severity from 1 to 4, such as {name}:3, got {text!r}")
    return name, int(severity)
