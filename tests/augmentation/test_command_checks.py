"""What code refuses of a command and of a rewritten task, and what it lets pass."""

import pytest

from rewardlab.augmentation.task_texts import suggested_commands
from rewardlab.augmentation.text_checks import (
    VERBS,
    CommandContext,
    command_rejection,
    is_paraphrase,
    rewrite_rejection,
    words_of,
)
from rewardlab.worlds.metaworld.instructions import phrasings

CONTEXT = CommandContext(
    original="Put the red cup on the plate.",
    analysis="1) A red cup, a white plate and a spoon lie on a table. 2) The cup is placed. 3) The gripper is open.",
    score=3,
    lower=("Pick up the spoon.", "Put the red cup next to the spoon."),
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("Put the cup on the plâte.", "not plain ASCII"),
        ("Put the cup\non the spoon.", "one line"),
        ('"Put the cup on the spoon."', "in quotes"),
        ("Put the red cup " + "very " * 20 + "near the plate", "words, at most 24"),
        ("The cup should be under the plate.", "begin with a verb"),
        ("I am sorry, I cannot help with that.", "begin with a verb"),
        ("Placing the cup under the plate.", "begin with a verb"),
        ("Put the cup under the plate for a score of 3.", "speaks of 'score of 3'"),
        ("Put the cup under the plate unlike the original task.", "speaks of 'original task'"),
        ("Put the red cup into the microwave.", "called 'microwave'"),
        ("Put the red cup on the plate and release the gripper.", "the gripper to be controlled"),
        ("Turn the spoon upside down.", "must name the object of the original task"),
        ("Put the cup on the plate.", "entails it"),
        ("Place the red cup onto the plate.", "entails it"),
        ("Set the red cup next to the spoon.", "paraphrase of 'Put the red cup next to the spoon.'"),
    ],
)
def test_a_command_that_breaks_a_rule_is_refused_with_the_rule(text: str, words: str) -> None:
    assert words in command_rejection(text, CONTEXT)


@pytest.mark.parametrize(
    "text",
    [
        "Put the plate on the red cup.",
        "Turn the red cup upside down on the plate.",
        "Put the red cup on the left edge of the plate.",
        "Move the cup 5 cm to the right of the plate.",
    ],
)
def test_a_command_that_keeps_every_rule_passes(text: str) -> None:
    assert command_rejection(text, CONTEXT) == ""


def test_other_numbers_or_another_order_are_no_paraphrase() -> None:
    assert is_paraphrase("Move the puck 4 cm to the left.", "Move the puck to the left 4 cm.") is False
    assert is_paraphrase("Move the puck 4 cm to the left.", "Shift a puck 4 cm to the left!") is True
    assert is_paraphrase("Move the puck 4 cm to the left.", "Move the puck 9 cm to the left.") is False


def test_every_phrasing_of_the_simulator_that_commands_begins_with_a_known_verb() -> None:
    first = {words_of(text)[0] for lists in phrasings().values() for text in lists["train"]}
    assert first - {"with"} <= VERBS, first - VERBS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Place the dishes in the dish rack", ""),
        ("Place the dishes in the sink", "lost 'rack', added 'sink'"),
        ("Open the door", "changes the meaning"),
        ("Place the dishes\nin the dish rack", "not one line"),
        ('"Place the dishes in the dish rack"', "in quotes"),
    ],
)
def test_a_rewritten_task_may_change_spelling_and_no_more(text: str, words: str) -> None:
    found = rewrite_rejection(text, "palce dishes in teh dish rack")
    assert words in found if words else found == ""


def test_a_rewritten_task_may_not_turn_around_or_change_a_number() -> None:
    assert "turns the task around" in rewrite_rejection("Close the door.", "open teh door")
    assert "lost 'closer'" in rewrite_rejection("Pull the cup 8 cm close to it.", "pull teh cup 8 cm closer to it")
    assert "changes the meaning" in rewrite_rejection("Move it 15 cm left.", "move it 5 cm left")


def test_a_plan_ends_in_one_command_for_each_score_in_order() -> None:
    ideas = "3) Ideas\n1: a\n2: b\n"
    right = ideas + "5) Final set\n1: Open it.\n2 - Close it.\nScore 3: Push it.\n4) Pull it.\n5: Lift it."
    assert suggested_commands(right) == {1: "Open it.", 2: "Close it.", 3: "Push it.", 4: "Pull it.", 5: "Lift it."}
    for wrong in ("2: a\n1: b\n3: c\n4: d", "1: a\n2: b\n4: c", "1: a\n3: b\n2: c\n4: d", "I cannot do that.", ""):
        assert suggested_commands(wrong) == {}, wrong
