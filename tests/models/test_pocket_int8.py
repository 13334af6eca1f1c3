"""Pocket in int8: chosen by what the processor has, nearly the same answers, the same in a stream and in any batch."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from shutil import copy

import numpy as np
import pytest

from rewardlab.core.episode import Episode, with_frames
from rewardlab.core.errors import DataError, ModelError, PlanError
from rewardlab.core.trial import Score
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.models import name_model
from rewardlab.models.pocket import (
    POCKET,
    WEIGHTS,
    choose_precision,
    has_int8_dot_products,
    int8_image_encoder,
    lists_int8_dot_products,
    variant_files,
)
from rewardlab.models.pocket.inference import PocketRewardModel, open_pocket
from tests.narrowing import as_scores, known

VARIABLE = "REWARDLAB_POCKET_INT8"
MOST_MAE, MOST_SHIFT = 0.02, 0.05  # of the level's error, and of the mean change of the expected level
needs_dot_products = pytest.mark.skipif(not has_int8_dot_products(), reason="int8 overflows on this processor")


@pytest.fixture(scope="module")
def clips() -> list[Episode]:
    shown = [sample_frames(episode, frame_policy("uniform:16")) for episode in open_dataset("sample-sim").episodes]
    return [with_frames(each, each.frames) for each in shown]  # decoded once for all tests


@pytest.fixture(scope="module")
def stem(clips: list[Episode], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of pocket that has an int8 graph, calibrated on some of the clips."""
    pytest.importorskip("onnx", reason="needs rewardlab[train]")
    from rewardlab.training.pocket.export import quantise_image_encoder

    folder = tmp_path_factory.mktemp("int8")
    for path in variant_files(WEIGHTS / "pocket")[1:]:
        copy(path, folder)
    frames = np.concatenate([shrunk(clip) for clip in clips[::4]])
    quantise_image_encoder(variant_files(folder / "pocket")[1], frames, int8_image_encoder(folder / "pocket"))
    return folder / "pocket"


def shrunk(clip: Episode) -> np.ndarray:
    return clip.frames[::4, 8:120, 8:120]


def open_forced(stem: Path, forced: str) -> PocketRewardModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, forced)
        return open_pocket(stem)


@pytest.fixture(scope="module")
def in_float32(clips: list[Episode]) -> Callable[[str], list[Score]]:
    """Return what a shipped variant answers in float32; one that is copied answers the same."""
    return cache(lambda name: as_scores(open_forced(WEIGHTS / name, "0").score(clips)))


def assert_close(stem: Path, clips: list[Episode], expected_answers: list[Score]) -> None:
    truth = np.array([clip.label.level for clip in clips])
    answers = [expected_answers, as_scores(open_forced(stem, "1").score(clips))]
    error = [np.abs([a.level for a in found] - truth).mean() for found in answers]
    expected = [np.array([a.probabilities for a in found]) @ np.arange(1, 6) for found in answers]
    assert error[1] - error[0] <= MOST_MAE + 1e-9
    assert 0 < np.abs(expected[1] - expected[0]).mean() < MOST_SHIFT


@pytest.mark.slow
@needs_dot_products
def test_int8_answers_nearly_like_float32(
    stem: Path, clips: list[Episode], in_float32: Callable[[str], list[Score]]
) -> None:
    assert_close(stem, clips, in_float32("pocket"))


@pytest.mark.slow
@needs_dot_products
@pytest.mark.parametrize("name", [name for name in POCKET if int8_image_encoder(WEIGHTS / name).exists()])
def test_a_shipped_int8_graph_answers_nearly_like_float32(
    name: str, clips: list[Episode], in_float32: Callable[[str], list[Score]]
) -> None:
    assert_close(WEIGHTS / name, clips, in_float32(name))


@pytest.mark.slow
def test_in_int8_batches_streams_and_the_cache_change_nothing(stem: Path, clips: list[Episode]) -> None:
    together = as_scores(open_forced(stem, "1").score(clips[:3]))
    alone = open_forced(stem, "1")
    for clip, answer in zip(clips[:3], together, strict=True):
        stream = alone.stream(clip.instruction)
        live = as_scores(stream.add_frame(frame) for frame in clip.frames)
        np.testing.assert_allclose([known(a.progress)[-1] for a in live], known(answer.progress), atol=1e-4)
        (again,) = as_scores(alone.score([clip]))
        np.testing.assert_allclose(known(again.probabilities), known(answer.probabilities), atol=1e-4)


def test_an_answer_says_that_it_was_made_in_int8_and_is_another_model(
    stem: Path, clips: list[Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {forced: open_forced(stem, forced).score(clips[:1])[0].info for forced in "01"}
    assert said["1"].precision == "int8" and said["0"].precision is None
    names = {}
    for forced in "01":
        monkeypatch.setenv(VARIABLE, forced)
        names[forced] = name_model(f"pocket:{stem}").fingerprint
    monkeypatch.setenv(VARIABLE, "0")
    int8_image_encoder(stem).rename(stem.with_name("aside"))
    without = name_model(f"pocket:{stem}").fingerprint
    stem.with_name("aside").rename(int8_image_encoder(stem))
    assert names["0"] == without != names["1"]


def test_a_model_named_in_int8_is_not_built_where_it_would_run_in_float32(
    stem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    named = name_model(f"pocket:{stem}")
    monkeypatch.setenv(VARIABLE, "0")
    with pytest.raises(ModelError, match=f"was requested in int8.* set {VARIABLE}=0 on the machine that starts"):
        named.build()


def test_the_environment_variable_forces_the_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert choose_precision(tmp_path / "none") == "float32"
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(PlanError, match=r"none\.image_encoder\.int8\.onnx, which is missing"):
        choose_precision(tmp_path / "none")
    int8_image_encoder(tmp_path / "some").touch()
    chosen = {}
    for forced in ("0", "1", ""):
        monkeypatch.setenv(VARIABLE, forced)
        chosen[forced] = choose_precision(tmp_path / "some")
    assert chosen == {"0": "float32", "1": "int8", "": "int8" if has_int8_dot_products() else "float32"}
    monkeypatch.setenv(VARIABLE, "yes")
    with pytest.raises(PlanError, match="must be 0 or 1, or not set, got 'yes'"):
        choose_precision(tmp_path / "some")


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_vnni\nvmx flags\t: vnmi\n", True),
        ("flags\t\t: fpu avx2 avx_vnni\n", True),
        ("flags\t\t: fpu avx2 avx512f\n", False),
        ("Features\t: fp asimd atomics asimddp sve\n" * 2, True),
        ("Features\t: fp asimd asimddp\nFeatures\t: fp asimd\n", False),  # small cores without
        ("Features\t: fp asimd\n", False),
        ("model name\t: avx512_vnni of a dream\n", False),
        ("flags\t\t: xavx512_vnnix\n", False),
        ("", False),
    ],
)
def test_dot_products_are_read_from_the_features_of_every_core(cpuinfo: str, expected: bool) -> None:
    assert lists_int8_dot_products(cpuinfo) is expected


def test_the_int8_file_is_small_and_frames_of_another_size_are_refused(stem: Path, tmp_path: Path) -> None:
    from rewardlab.training.pocket.export import quantise_image_encoder

    source = variant_files(stem)[1]
    assert int8_image_encoder(stem).stat().st_size < 0.6 * source.stat().st_size  # which is in half precision
    with pytest.raises(DataError, match=r"must be uint8 \(N, \*\(112, 112, 3\)\), got uint8 \(2, 64, 64, 3\)"):
        quantise_image_encoder(source, np.zeros((2, 64, 64, 3), np.uint8), tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())
