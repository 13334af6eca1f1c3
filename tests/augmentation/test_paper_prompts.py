"""The prompts that are sent are those of the paper, word for word."""

import re

import pytest

from rewardlab.augmentation.questions import prompt_text
from rewardlab.models.protocols import PROGRESS_RUBRIC, QUESTION, roboreward_prompt
from tests.augmentation.paper_prompts import paper_prompts, stored, text_hash

# Each as it is sent, with the paper's names in place of values.
SENT = {
    "rubric": PROGRESS_RUBRIC,
    "rewrite": prompt_text("rewrite", task="{TASK}"),
    "analysis": prompt_text("analysis", task="{ORIGINAL_TASK}"),
    "plan": prompt_text("plan", task="{ORIGINAL_TASK}", analysis="{VIDEO_ANALYSIS}"),
    "command": prompt_text("command", task="{ORIGINAL_TASK}", plan="{PLAN_TEXT}", history="{HISTORY}", score="{K}"),
    "validate": prompt_text("validate", task="{TASK_DESCRIPTION}", score="{PROVIDED_SCORE}"),
    "describe": QUESTION,
}


@pytest.mark.parametrize("name", stored())
def test_prompt_is_that_of_the_paper(name: str) -> None:
    assert text_hash(SENT[name]) == stored()[name]


def test_scoring_prompt_holds_the_rubric_of_the_paper() -> None:
    opening, _, task = roboreward_prompt("open the drawer").partition(PROGRESS_RUBRIC)
    assert opening.rstrip().endswith("ANSWER: <score>")
    assert task == "\n\nTask: open the drawer"


def test_prompts_are_found_in_a_text_with_the_marks_of_a_conversion() -> None:
    marked = "\n\n".join(
        re.sub(
            r"^ *(?=\d\) |\* )", "- ", text.replace("1 < 2 < 3 < 4 < 5", " $1 < 2 < 3 < 4 < 5$ "), flags=re.MULTILINE
        )
        for text in SENT.values()
    )
    found = paper_prompts(f"```\n{marked}\n```\n".replace("_", "\\_").replace("*", "\\*"))
    assert {name: text_hash(text) for name, text in found.items()} == stored()
