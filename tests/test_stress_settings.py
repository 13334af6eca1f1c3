"""The signature of `stress` is its settings: recorded flat, read back, and an option more is one line more."""

import inspect
import json
import shlex
import sys
import types
from pathlib import Path

import pytest

import rewardlab
from rewardlab import api
from rewardlab.api import stress
from rewardlab.cli import COMMANDS, main
from rewardlab.core.errors import PlanError
from rewardlab.core.settings import Execution, all_arguments, as_command, command_parser, recorded, settings_of
from tests.conftest import IN_PROCESS
from tests.test_docs import script

LINE = '    salt: Annotated[int, Help("what is mixed into the seed")] = 7,\n'


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The module of `stress` with one line more in its signature."""
    source = Path(api.__file__).read_text(encoding="utf-8")
    head, mark, rest = source.partition("def stress(\n    models: Models,\n    data: Data,\n    *,\n")
    assert mark
    module = types.ModuleType("rewardlab.api")
    exec(compile(head + mark + LINE + rest, api.__file__, "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "rewardlab.api", module)
    monkeypatch.setattr(rewardlab, "api", module)
    return module


@pytest.mark.usefixtures("patched")
def test_a_new_option_is_in_help_python_record_and_reference(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["stress", "--help"])
    assert "--salt N" in capsys.readouterr().out
    assert inspect.signature(rewardlab.stress).parameters["salt"].default == 7
    few = ["--perturbations", "none", "--no-controls", "--engine", "local", "-q"]
    assert main(["stress", "constant", str(tiny_data), *few, "--salt", "9", "--out", str(tmp_path / "run")]) == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["settings"]["salt"] == 9 and "--salt 9" in record["command"]
    again = rewardlab.stress("constant", tiny_data, perturbations="none", execution=IN_PROCESS, out=tmp_path / "again")
    assert json.loads((again.folder / "run.json").read_text())["settings"]["salt"] == 7
    section = "\n".join(script("make_reference").command_section("stress", COMMANDS["stress"]))
    assert "| `--salt N` | 7 | what is mixed into the seed |" in section


def test_the_recorded_command_makes_the_same_call() -> None:
    given = {"models": ("length", "my lab.x:y"), "data": "some data", "severities": 2, "controls": False}
    arguments = all_arguments(stress, given | {"skip_invalid": True, "out": Path("a b"), "workers": 3})
    settings = recorded(stress, arguments)
    command = as_command("stress", stress, settings)
    assert "--seed" not in command and "--no-controls" in command  # a default needs no saying
    read = vars(command_parser("stress", stress, COMMANDS["stress"].settings).parse_args(shlex.split(command)[2:]))
    again = {setting.name: read[setting.name] for setting in settings_of(stress)}
    assert recorded(stress, all_arguments(stress, again)) == settings


def test_the_settings_of_a_group_are_recorded_flat() -> None:
    arguments = all_arguments(
        stress, {"models": "length", "data": "sample", "limit": 2, "execution": Execution(workers=3)}
    )
    flat = recorded(stress, arguments)
    assert (flat["workers"], flat["limit"], flat["models"]) == (3, 2, ["length"]) and "execution" not in flat
    assert all_arguments(stress, {"models": "length", "data": "sample", "limit": 2, "workers": 3}) == arguments


def test_a_setting_that_a_command_does_not_have_is_refused() -> None:
    with pytest.raises(PlanError, match="no setting is called 'limits'; did you mean limit"):
        all_arguments(stress, {"models": ("length",), "data": "sample", "limits": 2})
