import sys
from pathlib import Path

import pytest

from rewardlab.core.errors import ModelError, PlanError
from rewardlab.models import name_model

CODE = """
from rewardlab import Score
class Always:
    def score(self, episodes):
        return [Score(2.0) for _ in episodes]
def make():
    return Always()
ready = Always()
nothing = 5
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "mylab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    path = package / "reward.py"
    path.write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("mylab", "mylab.reward"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return path


@pytest.mark.parametrize("name", ["Always", "make", "ready"])
def test_a_class_a_function_and_an_object_all_work(mine: Path, name: str) -> None:
    model = name_model(f"mylab.reward:{name}")
    assert not model.sees_truth
    assert model.build().score([None])[0].level == 2


def test_a_file_in_the_folder_of_the_command_is_code_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lone_reward.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])  # as in the installed command
    assert name_model("lone_reward:Always").build().score([None])[0].level == 2


def test_changed_code_is_another_model(mine: Path) -> None:
    before = name_model("mylab.reward:ready").fingerprint
    mine.write_text(CODE + "# changed\n")
    assert name_model("mylab.reward:ready").fingerprint != before


def test_what_is_no_model_is_refused(mine: Path) -> None:
    with pytest.raises(ModelError, match=r"score\(episodes\) method, got int"):
        name_model("mylab.reward:nothing").build()
    with pytest.raises(PlanError, match="has no 'absent'"):
        name_model("mylab.reward:absent")
    with pytest.raises(PlanError, match="no model is called '__main__'"):
        name_model("__main__:thing")
    with pytest.raises(PlanError, match=r"cannot import 'no\.such'"):
        name_model("no.such:thing")
