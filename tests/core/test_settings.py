import shlex
from pathlib import Path

import pytest

from rewardlab.cli import _parser, parsed
from rewardlab.core.errors import PlanError
from rewardlab.core.old_settings import as_command, build_plan, flat_settings
from rewardlab.evaluation.evaluate import StressPlan
from rewardlab.evaluation.plan import ScoringSettings


def test_the_command_of_a_plan_makes_the_same_plan() -> None:
    plan = StressPlan(
        models=("clock", "my lab.x:y"),
        data="some data",
        severities=(2,),
        controls=False,
        scoring=ScoringSettings(skip_bad=True, out=Path("a b")),
    )
    command = as_command("stress", plan)
    assert "--seed" not in command  # a default needs no saying
    _, again = parsed(vars(_parser(["stress"]).parse_args(shlex.split(command)[1:])))
    assert again.plan == plan


def test_nested_settings_are_saved_and_built_flat() -> None:
    plan = StressPlan(("clock",), "sample", scoring=ScoringSettings(seed=3, limit=2))
    flat = flat_settings(plan)
    assert (flat["seed"], flat["limit"], flat["models"]) == (3, 2, ("clock",)) and "scoring" not in flat
    assert build_plan(StressPlan, flat) == plan


def test_a_setting_that_a_plan_does_not_have_is_refused() -> None:
    with pytest.raises(PlanError, match="no setting is called 'limits'; did you mean limit"):
        build_plan(StressPlan, {"models": ("clock",), "data": "sample", "limits": 2})
