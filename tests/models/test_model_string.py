from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from rewardlab.api import stress_plan
from rewardlab.core.errors import DataError, PlanError
from rewardlab.data import open_dataset
from rewardlab.models.contract import ModelString, parse_model_string, read_arguments, shown_options, with_options


@dataclass(frozen=True)
class Some:
    name: Literal["a", "b&c", ""] = "a"
    count: int = 3
    price: float = 0.5
    fast: bool = False


def options_of(text: str) -> Some:
    given: dict[str, Any] = read_arguments("model", Some, parse_model_string(text).options)
    return Some(**given)


def test_a_string_is_name_argument_options_and_calibrations(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "calibration.json").write_text("{}")
    first, second = (tmp_path / name for name in ("first", "second"))
    assert parse_model_string("length") == ModelString("length", "length")
    text = "openai:m@http://host/v1?a=b?parser=helm&first=te%26xt"
    assert parse_model_string(text) == ModelString(
        text, "openai", "m@http://host/v1?a=b", (("parser", "helm"), ("first", "te&xt"))
    )
    twice = parse_model_string(f"length:7+{first}+{second}")
    assert (twice.text, twice.name, twice.argument) == ("length:7", "length", "7")
    assert twice.calibrations == (
        (f"length:7+{first}", first / "calibration.json"),
        (f"length:7+{first}+{second}", second / "calibration.json"),
    )
    assert parse_model_string("hf:a+b").calibrations == ()  # no such file: the + is part of the name


def test_without_options_the_settings_are_the_defaults() -> None:
    assert options_of("some/model") == Some()


def test_values_are_read_as_the_kind_of_their_default() -> None:
    settings = options_of("m@http://host/v1?name=b%26c&count=7&price=2&fast=yes")
    assert settings == Some("b&c", 7, 2.0, True)
    assert type(settings.price) is float
    assert read_arguments("model", Some, (("fast", "off"), ("name", ""))) == {"fast": False, "name": ""}


def test_options_of_somebody_else_are_among_what_is_known() -> None:
    with pytest.raises(PlanError, match="it takes depth, name, count, price, fast;"):
        read_arguments("model", Some, (("width", "1"),), also=("depth",))


def test_options_have_one_spelling_in_a_name() -> None:
    texts = ("m?price=2&name=b%26c", "m?name=b%26c&count=3&price=2.0", "m?fast=no&price=2.00&name=b%26c")
    for text in texts:
        given = read_arguments("model", Some, parse_model_string(text).options)
        assert with_options("m", shown_options(Some, given)) == "m?name=b%26c&price=2"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("conut=7", "model takes no option 'conut'; did you mean count? it takes name, count, price, fast"),
        ("count=many", "option count must be a whole number, got 'many'"),
        ("count=1.5", "option count must be a whole number, got '1.5'"),
        ("count=" + "9" * 400, "option count must be a whole number, got '999"),
        ("price=nan", "option price must be a number, got 'nan'"),
        ("price=inf", "option price must be a number, got 'inf'"),
        ("fast=perhaps", "option fast must be yes or no, got 'perhaps'"),
        ("name=z", "option name must be a, b&c or , got 'z'"),
        ("count=1&count=2", "option count of model is given twice"),
        ("count", "expected key=value, got 'count'"),
        ("", "expected key=value, got ''"),
    ],
)
def test_a_wrong_option_is_said_with_what_was_expected(options: str, words: str) -> None:
    with pytest.raises(PlanError) as error:
        options_of(f"model?{options}")
    assert words in str(error.value)


@pytest.mark.parametrize("length", [300, 1_000_000])
@pytest.mark.parametrize(
    "name",
    [
        *("{}", "{}:Name", "json:{}", "{0}.{0}:Name", "constant?{}=1", "constant?level={}", "hf:{}", "openai:{}"),
        *("pocket:{}", "length+{}", "ensemble:{}", "ensemble:length,{}"),
    ],
)
def test_a_long_name_is_refused_in_one_short_sentence(name: str, length: int) -> None:
    with pytest.raises(PlanError) as refused:
        stress_plan({"models": (name.format("n" * length),), "data": "sample"})
    assert len(str(refused.value)) < 2_000


def test_a_long_name_of_a_dataset_is_refused_in_one_short_sentence() -> None:
    with pytest.raises(DataError) as refused:
        open_dataset("n" * 300)
    assert len(str(refused.value)) < 2_000
