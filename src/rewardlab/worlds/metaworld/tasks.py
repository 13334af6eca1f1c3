"""The fifty tasks as tables: objects, colours, opposites, chains, splits and folds."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.seeding import rng_for
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS

Floats = NDArray[np.float64]

# fmt: off
TASK_OBJECTS = {
    "assembly": "the ring", "basketball": "the ball", "bin-picking": "the green cube", "box-close": "the lid",
    "button-press": "the red button", "button-press-topdown": "the red button",
    "button-press-topdown-wall": "the red button", "button-press-wall": "the red button",
    "coffee-button": "the button of the coffee machine", "coffee-pull": "the mug", "coffee-push": "the mug",
    "dial-turn": "the dial", "disassemble": "the ring", "door-close": "the door", "door-lock": "the lock",
    "door-open": "the door", "door-unlock": "the lock", "drawer-close": "the drawer", "drawer-open": "the drawer",
    "faucet-close": "the tap", "faucet-open": "the tap", "hammer": "the nail", "hand-insert": "the block",
    "handle-press": "the handle", "handle-press-side": "the handle", "handle-pull": "the handle",
    "handle-pull-side": "the handle", "lever-pull": "the lever", "peg-insert-side": "the green peg",
    "peg-unplug-side": "the plug", "pick-out-of-hole": "the puck", "pick-place": "the puck",
    "pick-place-wall": "the puck", "plate-slide": "the puck", "plate-slide-back": "the puck",
    "plate-slide-back-side": "the puck", "plate-slide-side": "the puck", "push": "the puck", "push-back": "the block",
    "push-wall": "the puck", "reach": "the gripper", "reach-wall": "the gripper", "shelf-place": "the blue block",
    "soccer": "the ball", "stick-pull": "the thermos", "stick-push": "the thermos", "sweep": "the block",
    "sweep-into": "the block", "window-close": "the window", "window-open": "the window",
}

# Colour words that mean something which the task moves; other colours in an instruction belong to what stays.
OBJECT_COLOURS = {
    "assembly": ("grey", "green"), "basketball": ("orange",), "bin-picking": ("green",), "box-close": ("black",),
    "button-press": ("red",), "button-press-topdown": ("red",), "button-press-topdown-wall": ("red",),
    "button-press-wall": ("red",), "coffee-button": ("grey",), "coffee-pull": ("white",), "coffee-push": ("white",),
    "dial-turn": ("black",), "disassemble": ("grey", "green"), "drawer-close": ("green", "white"),
    "drawer-open": ("green", "white"), "faucet-close": ("red",), "faucet-open": ("red",), "hammer": ("red",),
    "hand-insert": ("brown",), "handle-press": ("red",), "handle-press-side": ("red",), "handle-pull": ("red",),
    "handle-pull-side": ("red",), "lever-pull": ("blue",), "peg-insert-side": ("green",),
    "peg-unplug-side": ("grey",), "pick-out-of-hole": ("red",), "pick-place": ("red",), "pick-place-wall": ("red",),
    "plate-slide": ("black",), "plate-slide-back": ("black",), "plate-slide-back-side": ("black",),
    "plate-slide-side": ("black",), "push": ("red",), "push-back": ("brown",), "push-wall": ("red",),
    "reach": ("red",), "reach-wall": ("red",), "shelf-place": ("blue",), "soccer": ("white",),
    "stick-pull": ("blue", "green"), "stick-push": ("blue", "green"), "sweep": ("brown",), "sweep-into": ("brown",),
    "window-close": ("white",), "window-open": ("white",),
}

_PAIRS = (
    ("assembly", "disassemble"), ("door-close", "door-open"), ("door-lock", "door-unlock"),
    ("drawer-close", "drawer-open"), ("faucet-close", "faucet-open"), ("handle-press", "handle-pull"),
    ("handle-press-side", "handle-pull-side"), ("plate-slide", "plate-slide-back"),
    ("plate-slide-side", "plate-slide-back-side"), ("window-close", "window-open"),
)
OPPOSITE_TASKS = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
# fmt: on


# Chains: tasks done one after the other in one scene.


def _same(places: Floats) -> Floats:
    return places


def _swapped(places: Floats) -> Floats:
    """Return the places of object and goal, one for the other."""
    return np.roll(places, 3)


def _machine(places: Floats) -> Floats:
    """Return where the coffee machine stands, from the place of the mug under it."""
    return np.add(places[3:], (0.0, 0.22, 0.0))


# By their names; for each later task, what draws its scene and goal, from what drew those of the first.
CHAINS: dict[str, tuple[Callable[[Floats], Floats], ...]] = {
    "coffee-push+coffee-button": (_machine,),
    "coffee-push+coffee-pull": (_swapped,),
    "coffee-push+coffee-button+coffee-pull": (_machine, _swapped),
    "door-close+door-open": (_same,),
    "door-lock+door-unlock": (_same,),
    "door-open+door-close": (_same,),
    "door-unlock+door-lock": (_same,),
    "drawer-close+drawer-open": (_same,),
    "drawer-open+drawer-close": (_same,),
    "handle-press-side+handle-pull-side": (_same,),
    "handle-pull+handle-press": (_same,),
    "plate-slide+plate-slide-back": (_swapped,),
    "plate-slide-side+plate-slide-back-side": (_swapped,),
    "window-close+window-open": (_same,),
    "window-open+window-close": (_same,),
}

# fmt: off

HALFWAY_INSTRUCTIONS = {
    "door-close": "Close the door only halfway.", "door-open": "Open the door only halfway.",
    "drawer-close": "Close the drawer only halfway.", "drawer-open": "Open the drawer only halfway.",
    "lever-pull": "Raise the lever only halfway.", "window-close": "Close the window only halfway.",
    "window-open": "Open the window only halfway.",
}

# An instruction about another object in the scene, and the joints that tell whether it was moved.
OTHER_OBJECTS = {
    "coffee-button": ("Pull the white mug away from the coffee machine.", slice(0, 3)),
    "coffee-pull": ("Press the button on the coffee machine.", slice(16, 17)),
    "coffee-push": ("Press the button on the coffee machine.", slice(16, 17)),
    "reach": ("Pick up the red puck and lift it.", slice(9, 12)),
    "reach-wall": ("Pick up the red puck and lift it.", slice(9, 12)),
}
# fmt: on


# Which tasks are for training, validation and testing, and five folds of all tasks; they depend on the task alone.

SPLITS = {"train": 0.7, "val": 0.1, "test": 0.2}  # shares of the tasks
FOLDS = 5


def split_of_task(task: str) -> str:
    """Return the split of a task, the same in every collection; of a chain, the last that one of its tasks is in."""
    if task in CHAINS:
        return max(map(split_of_task, task.split("+")), key=list(SPLITS).index)
    place, ends = _shuffled().index(task) / len(PROGRESS_SPECS), np.cumsum(list(SPLITS.values()))
    return list(SPLITS)[int(np.searchsorted(ends, place, side="right"))]


def unseen_tasks(fold: int) -> tuple[str, ...]:
    """Return the tasks, a fifth of all, that a training of this fold never sees; those of fold 0 are the test split."""
    order = _shuffled()[::-1]
    size = len(order) // FOLDS
    return tuple(sorted(order[fold * size : (fold + 1) * size]))


def _shuffled() -> list[str]:
    return sorted(PROGRESS_SPECS, key=lambda name: float(rng_for(0, "split", name).random()))


COLOURS = {
    **{"red": (0.85, 0.12, 0.1), "green": (0.15, 0.65, 0.2), "blue": (0.12, 0.25, 0.85), "yellow": (0.95, 0.85, 0.1)},
    **{"orange": (0.95, 0.5, 0.05), "purple": (0.5, 0.15, 0.65), "pink": (0.95, 0.5, 0.7)},
    **{"white": (0.95, 0.95, 0.95), "black": (0.08, 0.08, 0.08), "grey": (0.5, 0.5, 0.5)},
}
