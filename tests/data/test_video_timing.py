"""Variable frame rate and orientation: frames are shown at the times and the way up that the file says."""

from io import BytesIO
from pathlib import Path
from typing import SupportsFloat

import av
import numpy as np
import pytest

from rewardlab.core.episode import Episode, rearrange, show_only
from rewardlab.core.errors import DataError
from rewardlab.core.video_encoding import encode
from rewardlab.data.roboreward import read_folder, write_episode
from rewardlab.data.safe_video import rate_and_positions
from rewardlab.data.video import VideoFile, frame_policy, sample_frames
from rewardlab.evaluation.replay import trial_replay
from rewardlab.models.remote import pack_episodes, unpack_episodes
from rewardlab.reporting.perturbed_copies import write_copies
from tests.attack.hostile_files import small_mp4, with_display_matrix
from tests.conftest import moving_square, write_rows
from tests.narrowing import known

# Ten frames in the first second, then the camera stalls for three seconds, then ten frames more.
TIMES = np.concatenate([np.arange(10) / 10, 4 + np.arange(10) / 10])
FIRST = np.array([[1, 2], [3, 4]])  # the quarters of a picture


@pytest.fixture
def stalled(tmp_path: Path) -> Path:
    """A dataset of one video whose frames do not come evenly."""
    encode(moving_square("x"), tmp_path / "x.mp4", 10, times=TIMES)
    return write_rows(tmp_path, [{"file_name": "x.mp4", "task": "push the block", "reward": 5}])


def only_episode(folder: Path) -> Episode:
    contents = read_folder(folder)
    assert not contents.problems
    return contents.episodes[0]


def test_frames_that_do_not_come_evenly_have_their_true_times(stalled: Path) -> None:
    episode = only_episode(stalled)
    assert np.allclose(episode.times, TIMES, atol=1e-4)
    assert not episode.clip.is_even


def test_a_sampling_rate_follows_the_true_times(stalled: Path) -> None:
    shown = sample_frames(only_episode(stalled), frame_policy("fps:2"))
    assert shown.clip.order.tolist() == [0, 5, 9, 10, 15, 19]  # nothing new while the camera stalls
    assert np.allclose(shown.times, TIMES[shown.clip.order], atol=1e-4)


@pytest.mark.parametrize("rate", ["fps:0.1", "fps:1", "fps:3.3", "fps:100", "fps:1e9"])
def test_every_sampling_rate_shows_the_first_and_last_frame(stalled: Path, rate: str) -> None:
    order = sample_frames(only_episode(stalled), frame_policy(rate)).clip.order
    assert order[0] == 0 and order[-1] == 19 and (np.diff(order) > 0).all()


def test_a_rate_in_the_row_says_that_frames_come_evenly(stalled: Path) -> None:
    write_rows(stalled, [{"file_name": "x.mp4", "task": "push the block", "reward": 5, "fps": 5}])
    assert only_episode(stalled).times.tolist() == (np.arange(20) / 5).tolist()


def test_a_reordered_stream_runs_at_the_mean_rate(stalled: Path) -> None:
    after = rearrange(only_episode(stalled), np.arange(20)[::-1])
    assert after.clip.is_even
    assert after.times[-1] == pytest.approx(TIMES[-1], abs=1e-3)


def test_an_episode_with_its_own_times_is_written_and_read_back(stalled: Path, tmp_path: Path) -> None:
    before = show_only(only_episode(stalled), np.array([0, 3, 9, 10, 19]))
    write_episode(tmp_path / "copy", before, "x.mp4")
    assert np.allclose(only_episode(tmp_path / "copy").times, before.times, atol=1e-4)


def test_perturbed_copies_keep_true_times_or_run_evenly(stalled: Path, tmp_path: Path) -> None:
    replay = trial_replay((only_episode(stalled),), ("gaussian_noise", "reverse"), "all", 0)
    assert len(list(write_copies(replay, (2,), tmp_path / "out"))) == 2
    times = {e.id.split(".")[1]: e.times for e in read_folder(tmp_path / "out").episodes}
    assert np.allclose(times["gaussian_noise"], TIMES, atol=1e-4)
    assert np.allclose(np.diff(times["reverse"]), TIMES[-1] / 19, atol=1e-3)


def test_true_times_travel_to_a_server(stalled: Path) -> None:
    episode = only_episode(stalled)
    (received,) = unpack_episodes(pack_episodes([episode]))
    assert received.times.tolist() == episode.times.tolist()


@pytest.mark.parametrize("rate", [1, 10, 24, 25, 30, 60])
@pytest.mark.parametrize("format", ["mp4", "matroska", "avi"])
def test_a_constant_rate_stays_one_whatever_the_container_rounds(rate: int, format: str) -> None:
    buffer = BytesIO()
    with av.open(buffer, "w", format=format) as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width = stream.height = 48
        for pixels in moving_square("x", count=50):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    fps, positions = rate_and_positions(*_stamps(buffer))
    assert fps == rate and positions.dtype == np.int64 and len(positions) == 50


def _stamps(buffer: BytesIO) -> tuple[list[int | None], SupportsFloat, float]:
    buffer.seek(0)
    with av.open(buffer, "r") as container:
        stream = container.streams.video[0]
        stamps = [packet.pts for packet in container.demux(stream) if packet.size]
        return stamps, known(stream.time_base), float(known(stream.average_rate))


@pytest.mark.parametrize(
    ("matrix", "shown"),
    [
        ((1, 0, 0, 1), FIRST),
        ((0, 1, -1, 0), np.rot90(FIRST, -1)),  # a phone held upright: a quarter clockwise
        ((-1, 0, 0, -1), np.rot90(FIRST, 2)),
        ((0, -1, 1, 0), np.rot90(FIRST)),
        ((-1, 0, 0, 1), FIRST[:, ::-1]),  # the mirror of a front camera
        ((0, 1, 1, 0), FIRST.T),
    ],
)
def test_a_video_is_shown_the_way_up_that_it_says(tmp_path: Path, matrix: tuple[int, ...], shown: np.ndarray) -> None:
    grey = np.kron(FIRST, np.ones((32, 48))).astype(np.uint8) * 50
    path = tmp_path / "x.mp4"
    encode(np.repeat(grey[None, :, :, None], 3, axis=3).repeat(2, axis=0), path, 10, crf=1)
    path.write_bytes(with_display_matrix(path.read_bytes(), *matrix))
    video = VideoFile(path)
    frame = video.read(np.array([1]))[0]
    assert frame.shape[:2] == (grey.shape if matrix[0] else grey.shape[::-1])
    height, width = frame.shape[0] // 2, frame.shape[1] // 2
    quarters = frame[height // 2 :: height, width // 2 :: width, 0]
    assert (np.round(quarters / 50) == shown).all()


def test_a_video_to_be_shown_aslant_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.mp4").write_bytes(with_display_matrix(small_mp4(), 0.7, 0.7, -0.7, 0.7))
    with pytest.raises(DataError, match=r"x\.mp4: its display matrix"):
        VideoFile(tmp_path / "x.mp4").read(np.array([0]))
