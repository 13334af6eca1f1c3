"""The flag of a clip that is unlike anything in training: wherever people look, and only with a threshold."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames, with_frames
from rewardlab.core.errors import ModelError
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Score, familiarity_sentence
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.models import name_model
from rewardlab.models.composite import Ensemble
from rewardlab.models.pocket import WEIGHTS, familiar_images, variant_files
from rewardlab.models.pocket.inference import (
    PocketRewardModel,
    flag_threshold,
    image_ood_score,
    mean_image_token,
    open_pocket,
)
from rewardlab.training.pocket.nonsense import TRAINED_KINDS, UNSEEN_KINDS, nonsense_clip, random_letters
from tests.command_here import run_here
from tests.conftest import moving_square

SENTENCE = "unlike its training data (distance "
LOW, HIGH = 1e-6, 1.9  # of the distance of states, which is 0 to 2


def copy_variant(folder: Path, **changed: Any) -> Path:
    """Return the stem of a copy of the shipped model that flags nothing, with some entries of its settings changed."""
    for path in variant_files(WEIGHTS / "pocket")[1:]:
        shutil.copy(path, folder / path.name)
    settings = folder / "pocket.json"
    facts = json.loads(settings.read_text())
    del facts["unfamiliar_above"]
    settings.write_text(json.dumps(facts | changed))
    return folder / "pocket"


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without a threshold."""
    return copy_variant(tmp_path_factory.mktemp("none"))


@pytest.fixture(scope="module")
def flagging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that flags whatever is not a copy of a training clip."""
    return copy_variant(tmp_path_factory.mktemp("low"), unfamiliar_above=LOW, false_alarms=1.0)


@pytest.fixture(scope="module")
def clips() -> list[Episode]:
    shown = [sample_frames(episode, frame_policy("uniform:16")) for episode in open_dataset("sample-sim").episodes]
    return [with_frames(each, each.frames) for each in shown]


def flags(model: PocketRewardModel, episodes: list[Episode]) -> list[bool | None]:
    return [answer.info.unfamiliar for answer in model.score(episodes)]


def test_a_variant_without_a_threshold_flags_nothing(silent: Path, clips: list[Episode]) -> None:
    letters = episode_from_frames(clips[0].frames, "qxv zzkw")
    assert flags(open_pocket(silent), [clips[0], letters]) == [None, None]


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["pocket", "pocket-large"])
def test_what_ships_gives_nonsense_no_reward_and_flags_it(variant: str, clips: list[Episode]) -> None:
    model = open_pocket(WEIGHTS / variant)
    kinds = (*TRAINED_KINDS, *UNSEEN_KINDS)
    given = [
        episode_from_frames(nonsense_clip(kind, rng_for(7, kind), 16, 128, clips[0].frames), clips[0].instruction)
        for kind in kinds
        if kind not in ("letters", "one_colour")  # one is no matter of pixels, the other is refused
    ]
    answers = [answer for answer in model.score(given) if isinstance(answer, Score)]
    assert np.mean([answer.level for answer in answers]) <= 1.5
    assert np.mean([answer.info.unfamiliar is True for answer in answers]) >= 0.75
    assert np.mean([flag is True for flag in flags(model, clips[::10])]) <= 0.1


def test_a_clip_is_flagged_above_the_threshold_and_not_below_it(
    flagging: Path, tmp_path: Path, clips: list[Episode]
) -> None:
    assert flags(open_pocket(flagging), clips[:3]) == [True] * 3
    assert flags(open_pocket(copy_variant(tmp_path, unfamiliar_above=HIGH)), clips[:3]) == [False] * 3


def test_letters_and_a_still_picture_are_flagged_however_near_they_are(tmp_path: Path, clips: list[Episode]) -> None:
    model = open_pocket(copy_variant(tmp_path, unfamiliar_above=HIGH))
    clip, text = clips[0].frames, clips[0].instruction
    letters = episode_from_frames(clip, random_letters(rng_for(0)))
    still, short = (episode_from_frames(clip[:1].repeat(count, axis=0), text) for count in (16, 2))
    coded, moved = still.frames.copy(), still.frames.copy()
    coded[5, ::8] ^= 1  # as a codec changes a picture
    moved[-1, 60:80, 60:80] = 0
    given = [letters, still, short, *(episode_from_frames(frames, text) for frames in (coded, moved))]
    assert flags(model, given) == [True, True, False, True, False]
    letters_info, still_info = (answer.info for answer in model.score(given[:2]))
    assert "unknown words" in familiarity_sentence(letters_info) and "still picture" in familiarity_sentence(still_info)
    for frames, expected in ((coded, True), (moved, False)):
        stream = model.stream(text)
        live = [stream.add_frame(frame).info.unfamiliar for frame in frames]
        assert not any(live[:7]) and live[-1] is expected


def test_the_words_of_real_instructions_are_known(tmp_path: Path) -> None:
    words = open_pocket(copy_variant(tmp_path, unfamiliar_above=HIGH)).vocabulary
    texts = [episode.instruction for name in ("sample", "sample-sim") for episode in open_dataset(name).episodes]
    assert min(words.known_share(text) for text in texts) >= 0.5
    assert max(words.known_share(random_letters(rng_for(seed))) for seed in range(50)) < 0.5


@pytest.mark.slow
def test_mean_image_tokens_tell_nonsense_from_clips_of_the_same_world(tmp_path: Path, clips: list[Episode]) -> None:
    stem = copy_variant(tmp_path)
    plain = open_pocket(stem)
    known, held_out = clips[::2], clips[1::6]
    means = np.stack([mean_image_token(tokens) for tokens in plain.encode_frames([clip.frames for clip in known])])
    np.save(familiar_images(stem), means.astype(np.float16))
    parts = np.arange(len(means)) % 5
    apart = np.concatenate([image_ood_score(means[parts == part], means[parts != part]) for part in range(5)])
    copy_variant(tmp_path, unfamiliar_above=flag_threshold(apart, 0.05), false_alarms=0.05)
    model = open_pocket(stem)
    nonsense = [
        episode_from_frames(nonsense_clip(kind, rng_for(seed, kind), 16, 128), clips[seed].instruction)
        for kind in UNSEEN_KINDS
        for seed in range(2)
    ]
    assert all(flags(model, nonsense))
    assert np.mean([flag is True for flag in flags(model, held_out)]) <= 0.2
    stream = model.stream(held_out[0].instruction)
    live = [stream.add_frame(frame).info.unfamiliar for frame in held_out[0].frames]
    assert live[-1] == flags(model, held_out[:1])[0]


def test_the_images_of_training_are_part_of_the_identity_and_are_checked(tmp_path: Path) -> None:
    stem = copy_variant(tmp_path, unfamiliar_above=1.0)
    before = name_model(f"pocket:{stem}").fingerprint
    np.save(familiar_images(stem), np.ones((4, 3), np.float16))
    assert name_model(f"pocket:{stem}").fingerprint != before
    with pytest.raises(ModelError, match="must hold mean image tokens of width 160, got 3"):
        open_pocket(stem)


@pytest.mark.parametrize("above", ["high", float("nan"), [1]])
def test_a_threshold_that_is_no_number_is_refused(tmp_path: Path, above: Any) -> None:
    with pytest.raises(ModelError, match=r"pocket\.json .*(unfamiliar_above|no settings file)"):
        open_pocket(copy_variant(tmp_path, unfamiliar_above=above))


def test_at_most_the_stated_share_of_familiar_clips_is_above_the_threshold() -> None:
    for count in (3, 19, 100, 1000):
        distances = rng_for(count).random(count)
        above = flag_threshold(distances, 0.05)
        assert (distances > above).mean() <= 0.05 and (distances >= above).mean() > 0.05 - 1 / count


def test_images_are_as_far_as_their_deviations_say() -> None:
    familiar = np.array([[1.0, 100.0], [-1.0, -100.0]] * 3, np.float32)
    near, far = image_ood_score(np.array([[1.0, 100.0], [11.0, 1100.0]], np.float32), familiar)
    assert (near, far) == pytest.approx((0.8, 10.8), abs=1e-3)  # three of the five nearest are 0 or 10 away, two 2 more


def test_score_shows_the_flag_in_the_terminal_and_in_json(flagging: Path, silent: Path, tiny_data: Path) -> None:
    for stem, flagged in ((flagging, True), (silent, False)):
        words = ("score", f"pocket:{stem}", str(tiny_data / "arm/a.mp4"), "open the drawer")
        assert (SENTENCE in " ".join(run_here(*words).stdout.split())) is flagged
        (clip,) = json.loads(run_here(*words, "--json").stdout)["clips"]
        assert clip["info"].get("unfamiliar") is (True if flagged else None)
        assert (clip["familiarity"] or "").startswith(SENTENCE) is flagged and bool(clip["familiarity"]) is flagged


def test_the_server_answers_with_the_flag(flagging: Path, silent: Path) -> None:
    pytest.importorskip("fastapi")
    from tests.serving.loopback_server import reward_server

    buffer = io.BytesIO()
    np.save(buffer, moving_square("a", count=8, size=16))
    for stem, flag in ((flagging, True), (silent, None)):
        with reward_server("pocket", open_pocket(stem)) as client:
            reply = client.post("/v1/score", files={"clip": buffer.getvalue()}, data={"instruction": "push"})
            assert reply.json()["info"].get("unfamiliar") is flag
            assert (reply.json()["familiarity"] or "").startswith(SENTENCE) is bool(flag)


def test_the_wrappers_show_the_flag_in_the_info_of_a_step(flagging: Path, silent: Path) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    from rewardlab.rl.reward_stream import RewardStream
    from rewardlab.rl.wrapper import INFO, ModelReward, VectorModelReward
    from tests.rl.test_wrapper import Corridor

    for stem, flag in ((flagging, True), (silent, False)):
        env = ModelReward(Corridor(), f"pocket:{stem}", RewardStream("go right"))
        env.reset(seed=0)
        noted = env.step(1)[4][INFO]
        assert noted["unfamiliar"] is flag and noted["familiarity"].startswith(SENTENCE) is flag
        vector = VectorModelReward(gymnasium.vector.SyncVectorEnv([Corridor, Corridor]), f"pocket:{stem}", env.stream)
        vector.reset(seed=0)
        noted = vector.step(np.array([1, 0]))[4][INFO]
        assert noted["unfamiliar"].tolist() == [flag, flag]
        assert [text.startswith(SENTENCE) for text in noted["familiarity"]] == [flag, flag]


def test_an_ensemble_is_flagged_where_one_of_its_members_is(flagging: Path, silent: Path, clips: list[Episode]) -> None:
    low, plain = open_pocket(flagging), open_pocket(silent)
    for members, flag in (((low, plain), True), ((plain, plain), None)):
        (answer,) = Ensemble(("a", "b"), members, "mean", (1.0, 1.0)).score(clips[:1])
        assert answer.info.unfamiliar is flag and (answer.info.training_distance is None) is (flag is None)
