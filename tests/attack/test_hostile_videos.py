"""Videos that are damaged, lie about themselves or are none at all: a problem with a name, in little memory."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest

import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import DataError, NotApplicable
from rewardlab.core.trial import Trial
from rewardlab.data.roboreward import read_folder
from rewardlab.data.video import VideoFile
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.perturbations import PERTURBATIONS
from tests.attack.hostile_files import (
    EMPTY_PLAYLIST,
    black_video,
    gif_bomb,
    media_bytes,
    picture,
    small_mp4,
    sound_only,
    two_sizes,
    with_field,
    with_promised_frames,
)
from tests.attack.mutations import mutated_videos
from tests.conftest import write_rows
from tests.narrowing import of_type
from tests.plans import stress_plan

MB = 1_000_000
PEAK_MB = 1500


def hostile_videos() -> dict[str, bytes]:
    """Return files that must each be a problem, by what they are."""
    sound = small_mp4()
    return {
        "sound only": sound_only(),
        "png": picture(".png"),
        "jpg": picture(".jpg"),
        "webp": picture(".webp"),
        "gif bomb": gif_bomb(),
        "playlist of files": EMPTY_PLAYLIST.format("file:///etc/passwd").encode(),
        "playlist of addresses": EMPTY_PLAYLIST.format("http://127.0.0.1:9/x.ts").encode(),
        "ffconcat": b"ffconcat version 1.0\nfile /etc/passwd\n",
        "sdp": b"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
        "zeros": bytes(5000),
        "80 million frames": with_promised_frames(sound, 80_000_000),
        "2^31 frames": with_promised_frames(sound, 2**31),
        "frames times edits": with_field(with_promised_frames(sound, 90_000), b"elst", 8, 2**31),
        "half": sound[: len(sound) // 2],
    }


@pytest.mark.parametrize("kind", hostile_videos())
def test_what_is_no_sound_video_is_a_problem_with_its_line(tmp_path: Path, kind: str) -> None:
    (tmp_path / "x.mp4").write_bytes(hostile_videos()[kind])
    contents = read_folder(write_rows(tmp_path, [{"file_name": "x.mp4", "task": "t", "reward": 2}]))
    assert not contents.episodes
    (problem,) = contents.problems
    assert problem.place == "line 1"
    assert "x.mp4" in problem.what


def test_frames_that_are_too_large_or_too_many_are_refused_before_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.mp4"
    path.write_bytes(small_mp4())
    for variable, limit in (("FRAME_PIXELS", 48 * 47), ("VIDEO_PIXELS", 19 * 48 * 48), ("CLIP_FRAMES", 19)):
        with monkeypatch.context() as context:
            context.setenv(f"REWARDLAB_MAX_{variable}", str(limit))
            with pytest.raises(DataError, match=rf"x\.mp4: .*{limit:,}.*REWARDLAB_MAX_{variable}"):
                _ = VideoFile(path).info
    assert VideoFile(path).count == 20


def test_a_file_of_absurd_size_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.mp4"
    with path.open("wb") as file:
        file.write(small_mp4())
        file.truncate(10_000 * MB)  # a hole that takes no room on the disk
    with pytest.raises(DataError, match=r"x\.mp4: 10,000 MB of video, at most 500"):
        _ = VideoFile(path).info


def test_frames_of_another_size_in_the_middle_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.avi").write_bytes(two_sizes())
    write_rows(tmp_path, [{"file_name": "x.avi", "task": "t", "reward": 2}])
    (problem,) = rewardlab.data_check(tmp_path).problems
    assert "frame 3 has 96 x 96 pixels, not 48 x 48" in problem.what


def test_more_frames_than_memory_may_hold_are_refused(tmp_path: Path) -> None:
    black_video(tmp_path / "x.mp4", 120, 1280, 720)
    video = VideoFile(tmp_path / "x.mp4")
    with pytest.raises(DataError, match=r"120 frames of 1280 x 720 pixels .* REWARDLAB_MAX_CLIP_MB"):
        video.read(np.arange(120))
    assert video.read(np.array([0, 119])).shape == (2, 720, 1280, 3)


def scored(data: Path, out: Path, *perturbations: str, frames: str = "uniform:16") -> list[Trial]:
    """Return the trials of a small stress test."""
    settings = dict(workers=1, out=out)
    plan = stress_plan(("length",), str(data), perturbations, (1,), frames=frames, controls=False, **settings)
    return evaluate(plan).trials().rows()


def test_a_perturbation_that_needs_the_whole_video_refuses_a_large_one_and_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.mp4").write_bytes(small_mp4(size=160))
    monkeypatch.setenv("REWARDLAB_MAX_CLIP_MB", "1")  # 13 of its 20 frames
    write_rows(tmp_path, [{"file_name": "x.mp4", "task": "push the block", "reward": 2}])
    trials = scored(tmp_path, tmp_path / "run", "codec", "typo_keyboard", frames="uniform:8")
    found = {trial.perturbation: trial for trial in trials}
    assert found["clean"].status == found["typo_keyboard"].status == "scored"
    assert found["codec"].status == "dropped"
    assert "codec needs all frames in memory at once" in str(found["codec"].reason)
    (episode,) = read_folder(tmp_path).episodes
    with pytest.raises(NotApplicable, match="REWARDLAB_MAX_CLIP_MB"):
        PERTURBATIONS["frame_blend"](episode, 1, seed=0)


def test_a_video_too_large_for_what_is_shown_fails_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.mp4").write_bytes(small_mp4(size=160))
    monkeypatch.setenv("REWARDLAB_MAX_CLIP_MB", "1")
    write_rows(tmp_path, [{"file_name": "x.mp4", "task": "push the block", "reward": 2}])
    (trial,) = scored(tmp_path, tmp_path / "run", "none", frames="all")
    assert trial.status == "failed"
    assert "20 frames of 160 x 160 pixels" in str(trial.reason)


def flipped(data: bytes, rng: Random) -> bytes:
    """Return the video with one bit of its coded frames flipped."""
    changed = bytearray(data)
    changed[rng.randrange(*media_bytes(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def test_a_flipped_bit_in_the_coded_frames_is_seen_or_changes_the_digest(tmp_path: Path) -> None:
    rng, seen = Random(0), Counter[str]()
    for episode in rewardlab.open_dataset("sample-sim").episodes[:40]:
        whole, damaged = tmp_path / "sample.mp4", tmp_path / "flipped.mp4"
        whole.write_bytes(of_type(Path, of_type(VideoFile, episode.clip.source).path).read_bytes())
        damaged.write_bytes(flipped(whole.read_bytes(), rng))
        sample, video = VideoFile(whole), VideoFile(damaged)
        assert video.digest != sample.digest
        try:
            same = np.array_equal(video.read(np.arange(sample.count)), sample.read(np.arange(sample.count)))
            seen["same" if same else "other pixels"] += 1
        except DataError:
            seen["problem"] += 1
    assert seen["problem"] >= 30, seen  # the rest decodes to other pixels without any error


def damaged_dataset(folder: Path) -> Path:
    """A dataset whose second video has a damaged frame that opens well."""
    sound, rng = small_mp4(count=40), Random(3)
    (folder / "good.mp4").write_bytes(sound)
    for _ in range(100):
        (folder / "bad.mp4").write_bytes(flipped(sound, rng))
        try:
            VideoFile(folder / "bad.mp4").check_frames()
        except DataError as error:
            if "is damaged" in str(error):
                break
    rows = [{"file_name": name, "task": "t", "reward": 2} for name in ("good.mp4", "bad.mp4")]
    return write_rows(folder, rows)


def test_a_damaged_frame_is_named_by_check_and_fails_its_cells(tmp_path: Path) -> None:
    folder = damaged_dataset(tmp_path)
    assert not rewardlab.open_dataset(folder).problems  # opening decodes nothing
    (problem,) = rewardlab.data_check(folder).problems
    assert problem.place == "episode bad.mp4"
    assert "frame" in problem.what and "damaged" in problem.what
    found = {trial.episode: trial for trial in scored(folder, tmp_path / "run", "none")}
    assert found["good.mp4"].status == "scored"
    assert found["bad.mp4"].status == "failed"
    assert "damaged" in str(found["bad.mp4"].reason)


def test_the_command_prints_the_damage_and_exits_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", str(damaged_dataset(tmp_path))]) == 4
    out = capsys.readouterr().out
    assert "bad.mp4" in out and "1 valid episode, 1 problem," in out


def peak_mb(*command: str) -> float:
    """Return the peak memory of a command and of the processes that it started."""
    between = (  # a process of its own: what is started by a large one counts its memory too
        "import resource, subprocess, sys\n"
        "subprocess.run([sys.executable, '-m', 'rewardlab', *sys.argv[1:]], stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    told = subprocess.run([sys.executable, "-c", between, *command], stdout=subprocess.PIPE, text=True, check=True)
    return int(told.stdout) / (1e6 if sys.platform == "darwin" else 1e3)


@pytest.mark.slow
def test_hostile_videos_are_checked_and_scored_in_bounded_memory(tmp_path: Path) -> None:
    files = hostile_videos()
    for number, data in enumerate(files.values()):
        (tmp_path / f"{number}.mp4").write_bytes(data)
    black_video(tmp_path / "large.mp4", 24, 1920, 1200)
    black_video(tmp_path / "larger.mp4", 1, 8192, 4608)
    black_video(tmp_path / "long.mp4", 120, 1280, 720)
    names = [*(f"{number}.mp4" for number in range(len(files))), "large.mp4", "larger.mp4", "long.mp4"]
    write_rows(tmp_path, [{"file_name": name, "task": "push it", "reward": 2} for name in names])
    assert peak_mb("data", "check", str(tmp_path)) < PEAK_MB
    out = str(tmp_path / "run")
    options = ("--perturbations", "codec", "--severities", "1", "--workers", "1", "--out", out)
    assert peak_mb("stress", "length", str(tmp_path), *options) < PEAK_MB


@pytest.mark.slow
def test_mutated_videos_are_sound_or_a_problem(tmp_path: Path) -> None:
    outcomes = mutated_videos(50, 7, tmp_path)
    assert outcomes.total() == 50
    assert set(outcomes) <= {"sound", "problem", "other pixels"}, outcomes
