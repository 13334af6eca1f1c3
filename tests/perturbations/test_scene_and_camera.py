"""Another camera, lamp or recorder, another room, table or things, and the guards that keep the label true."""

from dataclasses import replace

import numpy as np
import pytest

from rewardlab.core.episode import Episode, Frames, episode_from_frames, show_only, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.data import open_dataset
from rewardlab.perturbations import PERTURBATIONS
from rewardlab.perturbations.codecs import psnr
from rewardlab.perturbations.contract import PerturbedEpisode
from rewardlab.perturbations.guards import colours_in, goal_region, segment_motion, static_background
from rewardlab.perturbations.visual.lighting import black_body_rgb
from tests.perturbations import attempt

CAMERA = (
    "camera_move",
    "lens_crop",
    "lens_barrel",
    "sensor_swap",
    "resolution",
    "aspect_squeeze",
    "codec",
    "codec_h265",
)
LIGHT = ("light_temperature", "light_cool", "light_gradient", "hard_shadow", "success_overlay")
SCENE = ("background_replace", "table_texture", "robot_recolour", "distractor_objects", "mirror")
BY_NAME = {name: PERTURBATIONS[name] for name in (*CAMERA, *LIGHT, *SCENE)}
ONE_DRAW = sorted(BY_NAME.keys() - {"codec", "codec_h265"})
NEEDS_MOTION = ["background_replace", "table_texture", "robot_recolour", "distractor_objects"]
NEEDS_GOAL = ["camera_move", "lens_crop", "lens_barrel"]
ALTERS_COLOUR = ["light_temperature", "light_cool", "robot_recolour"]


def stage(count: int = 12, height: int = 96, width: int = 128) -> Frames:
    """Return a light table under a dark wall; a black arm comes in from the left, moves a ball and leaves it."""
    frames = np.full((count, height, width, 3), (200, 195, 185), np.uint8)
    frames[:, : height // 3] = (60, 70, 90)
    for now, frame in enumerate(frames):
        reach = round(width * (0.2 + 0.3 * now / max(1, count - 1)))
        frame[height // 2 : height // 2 + 8, :reach] = (20, 20, 20)
        frame[height // 2 : height // 2 + 8, reach : reach + 8] = (220, 60, 30)
    return frames


def on_stage(instruction: str = "move the thing", **size: int) -> Episode:
    return episode_from_frames(stage(**size), instruction)


def after(name: str, episode: Episode, severity: int = 4, seed: int = 0) -> Frames:
    return BY_NAME[name](episode, severity, seed).episode.frames


@pytest.fixture(scope="module")
def clips() -> list[Episode]:
    """Four real clips with a table in view and 8 frames each, told to do something without colours."""
    episodes = open_dataset("sample").episodes
    chosen = [episodes[i] for i in (11, 16, 8, 47)]
    shown = [show_only(e, np.linspace(0, len(e.clip) - 1, 8).astype(np.int64)) for e in chosen]
    return [replace(with_frames(e, e.frames), instruction="do the task") for e in shown]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BY_NAME.keys() - {"mirror"}))
def test_pictures_get_worse_at_each_severity(name: str, clips: list[Episode]) -> None:
    rows = [[psnr(after(name, e, severity), e.frames) for severity in (1, 2, 3, 4)] for e in clips]
    steps = np.mean(rows, axis=0)
    assert np.isfinite(steps).all()
    assert (np.diff(steps) < -0.2).all(), steps


@pytest.mark.parametrize("name", ONE_DRAW)
def test_one_draw_holds_for_the_whole_clip(name: str) -> None:
    frames = stage()
    frames[3] = frames[-1]
    changed = after(name, episode_from_frames(frames, "move the thing"), 3)
    assert np.array_equal(changed[3], changed[-1])
    assert not np.array_equal(changed[3], frames[3])


@pytest.mark.parametrize("name", NEEDS_MOTION)
def test_a_clip_in_which_nothing_moves_is_dropped(name: str) -> None:
    still = episode_from_frames(np.repeat(stage()[:1], 6, axis=0), "move the thing")
    with pytest.raises(NotApplicable, match="nothing moves"):
        BY_NAME[name](still, 1, 0)


@pytest.mark.parametrize("name", NEEDS_MOTION)
def test_a_camera_on_the_wrist_is_dropped(name: str) -> None:
    everywhere = np.random.default_rng(0).integers(0, 255, (6, 12, 16, 3), dtype=np.uint8).repeat(8, 1).repeat(8, 2)
    with pytest.raises(NotApplicable, match="wrist camera"):
        BY_NAME[name](episode_from_frames(everywhere, "move the thing"), 1, 0)


@pytest.mark.parametrize("name", NEEDS_GOAL)
def test_a_goal_that_cannot_be_placed_is_dropped(name: str) -> None:
    still = episode_from_frames(np.repeat(stage()[:1], 6, axis=0), "move the thing")
    with pytest.raises(NotApplicable, match="place of the goal is not known"):
        BY_NAME[name](still, 1, 0)


@pytest.mark.parametrize("name", ["camera_move", "lens_crop"])
def test_a_goal_that_leaves_the_picture_is_dropped(name: str) -> None:
    frames = np.full((6, 60, 80, 3), 100, np.uint8)
    frames[3:, 24:36, 8:16] = frames[3:, 24:36, 64:72] = 220  # a close view cannot hold both places
    episode = episode_from_frames(frames, "move the thing")
    assert isinstance(attempt(BY_NAME[name], episode, 1), PerturbedEpisode)
    assert "of the guessed goal region stays in view" in str(attempt(BY_NAME[name], episode, 4))


@pytest.mark.parametrize("name", ALTERS_COLOUR)
@pytest.mark.parametrize("text", ["take the Red cup", "put it in the light-blue bowl", "the reddish one"])
def test_a_named_colour_forbids_a_change_of_colour(name: str, text: str) -> None:
    with pytest.raises(NotApplicable, match="names a colour"):
        BY_NAME[name](on_stage(text), 1, 0)


def test_only_sensors_without_colour_need_colourless_words() -> None:
    dropped = [isinstance(attempt(BY_NAME["sensor_swap"], on_stage("the red cup"), s), str) for s in (1, 2, 3, 4)]
    assert dropped == [False, False, True, True]


def test_colour_words_are_whole_words() -> None:
    assert colours_in("pick the Green pear, not the off-white one") == ["green", "white"]
    assert colours_in("stack the shredded paper near the tangerine") == []


def test_the_goal_is_guessed_where_the_end_differs_from_the_start() -> None:
    frames = np.full((10, 80, 100, 3), 90, np.uint8)
    frames[5:, 30:44, 60:80] = 240
    y, x = np.argwhere(goal_region(frames)).mean(axis=0)
    assert (abs(y - 36.5), abs(x - 69.5)) < (1.5, 1.5)


def test_the_still_scene_is_found_under_a_passing_arm() -> None:
    frames = np.full((9, 40, 60, 3), 120, np.uint8)
    for now, frame in enumerate(frames):
        frame[10:20, 6 * now : 6 * now + 6] = 10
    assert (static_background(frames) == 120).all()
    ever = segment_motion(frames).moving
    assert ever[14, 3:50].all()
    assert not ever[30:].any()


def test_black_bodies_have_the_chromaticity_of_the_textbook() -> None:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    for kelvin, x, y in ((2856, 0.4476, 0.4074), (6500, 0.3135, 0.3237), (10_000, 0.2807, 0.2884)):
        xyz = to_xyz @ black_body_rgb(kelvin)
        assert np.allclose(xyz[:2] / xyz.sum(), (x, y), atol=0.003)


def test_warm_light_takes_blue_and_cool_light_takes_red() -> None:
    grey = episode_from_frames(np.full((2, 8, 8, 3), 128, np.uint8), "move the thing")
    warm, cool = (after(name, grey)[0, 0, 0].astype(int) for name in ("light_temperature", "light_cool"))
    assert warm[0] > 128 > warm[2]
    assert cool[0] < 128 < cool[2]


def test_a_shadow_darkens_a_part_and_leaves_the_rest() -> None:
    flat = episode_from_frames(np.full((2, 64, 64, 3), 200, np.uint8), "move the thing")
    shadow = after("hard_shadow", flat, seed=3)[0, ..., 0]
    assert 0.1 < (shadow == 200).mean() < 0.9
    assert shadow.min() == round(200 * 0.2 ** (1 / 2.2))


def test_a_new_room_leaves_the_table_and_the_work_alone() -> None:
    episode = on_stage()
    changed = after("background_replace", episode).astype(int) - episode.frames
    assert np.abs(changed[:, 40:]).max() <= 1
    assert np.abs(changed[:, :6, 100:]).mean() > 10


def test_a_new_table_top_leaves_the_arm_and_the_ball_alone() -> None:
    episode = on_stage()
    changed = np.abs(after("table_texture", episode).astype(int) - episode.frames)
    assert changed[:, 80:].mean() > 10
    assert changed[:, 50:54, 2:20].max() <= 2
    assert changed[-1, 50:54, 66:70].max() <= 2


def test_paint_stays_on_the_arm() -> None:
    episode = on_stage()
    changed = np.abs(after("robot_recolour", episode).astype(int) - episode.frames)
    assert changed[-1, 50:54, 44:58].mean() > 15
    assert changed[:, 70:].max() == 0
    assert changed[-1, 50:54, 67:70].max() <= 2  # the ball keeps its colour


@pytest.mark.parametrize("severity", [1, 2, 3])
def test_distractors_lie_where_nothing_moves_and_stay(severity: int) -> None:
    episode = on_stage()
    layer = np.abs(after("distractor_objects", episode, severity).astype(int) - episode.frames).max(axis=-1)
    ever = segment_motion(episode.frames).moving
    assert (layer[0] > 8).sum() > 20
    assert layer[:, ever > 0].max() == 0
    assert np.array_equal(layer[0], layer[-1])


def test_more_distractors_are_added_to_the_fewer() -> None:
    episode = on_stage()
    few, more = (after("distractor_objects", episode, severity)[0] != episode.frames[0] for severity in (1, 2))
    assert (few <= more).all()
    assert few.sum() < more.sum()


def test_a_crowded_table_has_no_place_for_distractors() -> None:
    frames = stage()
    frames[6:, 32:] = 255 - frames[6:, 32:]  # everything on the table moves
    assert "no free place" in str(attempt(BY_NAME["distractor_objects"], episode_from_frames(frames, "move it"), 1))


@pytest.mark.parametrize(
    ("text", "swapped"),
    [
        ("move the cloth to the left", "move the cloth to the right"),
        ("Left drawer, then the RIGHT one", "Right drawer, then the LEFT one"),
        ("turn the upright knob clockwise", "turn the upright knob counterclockwise"),
        ("take the leftmost cup", "take the rightmost cup"),
        ("put the carrot on the plate", "put the carrot on the plate"),
    ],
)
def test_a_mirror_swaps_sides_in_picture_and_words_and_twice_is_no_change(text: str, swapped: str) -> None:
    episode = on_stage(text)
    once = BY_NAME["mirror"](episode, 1, 0).episode
    twice = BY_NAME["mirror"](once, 1, 0).episode
    assert once.instruction == swapped
    assert np.array_equal(once.frames, episode.frames[:, :, ::-1])
    assert twice.instruction == text
    assert np.array_equal(twice.frames, episode.frames)


@pytest.mark.parametrize("text", ["eat what is left", "stop right now", "press the button with the letter A"])
def test_a_mirror_is_not_held_up_to_words_it_would_break(text: str) -> None:
    assert isinstance(attempt(BY_NAME["mirror"], on_stage(text), 1), str)


@pytest.mark.parametrize("name", ["codec", "codec_h265"])
@pytest.mark.parametrize("shape", [(1, 4, 4, 3), (7, 33, 101, 3), (40, 32, 32, 3)])
def test_a_codec_returns_every_frame_at_its_size(name: str, shape: tuple[int, ...]) -> None:
    frames = np.linspace(0, 255, int(np.prod(shape))).astype(np.uint8).reshape(shape)
    assert after(name, episode_from_frames(frames, "do it"), 1).shape == shape


def test_small_noisy_frames_do_not_crash_the_encoder() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (20, 12, 48, 48, 3), dtype=np.uint8)
    for frames in noise:
        assert after("codec_h265", episode_from_frames(frames, "do it"), 1).shape == frames.shape


def test_a_codec_keeps_frames_in_their_order() -> None:
    frames = np.broadcast_to(np.arange(0, 250, 10, dtype=np.uint8)[:, None, None, None], (25, 64, 64, 3)).copy()
    seen = after("codec", episode_from_frames(frames, "do it"), 1).mean(axis=(1, 2, 3))
    assert np.abs(seen - np.arange(0, 250, 10)).max() < 5


def test_a_crop_enlarges_the_work_and_keeps_it_in_place() -> None:
    frames = np.full((10, 80, 100, 3), 90, np.uint8)
    frames[5:, 34:46, 60:72] = 240
    y, x = np.argwhere(after("lens_crop", episode_from_frames(frames, "do it"), 4)[-1, ..., 0] > 165).T
    assert max(abs(y.mean() - 39.5), abs(x.mean() - 65.5)) < 1
    assert np.ptp(y) + 1 == pytest.approx(12 / 0.6, abs=1.5)


def test_a_barrel_lens_keeps_the_middle_and_the_corners() -> None:
    frames = stage(height=65, width=65)
    frames[:, 31:34, 31:34] = (255, 0, 255)
    frames[:, :1, :1] = (0, 255, 0)
    changed = after("lens_barrel", episode_from_frames(frames, "do it"))
    assert (changed[0, 32, 32] == (255, 0, 255)).all()
    assert changed[0, 0, 0, 1] > 200


def test_writing_grows_with_severity_and_stays_off_the_goal() -> None:
    episode = on_stage(height=240, width=320)
    hit = [(after("success_overlay", episode, s)[0] != episode.frames[0]).any(axis=-1) for s in (1, 2, 3, 4)]
    heights = [np.ptp(np.flatnonzero(mask.any(axis=1))) + 1 for mask in hit]
    for tall, share in zip(heights, (0.02, 0.04, 0.08, 0.16), strict=True):
        assert 240 * share <= tall <= 240 * share * 1.2 + 4
    assert not hit[3][goal_region(episode.frames)].any()


def test_a_squeezed_picture_stands_between_black_bars() -> None:
    changed = after("aspect_squeeze", episode_from_frames(np.full((1, 10, 20, 3), 90, np.uint8), "do it"))
    assert changed[0, 5, :, 0].tolist() == [0] * 5 + [90] * 10 + [0] * 5
