"""Settings from a signature: the same ones in the help, on the command line, in Python and in the record."""

import inspect
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from rewardlab.core.errors import PlanError
from rewardlab.core.settings import (
    Budget,
    Data,
    Execution,
    Help,
    Seed,
    arguments_of,
    as_command,
    command_parser,
    recorded,
    settings_of,
)


def probe(
    models: Annotated[str | Sequence[str], Help("models to evaluate", metavar="MODEL")],
    data: Data,
    *,
    severities: Annotated[int | Sequence[int], Help("severities")] = (1, 2),
    kind: Annotated[Literal["fast", "slow"], Help("how")] = "fast",
    where: Annotated[str | Sequence[str], Help("conditions", commas=False)] = (),
    controls: Annotated[bool, Help("leave out the baselines")] = True,
    strict: Annotated[bool, Help("stop at problems")] = False,
    out: Annotated[Path | str | None, Help("run folder")] = None,
    seed: Seed = 0,
    secret: object = None,
    execution: Execution = Execution(),
) -> dict[str, Any]:
    """Do nothing with a dataset.

    Examples:
        rewardlab probe pocket sample
    """
    return recorded(probe, locals())


def parse(*words: str) -> dict[str, Any]:
    given = vars(command_parser("probe", probe, settings_of(probe)).parse_args(words))
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def called(*words: str) -> dict[str, Any]:
    return probe(**arguments_of(probe, parse(*words)))


def test_words_and_flags_are_read_by_their_types() -> None:
    read = called("a", "b", "data", "--severities", "3, 4", "--kind", "slow", "--no-controls", "--out", "x/y", "-q")
    assert (read["models"], read["data"], read["severities"]) == (["a", "b"], "data", [3, 4])
    assert (read["kind"], read["controls"], read["strict"], read["quiet"]) == ("slow", False, False, True)
    assert parse("a", "data", "--out", "x")["out"] == Path("x")
    assert called("a", "data", "--where", "a=1,2", "--where", "b=3")["where"] == ["a=1,2", "b=3"]


def test_the_recorded_command_makes_the_same_record() -> None:
    record = called("a", "my lab.x:y", "some data", "--severities", "2", "--no-controls", "--strict", "--workers", "2")
    command = as_command("probe", probe, record)
    assert command == "rewardlab probe a 'my lab.x:y' 'some data' --severities 2 --no-controls --strict --workers 2"
    assert called(*shlex.split(command)[2:]) == record
    assert as_command("fit probe", probe, record).startswith("rewardlab fit probe a ")


def test_python_takes_one_value_or_several_and_groups() -> None:
    record = probe("a", "data", severities=3, execution=Execution(workers=4, quiet=True))
    assert (record["models"], record["workers"], record["quiet"]) == (["a"], 4, True)
    assert "execution" not in record and "secret" not in record


def test_every_setting_is_in_the_help_and_rare_ones_in_the_whole_help(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit):
            parse(flag)
        shown[flag] = capsys.readouterr().out
        assert max(map(len, shown[flag].splitlines())) <= 80
    rare = [setting.flag for setting in settings_of(probe) if setting.help.more]
    assert rare and not any(flag in shown["--help"] for flag in rare)
    assert all(setting.flag in shown["--help-all"] for setting in settings_of(probe) if not setting.positional)
    assert "--no-controls" in shown["--help"] and "--no-strict" not in shown["--help"]
    assert "{fast,slow}" in shown["--help"] and "  rewardlab probe pocket sample" in shown["--help"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a"], "DATA must be given: rewardlab probe MODEL... DATA"),
        (["a", "d", "--sed", "1"], "takes no '--sed'; did you mean --seed?"),
        (["a", "d", "--seed", "x"], "--seed: expected a whole number, got 'x'"),
        (["a", "d", "--gpus", "nan"], "--gpus: expected a number, got 'nan'"),
        (["a", "d", "--kind", "slo"], "--kind: expected one of fast, slow, got 'slo'; did you mean slow?"),
        (["a", "d", "--seed"], "--seed needs a value"),
        (["a", "d", "--gpus", "1"], "address and gpus are for --engine ray"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(PlanError) as error:
        called(*words)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_group_checks_its_values_however_they_come() -> None:
    with pytest.raises(PlanError, match=r"engine of Execution must be .*, got 'cloud'"):
        Execution(engine="cloud")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="max-requests and max-cost"):
        Budget(max_cost=-1)


def test_the_signature_shows_what_a_setting_is_for() -> None:
    assert "'models to evaluate'" in str(inspect.signature(probe))
