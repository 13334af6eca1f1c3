from dataclasses import dataclass
from pathlib import Path

import pytest

from rewardlab.core.errors import PlanError
from rewardlab.models.model_string import ModelString, one_of, parse_model_string, read_options, read_two_options


@dataclass(frozen=True)
class Some:
    name: str = "a"
    count: int = 3
    price: float = 0.5
    fast: bool = False

    def __post_init__(self) -> None:
        one_of("name", self.name, ("a", "b&c", ""))


@dataclass(frozen=True)
class Other:
    depth: int = 1
    count: int = 1


def options_of(text: str) -> Some:
    return read_options(parse_model_string(text).options, Some())


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
    assert read_options((("fast", "off"), ("name", "")), Some(fast=True)) == Some("", fast=False)


def test_two_sets_of_options_share_a_string_and_the_first_comes_first() -> None:
    pairs = parse_model_string("m?count=7&depth=2&old=9").options
    own, other = read_two_options(pairs, Some(), Other(), {"old": "price"})
    assert (own, other) == (Some(count=7, price=9.0), Other(depth=2, count=1))
    with pytest.raises(PlanError, match="option price is given twice"):
        read_two_options((("price", "1"), ("old", "2")), Some(), Other(), {"old": "price"})
    with pytest.raises(PlanError, match="known: name, count, price, fast, depth;"):
        read_two_options((("width", "1"),), Some(), Other())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("conut=7", "no option is called 'conut' here; did you mean count? known: name, count, price, fast"),
        ("count=many", "option count must be a whole number, got 'many'"),
        ("count=1.5", "option count must be a whole number, got '1.5'"),
        ("count=" + "9" * 400, "option count must be a whole number, got '999"),
        ("price=nan", "option price must be a number, got 'nan'"),
        ("price=inf", "option price must be a number, got 'inf'"),
        ("fast=perhaps", "option fast must be yes or no, got 'perhaps'"),
        ("name=z", "option name must be a, b&c or , got 'z'"),
        ("count=1&count=2", "option count is given twice"),
        ("count", "expected key=value, got 'count'"),
        ("", "expected key=value, got ''"),
    ],
)
def test_a_wrong_option_is_said_with_what_was_expected(options: str, words: str) -> None:
    with pytest.raises(PlanError) as error:
        options_of(f"model?{options}")
    assert words in str(error.value)
