"""The shipped model: it scores simulated clips it has not seen, keeps the contract, and never breaks on odd input."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames, rearrange, with_frames
from rewardlab.core.errors import DataError, ModelError, PlanError
from rewardlab.core.trial import Failure, Score
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.models import name_model
from rewardlab.models.pocket import POCKET, WEIGHTS, read_split, shipped_split
from rewardlab.models.pocket.inference import PocketRewardModel, open_pocket, resize_frames
from rewardlab.perturbations import PERTURBATIONS
from rewardlab.testing import check_model
from rewardlab.worlds.metaworld.tasks import split_of_task
from tests.narrowing import as_score, as_scores, known


@pytest.fixture(scope="module")
def pocket() -> PocketRewardModel:
    return open_pocket(WEIGHTS / "pocket")


@pytest.fixture(scope="module")
def clips() -> list[Episode]:
    shown = [sample_frames(episode, frame_policy("uniform:16")) for episode in open_dataset("sample-sim").episodes]
    return [with_frames(each, each.frames) for each in shown]  # decoded once for all tests


def levels(model: PocketRewardModel, episodes: list[Episode]) -> np.ndarray:
    return np.array([answer.level for answer in as_scores(model.score(episodes))])


@pytest.mark.parametrize("name", POCKET)
def test_every_variant_keeps_the_contract(name: str, clips: list[Episode]) -> None:
    check_model(name_model(name).build(), clips[:3])


def test_it_scores_clips_of_known_tasks_far_better_than_guessing(
    pocket: PocketRewardModel, clips: list[Episode]
) -> None:
    known = [clip for clip in clips if split_of_task(clip.provenance.task) != "test"]
    truth = np.array([clip.label.level for clip in known])
    predicted = levels(pocket, known)
    assert np.abs(predicted - truth).mean() < 0.7
    assert ((predicted == 5) == (truth == 5)).mean() > 0.75


def test_a_clip_that_stands_still_is_no_success(pocket: PocketRewardModel, clips: list[Episode]) -> None:
    still = [rearrange(clip, np.zeros(16, np.int64)) for clip in clips[::4]]
    assert levels(pocket, still).mean() <= 1.5


@pytest.mark.slow
def test_a_success_is_worth_less_under_the_instruction_of_another_task(
    pocket: PocketRewardModel, clips: list[Episode]
) -> None:
    done = [clip for clip in clips if clip.label.level == 5 and split_of_task(clip.provenance.task) != "test"]
    texts = {clip.provenance.task: clip.instruction for clip in done}
    swapped = [
        replace(clip, instruction=text) for clip in done for task, text in texts.items() if task != clip.provenance.task
    ]
    assert levels(pocket, done).mean() > 4
    assert levels(pocket, swapped).mean() < levels(pocket, done).mean() - 0.8


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "3"])
def test_batches_cores_and_the_token_cache_change_nothing(
    clips: list[Episode], threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    model = open_pocket(WEIGHTS / "pocket")
    together = as_scores(model.score(clips[:5]))
    for clip, answer in zip(clips[:5], together, strict=True):
        for asked in (open_pocket(WEIGHTS / "pocket"), model):
            (alone,) = as_scores(asked.score([clip]))
            np.testing.assert_allclose(known(alone.probabilities), known(answer.probabilities), atol=1e-4)


@pytest.mark.parametrize("shape", [(128, 128), (112, 300), (112, 112), (90, 200), (50, 60), (481, 640)])
def test_frames_that_are_resized_together_do_not_mix(shape: tuple[int, int]) -> None:
    frames = list(np.random.default_rng(0).integers(0, 256, (13, *shape, 3), dtype=np.uint8))
    alone = [resize_frames([frame], 112)[0] for frame in frames]
    np.testing.assert_array_equal(resize_frames(frames, 112), alone)
    larger = np.repeat(frames[0], 2, axis=0)
    np.testing.assert_array_equal(resize_frames([frames[0], larger], 112), [alone[0], *resize_frames([larger], 112)])


def test_streaming_and_one_pass_give_the_same_score(pocket: PocketRewardModel, clips: list[Episode]) -> None:
    clip = next(clip for clip in clips if clip.label.level == 5)
    (whole,) = as_scores(pocket.score([clip]))
    stream = pocket.stream(clip.instruction)
    live = as_scores(stream.add_frame(frame) for frame in clip.frames)
    np.testing.assert_allclose([known(answer.progress)[-1] for answer in live], known(whole.progress), atol=1e-4)
    np.testing.assert_allclose(known(live[-1].probabilities), known(whole.probabilities), atol=1e-4)


def test_a_black_frame_is_part_of_the_clip_in_both_ways(pocket: PocketRewardModel, clips: list[Episode]) -> None:
    frames = clips[0].frames[:6].copy()
    frames[0] = 0
    (whole,) = as_scores(pocket.score([episode_from_frames(frames, clips[0].instruction)]))
    stream = pocket.stream(clips[0].instruction)
    live = [stream.add_frame(frame) for frame in frames]
    assert isinstance(live[0], Failure) and "one colour" in live[0].reason
    np.testing.assert_allclose(known(as_score(live[-1]).probabilities), known(whole.probabilities), atol=1e-4)


def test_a_stream_goes_on_after_sixteen_frames(pocket: PocketRewardModel, clips: list[Episode]) -> None:
    stream = pocket.stream(clips[0].instruction)
    answers = [stream.add_frame(frame) for _ in range(4) for frame in clips[0].frames]
    assert len(answers) == 64 and all(isinstance(answer, Score) for answer in answers)
    with pytest.raises(DataError, match=r"got uint8 \(16, 128, 128, 3\)"):
        stream.add_frame(clips[0].frames)


NOISE = np.random.default_rng(0).integers(0, 256, (3, 48, 64, 3), dtype=np.uint8)
ODD = {
    "one frame": NOISE[:1],
    "4K": np.random.default_rng(1).integers(0, 256, (2, 2160, 3840, 3), dtype=np.uint8),
    "a strip": NOISE[:, :1],
    "many frames": NOISE[np.arange(200) % 3],
}


@pytest.mark.parametrize("what", ODD)
def test_odd_clips_get_a_score(pocket: PocketRewardModel, what: str) -> None:
    check_model(pocket, [episode_from_frames(ODD[what], "Open the drawer.")])
    (answer,) = pocket.score([episode_from_frames(ODD[what], "Open the drawer.")])
    assert isinstance(answer, Score) and len(answer.progress or ()) == len(ODD[what])


@pytest.mark.parametrize("text", ["", "   ", "?!"])
def test_an_instruction_without_words_is_refused(pocket: PocketRewardModel, text: str) -> None:
    (answer,) = pocket.score([episode_from_frames(NOISE, text)])
    assert answer == Failure("the instruction is empty; pocket scores a clip against an instruction")


def test_black_clips_are_refused(pocket: PocketRewardModel) -> None:
    (answer,) = pocket.score([episode_from_frames(np.zeros((4, 64, 64, 3), np.uint8), "Open the drawer.")])
    assert isinstance(answer, Failure) and "one colour" in answer.reason


def test_a_clip_that_shows_something_only_between_the_sampled_frames_is_judged(pocket: PocketRewardModel) -> None:
    frames = np.zeros((40, 32, 32, 3), np.uint8)
    frames[1, :16] = 200
    (answer,) = pocket.score([episode_from_frames(frames, "open the drawer")])
    assert isinstance(answer, Score) and len(answer.progress or ()) == 40


@pytest.mark.parametrize("text", ["打开抽屉", "Öffne bitte die Schublade", "Открой ящик", "🤖 ouvre le tiroir"])
def test_an_instruction_in_another_language_is_flagged(
    pocket: PocketRewardModel, clips: list[Episode], text: str
) -> None:
    (answer,) = pocket.score([replace(clips[0], instruction=text)])
    assert isinstance(answer, Score) and answer.info.unfamiliar


def test_a_place_without_a_model_is_refused() -> None:
    with pytest.raises(PlanError, match=r"no pocket is at nowhere/big: nowhere/big\.image_encoder\.onnx is missing"):
        name_model("pocket:nowhere/big")


@pytest.mark.parametrize("variant", POCKET)
def test_a_perturbation_added_to_the_catalog_changes_nothing_of_what_a_model_says_of_itself(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, identity = shipped_split(variant), name_model(variant).fingerprint
    monkeypatch.setitem(PERTURBATIONS, "added", replace(PERTURBATIONS["jpeg"], name="added"))
    assert shipped_split(variant) == split and name_model(variant).fingerprint == identity
    assert "added" not in (*split.train_perturbations, *split.held_out)


@pytest.mark.parametrize("variant", POCKET)
def test_what_was_held_out_is_in_the_catalog_and_was_not_trained_with(variant: str) -> None:
    split = shipped_split(variant)
    trained = {*split.train_perturbations, *split.train_worlds}
    assert {*trained, *split.held_out} <= set(PERTURBATIONS)
    assert len(split.held_out) == (33 if variant == "pocket-plain" else 34) and not trained & set(split.held_out)
    assert bool(trained) == (variant != "pocket-plain")


def test_a_file_that_records_no_split_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"size": 112}')
    with pytest.raises(DataError, match=r"old\.json does not record what was held out \(KeyError\('trained_with'\)\)"):
        read_split(tmp_path / "old.json")


def test_it_runs_without_torch() -> None:
    code = (
        "import sys, numpy as np, rewardlab;"
        "from rewardlab.models import name_model;"
        "from rewardlab.core.episode import episode_from_frames;"
        "frames = np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8);"
        "print(name_model('pocket').build().score([episode_from_frames(frames, 'Open it.')])[0].level);"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "apart"), [("pocket", 1e-4), ("pocket-plain", 1e-4), ("pocket-large", 0.02)])
def test_torch_runs_the_graphs_as_onnxruntime_does(variant: str, apart: float) -> None:
    pytest.importorskip("torch", reason="needs rewardlab[train]")
    pytest.importorskip("onnx", reason="needs rewardlab[train]")
    from rewardlab.models.pocket.torch_graph import TorchGraph

    episodes = open_dataset("sample").episodes[:2]
    expected, model = (open_pocket(WEIGHTS / variant, "float32") for _ in range(2))
    for graph in (model.image_encoder, model.temporal_encoder):
        graph.whole, graph.on_gpu = TorchGraph(graph.path, "cpu"), True
    for one, other in zip(expected.score(episodes), model.score(episodes), strict=True):
        assert isinstance(one, Score) and isinstance(other, Score) and one.level == other.level
        assert np.allclose(known(one.probabilities), known(other.probabilities), atol=apart)


def test_a_device_is_named_and_must_be_there() -> None:
    with pytest.raises(PlanError, match="option device must be cpu, cuda or cuda:N, got 'gpu'"):
        name_model("pocket?device=gpu")
    on_gpu = name_model("pocket-large?device=cuda:1")
    assert on_gpu.name == "pocket-large?device=cuda:1" and on_gpu.fingerprint != name_model("pocket-large").fingerprint
    assert name_model("pocket?device=cpu").fingerprint == name_model("pocket").fingerprint
    torch = pytest.importorskip("torch", reason="needs rewardlab[train]")
    if not torch.cuda.is_available():
        with pytest.raises(ModelError, match="torch sees no CUDA device here; leave out device"):
            on_gpu.build()
