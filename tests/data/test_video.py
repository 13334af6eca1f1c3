from pathlib import Path

import numpy as np
import pytest

from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.video_encoding import encode
from rewardlab.data.video import VideoFile, frame_policy
from tests.conftest import moving_square


def test_frames_survive_encoding_and_come_in_the_order_asked(tmp_path: Path) -> None:
    frames = moving_square("x", count=12)
    encode(frames, tmp_path / "x.mp4", fps=10, crf=1)
    video = VideoFile(tmp_path / "x.mp4")
    assert (video.count, video.info.fps) == (12, 10)
    read = video.read(np.array([11, 0, 11, 5]))
    error = np.abs(read.astype(int) - frames[[11, 0, 11, 5]]).mean()
    assert error < 8  # chroma is stored at half the resolution


def test_odd_sizes_gain_one_row_and_column(tmp_path: Path) -> None:
    encode(moving_square("x", count=3, size=47), tmp_path / "x.mp4", fps=5)
    assert VideoFile(tmp_path / "x.mp4").read(np.array([0])).shape == (1, 48, 48, 3)


@pytest.mark.parametrize("count", [1, 2, 3, 15, 16, 17, 100, 9999])
@pytest.mark.parametrize("text", ["uniform:2", "uniform:16", "fps:1", "fps:3.3", "fps:100", "all"])
def test_every_policy_shows_the_first_and_the_last_frame(text: str, count: int) -> None:
    picks = frame_policy(text)(np.arange(count), 10.0)
    assert picks[0] == 0
    assert picks[-1] == count - 1
    assert (np.diff(picks) > 0).all()


def test_a_policy_shows_as_many_frames_as_it_says() -> None:
    assert len(frame_policy("uniform:16")(np.arange(100), 10)) == 16
    assert frame_policy("fps:1")(np.arange(31), 10).tolist() == [0, 10, 20, 30]
    assert frame_policy("fps:1")(np.arange(35), 10).tolist() == [0, 10, 20, 30, 34]


@pytest.mark.parametrize("text", ["uniform", "uniform:1", "uniform:x", "fps:0", "fps:-1", "last", ""])
def test_an_unknown_policy_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match=r"uniform:N .*, got"):
        frame_policy(text)


def test_a_truncated_file_is_found_without_decoding(tmp_path: Path) -> None:
    path = tmp_path / "x.mp4"
    encode(moving_square("x"), path, fps=10)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=r"x\.mp4.*(truncated|cannot be read)"):
        _ = VideoFile(path).info


def test_a_rate_is_kept_where_frames_are_missing() -> None:
    positions = np.array([0, 8, 16, 24, 32, 40, 48, 57])  # one frame in eight of a stream at 10 fps came through
    assert frame_policy("fps:1")(positions, 10.0).tolist() == [0, 1, 2, 3, 5, 6, 7]
