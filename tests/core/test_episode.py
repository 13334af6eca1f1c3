import numpy as np
import pytest

from rewardlab.core.episode import (
    Episode,
    GrowingClip,
    Label,
    Preference,
    episode_from_frames,
    hold_frames,
    level_of_progress,
    rearrange,
    show_only,
    strip_labels,
    with_frames,
)
from rewardlab.core.errors import DataError

FRAMES = np.arange(6, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), dtype=np.uint8)
EPISODE = episode_from_frames(FRAMES, "do it", fps=2, label=Label(4, False, (0, 0.2, 0.4, 0.6, 0.8, 0.9)))


def test_rearranging_moves_frames_and_their_truth_and_restarts_the_time() -> None:
    moved = rearrange(EPISODE, np.array([5, 0, 0]))
    assert moved.frames[:, 0, 0, 0].tolist() == [5, 0, 0]
    assert moved.label.progress == (0.9, 0, 0)
    assert moved.times.tolist() == [0, 0.5, 1.0]


def test_showing_fewer_frames_keeps_their_times() -> None:
    shown = show_only(rearrange(EPISODE, np.array([5, 4, 3, 2])), np.array([0, 3]))
    assert shown.frames[:, 0, 0, 0].tolist() == [5, 2]
    assert shown.times.tolist() == [0, 1.5]
    assert shown.clip.positions[-1] == 3


def test_new_pixels_keep_order_and_times() -> None:
    shown = with_frames(show_only(EPISODE, np.array([1, 5])), FRAMES[:2] + 100)
    assert shown.frames[:, 0, 0, 0].tolist() == [100, 101]
    assert shown.times.tolist() == [0.5, 2.5]


def test_new_pixels_of_another_length_are_refused() -> None:
    with pytest.raises(DataError, match="shows 6 frames, got 2"):
        with_frames(EPISODE, FRAMES[:2])


@pytest.mark.parametrize("bad", [FRAMES.astype(float), FRAMES[0], FRAMES[:0], FRAMES[..., :1]])
def test_frames_of_another_kind_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"uint8 of shape \(T, H, W, 3\)"):
        episode_from_frames(bad, "do it")


def test_a_frame_that_is_not_in_memory_is_an_error_and_not_its_neighbour() -> None:
    held = hold_frames(EPISODE.clip, np.array([0, 2, 4])).source
    assert held.read(np.array([4, 0, 4]))[:, 0, 0, 0].tolist() == [4, 0, 4]
    for index in (1, 5, -1):
        with pytest.raises(DataError, match=f"frame {index} of 6 is not in memory"):
            held.read(np.array([0, index]))


def test_a_blind_episode_tells_nothing_but_frames_text_and_time() -> None:
    seen = strip_labels(EPISODE)
    assert (seen.id, seen.label, seen.provenance.subset, seen.provenance.source) == ("", Label(), "", "")
    assert seen.instruction == "do it"


def test_the_hash_follows_content_text_and_truth_but_not_the_name() -> None:
    from dataclasses import replace

    assert replace(EPISODE, id="other").hash == EPISODE.hash
    assert replace(EPISODE, instruction="other").hash != EPISODE.hash
    assert replace(EPISODE, label=Label(5, True)).hash != EPISODE.hash
    compared = replace(EPISODE.label, preference=Preference("a pair", "this"))  # also says something of another episode
    assert replace(EPISODE, label=compared).hash == EPISODE.hash
    assert rearrange(EPISODE, np.array([0, 2, 1, 3, 4, 5])).hash != EPISODE.hash


@pytest.mark.parametrize(("progress", "level"), [(0, 1), (0.09, 1), (0.1, 2), (0.4, 3), (0.7, 4), (0.99, 4), (1, 5)])
def test_levels_begin_where_the_table_says(progress: float, level: int) -> None:
    assert level_of_progress(progress) == level


def test_a_growing_clip_is_bounded_and_always_shows_its_first_and_last_frame() -> None:
    frames = np.arange(100, dtype=np.uint8)[:, None, None, None].repeat(3, axis=-1)
    growing = GrowingClip(fps=10.0, most=8)
    for number, frame in enumerate(frames):
        growing.append(frame)
        assert len(growing.positions) <= 8 and (growing.positions[0], growing.positions[-1]) == (0, number)
    clip = growing.clip()
    np.testing.assert_array_equal(clip.read()[:, 0, 0, 0], clip.positions)
    assert np.diff(clip.positions[:-1]).tolist() == [16] * (len(clip) - 2)


def test_a_growing_clip_is_the_same_clip_as_one_from_an_array_and_later_frames_do_not_change_it() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)
    growing = GrowingClip(fps=5.0)
    for frame in frames:
        growing.append(frame)
    clip = growing.clip()
    growing.append(frames[0])
    whole = episode_from_frames(frames, "push", fps=5.0)
    assert Episode("", "push", clip).hash == whole.hash and growing.count == 6
    with pytest.raises(DataError, match="the frames of this clip are"):
        growing.append(frames[0, :2])
