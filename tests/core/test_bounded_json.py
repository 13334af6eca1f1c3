"""JSON from strangers: what is absurd is refused in a few words, what is sound comes through as json reads it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardlab.core.errors import PlanError
from rewardlab.core.limits import JSON_DEPTH, JSON_MB
from rewardlab.core.records import parse_json, read_json

_SOUND = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(_SOUND)
def test_sound_json_is_read_as_it_is(content: object) -> None:
    assert parse_json(json.dumps(content)) == content


@pytest.mark.parametrize("space", ["", " ", "\n", "\r\n", " \t\n"])
def test_space_around_a_value_is_no_part_of_it(space: str) -> None:
    assert parse_json(f'{space}{{"a": [1]}}{space}', unique_keys=True) == {"a": [1]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{} {}", "Extra data at line 1, column 4"),
        ("{}\N{NO-BREAK SPACE}", "Extra data at line 1, column 3"),
        ("", "Expecting value at line 1, column 1"),
        ('{"a', "Unterminated string starting at line 1, column 2"),
        ("[" * 100_000, "inside each other, at most 64"),
        ('{"a":' * 65 + "1" + "}" * 65, "inside each other, at most 64"),
        ("1" * 400, "400 digits, at most 40"),
        ("-1e999", "too large"),
        ("[NaN]", "NaN, which is no JSON number"),
        ('{"task": "\\ud83d"}', "half of a surrogate pair"),
        ('{"\\udc00": 1}', "half of a surrogate pair"),
        (b"\xff{}", "decode"),
        ("{", "line 1, column 2"),
    ],
)
def test_absurd_json_is_refused_in_words(text: str | bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_json(text)


def test_brackets_in_text_are_no_depth_and_a_whole_pair_is_a_character() -> None:
    assert parse_json(json.dumps("[{" * 100)) == "[{" * 100
    assert parse_json('"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_a_limit_is_a_setting_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(JSON_DEPTH.variable, "100")
    assert parse_json("[" * 100 + "]" * 100)
    (tmp_path / "big.json").write_text('"' + "x" * 2_000_000 + '"')
    monkeypatch.setenv(JSON_MB.variable, "1")
    with pytest.raises(ValueError, match=r"2 MB of JSON, at most 1 .*REWARDLAB_MAX_JSON_MB"):
        read_json(tmp_path / "big.json")
    monkeypatch.setenv(JSON_MB.variable, "lots")
    with pytest.raises(PlanError, match="REWARDLAB_MAX_JSON_MB must be a whole number above 0, got 'lots'"):
        read_json(tmp_path / "big.json")
