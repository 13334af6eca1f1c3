"""The things that can stand beside those of a task: which bodies they are, and what can be asked of them."""

from dataclasses import dataclass

from rewardlab.worlds.metaworld.objects import TASK_OBJECTS


@dataclass(frozen=True)
class ThingState:
    """How a thing stands there: joints that are not at rest, and the tasks that could be asked of it as it stands."""

    tasks: tuple[str, ...]
    joints: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Thing:
    """The bodies of one scene that belong together, in one of several states."""

    task: str  # whose scene has it
    bodies: tuple[str, ...]
    states: tuple[ThingState, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return every task that can be asked of it."""
        return tuple(dict.fromkeys(task for state in self.states for task in state.tasks))


def _thing(task: str, bodies: str, *states: ThingState) -> Thing:
    return Thing(task, tuple(bodies.split()), states or (ThingState((task,)),))


# fmt: off
THINGS: dict[str, Thing] = {
    "ring and peg": _thing("assembly", "RoundNut peg"),
    "basket and ball": _thing("basketball", "bsktball basket_goal"),
    "box and lid": _thing("box-close", "boxbody boxbodytop"),
    "button": _thing("button-press", "box"),
    "upright button": _thing("button-press-topdown", "box"),
    "coffee machine": _thing("coffee-button", "obj coffee_machine"),
    "dial": _thing("dial-turn", "dial"),
    "safe": _thing("door-open", "door", ThingState(("door-open",)),
                   ThingState(("door-close",), (("doorjoint", -1.3),))),
    "locked safe": _thing("door-lock", "door"),
    "drawer": _thing("drawer-open", "drawer", ThingState(("drawer-open",)),
                     ThingState(("drawer-close",), (("goal_slidey", -0.15),))),
    "tap": _thing("faucet-open", "faucetBase", ThingState(("faucet-open", "faucet-close"))),
    "hammer and nail": _thing("hammer", "hammerbody box"),
    "handle": _thing("handle-press", "box"),
    "side handle": _thing("handle-press-side", "box"),
    "lever": _thing("lever-pull", "lever"),
    "peg and hole": _thing("peg-insert-side", "peg box"),
    "plug": _thing("peg-unplug-side", "plug1 box"),
    "net and disc": _thing("plate-slide", "puck_channel puck_goal"),
    "shelf": _thing("shelf-place", "obj shelf"),
    "goal and ball": _thing("soccer", "soccer_ball goal_whole"),
    "stick and thermos": _thing("stick-push", "stick object"),
    "window": _thing("window-open", "window", ThingState(("window-open",)),
                     ThingState(("window-close",), (("window_slide", 0.2),))),
}
# fmt: on


def nouns(thing: Thing) -> set[str]:
    """Return the last word of what each of its tasks moves, by which people would tell it from another thing."""
    return {TASK_OBJECTS[task].split()[-1] for task in thing.tasks}
