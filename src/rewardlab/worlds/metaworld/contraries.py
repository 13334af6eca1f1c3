"""Contraries: how people ask for a task to be undone, where no other task says it."""

from functools import cache

from rewardlab.worlds.metaworld.instructions import phrasings
from rewardlab.worlds.metaworld.objects import OPPOSITE_TASKS

# fmt: off
_UNDO = {
    "basketball": ("Take the ball out of the hoop.", "Bring the ball down from the basket."),
    "bin-picking": ("Move the cube from the blue bin back to the red bin.", "Take the cube out of the blue bin."),
    "box-close": ("Take the lid off the box.", "Open the box.", "Lift the lid off the wooden box."),
    "button-press": ("Release the button.", "Let the button come out again."),
    "button-press-topdown": ("Release the button.", "Let the button come up again."),
    "button-press-topdown-wall": ("Release the button.", "Let the button come up again."),
    "button-press-wall": ("Release the button.", "Let the button come out again."),
    "coffee-button": ("Release the button of the coffee machine.",),
    "coffee-push": ("Take the mug away from the coffee machine.", "Pull the cup out from under the spout."),
    "coffee-pull": ("Put the mug back under the coffee machine.", "Push the cup back under the spout."),
    "dial-turn": ("Turn the dial back.", "Rotate the knob back to where it was."),
    "hammer": ("Pull the nail out of the block.", "Get the nail out of the wood."),
    "hand-insert": ("Take the block out of the hole.", "Lift the cube out of the hole."),
    "lever-pull": ("Push the lever down.", "Lower the lever."),
    "peg-insert-side": ("Pull the green peg out of the box.", "Take the peg out of the hole."),
    "peg-unplug-side": ("Plug the peg into the wall.", "Put the plug back into its socket."),
    "shelf-place": ("Take the block off the shelf.", "Bring the block down from the shelf."),
    "soccer": ("Take the ball out of the goal.", "Bring the ball back from the net."),
    "sweep-into": ("Take the block out of the hole.",),
}
# fmt: on
SYMMETRIC_TASKS = ("faucet-open", "faucet-close")  # opposites that begin alike: neither undoes the other


@cache
def contrary_texts(task: str, seen: tuple[str, ...]) -> tuple[str, ...]:
    """Return instructions to undo a task, without the words of a task that is not among the seen ones."""
    opposite = OPPOSITE_TASKS.get(task)
    if opposite is not None:
        return phrasings()[opposite]["train"] if opposite in seen else ()
    unsaid = {text for other, lists in phrasings().items() if other not in seen for text in lists["train"]}
    return tuple(text for text in _UNDO.get(task, ()) if text not in unsaid)
