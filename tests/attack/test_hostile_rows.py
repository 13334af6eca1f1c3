"""Rows that nobody sane would write: each is a problem with its line, and the rows beside it are read."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rewardlab
from rewardlab.data.roboreward import read_folder, write_episode
from rewardlab.data.roboreward_rows import row_of
from tests.attack.hostile_files import small_mp4
from tests.attack.mutations import mutated_rows
from tests.conftest import write_rows

GOOD = '{"file_name": "x.mp4", "task": "push", "reward": 2}'
HOSTILE = {
    "lone surrogate": '{"file_name": "x.mp4", "task": "cut \\ud83d", "reward": 2}',
    "lone surrogate in a key": '{"file_name": "x.mp4", "task": "t", "\\udc00": 1}',
    "lone surrogate in a name": '{"file_name": "\\ud83d.mp4", "task": "t"}',
    "lone surrogate in an origin": '{"file_name": "x.mp4", "task": "t", "camera": "\\udfff"}',
    "deep list": '{"file_name": "x.mp4", "task": "t", "a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "deep object": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "unclosed": "[" * 100_000,
    "reward too long": '{"file_name": "x.mp4", "task": "t", "reward": 1' + "0" * 400 + "}",
    "rate too large": '{"file_name": "x.mp4", "task": "t", "fps": 1e400}',
    "rate of many digits": '{"file_name": "x.mp4", "task": "t", "fps": 1' + "0" * 39 + "}",
    "rate below nothing": '{"file_name": "x.mp4", "task": "t", "fps": -1e-300}',
    "rate as a text": '{"file_name": "x.mp4", "task": "t", "fps": "10"}',
    "infinite reward": '{"file_name": "x.mp4", "task": "t", "reward": Infinity}',
    "reward as a list": '{"file_name": "x.mp4", "task": "t", "reward": [2]}',
    "reward as an object": '{"file_name": "x.mp4", "task": "t", "reward": {"2": 2}}',
    "progress of words": '{"file_name": "x.mp4", "task": "t", "progress": [' + ", ".join(['"1"'] * 20) + "]}",
    "progress as an object": '{"file_name": "x.mp4", "task": "t", "progress": {"0": 1}}',
    "nul in a name": '{"file_name": "x\\u0000.mp4", "task": "t"}',
    "escape in a name": '{"file_name": "\\u001b[31mx.mp4", "task": "t"}',
    "name of a number": '{"file_name": 7, "task": "t"}',
    "name too long": '{"file_name": "' + "x/" * 3000 + '", "task": "t"}',
    "task too long": '{"file_name": "x.mp4", "task": "' + "t" * 20_000 + '"}',
    "task of spaces": '{"file_name": "x.mp4", "task": "\\u2003 \\n"}',
    "origin too long": '{"file_name": "x.mp4", "task": "t", "source": "' + "t" * 20_000 + '"}',
    "task id too deep": '{"file_name": "x.mp4", "task": "t", "task_id": ' + json.dumps(["t" * 9000] * 2) + "}",
    "key twice": '{"file_name": "x.mp4", "task": "t", "reward": 2, "reward": 5}',
    "no object": '"x.mp4"',
    "world without a kind": '{"file_name": "x.mp4", "task": "t", "world": {"kind": 7}}',
    "world file of a number": '{"file_name": "x.mp4", "task": "t", "world": {"kind": "metaworld", "file": 7}}',
    "row too long": '{"file_name": "x.mp4", "task": "t", "a": "' + "t" * 4_000_001 + '"}',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x.mp4").write_bytes(small_mp4())
    return tmp_path


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_row_is_a_problem_with_its_line_and_the_others_are_read(folder: Path, kind: str) -> None:
    contents = read_folder(write_rows(folder, [GOOD, HOSTILE[kind], GOOD]))
    assert [episode.id for episode in contents.episodes] == ["x.mp4", "x.mp4#2"]
    (problem,) = contents.problems
    assert problem.place == "line 2"
    assert 10 < len(str(problem).encode()) < 1000


def test_bytes_that_are_no_text_are_a_problem_with_its_line(folder: Path) -> None:
    lines = [GOOD.encode(), b"\xff\xfe\x00", b"\xed\xa0\x80", b"", b"   ", b"\x00" * 50, GOOD.encode()]
    (folder / "metadata.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines))
    contents = read_folder(folder)
    assert len(contents.episodes) == 2
    assert [problem.place for problem in contents.problems] == ["line 2", "line 3", "line 6"]


def test_rows_beyond_the_limit_are_named_and_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARDLAB_MAX_ROWS", "3")
    contents = read_folder(write_rows(folder, [GOOD] * 6))
    assert len(contents.episodes) == 3
    assert [str(problem) for problem in contents.problems] == [
        "line 4: this row and those after it are not read, at most 3 are taken in; set REWARDLAB_MAX_ROWS to take more"
    ]


def test_many_rows_of_one_video_share_its_frames(folder: Path) -> None:
    episodes = read_folder(write_rows(folder, [GOOD] * 50)).episodes
    assert len({id(episode.clip.order) for episode in episodes}) == 1


def test_check_survives_every_hostile_row_at_once(folder: Path) -> None:
    problems = rewardlab.data_check(write_rows(folder, [GOOD, *HOSTILE.values()])).problems
    assert [problem.place for problem in problems] == [f"line {line}" for line in range(2, len(HOSTILE) + 2)]


NUMBERS = st.one_of(
    st.integers(), st.floats(), st.sampled_from([10**39, -(10**39), 2**63, 1e308, 5e-324, True, False, 0, -0.0, 5.0])
)
TEXTS = st.one_of(
    st.text(max_size=40),
    st.text(st.characters(codec=None, categories=("Cs", "Cc", "Cf")), max_size=5),
    st.sampled_from(["x.mp4", "./x.mp4", "x.mp4/", "y.mp4", "", ".", "..", "~", "metadata.jsonl", "a\\b", "x.mp4#2"]),
)
VALUES = st.recursive(
    st.one_of(st.none(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)
KEYS = ("reward", "success", "progress", "fps", "task_id", "embodiment", "camera", "license", "source", "world", "more")
FIELDS = {key: VALUES for key in KEYS} | {"progress": st.one_of(VALUES, st.lists(NUMBERS, min_size=20, max_size=20))}
FIELDS |= {"world": st.one_of(VALUES, st.fixed_dictionaries({"kind": TEXTS}, optional={"file": VALUES}))}
ANY_ROW = st.fixed_dictionaries(
    {"file_name": st.one_of(st.just("x.mp4"), VALUES), "task": st.one_of(st.just("push"), VALUES)}, optional=FIELDS
)


@pytest.mark.slow
@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(ANY_ROW, min_size=1, max_size=3))
def test_any_row_is_an_episode_that_can_be_used_or_a_problem(tmp_path_factory: Any, rows: list[dict[str, Any]]) -> None:
    folder = _folder(tmp_path_factory)
    text = "\n".join(json.dumps(row) for row in rows) + "\n"
    (folder / "metadata.jsonl").write_bytes(text.encode())
    contents = read_folder(folder)
    assert len(contents.episodes) + len(contents.problems) == len(rows)
    for episode in contents.episodes:
        assert len(episode.hash) == 16
        f"{episode.id} {episode.instruction} {episode.provenance} {episode.times}".encode()
        again = json.loads(json.dumps(row_of(episode, "x.mp4"), ensure_ascii=False).encode())
        (folder / "metadata.jsonl").write_text(json.dumps(again) + "\n")
        (read,) = read_folder(folder).episodes
        assert (read.instruction, read.label, read.clip.fps) == (episode.instruction, episode.label, episode.clip.fps)
    "\n".join(map(str, contents.problems)).encode()


_FOLDERS: list[Path] = []


def _folder(factory: Any) -> Path:
    """One folder for all examples: the video is the same."""
    if not _FOLDERS:
        _FOLDERS.append(factory.mktemp("rows"))
        (_FOLDERS[0] / "x.mp4").write_bytes(small_mp4())
    return _FOLDERS[0]


def test_an_episode_of_a_strange_row_is_written_with_its_video(folder: Path, tmp_path: Path) -> None:
    strange = {"file_name": "x.mp4", "task": "a\x00b\x1b[2J\u202e\U0001f916", "camera": {"a": [1]}, "task_id": 7}
    (episode,) = read_folder(write_rows(folder, [strange])).episodes
    write_episode(tmp_path / "copy", episode, "y.mp4")
    (again,) = read_folder(tmp_path / "copy").episodes
    assert (again.instruction, again.provenance.task) == (episode.instruction, "7")


def test_mutated_rows_are_sound_or_a_problem(tmp_path: Path) -> None:
    outcomes = mutated_rows(200, 11, tmp_path)
    assert outcomes.total() == 200
    assert set(outcomes) == {"sound", "problem"}, outcomes
