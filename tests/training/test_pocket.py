"""The training of pocket, tiny and on a CPU: same seed, same weights; its batches are labelled by the true state."""

import io
import json
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.narrowing import known

torch = pytest.importorskip("torch", reason="needs rewardlab[train]")
pytest.importorskip("metaworld", reason="needs rewardlab[sim]")


from rewardlab.cli import main
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import rng_for
from rewardlab.data import open_dataset
from rewardlab.models import name_model
from rewardlab.models.pocket import WORD_VECTORS, int8_image_encoder, read_split, shipped_split, variant_files
from rewardlab.models.pocket.inference import load_word_pieces
from rewardlab.perturbations import PERTURBATIONS
from rewardlab.testing import check_model
from rewardlab.training.encoders import PATCH, WIDTH, Dinov2
from rewardlab.training.holdout import draw_split, recorded_split
from rewardlab.training.pocket import NOT_DONE, PocketSettings, Training, pocket_settings, train_pocket
from rewardlab.training.pocket.export import export, load_rounded
from rewardlab.training.pocket.frame_store import (
    FrameStore,
    calibration_frames,
    change_pixels,
    gather_frames,
    moved_places,
    of_variant,
)
from rewardlab.training.pocket.instructions import (
    ClipPositions,
    names_a_colour,
    new_name,
    renamed,
    synthetic_instruction,
)
from rewardlab.training.pocket.network import NetworkConfig, PocketNetwork, level_and_progress_loss, network_config
from rewardlab.training.pocket.rendering import RenderedScene, RolloutTable, of_training
from rewardlab.training.pocket.sampling import SampledClip, sample_clip
from rewardlab.training.pocket.sources import (
    Demonstrations,
    Sources,
    Tabletop,
    TabletopRollout,
    draw_batch,
    known_of_demonstration,
    make_batch,
    other_instruction,
)
from rewardlab.worlds.metaworld.instructions import CAPTION_WORDS, caption, inverse_instructions, phrasings
from rewardlab.worlds.metaworld.scene_edits import draw_look

SETTINGS = pocket_settings(
    variants=("pocket", "pocket-plain"),
    tasks=("drawer-open", "hammer"),
    rollouts=2,
    near_misses=1,
    val_rollouts=1,
    frames_per_rollout=6,
    size=56,
    tabletop=4,
    demonstrations="sample",
    folds=("0",),
    steps=4,
    batch_size=8,
    eval_every=2,
    device="cpu",
    workers=1,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> PocketSettings:
    torch.set_num_threads(1)
    plan = replace(SETTINGS, out=tmp_path_factory.mktemp("pocket"))
    train_pocket(**vars(plan))
    return plan


@pytest.fixture(scope="module")
def trained_large(trained: PocketSettings) -> PocketSettings:
    """Pocket-large on the same rollouts, with a DINOv2 of random weights."""
    torch.manual_seed(0)
    weights = trained.out / "dinov2.npz"
    np.savez(weights, **{name: value.half().numpy() for name, value in Dinov2().state_dict().items()})
    plan = replace(trained, variants=("pocket-large",), dinov2=str(weights), steps=2, demonstrations="")
    train_pocket(**vars(plan))
    return plan


def weights(plan: PocketSettings, name: str = "pocket-fold0") -> dict[str, Any]:
    return dict(torch.load(plan.out / f"{name}.pt", weights_only=True))


class InterruptingLog(io.StringIO):
    def write(self, text: str) -> int:
        if "step 2" in text:
            raise KeyboardInterrupt
        return super().write(text)


@pytest.mark.slow
def test_interrupted_training_resumes_to_the_same_weights(trained: PocketSettings, tmp_path: Path) -> None:
    plan = replace(trained, out=tmp_path, variants=("pocket",))
    (tmp_path / "rollouts").symlink_to(trained.out / "rollouts")
    with pytest.raises(KeyboardInterrupt), redirect_stdout(InterruptingLog()):
        train_pocket(**vars(plan))
    assert not (tmp_path / "pocket-fold0.pt").exists()
    assert torch.load(tmp_path / "pocket-fold0.checkpoint", weights_only=True)["progress"]["step"] == 2
    train_pocket(**vars(plan))
    first, again = weights(trained), weights(plan)
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.slow
def test_every_variant_leaves_weights_probes_and_a_learning_curve(trained: PocketSettings) -> None:
    for training in trained.trainings:
        assert weights(trained, training.name)
        curve = [json.loads(line) for line in (trained.out / f"{training.name}-curve.jsonl").read_text().splitlines()]
        assert [row["step"] for row in curve] == [2, 4]
        with np.load(trained.out / f"{training.name}-probes.npz") as probes:
            assert probes["own/logits"].shape == (2, 5) and set(probes["own/task"]) == {"drawer-open", "hammer"}
            assert probes["still/progress"].shape == (2, 16)
            assert len(probes["tabletop/level"]) == 1
        check_model(
            name_model(f"pocket:{trained.out / training.name}").build(), open_dataset("sample-sim").episodes[:2]
        )


@pytest.mark.slow
def test_the_settings_say_what_was_unseen_and_what_the_calibration_was_fitted_on(trained: PocketSettings) -> None:
    settings = json.loads((trained.out / "pocket-fold0.json").read_text())
    assert settings["unseen_tasks"] == ["hammer"] and settings["fold"] == 0
    # The two validation rollouts under their own words and still, and one of the tabletop under two instructions.
    assert settings["calibrated_on"] == {"folds": [0], "clips": 6 + 30}, "of the simulators, and of six demonstrations"


@pytest.mark.slow
def test_pocket_large_looks_at_fewer_frames_and_keeps_no_weights_of_dinov2(trained_large: PocketSettings) -> None:
    assert not [name for name in weights(trained_large, "pocket-large-fold0") if "frozen" in name]
    model = name_model(f"pocket:{trained_large.out / 'pocket-large-fold0'}").build()
    check_model(model, open_dataset("sample-sim").episodes[:2])
    assert known(json.loads((trained_large.out / "pocket-large-fold0.json").read_text()))["size"] == 56


@pytest.mark.slow
def test_exported_graphs_answer_like_the_network(
    trained: PocketSettings, trained_large: PocketSettings, tmp_path: Path
) -> None:
    import onnxruntime

    rng = np.random.default_rng(0)
    words = rng.normal(size=(3, 11, 128)).astype(np.float32)
    there = (np.arange(11) < 9).astype(np.float32)[None].repeat(3, axis=0)
    for plan, training in [(trained, each) for each in trained.trainings] + [
        (trained_large, trained_large.trainings[0])
    ]:
        network = network_config(training.variant, plan.size)
        frames = rng.integers(0, 256, (3, network.size, network.size, 3), dtype=np.uint8)
        export(plan, training, tmp_path, frames)
        if not network.dinov2:
            quantised = onnxruntime.InferenceSession(int8_image_encoder(tmp_path / training.name))
            assert quantised.run(None, {"frames": frames})[0].shape == (3, 4, 160)
        model = load_rounded(plan, training)
        sessions = [onnxruntime.InferenceSession(path) for path in variant_files(tmp_path / training.name)[1:3]]
        image_encoder, temporal_encoder = sessions
        (tokens,) = image_encoder.run(None, {"frames": frames})
        changes = rng.uniform(0.5, 1.5, (3, network.frames, 1, 1)).astype(np.float32)
        many = np.repeat(tokens[:, None], network.frames, axis=1) * changes
        answers = temporal_encoder.run(None, {"tokens": many, "words": words, "known": there})
        with torch.no_grad():
            true_tokens = model.image_encoder(torch.from_numpy(frames))
            expected = model.temporal_encoder(*map(torch.from_numpy, (many, words, there)))
        close = 0.1 if network.dinov2 else 1e-3  # int8
        for ours, theirs in zip((tokens, *answers), (true_tokens, *expected), strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), atol=close, rtol=close)


def test_no_frame_is_judged_by_what_comes_after_it() -> None:
    torch.manual_seed(0)
    model = PocketNetwork(NetworkConfig(size=32)).eval()
    frames = torch.randint(0, 256, (1, 16, 32, 32, 3), dtype=torch.uint8)
    words, known = torch.randn(1, 12, 128), torch.ones(1, 12)
    changed = frames.clone()
    changed[:, 9:] = 0
    with torch.no_grad():
        seen, other = model(frames, words, known), model(changed, words, known)
    torch.testing.assert_close(seen.progress[:, :9], other.progress[:, :9], atol=1e-5, rtol=0)
    torch.testing.assert_close(seen.levels[:, :9], other.levels[:, :9], atol=1e-5, rtol=0)
    assert not torch.allclose(seen.levels[:, 9:], other.levels[:, 9:])


RISE = np.linspace(0, 1, 24, dtype=np.float32)


def made_up_table(things: tuple[tuple[str, tuple[str, ...]], ...] = ()) -> RolloutTable:
    """Sixteen rollouts of two tasks that rise evenly; with things, they are in a crowd."""
    tasks = ("drawer-open",) * 8 + ("door-close",) * 8
    path = np.tile(RISE[:, None] * (0.0, -0.2, 0.0), (16, 1, 1)).astype(np.float32)
    texts = tuple(phrasings()[task]["train"] for task in tasks)
    held_out = tuple(phrasings()[task]["held_out"] for task in tasks)
    scenes = (RenderedScene("crowd" if things else "plain", things),) * 16
    rows, none = np.arange(16), np.zeros(0, np.int64)
    progress = np.tile(RISE, (16, 1))
    return RolloutTable(tasks, progress, path, path, texts, held_out, ((),) * 16, scenes, rows, none, none)


def sampled(table: RolloutTable, count: int = 600) -> list[SampledClip]:
    return [sample_clip(table, rng_for(0, "clip", n)) for n in range(count)]


def test_clips_under_their_own_words_are_labelled_by_the_state() -> None:
    table = made_up_table()
    own = [clip for clip in sampled(table) if clip.matches_task]
    assert len(own) > 200
    for clip in own:
        seen = clip.level > 0
        np.testing.assert_allclose(clip.progress[seen], RISE[clip.frames][seen], atol=1e-6)
    ends = np.array([clip.level[clip.level > 0][-1] for clip in own])
    lengths = np.array([(clip.level > 0).sum() for clip in own])
    assert set(ends) == {1, 2, 3, 4, 5}
    assert abs(np.corrcoef(lengths[ends > 1], ends[ends > 1])[0, 1]) < 0.2  # the frame count says nothing


def test_what_is_asked_of_another_thing_in_the_scene_was_not_done() -> None:
    table = made_up_table((("dial", ("dial-turn",)), ("window", ("window-open",))))
    of_others = {text for task in ("dial-turn", "window-open") for text in phrasings()[task]["train"]}
    asked = [clip for clip in sampled(table) if clip.text in of_others]
    assert 40 < len(asked) < 150
    assert all((clip.level[clip.level > 0] == 1).all() and not clip.matches_task for clip in asked)
    assert not [clip for clip in sampled(made_up_table(), 300) if clip.text in of_others], "the dial is not there"


def test_inverse_instructions_are_given_both_ways() -> None:
    table = made_up_table()
    close = set(inverse_instructions("drawer-open", ("drawer-open", "drawer-close")))
    assert close == set(phrasings()["drawer-close"]["train"])
    seen = replace(table, tasks=("drawer-open",) * 8 + ("drawer-close",) * 8)
    clips = [c for c in sampled(seen, 900) if c.row < 8 and (c.text in close)]
    ends = {(bool(c.frames[0] < c.frames[-1]), int(c.level[c.level > 0][-1])) for c in clips}
    assert (True, 1) in ends and (False, 5) in ends  # opened is not closed; shown backwards it is


def test_a_fold_knows_no_rollout_word_or_thing_of_its_unseen_tasks() -> None:
    table = made_up_table((("dial", ("dial-turn",)), ("safe", ("door-open",))))
    fold = of_training(table, ("door-close", "dial-turn"), robust=True)
    assert not len(fold.training), "the dial has no seen task"
    assert set(of_training(made_up_table(), ("door-close",), robust=True).task_names) == {"drawer-open"}
    other = of_training(made_up_table((("safe", ("door-open",)),)), ("door-open",), robust=True)
    assert other.scenes[0].things == (("safe", ()),), "the safe is seen closing, but not asked for"
    assert inverse_instructions("door-close", ("door-close",)) == ()
    unseen = set(phrasings()["door-open"]["train"])
    assert not [clip for clip in sampled(other, 400) if clip.text in unseen]


def made_up_sources() -> Sources:
    """Sixteen Meta-World rollouts, six of the tabletop, four demonstrations and three clips of nonsense."""
    progress = np.stack([np.linspace(0, 1, 16), np.zeros(16), np.zeros(16)]).astype(np.float32)
    texts = ("Put the cup on the plate.", "Open the box.", "Push the cup to the left.")
    rollout = TabletopRollout(
        texts, progress, np.zeros((3, 16, 2), np.float32), np.ones((16, 2), np.float32), np.ones(3, bool)
    )
    said = ("Close the drawer", "Pick up the red mug", "Fold the towel", "Close the drawer")
    shown = Demonstrations(said, np.array(["lab"] * 4), np.arange(4), np.arange(0))
    return Sources(made_up_table(), Tabletop((rollout,) * 6, np.arange(5), np.arange(5, 6)), shown, np.arange(3))


def test_a_batch_shows_videos_of_every_source_under_several_texts() -> None:
    plan, sources = replace(SETTINGS, batch_size=40), made_up_sources()
    batch = draw_batch(plan, sources, rng_for(0, "batch"))
    assert {"metaworld", "tabletop", "demonstrations"} <= set(batch.source) and batch.frames.shape == (40, 16)
    again = draw_batch(plan, sources, rng_for(0, "batch"))
    assert all((getattr(batch, name) == getattr(again, name)).all() for name in ("row", "piece_ids", "level"))
    texts = np.bincount(batch.video)
    assert set(texts[batch.source == "metaworld"]) <= {1, 2} and (texts[batch.source == "demonstrations"] >= 2).all()
    made = make_batch(sources.metaworld, [("metaworld", [clip]) for clip in sampled(sources.metaworld, 5)])
    assert made.video.tolist() == [0, 1, 2, 3, 4] and made.caption.shape == (5, len(CAPTION_WORDS))
    assert np.isnan(made.places).all()


def test_only_what_is_known_of_a_demonstration_is_taught() -> None:
    whole = np.linspace(0, 31, 16).round().astype(np.int64)
    forwards, backwards = (known_of_demonstration(0, frames, "Close the drawer") for frames in (whole, whole[::-1]))
    assert forwards.level[0] == 1 and forwards.level[-1] == 5 and set(forwards.level[2:8]) == {NOT_DONE}
    assert not forwards.level[8:-1].any() and np.isnan(forwards.progress[2:-1]).all()
    assert backwards.level[-1] == 1 and 5 not in backwards.level
    sources = made_up_sources()
    assert sources.demonstrations is not None
    asked = {other_instruction(sources.demonstrations, 0, np.arange(4), rng_for(0, "other", n)) for n in range(60)}
    assert asked == {"Pick up the red mug", "Fold the towel"}, "the same words ask for the same"


def test_a_scene_in_a_mirror_is_mirrored_in_pixels_places_and_words() -> None:
    sources, device = made_up_sources(), torch.zeros(1, 1)
    drawn = [draw_batch(replace(SETTINGS, batch_size=40), sources, rng_for(0, "batch", n)) for n in range(4)]
    batch = max(drawn, key=lambda each: each.mirrored.sum())
    assert set(batch.source[batch.mirrored]) == {"tabletop", "demonstrations"}
    words = load_word_pieces(WORD_VECTORS)
    left, right = (words.piece_ids(f"Push the cup to the {side}.") for side in ("left", "right"))
    in_mirror = batch.mirrored[batch.video]
    assert not (batch.piece_ids[in_mirror] == left).all(1).any() and (batch.piece_ids[in_mirror] == right).all(1).any()
    hands = batch.places[in_mirror & (batch.source[batch.video] == "tabletop")][:, 0, 2:]
    assert (hands == (-1, 1)).all(), "the hand is at (1, 1)"
    pixels = {name: torch.zeros((99, 40, 16, 16, 3), dtype=torch.uint8) for name in set(batch.source)}
    for each in pixels.values():
        each[..., :8, :] = 200
    shown = gather_frames(FrameStore(sources, pixels, device, None), batch, NetworkConfig(16))
    assert ((shown[:, 0, 0, 0, 0] == 0).numpy() == batch.mirrored).all()
    plain = draw_batch(replace(SETTINGS, batch_size=40), sources, rng_for(0, "batch"), robust=False)
    assert not plain.mirrored.any()


def test_places_move_with_the_picture() -> None:
    torch.manual_seed(0)
    frames = torch.zeros((3, 1, 84, 84, 3), dtype=torch.uint8)
    frames[:, :, 50:53, 30:33] = 255
    shown, matrix = change_pixels(frames, 84, torch.ones(3))
    place = torch.tensor([31.5, 51.5]) / 42 - 1
    x, y = ((moved_places(place.repeat(3, 1, 2), matrix)[:, 0, :2] + 1) * 42).round().long().unbind(1)
    for number in range(3):
        brightest = shown[number, 0].float().sum(-1).flatten().argmax()
        assert abs(int(brightest % 84) - int(x[number])) <= 2 and abs(int(brightest // 84) - int(y[number])) <= 2


def test_an_object_gets_another_name_and_keeps_what_is_asked() -> None:
    assert renamed("Pull the green drawer open.", "drawer-open", "the blue thing") == "Pull the blue thing open."
    assert known(renamed("The drawer is open, please shut it.", "drawer-close", "the gabby"))[:10] == "The gabby "
    assert renamed("Let the water run.", "faucet-open", "the gabby") is None
    assert names_a_colour("Press the RED button.") and not names_a_colour("Press the redder button.")
    names = {new_name(draw_look(3), ("gabby",), rng_for(0, "name", n)) for n in range(300)}
    assert "the gabby" in names and "the thing" in names and f"the {draw_look(3).moving} part" in names


def test_captions_say_what_moved_and_what_did_not() -> None:
    still, left = np.zeros((16, 3)), np.linspace(0, 1, 16)[:, None] * (-0.2, 0.0, 0.0)
    assert caption("push", left, left) == "the gripper moved left, the puck was pushed left"
    assert caption("push", left, still, name="the gabby") == "the gripper moved left, the gabby was untouched"
    assert caption("reach", still, still) == "the gripper stayed"
    assert {"puck", "left", "untouched", "purple"} <= set(CAPTION_WORDS)


def test_pretrained_features_come_in_the_grid_of_the_image_tokens() -> None:
    torch.manual_seed(0)
    teacher = Dinov2().eval()
    frames = torch.randint(0, 256, (2, 32, 32, 3), dtype=torch.uint8)
    with torch.no_grad():
        features = teacher(frames, 2)
        other = teacher(frames.flip(0), 2)
    assert features.shape == (2, 4, WIDTH) and PATCH == 14
    torch.testing.assert_close(features.flip(0), other)


def test_synthetic_instructions_are_labelled_by_the_positions_of_gripper_and_object() -> None:
    share = np.linspace(0, 1, 16, dtype=np.float32)[:, None]
    gripper = np.concatenate([share[::2] * (0.0, 0.1, 0.0), (0.0, 0.1, 0.0) + share[::2] * (-0.2, 0.0, 0.0)])
    obj = np.array((0.0, 0.1, 0.0)) + np.concatenate([np.zeros((8, 3)), share[::2] * (-0.2, 0.0, 0.0)])
    clip = ClipPositions("push", gripper, obj)
    ends: dict[str, set[float]] = {}
    for number in range(3000):
        name = "the gabby" if number % 2 else "the puck"
        text, progress = synthetic_instruction(clip, name, rng_for(0, "made up", number))
        assert progress.shape == (16,) and progress[0] < 0.25 and progress.min() >= 0 and progress.max() <= 1
        ends.setdefault(text, set()).add(float(progress[-1]))
    for text in ("Push the puck to the left.", "Slide the gabby to the left.", "Touch the puck."):
        assert ends[text] == {1.0}
    for text in ("Lift the puck.", "Push the puck to the right.", "Pull the puck up."):
        assert max(ends[text]) < 0.25
    assert any("20 cm to the left" in text and 1.0 in found for text, found in ends.items())


def test_unknown_labels_do_not_count_in_the_loss() -> None:
    progress, levels = torch.randn(2, 16), torch.randn(2, 16, 5)
    true_progress = torch.full((2, 16), torch.nan)
    true_level = torch.zeros((2, 16), dtype=torch.int64)
    true_level[:, 7] = 4
    loss = level_and_progress_loss(progress, levels, true_progress, true_level)
    other = levels.clone()
    other[:, 8:] += 3 * torch.randn(2, 8, 5)
    assert level_and_progress_loss(progress + 1, other, true_progress, true_level) == loss
    true_level[:, 3] = NOT_DONE
    less_sure = levels.clone()
    less_sure[:, 3, 4] -= 2
    before = level_and_progress_loss(progress, levels, true_progress, true_level)
    assert level_and_progress_loss(progress, less_sure, true_progress, true_level) < before


def test_some_of_every_category_is_held_out_of_training() -> None:
    split = draw_split()
    held_out = set(split.held_out)
    for category in ("visual", "semantic", "temporal", "domain"):
        names = {p.name for p in PERTURBATIONS.values() if p.category == category}
        assert 0.2 < len(names & held_out) / len(names) < 0.5
    assert not held_out & {*split.train_perturbations, *split.train_worlds}


def test_another_arm_is_never_trained_with_and_the_other_worlds_are_drawn_as_without_it() -> None:
    split = draw_split()
    assert "world_robot" not in split.train_worlds and split.held_out_worlds[-1] == "world_robot"
    assert split.held_out_worlds == shipped_split("pocket").held_out_worlds


def test_a_training_keeps_the_split_it_began_with_when_the_catalog_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(SETTINGS, out=tmp_path)
    before = recorded_split(plan.out)
    monkeypatch.setitem(PERTURBATIONS, "added", replace(PERTURBATIONS["jpeg"], name="added"))
    assert draw_split() != before == recorded_split(plan.out)


@pytest.mark.slow
def test_the_exported_json_records_what_each_variant_was_trained_with(trained: PocketSettings) -> None:
    split = recorded_split(trained.out)
    for training in trained.trainings:
        written = read_split(trained.out / f"{training.name}.json")
        assert written.held_out == split.held_out
        assert written.train_perturbations == (split.train_perturbations if training.robust else ())


def test_word_pieces_are_those_of_the_encoder_that_made_the_vectors() -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs rewardlab[hf]")
    words = load_word_pieces(WORD_VECTORS)
    theirs = tokenizers.BertWordPieceTokenizer(dict(words.ids), lowercase=True)
    for lists in phrasings().values():
        for text in (*lists["train"], *lists["held_out"], "Öffne die Schublade, 12 cm!"):
            assert words.pieces(text) == theirs.encode(text, add_special_tokens=False).tokens


@pytest.mark.parametrize("missing", ["torch", "onnx", "metaworld", "a GPU"])
def test_what_is_missing_is_told_before_anything_is_simulated(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing != "a GPU":
        monkeypatch.setitem(sys.modules, missing, None)
    elif torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    plan = replace(SETTINGS, out=tmp_path / "out", device="cuda" if missing == "a GPU" else "cpu")
    said = "sees no CUDA device here; use --device cpu" if missing == "a GPU" else rf"needs the package {missing}: pip"
    with pytest.raises(PlanError, match=said):
        train_pocket(**vars(plan))
    assert not plan.out.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pocket", "--tasks", "hammer", "--folds", "0,1", "--device", "cpu"], "340 rollouts of 1 tasks"),
        (["objective", "triplet,vip", "--backbone", "CLIP", "--seeds", "0,1"], "4 trainings of"),
        (["assemble", "--vision", "DINO", "--language", "SMOL"], "DINO and SMOL joined"),
    ],
)
def test_a_dry_run_of_every_training_tells_what_it_would_do_and_writes_nothing(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers", reason="needs rewardlab[vlm-train]")
    assert main(["train", *words, "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    assert said in capsys.readouterr().out and not (tmp_path / "out").exists()


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(PlanError, match="got 'pocket-huge'"):
        pocket_settings(variants=("pocket-huge",))
    with pytest.raises(PlanError, match="a fold is one of none, 0, 1, 2, 3, 4, got '5'"):
        pocket_settings(folds="5")
    with pytest.raises(PlanError, match="give its weights by --dinov2"):
        pocket_settings(variants="pocket-large")
    with pytest.raises(
        PlanError, match="a part is one of distillation, scenes, inverse-instructions, captions, places, got 'hands'"
    ):
        pocket_settings(ablate=("hands",))
    with pytest.raises(PlanError, match="multiple of 14"):
        pocket_settings(size=100)


@pytest.mark.parametrize(("variant", "shades"), [("pocket", {1, 3}), ("pocket-plain", {1})])
def test_int8_is_calibrated_on_no_frame_that_the_variant_was_not_trained_on(variant: str, shades: set[int]) -> None:
    # Of the rollouts the second is shown in a changed world, and the last is of an unseen task.
    shade = torch.tensor([1, 3, 2, 2], dtype=torch.uint8).reshape(4, 1, 1, 1, 1).expand(4, 6, 56, 56, 3)
    scenes = (RenderedScene(), RenderedScene("world"), *(RenderedScene(),) * 14)
    tasks = ("drawer-open",) * 8 + ("hammer",) * 8
    table = replace(made_up_table(), tasks=tasks, training=np.array([0, 1, 9]), scenes=scenes)
    store = FrameStore(Sources(table), {"metaworld": shade, "nonsense": shade[:0]}, torch.zeros(1, 1), None)
    own = of_variant(SETTINGS, store, Training(variant, 0))
    frames = calibration_frames(own, network_config(variant, 56))
    assert frames.dtype == np.uint8 and frames.shape[1:] == (32, 32, 3) and set(np.unique(frames)) == shades
