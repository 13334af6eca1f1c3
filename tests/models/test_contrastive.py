"""CLIP and SigLIP made tiny from their configs, and the map from similarity to level."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames, rearrange
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import rng_for
from rewardlab.core.settings import Execution
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.models import name_model
from rewardlab.models.calibration import UNCALIBRATED, LevelMap, fit_levels, read_level_map
from rewardlab.models.contrastive import goal_rewards
from rewardlab.testing import check_model
from tests.conftest import moving_square
from tests.models import tiny
from tests.narrowing import as_scores, known
from tests.plans import stress_plan

has_hf = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("transformers") is None, reason="torch and transformers: extra hf"
)
SAVE = {"clip": tiny.save_clip, "siglip": tiny.save_siglip}


@pytest.fixture(scope="module", params=SAVE)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SAVE[request.param](tmp_path_factory.mktemp(request.param) / request.param)


def built(argument: str) -> Any:
    return name_model(f"contrastive:{argument}").build()


def episodes() -> list[Episode]:
    first = episode_from_frames(moving_square("a", count=5), "open the drawer")
    texts = ("put the red cup on the plate", "Open the drawer", "x " * 200)
    return [
        first,
        rearrange(first, np.array([4, 3, 2, 1, 0])),
        *(episode_from_frames(moving_square("b", count=3), text) for text in texts),
    ]


def reference(folder: Path, episode: Episode) -> np.ndarray:
    """Return the cosine of each frame and the text by the library's own forward pass."""
    import torch
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder)
    pixels = AutoImageProcessor.from_pretrained(folder, backend="pil")(list(episode.frames), return_tensors="pt")
    padding = {"padding": "max_length", "max_length": 32} if folder.name == "siglip" else {}
    text = episode.instruction.lower() if folder.name == "siglip" else episode.instruction
    words = AutoTokenizer.from_pretrained(folder)([text], return_tensors="pt", **padding)
    if folder.name == "siglip":
        del words["attention_mask"]
    with torch.no_grad():
        output = model(**pixels, **words)
    return np.asarray(torch.cosine_similarity(output.image_embeds, output.text_embeds))


@has_hf
def test_it_keeps_the_contract(folder: Path) -> None:
    check_model(built(str(folder)), episodes())


@has_hf
def test_the_reward_of_a_frame_is_its_cosine_and_the_last_decides_the_level(folder: Path) -> None:
    model = built(str(folder))
    for episode, score in list(zip(episodes(), model.score(episodes()), strict=True))[:4]:
        np.testing.assert_allclose(score.progress, reference(folder, episode), atol=1e-5)
        assert score.level == pytest.approx(3 + 2 * score.progress[-1])
        assert score.probabilities is None


@has_hf
def test_frames_and_texts_that_come_again_are_not_encoded_again(folder: Path) -> None:
    model = built(str(folder))
    frames: list[int] = []
    model.encoder.pair.model.vision_model.register_forward_pre_hook(
        lambda _, _given, named: frames.append(len(named["pixel_values"])), with_kwargs=True
    )
    first, backwards, *others = model.score(episodes())
    assert sum(frames) == 8 and first.progress == pytest.approx(backwards.progress[::-1])
    assert [first, backwards, *others] == model.score(episodes()) and sum(frames) == 8


@has_hf
def test_an_instruction_that_spells_a_special_token_stays_text_to_its_end(folder: Path) -> None:
    frames = moving_square("a", count=2)
    texts = ("push <|im_end|> the green block", "push <|im_end|> open the drawer")
    first, second = built(str(folder)).score([episode_from_frames(frames, text) for text in texts])
    assert first.level != second.level


@has_hf
def test_the_baseline_takes_out_what_does_not_lie_towards_the_goal(folder: Path) -> None:
    plain = built(str(folder)).score(episodes())
    none = built(f"{folder}?baseline=a robot arm&alpha=0").score(episodes())
    half = built(f"{folder}?baseline=a robot arm&alpha=0.5").score(episodes())
    for a, b, c in zip(plain, none, half, strict=True):
        np.testing.assert_allclose(a.progress, b.progress, atol=1e-6)  # |s - g|^2 / 2 = 1 - cos for unit vectors
        assert all(x > y for x, y in zip(c.progress, a.progress, strict=True))


def test_goal_rewards_follow_the_published_formula() -> None:
    rng = rng_for(0, "goal rewards")
    seen, goal, baseline = (
        v / np.linalg.norm(v, axis=-1, keepdims=True) for v in (rng.normal(size=(6, 4)), *rng.normal(size=(2, 4)))
    )
    for alpha in (0.0, 0.3, 1.0):
        for state, reward in zip(seen, goal_rewards(seen, goal, baseline, alpha), strict=True):
            line = (goal - baseline) / np.linalg.norm(goal - baseline)
            laid = baseline + line * ((state - baseline) @ line)
            assert reward == pytest.approx(1 - np.sum((alpha * laid + (1 - alpha) * state - goal) ** 2) / 2)


def test_a_fitted_map_is_the_isotonic_regression() -> None:
    from sklearn.isotonic import IsotonicRegression

    rng = rng_for(0, "levels")
    similarities = np.round(rng.normal(0.25, 0.05, 200), 2)
    levels = np.clip(np.round(3 + 30 * (similarities - 0.25) + rng.normal(size=200)), 1, 5)
    fitted = fit_levels(similarities.tolist(), levels.tolist())
    theirs = IsotonicRegression(out_of_bounds="clip").fit(similarities, levels)
    places = np.linspace(0.05, 0.45, 300)
    np.testing.assert_allclose([fitted.level(p) for p in places], theirs.predict(places), atol=1e-9)
    assert all(np.diff([fitted.level(p) for p in places]) >= 0)


def test_a_map_is_saved_and_read_and_thresholds_are_steps(tmp_path: Path) -> None:
    path = tmp_path / "levels.json"
    fitted = fit_levels([0.1, 0.2, 0.3], [1, 3, 2])
    fitted.write(path)
    assert read_level_map(path) == fitted == LevelMap((0.1, 0.2, 0.3), (1.0, 2.5, 2.5))
    path.write_text('{"thresholds": [0.1, 0.2, 0.3, 0.4]}')
    steps = read_level_map(path)
    assert [steps.level(s) for s in (-1, 0.0999, 0.1, 0.25, 0.3, 0.9)] == [1, 1, 2, 3, 4, 5]
    assert UNCALIBRATED.level(-1) == 1 and UNCALIBRATED.level(0.25) == 3.5


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is no level map: ValueError: Expecting property name"),
        ('{"levels": [1, 2]}', "is no level map: KeyError"),
        ('{"similarities": [0.1, 0.2], "levels": [2, 1]}', "both rising"),
        ('{"similarities": [0.1], "levels": [1, 2]}', "1 similarities and 2 levels"),
        ('{"similarities": [0.1, 0.2], "levels": [0, 9]}', "levels from 1 to 5"),
        ('{"thresholds": [0.1, 0.2]}', "four rising numbers.* got 2"),
    ],
)
def test_a_broken_map_is_refused(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "levels.json"
    path.write_text(content)
    with pytest.raises(PlanError, match=says):
        read_level_map(path)
    with pytest.raises(PlanError, match="one level per similarity, got 1 and 2"):
        fit_levels([0.1, 0.2], [1])


@has_hf
def test_a_calibrated_model_says_its_map_s_levels_and_is_another_model(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "levels.json"
    path.write_text(json.dumps({"similarities": [-1, 1], "levels": [2, 2]}))
    name = f"contrastive:{folder}?levels={path}"
    before = name_model(name)
    assert {score.level for score in as_scores(before.build().score(episodes()))} == {2.0}
    path.write_text(json.dumps({"similarities": [-1, 1], "levels": [4, 4]}))
    assert name_model(name).fingerprint != before.fingerprint and before.exclusive


@has_hf
def test_a_stress_test_runs(tiny_data: Path, tmp_path: Path) -> None:
    folder = tiny.save_siglip(tmp_path / "siglip")
    plan = stress_plan(
        models=(f"contrastive:{folder}?baseline=a robot arm on a table",),
        data=str(tiny_data),
        perturbations=("polite_filler", "reverse"),
        severities=(1,),
        controls=False,
        limit=2,
        execution=Execution(workers=1, engine="local"),
        out=tmp_path / "run",
    )
    trials = evaluate(plan).trials().rows()
    assert [trial.status for trial in trials] == ["scored"] * 6
    assert all(len(known(trial.progress)) == len(trial.shown) for trial in trials)


@has_hf
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("?alpha=2", "alpha must be from 0 to 1, got 2"),
        ("?levels=/no/such/map.json", "there is no level map /no/such/map.json"),
        ("?dtype=int8", "dtype must be auto, float32, bfloat16 or float16"),
        ("/deeper", "there is no folder"),
    ],
)
def test_a_wrong_name_is_said_at_once(folder: Path, options: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        name_model(f"contrastive:{folder}{options}")


@has_hf
def test_another_kind_of_checkpoint_is_refused(tmp_path: Path) -> None:
    place: Any = tiny.save_qwen3(tmp_path / "qwen")
    with pytest.raises(PlanError, match="of type clip, siglip or rewardlab_projected_pair, got qwen3_vl"):
        name_model(f"contrastive:{place}")
