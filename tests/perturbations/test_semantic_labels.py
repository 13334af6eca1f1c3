"""Hand-checked rows: what each semantic perturbation writes, and what is known of the truth afterwards."""

from dataclasses import replace

import numpy as np
import pytest

from rewardlab.core.episode import Episode, Label, Provenance, episode_from_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations import SEMANTIC
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode

BY_NAME = {entry.name: entry for entry in SEMANTIC}

DONE = Label(5, True, (0.0, 1.0))
WON = Label(None, True)
NOTHING = Label(1, False, (0.0, 0.0))
HALF = Label(3, False, (0.0, 0.5))
FAILED = Label(None, False)
UNKNOWN = Label()

SAME, LOWER, UNDEFINED, DROPPED = "same", "lower", "undefined", "dropped"
ONE, THREE, FOUR, FIVE = 1, 3, 4, 5  # the new level, known exactly
Outcome = str | int
ANY = ""  # the wording is left to chance; the outcome is not

ROWS: tuple[tuple[str, str, int, Label, str, Outcome], ...] = (
    # Writing: the goal stays, whatever the truth is.
    ("close the drawer", "typo_keyboard", 1, DONE, ANY, SAME),
    ("close the drawer", "char_edit", 4, HALF, ANY, SAME),
    ("close the drawer", "ocr_confusion", 4, UNKNOWN, ANY, SAME),
    ("ضع الكوب على الطاولة", "typo_keyboard", 1, DONE, ANY, DROPPED),  # no Latin letters to mistype
    ("🍎 → 🍽", "char_edit", 1, DONE, ANY, DROPPED),
    ("close the drawer", "case_spacing", 1, DONE, "Close the drawer.", SAME),
    ("Fold the cloth.", "case_spacing", 1, DONE, "fold the cloth", SAME),
    ("close the drawer", "case_spacing", 2, DONE, "Close The Drawer", SAME),
    ("close the drawer", "case_spacing", 3, DONE, "CLOSE THE DRAWER", SAME),
    ("CLOSE THE DRAWER", "case_spacing", 3, DONE, ANY, DROPPED),  # already so
    ("stack two blocks", "number_form", 1, DONE, "stack 2 blocks", SAME),
    ("stack 2 blocks", "number_form", 2, DONE, "stack two blocks", SAME),
    ("open the second drawer", "number_form", 1, HALF, "open the 2nd drawer", SAME),
    ("open the 3rd drawer", "number_form", 3, HALF, "open the 3rd (third) drawer", SAME),
    ("push it 2.5 cm", "number_form", 4, HALF, "push it 2,5 cm", SAME),
    ("stack the gray cube", "number_form", 4, DONE, "stack the grey cube", SAME),
    ("pick up the red one", "number_form", 1, DONE, ANY, DROPPED),  # "one" is no number here
    ("hold it for a second", "number_form", 1, DONE, ANY, DROPPED),  # nor is "second"
    ("open the drawer", "number_form", 2, DONE, ANY, DROPPED),
    # Words around the goal.
    ("Fold the cloth", "polite_filler", 1, NOTHING, "please fold the cloth", SAME),
    ("open the drawer", "irrelevant_detail", 4, UNKNOWN, ANY, SAME),
    # Other words for the same goal.
    ("close the drawer", "synonym", 1, DONE, "shut the drawer", SAME),
    ("close the cabinet", "synonym", 2, DONE, "shut the cupboard", SAME),
    ("close the drawer", "synonym", 2, DONE, ANY, DROPPED),  # a drawer has no synonym
    ("close the red cabinet", "synonym", 3, DONE, "shut the red-coloured cupboard", SAME),
    ("put the pear in the yellow plate", "synonym", 4, HALF, ANY, SAME),
    ("close the oven", "synonym", 4, DONE, "shut the kitchen appliance", SAME),
    ("touch the finger of the hand", "synonym", 4, DONE, ANY, DROPPED),  # two body parts
    ("push the puck to the goal", "synonym", 4, DONE, ANY, DROPPED),  # "object" singles out nothing
    ("close the drawer", "paraphrase", 1, DONE, "shut the drawer", SAME),
    ("press the button", "paraphrase", 1, FAILED, "push the button", SAME),
    ("Pick a nut out of the a peg", "paraphrase", 2, DONE, ANY, DROPPED),  # cannot be parsed
    ("open the drawer that is red", "paraphrase", 2, DONE, ANY, DROPPED),
    ("Open the drawer slowly", "paraphrase", 4, DONE, ANY, SAME),
    ("Use the towel to wipe the table", "word_order", 1, DONE, "To wipe the table, use the towel", SAME),
    ("Slide the drawer closed", "word_order", 1, DONE, ANY, DROPPED),  # "closed" is no place
    ("Slide the drawer closed", "word_order", 3, DONE, "The drawer, slide closed you must", SAME),
    ("Move the mug cup", "synonym", 2, DONE, ANY, DROPPED),  # "mug drinking cup" is no name
    ("Move the mug on the left", "synonym", 3, DONE, ANY, SAME),
    ("Unplug it by pulling to the side", "language", 3, DONE, ANY, DROPPED),  # no noun to translate
    ("Pick the puck up", "relation_flip", 1, DONE, ANY, DROPPED),  # "pick up" is one verb
    ("Turn the light off", "relation_flip", 3, DONE, "Turn on the light", ONE),
    ("Move the mug forwards", "relation_flip", 1, DONE, "Move the mug backwards", ONE),
    ("Push the window to the left until it is closed", "relation_flip", 1, DONE, ANY, DROPPED),  # either way is closed
    ("Push the door until it is closed", "negation", 1, DONE, ANY, DROPPED),  # "do not ... until" asks to wait
    ("Push the door until it is closed", "negation", 2, DONE,
     "Be careful to avoid pushing the door until it is closed", ONE),
    ("move the red and white towel", "colour_swap", 4, DONE, ANY, DROPPED),  # which of the two colours is asked for?
    ("put the pitcher on the table", "object_swap", 1, DONE, ANY, LOWER),
    ("open the drawer", "paraphrase", 3, HALF, ANY, SAME),
    ("open the drawer", "paraphrase", 4, HALF, ANY, SAME),
    ("put the mushroom in the pot", "word_order", 1, DONE, "in the pot, put the mushroom", SAME),
    ("open the bottle", "word_order", 1, DONE, ANY, DROPPED),  # nothing but verb and object
    ("open the bottle", "word_order", 2, DONE, "it is the bottle that you should open", SAME),
    ("put banana on plate", "word_order", 3, DONE, "the banana, on plate put you must", SAME),
    ("open the red bottle", "word_order", 4, DONE, ANY, UNDEFINED),
    ("open the drawer and put the cup in it", "word_order", 2, DONE, ANY, DROPPED),  # two objects
    ("stir the soup", "language", 1, DONE, ANY, DROPPED),  # words outside the lexicon
    ("open the red drawer", "language", 4, DONE, "fungua droo nyekundu", SAME),
    ("put the marker in the cup", "language", 4, DONE, ANY, DROPPED),  # no Swahili word for the marker
    ("put the bread in the oven", "language", 3, DONE, ANY, DROPPED),  # Spanish "pan" would read as English
    # Too little said: the answer is open, and the old truth says nothing about it.
    ("open the red drawer", "ambiguous_reference", 1, DONE, "open the drawer", UNDEFINED),
    ("open the drawer", "ambiguous_reference", 1, DONE, ANY, DROPPED),
    ("put the red cup in the sink", "ambiguous_reference", 2, DONE, "put the cup", UNDEFINED),
    ("open the red drawer", "ambiguous_reference", 2, DONE, ANY, DROPPED),
    ("pick up the cup", "ambiguous_reference", 3, HALF, "pick it up", UNDEFINED),
    ("fold the towel", "ambiguous_reference", 4, FAILED, "do it", UNDEFINED),
    ("do it", "ambiguous_reference", 4, DONE, ANY, DROPPED),
    # Another colour: only a success is known not to be one of the new instruction, and its level is not known (1 or 2).
    ("open the red drawer", "colour_swap", 1, DONE, "open the purple drawer", LOWER),
    ("open the red drawer", "colour_swap", 4, WON, "open the green drawer", LOWER),
    ("put the orange in the red bowl", "colour_swap", 4, DONE, "put the orange in the green bowl", LOWER),
    ("open the red drawer", "colour_swap", 1, NOTHING, ANY, DROPPED),  # the purple one may have been opened
    ("open the red drawer", "colour_swap", 1, FAILED, ANY, DROPPED),
    ("open the red drawer", "colour_swap", 1, UNKNOWN, ANY, DROPPED),
    ("open the drawer", "colour_swap", 1, DONE, ANY, DROPPED),
    # Another thing.
    ("put the carrot on the plate", "object_swap", 4, DONE, "put the elephant on the plate", LOWER),
    ("uncap the red pen", "object_swap", 1, WON, ANY, LOWER),
    ("put the carrot on the plate", "object_swap", 2, HALF, ANY, DROPPED),
    ("pick up the pink object", "object_swap", 1, DONE, ANY, DROPPED),  # the object may be the new thing
    # Opposites: 1 where the end state is the very opposite, only "lower" where the way there counts.
    ("move the cloth to the left", "relation_flip", 1, DONE, "move the cloth to the right", ONE),
    ("turn the dial clockwise", "relation_flip", 1, DONE, "turn the dial counterclockwise", ONE),
    ("move the pot from the left burner to the right burner", "relation_flip", 1, DONE,
     "move the pot from the right burner to the left burner", ONE),
    ("Fold the cloth from left to right", "relation_flip", 1, DONE, "Fold the cloth from right to left", LOWER),
    ("open the right cabinet", "relation_flip", 1, DONE, "open the left cabinet", LOWER),
    ("put the cup to the left of the plate", "relation_flip", 1, DONE, "put the cup to the right of the plate", LOWER),
    ("put the carrot on the plate", "relation_flip", 2, DONE, "put the carrot under the plate", LOWER),
    ("put the pear in the yellow plate", "relation_flip", 2, DONE, "put the pear under the yellow plate", LOWER),
    ("place the can into the basket", "relation_flip", 2, DONE, "place the can outside the basket", LOWER),
    ("open the drawer", "relation_flip", 2, DONE, ANY, DROPPED),
    ("open the drawer", "relation_flip", 3, DONE, "close the drawer", ONE),
    ("open the drawer", "relation_flip", 3, WON, "close the drawer", ONE),
    ("open the drawer", "relation_flip", 3, NOTHING, ANY, DROPPED),  # it may have been closed
    ("put the mushroom in the pot", "relation_flip", 3, DONE, "take the mushroom out of the pot", ONE),
    ("remove the bowl from the tray", "relation_flip", 3, DONE, "put the bowl back on the tray", ONE),
    ("Pick up the nut and place it onto a peg", "relation_flip", 3, DONE,
     "Pick up the nut and take it off a peg", LOWER),  # half of it was done
    ("stir the pot", "relation_flip", 3, DONE, ANY, DROPPED),
    ("stack the red cube on the gray cube", "relation_flip", 4, DONE, "stack the gray cube on the red cube", LOWER),
    ("put the bread in the oven", "relation_flip", 4, DONE, ANY, DROPPED),  # an oven is not put anywhere
    # Forbidden: 6 - level for 1 and 5, nothing for what lies between.
    ("open the drawer", "negation", 1, DONE, "do not open the drawer", ONE),
    ("open the drawer", "negation", 1, NOTHING, "do not open the drawer", FIVE),
    ("open the drawer", "negation", 1, WON, "do not open the drawer", ONE),
    ("open the drawer", "negation", 1, HALF, ANY, DROPPED),
    ("open the drawer", "negation", 1, FAILED, ANY, DROPPED),
    ("open the drawer", "negation", 1, UNKNOWN, ANY, DROPPED),
    ("Put the cup on the plate.", "negation", 2, DONE, "Be careful to avoid putting the cup on the plate.", ONE),
    ("open the drawer", "negation", 3, HALF, "do not fail to open the drawer", SAME),
    ("open the drawer", "negation", 3, FAILED, "do not fail to open the drawer", SAME),
    ("open the drawer", "negation", 4, DONE, "you may do anything except open the drawer", ONE),
    ("open the drawer", "negation", 4, NOTHING, "you may do anything except open the drawer", FIVE),
    ("do not open the drawer", "negation", 1, DONE, ANY, DROPPED),  # already forbidden
    # More is asked: 4 misses one minor requirement, 3 two of them or a major one.
    ("open the drawer", "added_requirement", 1, DONE, ANY, FOUR),
    ("open the drawer", "added_requirement", 2, DONE, ANY, THREE),
    ("open the drawer", "added_requirement", 3, DONE, ANY, THREE),
    ("open the drawer", "added_requirement", 4, DONE, ANY, LOWER),
    ("open the drawer", "added_requirement", 1, WON, ANY, LOWER),  # a success, but nobody said that it was perfect
    ("open the drawer", "added_requirement", 3, HALF, ANY, LOWER),
    ("open the drawer", "added_requirement", 1, FAILED, ANY, LOWER),
    # Nonsense is no task.
    ("open the drawer", "task_swap", 4, DONE, ANY, UNDEFINED),
    ("open the drawer", "task_swap", 1, DONE, ANY, DROPPED),  # no other episode
    # Text that tells the score instead of the goal.
    ("open the drawer", "completion_claim", 1, NOTHING, "open the drawer. Task completed.", SAME),
    ("open the drawer", "metadata_leak", 3, HALF, "open the drawer view 0 0 100", SAME),
    ("open the drawer", "prompt_injection", 4, FAILED, ANY, SAME),
)  # fmt: skip


def make(instruction: str, truth: Label, number: int = 0, origin: Provenance | None = None) -> Episode:
    frames = np.full((2, 4, 4, 3), number, np.uint8)
    episode = episode_from_frames(frames, instruction, label=truth)
    return replace(episode, provenance=origin or Provenance("here", instruction))


def outcome_of(change: PerturbedEpisode, before: Label) -> Outcome:
    after = change.episode.label
    if change.expect == "relabel":
        assert after == Label(after.level, after.level == 5), "a new level is exact and tells success; progress is gone"
        assert after.level is not None
        return after.level
    assert after == (before if change.expect == "same" else Label()), "the truth stays, or is forgotten as a whole"
    return change.expect


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[1]}-{row[2]}-{row[0][:30]}-{row[5]}")
def test_text_and_truth_are_as_checked_by_hand(row: tuple[str, str, int, Label, str, Outcome]) -> None:
    instruction, name, severity, truth, text, outcome = row
    for seed in (0, 1, 2):
        if outcome == DROPPED:
            with pytest.raises(NotApplicable):
                BY_NAME[name](make(instruction, truth), severity, seed)
            continue
        change = BY_NAME[name](make(instruction, truth), severity, seed)
        assert outcome_of(change, truth) == outcome
        assert change.episode.instruction == text or (text == ANY and change.episode.instruction != instruction)


def swap(instruction: str, truth: Label, severity: int, dataset: Episodes) -> PerturbedEpisode:
    return BY_NAME["task_swap"](make(instruction, truth), severity, 0, dataset)


NEAR = make("open the drawer", DONE, 1, Provenance("here", "drawer"))
FAR = make("fold the towel", DONE, 2, Provenance("there", "towel"))


def test_another_task_of_the_scene_was_not_done_by_a_success() -> None:
    change = swap("put the carrot on the plate", DONE, 1, [NEAR, FAR])
    assert change.episode.instruction == "open the drawer"
    assert outcome_of(change, DONE) == ONE


@pytest.mark.parametrize("truth", [NOTHING, HALF, FAILED, UNKNOWN])
def test_a_failure_may_have_done_another_task_of_its_own_scene(truth: Label) -> None:
    with pytest.raises(NotApplicable, match="known to be a success"):
        swap("put the carrot on the plate", truth, 1, [NEAR, FAR])
    for severity in (2, 3):
        change = swap("put the carrot on the plate", truth, severity, [NEAR, FAR])
        assert change.episode.instruction == "fold the towel"
        assert outcome_of(change, truth) == ONE


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("close the toilet", "close the white lid of the toilet"),  # the same thing
        ("put the carrot on the plate", "put the vegetable in the sink"),  # a carrot is a vegetable
        ("open the cabinet", "open the cupboard"),  # another word for it
        ("open the oven", "open the door"),  # perhaps its door
        ("pick up the cube", "pick up the pink object"),  # perhaps that object
        ("open the drawer", "réorganiser"),  # who knows
        ("move the cup to the left", "move the mug to the right"),  # many a mug is called a cup
        ("put the marker in the bowl", "take the pen out of the box"),
        ("cover the pot", "put the lid on the table"),  # with that lid
        ("wipe the table", "move the towel to the left"),  # wiped with that towel
        ("turn on the light", "press the switch"),
        ("move the pink toy to the left", "close the cover of the box"),  # perhaps a toy with a cover
        ("lift the lid of the coffee machine", "push the button to open the chamber of the maker"),
        ("put the gizmo on the table", "open the drawer"),  # who knows what a gizmo is
    ],
)
def test_tasks_that_may_coincide_are_never_swapped(one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        with pytest.raises(NotApplicable, match="no clearly different task"):
            swap(first, DONE, 2, [make(second, DONE, 1)])


def test_a_video_is_never_asked_for_a_wish_it_also_carries() -> None:
    twin = make("open the drawer", DONE, 0, Provenance("here", "drawer"))
    with pytest.raises(NotApplicable):
        swap("put the carrot on the plate", DONE, 2, [twin])


def grounding(instruction: str, severity: int, *others: str) -> str:
    """What is asked instead of an instruction where these others are in its source, each of its own task."""
    dataset = [make(text, DONE, number, Provenance("here", text)) for number, text in enumerate(others, start=1)]
    change = BY_NAME["instruction_swap"](make(instruction, DONE), severity, 0, dataset)
    assert change.expect == "lower" and change.episode.label == UNKNOWN
    return change.episode.instruction


CUP = "put the cup on the plate"
OTHERS = (
    "fold the towel",
    "place the fork on the plate",
    "remove the cup from the plate",
    "put the cup in the sink",
    "set the cup on the plate",
)


@pytest.mark.parametrize(
    ("severity", "chosen"),
    [
        (1, {"fold the towel"}),  # all the others name a cup or a plate
        (2, {"place the fork on the plate"}),  # another word for the verb is the same verb
        (3, {"remove the cup from the plate"}),
        (4, {"put the cup in the sink"}),
    ],
)
def test_other_instructions_of_a_source_come_ever_closer(severity: int, chosen: set[str]) -> None:
    assert {grounding(CUP, severity, *OTHERS[number:], *OTHERS[:number]) for number in range(len(OTHERS))} == chosen


def test_what_is_done_last_to_it_counts() -> None:
    assert grounding("take the lid and put it on the pot", 3, "put the lid in the sink", "remove the lid") == (
        "remove the lid"
    )


def test_opposite_verbs_are_other_verbs() -> None:
    assert grounding("open the drawer", 3, "shut the drawer", "open the window") == "shut the drawer"


def test_an_instruction_the_parser_does_not_know_has_others_without_a_common_object() -> None:
    assert grounding("réorganiser", 1, "open the drawer") == "open the drawer"
    with pytest.raises(NotApplicable, match="cannot parse"):
        grounding("réorganiser", 2, "open the drawer")


def test_no_other_instruction_of_another_source_is_taken() -> None:
    with pytest.raises(NotApplicable, match="needs another instruction that has verb in common"):
        BY_NAME["instruction_swap"](make(CUP, DONE), 2, 0, [make(OTHERS[1], DONE, 1, Provenance("there", "fork"))])


@pytest.mark.parametrize("truth", [NOTHING, HALF, FAILED, UNKNOWN])
def test_a_failure_has_no_own_instruction_to_prefer(truth: Label) -> None:
    with pytest.raises(NotApplicable, match="known to be a success"):
        BY_NAME["instruction_swap"](make(CUP, truth), 1, 0, [NEAR])
