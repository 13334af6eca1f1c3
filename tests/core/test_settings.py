import shlex
from pathlib import Path

from rewardlab.cli import _parser, parsed
from rewardlab.core.settings import as_command
from rewardlab.runner.plan import StressPlan


def test_the_command_of_a_plan_makes_the_same_plan() -> None:
    plan = StressPlan(
        models=("clock", "my lab.x:y"),
        data="some data",
        severities=(2,),
        controls=False,
        skip_bad=True,
        out=Path("a b"),
    )
    command = as_command("stress", plan)
    assert "--seed" not in command  # a default needs no saying
    _, again = parsed(vars(_parser(["stress"]).parse_args(shlex.split(command)[1:])))
    assert again == plan
