"""Rows that claim to be made by the factory, and answers that mean harm: refused in a sentence, or harmless text."""

import json
from pathlib import Path
from typing import Any

import pytest

import rewardlab
from rewardlab.augmentation.rows import read_dataset, read_rejected
from rewardlab.core.errors import DataError
from rewardlab.core.settings import Execution
from rewardlab.core.video_encoding import encode
from tests.conftest import moving_square, write_rows
from tests.models.loopback import chat_server

QUIET = Execution(engine="local", quiet=True)
SOUND = {
    **{"row": "0" * 16, "source_episode": "a.mp4", "stage": "clip", "teacher": "", "prompt_hash": "", "attempt": 1},
    **{"history": [], "verdicts": [], "license": "MIT"},
}


def dataset(folder: Path, about: Any, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    encode(moving_square("a"), folder / "a.mp4", fps=10)
    row = {"file_name": "a.mp4", "task": "open it", "reward": 5, "original_task": "open it", "provenance": about}
    return write_rows(folder, [row | more])


@pytest.mark.parametrize(
    "about",
    [
        None,
        [],
        "x" * 100_000,
        {},
        SOUND | {"stage": "../../etc"},
        SOUND | {"source_episode": {"a": 1}},
        SOUND | {"verdicts": [1]},
        SOUND | {"verdicts": [{"by": 3, "verdict": "yes"}]},
        SOUND | {"history": "none"},
        SOUND | {"license": None},
    ],
)
def test_a_row_with_a_provenance_of_another_shape_is_one_sentence(about: Any, tmp_path: Path) -> None:
    folder = dataset(tmp_path / "data", about)
    with pytest.raises(DataError, match=r"make (the row|it) anew"):
        read_dataset(str(folder), skip_invalid=False)
    (folder / "rejected.jsonl").write_text(json.dumps({"provenance": about}) + "\n")
    with pytest.raises(DataError, match=r"make (the row|it) anew"):
        read_rejected(str(folder))


def test_refused_rows_that_are_no_json_are_said_with_their_line(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "data", SOUND)
    (folder / "rejected.jsonl").write_text("[" * 100_000 + "\n")
    with pytest.raises(DataError, match=r"rejected.jsonl line 1: not JSON"):
        read_rejected(str(folder))


def test_a_clip_is_never_written_outside_the_folder(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "data", SOUND, file_name="../data/a.mp4")
    with pytest.raises(DataError, match="must stay below the folder"):
        rewardlab.data_augment(folder, stage="clip", out=tmp_path / "out", execution=QUIET)
    assert not (tmp_path / "out" / "metadata.jsonl").exists()


def test_a_world_file_is_never_linked_from_outside(tmp_path: Path) -> None:
    (tmp_path / "secret.npy").write_text("secret")
    folder = dataset(tmp_path / "data", SOUND, world={"kind": "metaworld", "file": "../secret.npy"})
    with pytest.raises(DataError, match="must stay below the folder"):
        rewardlab.data_augment(folder, stage="clip", out=tmp_path / "out", execution=QUIET)


@pytest.mark.parametrize("answer", ["\x1b]0;owned\x07ANSWER: TRUE", "ANSWER: TRUE\nANSWER: FALSE", "", "x" * 200_000])
def test_what_a_teacher_says_is_text_and_no_more(answer: str, tmp_path: Path) -> None:
    folder = dataset(tmp_path / "data", SOUND, reward=3)
    with chat_server(lambda call: call.say(answer)) as server:
        made = rewardlab.data_augment(
            folder,
            stage="validate",
            vision=server.model("retries=0"),
            out=tmp_path / "out",
            execution=Execution(quiet=True),
        )
    assert (made.stages[0].kept, made.stages[0].rejected) == (0, 1)
    assert "no verdict" in (tmp_path / "out" / "rejected.jsonl").read_text()
