import math
from pathlib import Path
from typing import Any

import pytest

from rewardlab.core.errors import DataError, PlanError
from rewardlab.models.simulated import Competence
from rewardlab.studies.perturbation_paper.commands import study_montecarlo
from rewardlab.studies.perturbation_paper.equation import StudyConfig
from rewardlab.studies.perturbation_paper.fit_and_power import read_table

NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"rho": 1.0}, r"rho must be .* got 1\.0"),
    ({"rho": -0.1}, r"rho must be .* got -0\.1"),
    ({"rho": math.nan}, "rho must be .* got nan"),
    ({"noise": -1.0}, r"noise \(k\) must be .* got -1\.0"),
    ({"noise": math.inf}, "noise .* got inf"),
    ({"steps": 1}, r"steps \(T\) must be at least 2.* got 1"),
    ({"episodes": 1}, "episodes must be at least 2.* got 1"),
    ({"severities": ()}, "severities must rise .* got none"),
    ({"severities": (0, 2, 1)}, "severities must rise .* got 0,2,1"),
    ({"severities": (-1, 0)}, "severities must rise .* got -1,0"),
    ({"correlation": 1.5}, r"correlation .* got 1\.5"),
    ({"accuracy_threshold": 0.0}, r"accuracy-threshold .* got 0\.0"),
]
FIELDS = {"accuracy_threshold": "reliable_at"}  # the names of fields are part of the ids of simulated trials


@pytest.mark.parametrize(("settings", "says"), NONSENSE)
def test_nonsense_is_refused_in_a_sentence(settings: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=says):
        StudyConfig(**{FIELDS.get(name, name): value for name, value in settings.items()})
    with pytest.raises(PlanError, match=says):
        study_montecarlo(**settings, out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"models": {}}, "at least one model"),
        ({"categories": ("visual", "smell")}, "got smell"),
        ({"categories": ()}, "got none"),
        ({"models": {"m": Competence(0.7, {"visual": 0.1})}}, "'m' has no sigma for semantic"),
        ({"models": {"m": Competence(math.nan, {})}, "categories": ("visual",)}, "no sigma"),
        ({"models": {"m": Competence(1.2, {"visual": 0})}, "categories": ("visual",)}, r"alpha of 'm' .* got 1\.2"),
        ({"models": {"m": Competence(0.7, {"visual": -0.1})}, "categories": ("visual",)}, r"sigma of 'm' .* got -0\.1"),
        ({"models": {"m": Competence(0.7, {"visual": math.nan})}, "categories": ("visual",)}, "sigma .* got nan"),
        ({"tasks": {"knot": -1.0}}, "task factors"),
    ],
)
def test_a_study_of_nonsense_models_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        StudyConfig(**settings)


HEAD = "model,category,severity,accuracy\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must begin with the line model,category"),
        ("model,category,accuracy\n", "lacks severity"),
        (HEAD, "holds no line"),
        (HEAD + "m,visual,1,0.9\nm,visual,2,nan\n", "line 3: accuracy must be .* got 'nan'"),
        (HEAD + "m,visual,1,1.2\n", r"line 2: accuracy .* got '1\.2'"),
        (HEAD + "m,visual,1,\n", "line 2: accuracy .* got ''"),
        (HEAD + "m,visual,1\n", "line 2: accuracy .* got ''"),
        (HEAD + "m,smell,1,0.9\n", "line 2: category must be one of visual, .* got 'smell'"),
        (HEAD + "m,clean,1,0.9\n", "got 'clean'"),
        (HEAD + "m,visual,-1,0.9\n", "line 2: severity .* got '-1'"),
        (HEAD + "m,visual,1.5,0.9\n", r"line 2: severity .* got '1\.5'"),
        (HEAD + ",visual,1,0.9\n", "line 2: the model has no name"),
    ],
)
def test_a_bad_table_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        read_table(path)


def test_a_table_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "picture.csv").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.raises(DataError, match="cannot read"):
        read_table(tmp_path / "picture.csv")


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(PlanError, match="seed must not be negative, got -1"):
        study_montecarlo(seed=-1)
