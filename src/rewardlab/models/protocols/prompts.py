"""Prompts of published models and protocols, word for word: a model answers well only to its own."""

# teetone/RoboReward-4B and -8B (CC-BY-4.0), the prompt of their model cards and of `robometer/evals/baselines/
# roboreward.py` in robometer (MIT).
_ROBOREWARD = """\
Given the task, assign a discrete progress score reward (1,2,3,4,5) for the robot in the video in the format: \
ANSWER: <score>
Rubric for end-of-episode progress (judge only the final state without time limits):
1 - No Success: Final state shows no goal-relevant change for the command.
2 - Minimal Progress: Final state shows a small but insufficient change toward the goal.
3 - Partial Completion: The final state shows good progress toward the goal but violates more than one requirement \
or a major requirement.
4 - Near Completion: Final state is correct in region and intent but misses a single minor requirement.
5 - Perfect Completion: Final state satisfies all requirements.

Task: """

# Generative Value Learning, `index.html` of generative-value-learning.github.io (the site states no licence; quoted
# as the protocol that its published numbers were made with).
_GVL_OPENING = """\
You are an expert roboticist tasked to predict task completion percentages for frames of a robot for the task of {}. \
The task completion percentages are between 0 and 100, where 100 corresponds to full task completion. \
We provide several examples of the robot performing the task at various stages and their corresponding task \
completion percentages. Note that these frames are in random order, so please pay attention to the individual frames \
when reasoning about task completion percentage.
Initial robot scene:
This frame:"""
_GVL_QUESTION = """\
 shows the initial robot scene, where the task completion percentage is 0.

Now, for the task of *{}*, output the task completion percentage for the following frames that are presented in \
random order. Format your response as follow in json format, make sure to include all frames:

[
{{"frame_number": i, "frame_description": "...", "task_completion_percentage": (0-100)}}
]"""

# TOPReward (github.com/jcoleharrison/TOPReward, MIT). The video stands before TOPREWARD_CLAIM.
TOPREWARD_CLAIM = "The above video shows a robot manipulation trajectory that completes the following task: "
_TOPREWARD_QUESTION = "{} Decide whether the above statement is True or not. The answer is:"
TOPREWARD_ANSWER = " True"  # its log-probability is the score


def roboreward_prompt(instruction: str) -> str:
    """Return the RoboReward prompt, which asks for `ANSWER: <1-5>`."""
    return _ROBOREWARD + instruction


def gvl_opening(instruction: str) -> str:
    """Return the text before the first true frame."""
    return _GVL_OPENING.format(instruction)


def gvl_question(instruction: str) -> str:
    """Return the text after the first true frame; the shuffled frames follow, each after `gvl_frame`."""
    return _GVL_QUESTION.format(instruction)


def gvl_frame(number: int) -> str:
    """Return the text before a shuffled frame, counted from 1."""
    return f"Frame {number}:"


def topreward_question(instruction: str) -> str:
    """Return the text between TOPREWARD_CLAIM and TOPREWARD_ANSWER."""
    return _TOPREWARD_QUESTION.format(instruction)
