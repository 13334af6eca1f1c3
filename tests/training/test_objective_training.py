"""Every objective on one backbone, tiny and on a CPU: one pipeline, one evaluation, folders for `contrastive:`."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.narrowing import as_scores, known

torch = pytest.importorskip("torch", reason="needs rewardlab[vlm-train]")
pytest.importorskip("transformers", reason="needs rewardlab[vlm-train]")

from safetensors.torch import load_file

import rewardlab
from rewardlab.cli import main
from rewardlab.core.episode import episode_from_frames, level_of_progress
from rewardlab.core.errors import DataError, ModelError, PlanError, RunError
from rewardlab.core.seeding import rng_for
from rewardlab.core.settings import read_plan, setting_text
from rewardlab.core.video_encoding import encode
from rewardlab.evaluation.objective_comparison import Comparison, read_comparison, read_rewards
from rewardlab.models import name_model
from rewardlab.testing import check_model
from rewardlab.training.objectives import ObjectiveSettings, objective_settings, train_objective
from rewardlab.training.objectives.backbones import load_pair
from rewardlab.training.objectives.clips import (
    TEST,
    TRAIN,
    VALIDATION,
    ClipTable,
    listed_files,
    only,
    read_shards,
    write_shard,
)
from rewardlab.training.objectives.comparison import read_values
from rewardlab.training.objectives.contract import DEMONSTRATIONS
from rewardlab.training.objectives.features import load_inputs, make_sampler
from rewardlab.training.objectives.losses import OBJECTIVES, name_objective
from rewardlab.training.objectives.sources import dataset_shards
from rewardlab.training.objectives.train import settings_to_try
from tests.conftest import write_rows
from tests.models import tiny, tiny_pairs

pytestmark = pytest.mark.usefixtures("one_torch_thread")
COLOURS = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (40, 60, 220), "yellow": (220, 210, 40)}
TASKS = (*(f"push the {colour} block" for colour in COLOURS), "move the white cup")
CLIPS, FRAMES, SIDE = 12, 8, 32


def frames_of(task: int, clip: int, progress: np.ndarray) -> np.ndarray:
    """A square of the task's colour that is as far to the right as the task is done."""
    grey = rng_for(0, "floor", task, clip).integers(60, 110, (1, SIDE, SIDE, 1), dtype=np.uint8)
    frames = np.tile(grey, (FRAMES, 1, 1, 3))
    colour = [*COLOURS.values(), (240, 240, 240)][task]
    for index, share in enumerate(progress):
        left = 2 + round(20 * float(share))
        frames[index, 12:20, left : left + 8] = colour
    return frames


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five tasks, of each clip the progress is known; every other one succeeds."""
    folder, rows = tmp_path_factory.mktemp("pushes"), []
    for task, words in enumerate(TASKS):
        for clip in range(CLIPS):
            end = 1.0 if clip % 2 else 0.1 + 0.07 * clip
            progress = np.linspace(0, end, FRAMES)
            name = f"arm/{task}-{clip:02d}.mp4"
            level = level_of_progress(end)
            rows.append({"file_name": name, "task": words, "reward": level, "progress": progress.tolist()})
            (folder / "arm").mkdir(exist_ok=True)
            encode(frames_of(task, clip, progress), folder / name, fps=10)
    return write_rows(folder, rows)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("parts")
    makers: dict[str, Callable[[Path], Path]] = {
        "dino": tiny_pairs.save_dinov2,
        "tinyvit": tiny_pairs.save_tiny_vit,
        "bert": tiny_pairs.save_bert,
    }
    return {name: save(root / name) for name, save in makers.items()}


@pytest.fixture(scope="module")
def tiny_plan(data: Path, parts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> ObjectiveSettings:
    return objective_settings(
        backbone=tuple(f"{name}={parts[name]}+{parts['bert']}" for name in ("dino", "tinyvit")),
        data=(str(data),),
        out=tmp_path_factory.mktemp("objectives") / "all",
        seeds=(0, 1, 2),
        steps=2,
        batch_size=8,
        align_steps=2,
        eval_every=2,
        frames=FRAMES,
        size=SIDE,
        views=2,
        multi_step=(TASKS[1], TASKS[3]),
        perturbations=("low_light", "truncate_end"),  # of which the second keeps no label
        perturbed_clips=2,
        n_resamples=200,
        workers=1,
        lr=1e-3,
        device="cpu",
    )


@pytest.fixture(scope="module")
def trained(tiny_plan: ObjectiveSettings) -> tuple[str, ...]:
    return rewardlab.train_objective(**vars(tiny_plan))


@pytest.fixture(scope="module")
def comparison(tiny_plan: ObjectiveSettings, trained: tuple[str, ...]) -> Comparison:  # noqa: ARG001
    return read_comparison(tiny_plan.out)


def clips_of(plan: ObjectiveSettings) -> ClipTable:
    return read_shards(sorted((plan.out / "clips").glob("*.npz")))


@pytest.mark.slow
def test_the_whole_table_is_one_command(comparison: Comparison, trained: tuple[str, ...]) -> None:
    names = set(OBJECTIVES) | {"backbone alone", "length baseline"}
    cells = {(c.backbone, c.objective, c.group, c.measure): c for c in comparison.cells}
    assert len(trained) == len(OBJECTIVES) * 3 * 2
    assert {key[1] for key in cells} == names and {key[0] for key in cells} == {"dino", "tinyvit"}
    for (_, objective, group, measure), cell in cells.items():
        if "," not in group and measure not in ("robustness_auc", "env_within", "env_across"):
            assert cell.value is not None, (objective, group, measure)
            assert len(cell.by_seed) == (1 if objective in comparison.controls else 3)
        assert (cell.rank_low is None) == (objective in comparison.controls or cell.value is None)
    assert {c.objective for c in comparison.contrasts} == set(OBJECTIVES) - {"triplet"}
    assert comparison.groups["unseen tasks"] == 1 and comparison.groups["seen tasks"] == 4


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_the_table_is_made_again_from_the_kept_rewards(tiny_plan: ObjectiveSettings, comparison: Comparison) -> None:
    kept = read_rewards(tiny_plan.out)
    assert kept.table() == (comparison.cells, comparison.contrasts)
    assert len(kept.trainings) == 2 * (3 * len(OBJECTIVES) + 2)
    assert kept.clips == tuple(clip.id for clip in only(clips_of(tiny_plan), TEST).clips)


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_every_clip_of_a_batch_counts_for_every_objective(tiny_plan: ObjectiveSettings) -> None:
    pair = load_pair(tiny_plan.out / "backbones" / "dino", "cpu", 1)
    inputs = load_inputs(tiny_plan.out / "features" / "dino", "cpu")
    sampler = make_sampler(only(clips_of(tiny_plan), TRAIN), inputs, "cpu")
    plain = sampler.batch(pair, 0, 3, 32)
    assert 0 < plain.success.sum() < 32
    for entry in OBJECTIVES.own.values():
        batch = sampler.batch(pair, 0, 3, 32, entry.needs)
        assert len(batch.successes if entry.needs == DEMONSTRATIONS else batch) == 32
        assert torch.equal(batch.task, plain.task) and torch.equal(batch.draws, plain.draws)
        assert torch.equal(batch.images[plain.success], plain.images[plain.success])


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_trainings_side_by_side_end_in_the_same_weights(tiny_plan: ObjectiveSettings, tmp_path: Path) -> None:
    plan = replace(tiny_plan, objective="triplet,vip", backbone=tiny_plan.backbone[:1], seeds=(0,), parallel=2)
    plan = replace(plan, out=tmp_path / "out")
    shutil.copytree(tiny_plan.out, plan.out, ignore=shutil.ignore_patterns("trainings", "tuning", "tinyvit"))
    train_objective(**vars(plan))
    for name in ("triplet", "vip"):
        one, other = (out / "trainings" / "dino" / name / "seed0" / "values.npz" for out in (plan.out, tiny_plan.out))
        np.testing.assert_array_equal(read_values(one).test, read_values(other).test)


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_a_backbone_is_pretrained_as_an_image_text_pair(tiny_plan: ObjectiveSettings, tmp_path: Path) -> None:
    plan = replace(tiny_plan, objective="triplet", seeds=(0,), lr=0.1, out=tmp_path / "out", perturbations=("none",))
    plan = replace(
        plan, backbone=(f"{tiny_plan.backbone[0]}?pretrain=8", tiny_plan.backbone[0].replace("dino=", "as-is="))
    )
    with pytest.raises(DataError, match="frames with captions, which clips of datasets do not have"):
        train_objective(**vars(plan))
    for path in sorted((plan.out / "clips").glob("*.npz")):
        table = read_shards([path])
        said = tuple(replace(c, captions=tuple(f"{c.task} at {at}" for at in range(FRAMES))) for c in table.clips)
        write_shard(path, replace(table, clips=said))
    models = train_objective(**vars(plan))
    trained, before = (plan.out / "backbones" / f"dino-{kind}" for kind in ("pretrained", "parts"))
    for encoder in ("image_encoder", "text_encoder"):
        weights = [load_file(folder / encoder / "model.safetensors") for folder in (trained, before)]
        assert weights[0].keys() == weights[1].keys()
        assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    features = [np.load(plan.out / "features" / name / "train.npy") for name in ("dino", "as-is")]
    assert not np.array_equal(*features)
    episode = episode_from_frames(only(clips_of(plan), TEST).pixels[0], TASKS[0])
    assert as_scores(name_model(models[0]).build().score([episode]))[0].level >= 1
    card = Path(models[0].removeprefix("contrastive:").partition("?")[0]) / "README.md"
    assert "then trained as an image-text pair" in card.read_text()


@pytest.mark.slow
def test_worlds_are_groups_of_their_own_with_the_rewards_they_have(
    parts: dict[str, Path], tiny_plan: ObjectiveSettings
) -> None:
    assert parts
    out = tiny_plan.out.with_name("worlds")
    plan = replace(
        tiny_plan, data=("metaworld", "tabletop"), tasks=("drawer-open", "reach"), out=out, stop_after="render"
    )
    train_objective(**vars(replace(plan, rollouts=1, near_misses=0, val_rollouts=2)))
    table = read_shards(listed_files(out / "clips") or [])
    known = ~np.isnan(table.env_reward).any(axis=1)
    assert [clip.world == "metaworld" for clip in table.clips] == known.tolist()
    assert table.env_reward[known].min() >= 0 and table.env_reward[known].max() <= 1
    assert all(len(clip.captions) == FRAMES for clip in table.clips)
    unseen = {clip.task for clip in table.clips if clip.world == "tabletop" and not clip.seen}
    assert "tabletop-three-steps" in unseen and not unseen & {c.task for c in only(table, TRAIN).clips}
    groups = only(table, TEST).groups
    assert {"tabletop: seen tasks", "tabletop: unseen tasks", "tabletop: seen tasks, several steps"} <= set(groups)
    assert any(name.startswith("metaworld: ") for name in groups)


@pytest.mark.slow
def test_controls_measure_what_they_must(comparison: Comparison) -> None:
    cells = [c for c in comparison.cells if c.objective == "length baseline" and c.group == "seen tasks"]
    found = {cell.measure: cell.value for cell in cells}
    assert (found["voc"], found["order_sensitivity"], found["success_auc"]) == (1.0, 0.0, 0.5)


@pytest.mark.slow
@pytest.mark.usefixtures("comparison")
def test_training_makes_rewards_agree_with_progress(tiny_plan: ObjectiveSettings, tmp_path: Path) -> None:
    more = replace(tiny_plan, objective="bradley_terry", backbone=tiny_plan.backbone[:1], seeds=(0,))
    more = replace(more, out=tmp_path / "longer", steps=60, batch_size=16, align_steps=0, perturbations=("none",))
    train_objective(**vars(more))
    found = {c.measure: c.value for c in read_comparison(more.out).cells if c.objective == "bradley_terry"}
    before = {c.measure: c.value for c in read_comparison(more.out).cells if c.objective == "backbone alone"}
    assert known(found["within"]) > max(0.9, known(before["within"]) + 0.1)
    assert found["robustness_auc"] is None


@pytest.mark.slow
@pytest.mark.usefixtures("comparison")
def test_every_part_is_split_by_task_and_clip(tiny_plan: ObjectiveSettings) -> None:
    table = clips_of(tiny_plan)
    trained, judged = only(table, TRAIN), (only(table, VALIDATION), only(table, TEST))
    unseen = {clip.task for clip in table.clips if not clip.seen}
    assert len(unseen) == 1 and not unseen & {clip.task for clip in trained.clips}
    assert all(clip.seen for clip in judged[0].clips) and unseen <= {clip.task for clip in judged[1].clips}
    assert table.progress[0, -1] == pytest.approx(0.1) and table.pixels.shape[1:] == (FRAMES, SIDE, SIDE, 3)


@pytest.mark.slow
def test_a_counterfactual_row_goes_with_the_success_that_it_shows(
    tiny_plan: ObjectiveSettings, data: Path, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()]
    made = [
        {**row, "task": f"do not {row['task']}", "reward": 1, "progress": None} for row in rows if row["reward"] == 5
    ]
    shutil.copytree(data, tmp_path / "data")
    (tmp_path / "data" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, *made]))
    table = read_shards(dataset_shards(replace(tiny_plan, data=(str(tmp_path / "data"),), out=tmp_path / "out")))
    assert set(table.tasks) == set(TASKS)
    plain, more = table.clips[: len(rows)], table.clips[len(rows) :]
    won = [clip for clip in plain if clip.success]
    assert [(clip.task, clip.part, clip.seen) for clip in more] == [(clip.task, clip.part, clip.seen) for clip in won]
    assert all(clip.repeats_success and not clip.success and clip.asked.startswith("do not") for clip in more)
    assert not any(clip.repeats_success for clip in plain)


def test_clips_of_two_datasets_with_the_same_ids_are_told_apart(
    tiny_plan: ObjectiveSettings, data: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(data, other)
    table = read_shards(dataset_shards(replace(tiny_plan, data=(str(data), str(other)), out=tmp_path / "out")))
    assert len({clip.id for clip in table.clips}) == len(table.clips) == 2 * len(TASKS) * CLIPS


def test_no_clip_of_an_augmented_rollout_is_in_two_parts(
    tiny_plan: ObjectiveSettings, data: Path, tmp_path: Path
) -> None:
    rows: list[dict[str, Any]] = []
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    for line in (data / "metadata.jsonl").read_text().splitlines():
        row = json.loads(line)
        about = {"original_task": row["task"], "provenance": {"stage": "clip", "source_episode": row["file_name"]}}
        made = {**row, **about, "reward": 2, "progress": None, "task": f"do not {row['task']}"}
        cut = row["file_name"].replace(".mp4", "-cut.mp4")
        encode(frames_of(0, len(rows), np.linspace(0, 0.2, FRAMES)), folder / cut, fps=10)
        rows += [row, {**made, "reward": 3}, {**made, "file_name": cut}]
    table = read_shards(dataset_shards(replace(tiny_plan, data=(str(write_rows(folder, rows)),), out=tmp_path / "out")))
    parts: dict[str, set[tuple[str, str, bool]]] = {}
    for clip in table.clips:
        parts.setdefault(clip.id[:8], set()).add((clip.part, clip.task, clip.seen))
    assert len(parts) == len(TASKS) * CLIPS and all(len(found) == 1 for found in parts.values())


@pytest.mark.slow
def test_a_result_is_a_contrastive_model_that_says_what_was_evaluated(
    tiny_plan: ObjectiveSettings, trained: tuple[str, ...]
) -> None:
    for model in (trained[0], trained[-1]):
        folder = Path(model.removeprefix("contrastive:").partition("?")[0])
        built, test = name_model(model).build(), only(clips_of(tiny_plan), TEST)
        asked = [episode_from_frames(test.pixels[row], test.clips[row].asked) for row in range(3)]
        for answer, values in zip(
            as_scores(built.score(asked)), read_values(folder / "values.npz").test[:3], strict=True
        ):
            np.testing.assert_allclose(
                np.array(answer.progress), values, atol=2e-3
            )  # features are stored in half precision
            assert 1 <= answer.level <= 5
        check_model(built, asked)
        card = (folder / "README.md").read_text()
        assert "sentence encoder bert, licence not stated" in card and "validation agreement of 0." in card
        assert {path.suffix for path in folder.rglob("*") if path.is_file()} <= {
            *(".json", ".jsonl", ".safetensors", ".md", ".npz")
        }


@pytest.mark.slow
def test_the_same_command_again_does_nothing_again(tiny_plan: ObjectiveSettings, trained: tuple[str, ...]) -> None:
    files = [p for p in tiny_plan.out.rglob("*") if p.suffix in (".safetensors", ".npz", ".npy")]
    before = {path: path.stat().st_mtime_ns for path in files if path.parent.name != "backbones"}
    before = {path: time for path, time in before.items() if path.name != "rewards.npz"}  # as is comparison.json
    assert train_objective(**vars(tiny_plan)) == trained
    written = [path for path, time in before.items() if path.stat().st_mtime_ns != time]
    assert all(path.parent.parent.name == "backbones" for path in written), written


STOPPING = """
from pathlib import Path
from rewardlab.training.objectives.losses import triplet

CALLS = []

def stopping(batch):
    CALLS.append(1)
    if len(CALLS) == 4 and Path({flag!r}).exists():
        raise KeyboardInterrupt
    return triplet(batch)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_a_stopped_training_resumes_to_the_same_weights(
    tiny_plan: ObjectiveSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    flag, weights = tmp_path / "stop", []
    (tmp_path / "stopping_loss.py").write_text(STOPPING.format(flag=str(flag)))
    one = replace(tiny_plan, objective="stopping_loss:stopping", backbone=tiny_plan.backbone[:1], seeds=(5,))
    one = replace(one, eval_every=2, steps=6)
    for name in ("whole", "stopped"):
        plan = replace(one, out=tmp_path / name)
        shutil.copytree(tiny_plan.out, plan.out, ignore=shutil.ignore_patterns("trainings", "tuning", "tinyvit"))
        if name == "stopped":
            import_module("stopping_loss").CALLS.clear()
            flag.touch()
            with pytest.raises(KeyboardInterrupt):
                train_objective(**vars(plan))
            flag.unlink()
            state = next(plan.out.rglob("state.pt"))
            assert torch.load(state, weights_only=True)["progress"]["step"] == 2
        (model,) = train_objective(**vars(plan))
        folder = Path(model.removeprefix("contrastive:").partition("?")[0])
        weights.append((folder / "projections.safetensors").read_bytes())
    assert weights[0] == weights[1]


MINE = """
def last_frame(batch, weight: float = 1.0):
    return weight * (1 - batch.similarity[batch.success, -1]).sum() / len(batch)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_one_function_in_a_package_of_ones_own_stands_in_the_table(
    tiny_plan: ObjectiveSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "my_objectives"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "losses.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    ours = "my_objectives.losses:last_frame?weight=2"
    train_objective(**vars(replace(tiny_plan, objective=f"triplet,{ours}")))
    found = read_comparison(tiny_plan.out)
    assert [entry.name for entry in found.objectives] == ["triplet", ours]
    assert any(c.objective == ours and c.value is not None and c.rank_low for c in found.cells)
    assert {c.objective for c in found.contrasts} == {ours}


def test_every_objective_has_the_same_tuning_budget(tiny_plan: ObjectiveSettings) -> None:
    for tuning in (1, 4, 6):
        plan = replace(tiny_plan, tuning=tuning)
        for name in (*OBJECTIVES, "triplet?margin=1"):
            tried = settings_to_try(name_objective(name), plan)
            assert len({(tuple(o.options.items()), lr) for o, lr in tried}) == tuning
    with pytest.raises(PlanError, match="at most 7 settings of triplet"):
        settings_to_try(name_objective("triplet?margin=1"), replace(tiny_plan, tuning=8))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["clip", "siglip"])
@pytest.mark.usefixtures("trained")
def test_clip_and_siglip_are_trained_by_lora_and_merged(
    kind: str, tiny_plan: ObjectiveSettings, tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    base = {"clip": tiny.save_clip, "siglip": tiny.save_siglip}[kind](tmp_path / kind)
    plan = replace(tiny_plan, objective="triplet", backbone=(str(base),), seeds=(0,), steps=3, lora=2)
    plan = replace(plan, out=tmp_path / "out", perturbations=("none",), views=1, lr=1e-2)
    (model,) = train_objective(**vars(plan))
    test = only(clips_of(plan), TEST)
    asked = [episode_from_frames(test.pixels[row], test.clips[row].asked) for row in range(3)]
    folder = Path(model.removeprefix("contrastive:").partition("?")[0])
    said, before = (
        np.array([answer.progress for answer in as_scores(name_model(name).build().score(asked))])
        for name in (model, f"contrastive:{base}")
    )
    np.testing.assert_allclose(said, read_values(folder / "values.npz").test[:3], atol=3e-2)  # stored in half precision
    assert np.abs(said - before).max() > 1e-3
    assert not any("lora" in name for name in safetensor_names(folder / "model.safetensors"))


def safetensor_names(path: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return list(file.keys())


def test_a_plan_file_is_the_settings_and_flags_go_before_it(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('objective = ["triplet", "vip"]\nbackbone = ["a=x+y"]\nsteps = 7\nout = "there"\nlr = 1\n')
    settings = objective_settings(**read_plan(path, train_objective))
    assert (settings.objectives, settings.steps, settings.out, settings.lr) == (("triplet", "vip"), 7, Path("there"), 1)
    for text, says in (
        ("stepps = 3", "no setting is called 'stepps'; did you mean steps"),
        ("steps = 'many'", "steps must be a whole number, got 'many'"),
        ("seeds = 3", "seeds must be a list, got 3"),
        ("steps = ", "is not a TOML file"),
    ):
        path.write_text(text)
        with pytest.raises(PlanError, match=re.escape(says)):
            read_plan(path, train_objective)
    with pytest.raises(PlanError, match="there is no plan"):
        read_plan(tmp_path / "none.toml", train_objective)


def test_a_flag_goes_before_the_plan_file_even_where_it_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    default, given = objective_settings(), dict[str, Any]()
    monkeypatch.setattr("rewardlab.studies.objectives.train_objective", given.update)
    monkeypatch.setattr("rewardlab.studies.objectives.read_plan", lambda *_: {"steps": 7, "stop_after": "train"})
    assert main(["study", "objectives", "plan.toml", "--steps", str(default.steps)]) == 0
    assert (given["steps"], given["stop_after"]) == (default.steps, "train")


def relabelled(data: Path, folder: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> str:
    """The same videos with other rows."""
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()]
    changed = [new for row in rows if (new := change(row)) is not None]
    write_rows(folder, changed)
    shutil.copytree(data / "arm", folder / "arm")
    return str(folder)


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


BAD: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any] | None], str]] = {
    "no progress": (
        "progress_bins",
        lambda row: without(row, "progress"),
        "objective progress_bins learns from progress, which no training clip has; add it to the data",
    ),
    "no level": (
        "ordinal",
        lambda row: without(row, "progress", "reward") | {"success": row["reward"] == 5},
        "objective ordinal learns from level, which is 5 wherever it is known; add it to the data",
    ),
    "one task": (
        "triplet",
        lambda row: row if "red" in row["task"] else None,
        "objectives contrast tasks, and .* holds 1 that",
    ),
    "two tasks, of which one is kept apart": (
        "triplet",
        lambda row: row if "red" in row["task"] or "blue" in row["task"] else None,
        "the training clips show 1 ",
    ),
    "no success": (
        "triplet",
        lambda row: row if row["reward"] < 5 else None,
        "none of the [0-9]+ training clips is known to be a success",
    ),
    "no failure": (
        "triplet",
        lambda row: row if row["reward"] == 5 else None,
        "none of the [0-9]+ training clips is known to be a failure",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_data_that_cannot_be_learned_from_is_one_sentence(
    case: str, tiny_plan: ObjectiveSettings, data: Path, tmp_path: Path
) -> None:
    objective, change, says = BAD[case]
    bad = relabelled(data, tmp_path / "bad", change)
    plan = replace(tiny_plan, objective=objective, data=(bad,), out=tmp_path / "out", backbone=tiny_plan.backbone[:1])
    with pytest.raises(DataError, match=says) as error:
        train_objective(**vars(replace(plan, perturbations=("none",), seeds=(0,))))
    assert "\n" not in str(error.value)


BROKEN = """
import torch

def nan_loss(batch):
    return batch.similarity.mean() * float("nan")

def no_tensor(batch):
    return 1.0

def per_clip(batch):
    return batch.similarity.mean(1)

def constant(batch):
    return torch.zeros(())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nan_loss", "the loss of broken_losses:nan_loss is not a number at step 1; try a lower --lr"),
        ("no_tensor", "must return one number that depends on the batch's images or texts, .* got float"),
        ("per_clip", r"got a tensor of shape \(8,\)"),
        ("constant", "that depends on the batch"),
    ],
)
@pytest.mark.usefixtures("trained")
def test_a_loss_that_is_none_is_one_sentence(
    name: str, says: str, tiny_plan: ObjectiveSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_losses.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    plan = replace(tiny_plan, objective=f"broken_losses:{name}", backbone=tiny_plan.backbone[:1], seeds=(9,))
    with pytest.raises(ModelError, match=says):
        train_objective(**vars(plan))


def test_wrong_settings_are_one_sentence(
    tiny_plan: ObjectiveSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"backbone": ()}, PlanError, "name a backbone"),
        (
            {"backbone": (f"x={tmp_path / 'none'}+{tmp_path}",)},
            PlanError,
            "there is no .*none; write NAME=VISION[+]TEXT",
        ),
        ({"against": "vip", "objective": "triplet,liv"}, PlanError, "against names 'vip', which is not among"),
        ({"objective": "tripplet"}, PlanError, "did you mean triplet"),
    ]
    for changes, kind, says in cases:
        with pytest.raises(kind, match=says):
            train_objective(**vars(replace(tiny_plan, **{**changes, "out": tmp_path / "out"})))
    with pytest.raises(PlanError, match="batch_size at least 2"):
        objective_settings(**vars(replace(tiny_plan, batch_size=1)))
    assert main(["train", "objective", "triplet", "--stop-after", "tain"]) == 2
    assert "did you mean train" in capsys.readouterr().err


@pytest.mark.usefixtures("trained")
def test_a_folder_with_other_data_or_another_training_is_refused(tiny_plan: ObjectiveSettings) -> None:
    with pytest.raises(RunError, match=r"was begun with other settings \(frames\); choose another --out"):
        train_objective(**vars(replace(tiny_plan, frames=4)))
    with pytest.raises(RunError, match="was begun with other settings"):
        train_objective(**vars(replace(tiny_plan, steps=8)))
    swapped = (tiny_plan.backbone[1].replace("tinyvit=", "dino="),)
    with pytest.raises(RunError, match="says that dino is another backbone"):
        train_objective(**vars(replace(tiny_plan, backbone=swapped)))


@pytest.mark.usefixtures("comparison")
def test_steps_can_be_done_one_after_the_other(tiny_plan: ObjectiveSettings, tmp_path: Path) -> None:
    one = replace(tiny_plan, objective="triplet", backbone=tiny_plan.backbone[:1], seeds=(0,), out=tmp_path / "a")
    for last, there in (
        ("render", "clips"),
        ("perturb", "perturbed"),
        ("features", "features"),
        ("train", "trainings"),
    ):
        assert train_objective(**vars(replace(one, stop_after=last))) == ()
        assert any((one.out / there).iterdir()) and not (one.out / "comparison.json").exists()
    assert len(train_objective(**vars(one))) == 1 and (one.out / "comparison.json").exists()
    assert set(read_comparison(one.out).seconds) == {"render", "perturb", "features", "train", "evaluate"}


@pytest.mark.usefixtures("trained")
def test_the_command_line_prints_where_the_comparison_is(
    tiny_plan: ObjectiveSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.toml").write_text(as_toml(tiny_plan))
    assert main(["study", "objectives", str(tmp_path / "plan.toml"), "--objective", "triplet"]) == 0
    said = capsys.readouterr().out
    assert str(tiny_plan.out / "index.html") in said
    words = [["--" + name.replace("_", "-"), setting_text(value)] for name, value in vars(tiny_plan).items()]
    flags = [word for (flag, text) in words for word in (flag, text) if flag not in ("--objective", "--demonstrations")]
    assert main(["train", "objective", "triplet", *flags]) == 0
    said = capsys.readouterr().out
    assert "trained model: contrastive:" in said and f"comparison: {tiny_plan.out / 'index.html'}" in said


WITHOUT_VIDEO = """
import sys

class NoVideo:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("av", "metaworld", "mujoco"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoVideo())
from rewardlab.cli import main
sys.exit(main(["study", "objectives", sys.argv[1]]))
"""


@pytest.mark.slow
def test_features_trainings_and_judging_need_no_video_library_and_no_simulator(
    tiny_plan: ObjectiveSettings, tmp_path: Path
) -> None:
    plan = replace(tiny_plan, objective="triplet", backbone=tiny_plan.backbone[1:], seeds=(0,), out=tmp_path / "there")
    train_objective(**vars(replace(plan, stop_after="perturb")))
    path = tmp_path / "plan.toml"
    path.write_text(as_toml(plan))
    command, alone = [sys.executable, "-c", WITHOUT_VIDEO, str(path)], {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    assert done.returncode == 0, done.stderr
    assert (plan.out / "index.html").exists()


def as_toml(plan: ObjectiveSettings) -> str:
    settings = {name: value for name, value in vars(plan).items() if value not in ((), None)}
    return "\n".join(f"{name} = {json.dumps(value, default=str)}" for name, value in settings.items())


@pytest.mark.slow
def test_the_simulator_gives_clips_of_seen_and_unseen_tasks(tiny_plan: ObjectiveSettings, tmp_path: Path) -> None:
    pytest.importorskip("metaworld", reason="needs rewardlab[sim]")
    tasks = ("drawer-open", "hammer")  # of which fold 0 never sees the hammer, which takes several steps
    plan = replace(
        tiny_plan,
        data=("metaworld",),
        tasks=tasks,
        rollouts=1,
        near_misses=0,
        val_rollouts=2,
        frames=4,
        stop_after="render",
    )
    plan = replace(plan, out=tmp_path / "simulated", multi_step=())
    assert train_objective(**vars(plan)) == ()
    table = clips_of(plan)
    told = [(clip.id, clip.part, clip.seen, clip.multi_step) for clip in table.clips]
    assert told == [
        ("train-drawer-open-000", TRAIN, True, False),
        ("check-drawer-open-000", TEST, True, False),
        ("check-drawer-open-001", VALIDATION, True, False),
        ("check-hammer-000", TEST, False, True),
        ("check-hammer-001", TEST, False, True),
    ]
    assert table.pixels.shape == (5, 4, SIDE, SIDE, 3) and table.pixels.std() > 10
    assert set(table.groups) == {"seen tasks", "seen tasks, one step", "unseen tasks", "unseen tasks, several steps"}
    assert all(clip.asked not in clip.texts for clip in table.clips)
    with pytest.raises(PlanError, match="fold 0 trains on none of these tasks"):
        train_objective(**vars(replace(plan, tasks=("hammer",), out=tmp_path / "none")))
