"""Temporal perturbations: which frames arrive, in which order, and what that does to the truth."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Label, Provenance, episode_from_frames, show_only, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.data import open_dataset
from rewardlab.perturbations import TEMPORAL
from rewardlab.perturbations.codecs import psnr
from rewardlab.perturbations.contract import PerturbedEpisode
from tests.perturbations import attempt

BY_NAME = {p.name: p for p in TEMPORAL}
ORDER = [p.name for p in TEMPORAL if p.channel == "order"]
PIXELS = [p.name for p in TEMPORAL if p.channel == "frames"]
ENDS_ELSEWHERE = {"reverse", "truncate_end", "latency"}


def numbered(count: int, progress: tuple[float, ...] | None = None, level: int | None = None) -> Episode:
    """Return a tiny clip whose frame i has the value i mod 256."""
    pixels = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None], (count, 2, 2, 3))
    return episode_from_frames(np.array(pixels), "do it", label=Label(level, None, progress))


OTHERS = [replace(numbered(3), instruction="else", provenance=Provenance(task="b"))]


def picks(name: str, count: int, severity: int, seed: int = 0) -> list[int]:
    return list(map(int, BY_NAME[name](numbered(count), severity, seed).episode.clip.order))


def displacement(order: NDArray[np.int64], positions: NDArray[np.int64] | NDArray[np.float64], count: int) -> float:
    """Mean distance, at 1000 moments, between the source frame shown and the one due, plus the change of pace.

    A moment is a share of the stream; the pace is the number of frames of the stream and of those really there.
    """
    moments = np.linspace(0, 1, 1000)
    shown = order[np.minimum(np.searchsorted(positions, moments * positions[-1] - 1e-9), len(order) - 1)]
    paces = (np.log((positions[-1] + 1) / count), np.log(len(order) / count))
    return float(np.abs(shown / (count - 1) - moments).mean() + sum(abs(pace) for pace in paces))


@pytest.fixture(scope="module")
def clips() -> list[Episode]:
    """Four real clips with 16 frames each, held in memory."""
    episodes = open_dataset("sample").episodes
    chosen = [show_only(e, np.arange(min(16, len(e.clip)))) for e in (episodes[1], episodes[5], *episodes[25:27])]
    return [with_frames(e, e.frames) for e in chosen]


@pytest.mark.parametrize("name", ORDER)
@given(count=st.integers(1, 300), severity=st.integers(1, 4), seed=st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_picks_frames_that_exist_and_pins_the_last(name: str, count: int, severity: int, seed: int) -> None:
    change = attempt(BY_NAME[name], numbered(count), severity, seed, OTHERS)
    if isinstance(change, str):
        assert count < 24, f"{change} at {count} frames"
        return
    clip = change.episode.clip
    assert 0 < len(clip) == len(clip.positions)
    assert clip.order.min() >= 0
    assert clip.order.max() < count
    assert (np.diff(clip.positions) > 0).all()
    assert (clip.order[-1] == count - 1) != (name in ENDS_ELSEWHERE)


@pytest.mark.parametrize("name", ORDER)
def test_changes_short_clips_and_pins_their_last_frame_too(name: str) -> None:
    for count in range(1, 13):
        for severity, seed in product((1, 2, 3, 4), range(4)):
            change = attempt(BY_NAME[name], numbered(count), severity, seed, OTHERS)
            if not isinstance(change, str):
                order = change.episode.clip.order
                assert order.tolist() != list(range(count)), (count, severity, seed)
                assert (order[-1] == count - 1) != (name in ENDS_ELSEWHERE), (count, severity, seed)


@pytest.mark.parametrize("name", ORDER)
def test_moves_frames_further_at_each_severity(name: str) -> None:
    def mean(severity: int) -> float:
        changes = [BY_NAME[name](numbered(200), severity, seed).episode.clip for seed in range(8)]
        return float(np.mean([displacement(c.order, c.positions, 200) for c in changes]))

    steps = [mean(severity) for severity in (1, 2, 3, 4)]
    assert 0 < steps[0] < steps[1] < steps[2] < steps[3], steps


class Sealed:
    """Frames that nobody may decode."""

    digest = "sealed"

    def __init__(self, count: int) -> None:
        self.count = count

    def read(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        raise AssertionError(f"{len(indices)} frames were decoded")


@pytest.mark.parametrize("name", ORDER)
def test_ten_thousand_frames_are_put_in_order_without_decoding_one(name: str) -> None:
    plain = numbered(10_000)
    sealed = replace(plain, clip=replace(plain.clip, source=Sealed(10_000)))
    assert len(BY_NAME[name](sealed, 4, 0).episode.clip) > 1


@pytest.mark.parametrize(
    ("name", "count", "severity", "expected"),
    [
        ("drop_uniform", 8, 2, [0, 2, 5, 7]),
        ("hold_last", 4, 2, [0, 1, 2, 3, 3]),
        ("hold_last", 3, 4, [0, 1, 2, 2, 2, 2]),
        ("speed_up", 9, 2, [0, 3, 5, 8]),
        ("slow_down", 3, 2, [0, 0, 1, 1, 2, 2]),
        ("truncate_end", 8, 2, [0, 1, 2, 3, 4, 5]),
        ("truncate_end", 8, 4, [0, 1]),
        ("crop_start", 8, 2, [2, 3, 4, 5, 6, 7]),
        ("crop_start", 2, 4, [1]),
        ("latency", 10, 4, [0, 0, 0, 1, 2, 3, 4, 5, 6, 7]),
        ("reverse", 8, 2, [0, 1, 2, 3, 7, 6, 5, 4]),
        ("reverse", 4, 4, [3, 2, 1, 0]),
        ("loop_twice", 4, 2, [0, 1, 2, 3, 2, 3]),
        ("loop_twice", 3, 4, [0, 1, 2, 0, 1, 2]),
    ],
)
def test_picks_what_was_worked_out_by_hand(name: str, count: int, severity: int, expected: list[int]) -> None:
    assert picks(name, count, severity) == expected


def test_lost_frames_leave_gaps_in_time_but_a_faster_robot_does_not() -> None:
    dropped = BY_NAME["drop_uniform"](numbered(9), 2, 0).episode.clip
    faster = BY_NAME["speed_up"](numbered(9), 2, 0).episode.clip
    assert dropped.positions.tolist() == dropped.order.tolist()
    assert faster.positions.tolist() == [0, 1, 2, 3]
    assert dropped.positions[-1] == 8


def test_stronger_losses_contain_the_weaker_ones() -> None:
    kept = [set(picks("drop_random", 60, severity)) for severity in (1, 2, 3, 4)]
    assert [len(k) for k in kept] == [54, 46, 31, 16]
    assert kept[0] > kept[1] > kept[2] > kept[3] > {0, 59}


def test_a_frozen_picture_stands_still_and_then_jumps() -> None:
    order = np.array(picks("freeze_middle", 100, 3))
    still = np.flatnonzero(order != np.arange(100))
    assert len(still) == 39
    assert len(np.unique(order[still])) == 1
    assert order[still[-1] + 1] == still[-1] + 1


def test_a_stutter_repeats_the_frame_before() -> None:
    order = np.array(picks("stutter", 102, 3))
    repeats = np.flatnonzero(order != np.arange(102))
    assert len(repeats) == 50
    assert (order[repeats] == order[repeats - 1]).all()


@pytest.mark.parametrize(("severity", "slip"), [(1, 1), (2, 2), (3, 4), (4, 8)])
def test_jitter_stays_within_its_slip(severity: int, slip: int) -> None:
    order = np.array(picks("jitter_index", 200, severity))
    assert np.abs(order - np.arange(200)).max() == slip


@pytest.mark.parametrize(("severity", "window"), [(1, 2), (2, 4), (3, 8), (4, 16)])
def test_local_shuffle_keeps_frames_in_their_window(severity: int, window: int) -> None:
    order = np.array(picks("local_shuffle", 200, severity))
    assert sorted(order) == list(range(200))
    assert (order // window == np.arange(200) // window).all()


def test_global_shuffle_moves_exactly_its_share_and_neither_end() -> None:
    for severity, moved in ((1, 25), (2, 50), (3, 75), (4, 100)):
        order = np.array(picks("global_shuffle", 102, severity))
        assert sorted(order) == list(range(102))
        assert (order != np.arange(102)).sum() == moved
        assert (order[0], order[-1]) == (0, 101)


PROGRESS = (0.0, 0.0, 0.05, 0.2, 0.3, 0.5, 0.75, 0.8, 1.0, 1.0)


@pytest.mark.parametrize(
    ("name", "severity", "last", "level"),
    [
        ("reverse", 1, 8, 5),  # the tail of 2 frames ends in the frame before last, where the task is done, too
        ("reverse", 2, 5, 3),
        ("reverse", 3, 2, 1),
        ("reverse", 4, 0, 1),
        ("truncate_end", 1, 8, 5),
        ("truncate_end", 2, 7, 4),
        ("truncate_end", 3, 4, 2),
        ("truncate_end", 4, 1, 1),
        ("latency", 1, 8, 5),
        ("latency", 3, 8, 5),
        ("latency", 4, 7, 4),
    ],
)
def test_the_truth_is_that_of_the_frame_now_last(name: str, severity: int, last: int, level: int) -> None:
    change = BY_NAME[name](numbered(10, PROGRESS, level=5), severity, 0)
    truth = change.episode.label
    assert change.episode.clip.order[-1] == last
    assert (change.expect, truth.level, truth.success) == ("relabel", level, level == 5)
    assert truth.progress == tuple(PROGRESS[i] for i in change.episode.clip.order)


@pytest.mark.parametrize("name", sorted(ENDS_ELSEWHERE))
@pytest.mark.parametrize("severity", [1, 2, 3, 4])
def test_without_known_progress_only_the_direction_is_expected(name: str, severity: int) -> None:
    change = BY_NAME[name](numbered(20, level=5), severity, 0)
    flipped = name == "reverse" and severity == 4
    assert (change.expect, change.episode.label) == ("reversed" if flipped else "lower", Label())


@pytest.mark.parametrize("name", sorted(BY_NAME.keys() - ENDS_ELSEWHERE))
def test_what_keeps_the_end_keeps_the_level(name: str, clips: list[Episode]) -> None:
    episode = replace(clips[0], label=Label(4, False, tuple(np.linspace(0, 0.8, len(clips[0].clip)))))
    change = BY_NAME[name](episode, 3, 0, clips)
    assert (change.expect, change.episode.label.level, change.episode.label.success) == ("same", 4, False)
    progress = change.episode.label.progress
    assert progress is not None
    assert (len(progress), progress[-1]) == (len(change.episode.clip), 0.8)


def quality(change: PerturbedEpisode, episode: Episode) -> float:
    return psnr(change.episode.frames, episode.frames)


@pytest.mark.slow
@pytest.mark.parametrize("name", PIXELS)
def test_pictures_get_worse_at_each_severity(name: str, clips: list[Episode]) -> None:
    rows = [[quality(BY_NAME[name](e, severity, 0, clips), e) for severity in (1, 2, 3, 4)] for e in clips]
    steps = np.mean(rows, axis=0)
    assert (np.diff(steps) < 0).all(), steps


@pytest.mark.parametrize("name", ["black_frames", "frame_blend", "splice_foreign"])
def test_the_last_picture_is_untouched(name: str, clips: list[Episode]) -> None:
    for episode in clips:
        after = BY_NAME[name](episode, 4, 3, clips).episode.frames
        assert np.array_equal(after[-1], episode.frames[-1])
        assert not np.array_equal(after, episode.frames)


@pytest.mark.parametrize("name", ["packet_loss", "bit_error"])
def test_damaged_streams_still_show_every_frame_and_the_end(name: str, clips: list[Episode]) -> None:
    for episode in clips:
        after = BY_NAME[name](episode, 4, 0).episode.frames
        assert after.shape == episode.frames.shape
        assert psnr(after[-1], episode.frames[-1]) >= 20


def test_a_stream_whose_end_did_not_arrive_is_dropped(clips: list[Episode], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewardlab.perturbations.temporal.frame_corruption._MIN_PSNR", 99.0)
    with pytest.raises(NotApplicable, match=r"the last frame arrived at \d\d"):
        BY_NAME["packet_loss"](clips[0], 1, 0)


def test_a_blend_is_the_mean_of_neighbours_and_shortens_towards_the_ends() -> None:
    values = np.array([0, 30, 90, 240, 10, 100], np.uint8)
    frames = np.broadcast_to(values[:, None, None, None], (6, 4, 4, 3)).copy()
    after = BY_NAME["frame_blend"](episode_from_frames(frames, "do it"), 2, 0).episode.frames
    assert after[:, 0, 0, 0].tolist() == [0, 40, 74, 94, 117, 100]


def test_black_frames_blacken_their_share() -> None:
    episode = episode_from_frames(np.full((20, 4, 4, 3), 200, np.uint8), "do it")
    counts = [(BY_NAME["black_frames"](episode, s, 0).episode.frames.max((1, 2, 3)) == 0).sum() for s in (1, 2, 3, 4)]
    assert counts == [1, 3, 6, 10]


def test_a_spliced_stretch_comes_from_another_task_in_one_piece() -> None:
    mine = replace(episode_from_frames(np.full((20, 6, 8, 3), 10, np.uint8), "do it"), provenance=Provenance(task="a"))
    twin = replace(episode_from_frames(np.full((9, 6, 8, 3), 99, np.uint8), "do it"), provenance=Provenance(task="a"))
    other = replace(
        episode_from_frames(np.full((9, 30, 20, 3), 200, np.uint8), "else"), provenance=Provenance(task="b")
    )
    after = BY_NAME["splice_foreign"](mine, 3, 0, [twin, mine, other]).episode.frames[:, 0, 0, 0]
    assert sorted(set(after.tolist())) == [10, 200]
    assert (after == 200).sum() == 4
    assert (np.diff((after == 200).astype(int)) != 0).sum() == 2
    with pytest.raises(NotApplicable, match="no episode of another task"):
        BY_NAME["splice_foreign"](mine, 3, 0, [twin, mine])
