"""The training of pocket, tiny and on a CPU: same seed, same weights; its batches are labelled by the true state."""

import io
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs rewardlab[train]")
pytest.importorskip("metaworld", reason="needs rewardlab[sim]")

from scipy.special import softmax  # noqa: E402

from rewardlab.core.errors import PlanError  # noqa: E402
from rewardlab.core.seeding import rng_for  # noqa: E402
from rewardlab.data import open_dataset  # noqa: E402
from rewardlab.models import name_model  # noqa: E402
from rewardlab.models.pocket import WORD_VECTORS, variant_files  # noqa: E402
from rewardlab.models.pocket.catalog_split import read_split  # noqa: E402
from rewardlab.models.pocket.wordpiece import load_word_pieces  # noqa: E402
from rewardlab.perturbations import PERTURBATIONS  # noqa: E402
from rewardlab.runner.fit_calibration import fit_temperature  # noqa: E402
from rewardlab.testing import check_model  # noqa: E402
from rewardlab.training.pocket.batches import Batch, draw_batch, whole_clips  # noqa: E402
from rewardlab.training.pocket.losses import level_and_progress_loss  # noqa: E402
from rewardlab.training.pocket.network import NETWORK_CONFIGS, PocketNetwork  # noqa: E402
from rewardlab.training.pocket.onnx_export import export, load_rounded  # noqa: E402
from rewardlab.training.pocket.perturbation_holdout import draw_split, recorded_split  # noqa: E402
from rewardlab.training.pocket.plan import PocketPlan  # noqa: E402
from rewardlab.training.pocket.rollout_table import RolloutTable  # noqa: E402
from rewardlab.training.pocket.synthetic_instructions import ClipPositions, synthetic_instruction  # noqa: E402
from rewardlab.training.pocket.training_loop import train_pocket  # noqa: E402

PLAN = PocketPlan(
    "pocket",
    tasks=("drawer-open", "push"),
    rollouts=2,
    near=1,
    checks=1,
    kept=6,
    size=32,
    steps=(4,),
    batch=3,
    check_every=2,
    device="cpu",
    workers=1,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> PocketPlan:
    torch.set_num_threads(1)
    plan = replace(PLAN, out=tmp_path_factory.mktemp("pocket"))
    train_pocket(plan)
    return plan


def weights(plan: PocketPlan, variant: str = "pocket") -> dict[str, torch.Tensor]:
    return torch.load(plan.out / f"{variant}.pt", weights_only=True)


class InterruptingLog(io.StringIO):
    def write(self, text: str) -> int:
        if "step 4" in text:
            raise KeyboardInterrupt
        return super().write(text)


def test_interrupted_training_resumes_to_the_same_weights(trained: PocketPlan, tmp_path: Path) -> None:
    plan = replace(trained, out=tmp_path, variants=("pocket",))
    (tmp_path / "rollouts").symlink_to(trained.out / "rollouts")
    with pytest.raises(KeyboardInterrupt), redirect_stdout(InterruptingLog()):
        train_pocket(plan)
    assert (tmp_path / "pocket.checkpoint").exists() and not (tmp_path / "pocket.pt").exists()
    train_pocket(plan)
    first, again = weights(trained), weights(plan)
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_every_variant_leaves_weights_predictions_and_a_learning_curve(trained: PocketPlan) -> None:
    for variant in trained.variants:
        assert weights(trained, variant)
        assert len((trained.out / f"{variant}-curve.jsonl").read_text().splitlines()) == 2
        with np.load(trained.out / f"{variant}-checks.npz") as predictions:
            assert predictions["logits"].shape == (2, 5)
        check_model(name_model(f"pocket:{trained.out / variant}").build(), open_dataset("sample-sim").episodes[:2])


def test_exported_graphs_answer_like_the_network(trained: PocketPlan, tmp_path: Path) -> None:
    import onnxruntime

    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    words = rng.normal(size=(3, 48, 128)).astype(np.float32)
    known = (np.arange(48) < 9).astype(np.float32)[None].repeat(3, axis=0)
    for variant in trained.variants:
        export(trained, variant, tmp_path)
        model = load_rounded(trained, variant)
        sessions = [onnxruntime.InferenceSession(path) for path in variant_files(tmp_path / variant)[1:3]]
        image_encoder, temporal_encoder = sessions
        (tokens,) = image_encoder.run(None, {"frames": frames})
        many = np.repeat(tokens[:, None], 16, axis=1) * rng.uniform(0.5, 1.5, (3, 16, 1, 1)).astype(np.float32)
        progress, levels = temporal_encoder.run(None, {"tokens": many, "words": words, "known": known})
        with torch.no_grad():
            true_tokens = model.image_encoder(torch.from_numpy(frames))
            true_progress, true_levels = model.temporal_encoder(*map(torch.from_numpy, (many, words, known)))
        for ours, theirs in ((tokens, true_tokens), (progress, true_progress), (levels, true_levels)):
            np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("variant", NETWORK_CONFIGS)
def test_no_frame_is_judged_by_what_comes_after_it(variant: str) -> None:
    torch.manual_seed(0)
    model = PocketNetwork(replace(NETWORK_CONFIGS[variant], size=32)).eval()
    frames = torch.randint(0, 256, (1, 16, 32, 32, 3), dtype=torch.uint8)
    words, known = torch.randn(1, 48, 128), torch.ones(1, 48)
    changed = frames.clone()
    changed[:, 9:] = 0
    with torch.no_grad():
        progress, levels, _ = model(frames, words, known)
        other_progress, other_levels, _ = model(changed, words, known)
    torch.testing.assert_close(progress[:, :9], other_progress[:, :9], atol=1e-5, rtol=0)
    torch.testing.assert_close(levels[:, :9], other_levels[:, :9], atol=1e-5, rtol=0)
    assert not torch.allclose(levels[:, 9:], other_levels[:, 9:])


def test_batches_are_labelled_by_the_state_and_mismatches_have_no_progress() -> None:
    rise = np.linspace(0, 1, 24, dtype=np.float32)
    texts = {"drawer-open": ("Open the drawer.",), "push": ("Push the puck.",)}
    tasks = ("drawer-open",) * 4 + ("push",) * 4
    path = np.tile(rise[:, None] * (0.0, -0.2, 0.0), (8, 1, 1)).astype(np.float32)
    table = RolloutTable(
        tasks=tasks,
        progress=np.tile(rise, (8, 1)),
        gripper_pos=path,
        object_pos=path,
        texts=tuple(texts[task] for task in tasks),
        counterfactuals=((),) * 8,
        perturbed_clips=(),
        training=np.arange(8),
    )
    every = draw_batch(table, 800, rng_for(0, "test"), robust=False)
    ids = {task: load_word_pieces(WORD_VECTORS).piece_ids(texts[task][0]) for task in texts}
    known = np.array([any((text == line).all() for line in ids.values()) for text in every.piece_ids])
    assert 0.15 < np.mean(~known) < 0.35  # synthetic instructions
    batch = Batch(**{name: values[known] for name, values in vars(every).items()})
    own = np.array([(ids[tasks[row]] == text).all() for row, text in zip(batch.row, batch.piece_ids)])
    assert 0.05 < np.mean(~own) < 0.2
    for row in range(len(own)):
        seen = batch.level[row] > 0
        assert seen.any()
        wanted = rise[batch.frames[row]][seen] if own[row] else 0.0
        np.testing.assert_allclose(batch.progress[row][seen], wanted, atol=1e-6)
    ends = np.array([levels[levels > 0][-1] for levels in batch.level[own]])
    lengths = (batch.level[own] > 0).sum(axis=1)
    assert set(ends) == {1, 2, 3, 4, 5}
    assert abs(np.corrcoef(lengths[ends > 1], ends[ends > 1])[0, 1]) < 0.15  # the frame count says nothing


def test_synthetic_instructions_are_labelled_by_the_positions_of_gripper_and_object() -> None:
    share = np.linspace(0, 1, 16, dtype=np.float32)[:, None]
    gripper = np.concatenate([share[::2] * (0.0, 0.1, 0.0), (0.0, 0.1, 0.0) + share[::2] * (-0.2, 0.0, 0.0)])
    obj = np.array((0.0, 0.1, 0.0)) + np.concatenate([np.zeros((8, 3)), share[::2] * (-0.2, 0.0, 0.0)])
    clip = ClipPositions("push", gripper, obj)
    ends: dict[str, set[float]] = {}
    for number in range(3000):
        text, progress = synthetic_instruction(clip, ("gabby",), rng_for(0, "made up", number))
        assert progress.shape == (16,) and progress[0] < 0.25 and progress.min() >= 0 and progress.max() <= 1
        ends.setdefault(text, set()).add(float(progress[-1]))
    for text in ("Push the puck to the left.", "Slide the gabby to the left.", "Touch the puck."):
        assert ends[text] == {1.0}
    for text in ("Lift the puck.", "Push the puck to the right.", "Pull the puck up."):
        assert max(ends[text]) < 0.25
    assert any("20 cm to the left" in text and 1.0 in found for text, found in ends.items())


def test_whole_clips_show_the_first_and_the_last_frame() -> None:
    still = np.zeros((1, 24, 3), np.float32)
    rise = np.linspace(0, 1, 24, dtype=np.float32)[None]
    table = RolloutTable(("push",), rise, still, still, (("a",),), ((),), (), np.arange(0))
    batch = whole_clips(table, np.array([0]))
    assert batch.frames[0, 0] == 0 and batch.frames[0, -1] == 23 and batch.level[0, -1] == 5


def test_unknown_labels_do_not_count_in_the_loss() -> None:
    progress, levels = torch.randn(2, 16), torch.randn(2, 16, 5)
    true_progress = torch.full((2, 16), torch.nan)
    true_level = torch.zeros((2, 16), dtype=torch.int64)
    true_level[:, 7] = 4
    loss = level_and_progress_loss(progress, levels, true_progress, true_level)
    other = levels.clone()
    other[:, 8:] += 3 * torch.randn(2, 8, 5)
    assert level_and_progress_loss(progress + 1, other, true_progress, true_level) == loss


def test_some_of_every_category_is_held_out_of_training() -> None:
    split = draw_split()
    held_out = set(split.held_out)
    for category in ("visual", "semantic", "temporal", "domain"):
        names = {p.name for p in PERTURBATIONS.values() if p.category == category}
        assert 0.2 < len(names & held_out) / len(names) < 0.5
    assert not held_out & {*split.train_perturbations, *split.train_worlds}


def test_a_training_keeps_the_split_it_began_with_when_the_catalog_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(PLAN, out=tmp_path)
    before = recorded_split(plan)
    monkeypatch.setitem(PERTURBATIONS, "added", replace(PERTURBATIONS["jpeg"], name="added"))
    assert draw_split() != before == recorded_split(plan)


def test_the_exported_json_records_what_each_variant_was_trained_with(trained: PocketPlan) -> None:
    split = recorded_split(trained)
    for variant in trained.variants:
        written = read_split(trained.out / f"{variant}.json")
        assert written.held_out == split.held_out
        assert written.train_perturbations == (() if variant == "pocket-plain" else split.train_perturbations)


def test_the_best_temperature_undoes_a_known_one() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(4000, 5))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    level = np.array([rng.choice(5, p=row) for row in probs]) + 1
    assert fit_temperature(softmax(logits * 2.5, axis=1), level - 1) == pytest.approx(2.5, rel=0.1)


def test_word_pieces_are_those_of_the_encoder_that_made_the_vectors() -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs rewardlab[hf]")
    from rewardlab.worlds.metaworld.instructions import phrasings

    words = load_word_pieces(WORD_VECTORS)
    theirs = tokenizers.BertWordPieceTokenizer(dict(words.ids), lowercase=True)
    for lists in phrasings().values():
        for text in (*lists["train"], *lists["held_out"], "Öffne die Schublade, 12 cm!"):
            assert words.pieces(text) == theirs.encode(text, add_special_tokens=False).tokens


def test_plans_that_make_no_sense_are_refused() -> None:
    with pytest.raises(PlanError, match="got 'pocket-huge'"):
        PocketPlan("pocket", variants=("pocket-huge",))
    with pytest.raises(PlanError, match=r"got \(1, 2\)"):
        PocketPlan("pocket", steps=(1, 2))
    with pytest.raises(PlanError, match="multiple of 16"):
        PocketPlan("pocket", size=100)
