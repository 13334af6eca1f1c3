from dataclasses import dataclass

import pytest

from rewardlab.core.errors import PlanError
from rewardlab.models.model_string import one_of, read_options


@dataclass(frozen=True)
class Some:
    name: str = "a"
    count: int = 3
    price: float = 0.5
    fast: bool = False

    def __post_init__(self) -> None:
        one_of("name", self.name, ("a", "b&c", ""))


def test_without_options_the_settings_are_the_defaults() -> None:
    assert read_options("some/model", Some()) == ("some/model", Some())


def test_values_are_read_as_the_kind_of_their_default() -> None:
    text, settings = read_options("m@http://host/v1?name=b%26c&count=7&price=2&fast=yes", Some())
    assert (text, settings) == ("m@http://host/v1", Some("b&c", 7, 2.0, True))
    assert type(settings.price) is float
    assert read_options("m?fast=off&name=", Some(fast=True))[1] == Some("", fast=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("conut=7", "no option is called 'conut' here; known: name, count, price, fast"),
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
        read_options(f"model?{options}", Some())
    assert words in str(error.value)
