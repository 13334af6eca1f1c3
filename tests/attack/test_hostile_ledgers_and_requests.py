"""A ledger that a stranger wrote, and requests to a rewardlab server that are no episodes."""

import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.core.errors import DataError
from rewardlab.core.trial import Score
from rewardlab.models import name_model
from rewardlab.models.contract import Budget
from rewardlab.models.ledger import LEDGER, spent_by_model
from rewardlab.models.remote import unpack_episodes
from rewardlab.reporting.findings_text import spending
from tests.attack.peak_memory import run_measured
from tests.attack.test_hostile_servers import episodes
from tests.models.loopback import chat_server

BAD: list[Any] = ["many", [], {}, -1]
SOUND: dict[str, Any] = {"key": "k", "input": 10, "output": 2, "cost": 0.5, "reply": {}, "model": "judge"}
LINES = [
    b"7",
    b"null",
    b"[]",
    b'"sent"',
    b"{}",
    b'{"sent": "k"}',
    b'{"sent": "k", "model": ["judge"]}',
    b'{"refused": "k", "model": null}',
    b'{"sent": 1, "key": [], "model": "judge"}',
    *(json.dumps({k: v for k, v in SOUND.items() if k != name}).encode() for name in SOUND),
    *(json.dumps(SOUND | {name: bad}).encode() for name in ("input", "output", "cost") for bad in BAD),
    json.dumps(SOUND | {"cost": float("inf")}).encode(),
    json.dumps(SOUND | {"cost": float("nan")}).encode(),
    b'{"key": "k", "input": ' + b"9" * 5_000 + b', "output": 1, "cost": 1, "reply": {}, "model": "judge"}',
    json.dumps(SOUND | {"key": {}}).encode(),
    b"[" * 200_000,
    b"\xff\xfe\x00",
    b'{"sent": "\\ud800", "model": "judge"}',
    b"\x00" * 1000,
]


def test_lines_of_a_stranger_are_passed_over_and_the_sound_ones_counted(tmp_path: Path) -> None:
    (tmp_path / LEDGER).write_bytes(b"\n".join([*LINES, json.dumps(SOUND).encode(), b'{"torn": ']))
    assert {model: (spent.replies, spent.cost) for model, spent in spent_by_model(tmp_path).items()} == {
        "judge": (1, 0.5)
    }
    (sentence,) = spending(tmp_path)
    assert sentence == "judge: 0 requests, 10 tokens read, 2 written, cost 0.5"


REPLIES: list[Any] = [
    7,
    None,
    [],
    "ANSWER: 5",
    {"text": 5},
    {"text": "ANSWER: 5", "finish": []},
    {"text": "ANSWER: 5", "other": 1},
    {"text": "ANSWER: 5" + " " * 200_000, "finish": "stop"},
    {"text": "ANSWER: 5", "finish": "stop", "first": 3},
    {"text": "ANSWER: 5", "finish": "stop", "digit": {"5": "likely"}},
    {"text": "ANSWER: 5", "finish": "stop", "digit": {"5": 4.0}},
]


@pytest.mark.parametrize("number", range(len(REPLIES)))
def test_a_reply_in_the_ledger_that_is_none_is_asked_for_again(number: int, tmp_path: Path) -> None:
    with chat_server(lambda call: call.say("ANSWER: 2")) as server:
        name_model(server.model()).build(Budget(folder=tmp_path)).score(episodes("a"))
        lines = [json.loads(line) for line in (tmp_path / LEDGER).read_text().splitlines()]
        kept = "".join(
            json.dumps(line | ({"reply": REPLIES[number]} if "key" in line else {})) + "\n" for line in lines
        )
        (tmp_path / LEDGER).write_text(kept)
        (answer,) = name_model(server.model()).build(Budget(folder=tmp_path)).score(episodes("a"))
    assert isinstance(answer, Score) and answer.level == 2
    assert server.asked.total() == 2


def test_a_line_without_end_is_not_held_in_memory(tmp_path: Path) -> None:
    with (tmp_path / LEDGER).open("wb") as file:
        file.truncate(600_000_000)  # zeros that take no room on the disk
        file.seek(0, 2)
        file.write(b"\n" + json.dumps(SOUND).encode() + b"\n")
    script = """
import pathlib, sys
from rewardlab.models.ledger import spent_by_model
found = [spent.replies for spent in spent_by_model(pathlib.Path(sys.argv[1])).values()]
"""
    found, peak = run_measured(script, str(tmp_path))
    assert found == [1] and peak < 300, f"{peak:.0f} MB"


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode()
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data


def archive(**entries: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, data in entries.items():
            made.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def described(said: str) -> bytes:
    return npy(f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(said)},), }}", said.encode())


ONE = described('[{"instruction": "a", "fps": 5}]')
POSITIONS = npy("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }", np.arange(2).tobytes())
FRAMES = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 4, 4, 3), }", bytes(96))


def claiming(shape: str, dtype: str = "|u1") -> bytes:
    """Return a request whose frames claim to be of this shape."""
    frames = npy(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}", bytes(96))
    return archive(episodes=ONE, frames_0=frames, positions_0=POSITIONS)


def overlapping() -> bytes:
    """Return an archive whose directory says that one entry is as long as a terabyte."""
    whole = bytearray(archive(episodes=ONE, frames_0=FRAMES, positions_0=POSITIONS))
    place = whole.rindex(b"PK\x01\x02") + 20  # the sizes of the last entry
    whole[place : place + 8] = struct.pack("<II", 0xFFFFFF00, 0xFFFFFF00)
    return bytes(whole)


def encrypted() -> bytes:
    whole = bytearray(archive(episodes=ONE, frames_0=FRAMES, positions_0=POSITIONS))
    for start in (whole.index(b"PK\x03\x04") + 6, whole.index(b"PK\x01\x02") + 8):
        whole[start] |= 1
    return bytes(whole)


REQUESTS = {
    "a terabyte of frames": claiming("(1000000, 1000, 1000, 3)"),
    "more than a number holds": claiming("(10000000000, 10000000000, 10000000000, 3)"),
    "a negative shape": claiming("(-2, 4, 4, 3)"),
    "objects": claiming("(2, 4, 4, 3)", "|O"),
    "text": claiming("(2, 4, 4, 3)", "<U1000000000"),
    "a deep header": archive(episodes=npy("(" * 5_000)),
    "a header that is code": archive(episodes=npy("__import__('os').abort()")),
    "a long header": archive(episodes=npy(" " * 60_000)),
    "a later version": archive(episodes=npy("{}", version=b"\x03\x00")),
    "an entry longer than the archive": overlapping(),
    "an encrypted entry": encrypted(),
    "deep JSON": archive(episodes=described("[" * 50_000), frames_0=FRAMES, positions_0=POSITIONS),
    "an endless number": archive(
        episodes=described('[{"instruction": "a", "fps": ' + "9" * 400 + "}]"), frames_0=FRAMES
    ),
    "a long instruction": archive(
        episodes=described(json.dumps([{"instruction": "a" * 20_000, "fps": 5}])),
        frames_0=FRAMES,
        positions_0=POSITIONS,
    ),
    "an instruction that is a list": archive(
        episodes=described('[{"instruction": ["a"], "fps": 5}]'), frames_0=FRAMES, positions_0=POSITIONS
    ),
    "half a surrogate pair": archive(
        episodes=described('[{"instruction": "\\ud800", "fps": 5}]'), frames_0=FRAMES, positions_0=POSITIONS
    ),
    "more episodes than frames": archive(
        episodes=described("[" + ",".join(['{"instruction": "a", "fps": 5}'] * 1000) + "]"),
        frames_0=FRAMES,
        positions_0=POSITIONS,
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_claims_too_much_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(DataError, match="the request holds no episodes") as error:
        unpack_episodes(REQUESTS[name])
    assert len(str(error.value)) < 600


def test_a_sound_request_in_the_same_form_is_taken() -> None:
    (episode,) = unpack_episodes(archive(episodes=ONE, frames_0=FRAMES, positions_0=POSITIONS))
    assert episode.frames.shape == (2, 4, 4, 3) and episode.instruction == "a"
