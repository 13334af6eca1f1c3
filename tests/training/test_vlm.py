"""The RoboReward recipe on a tiny Qwen3-VL and a tiny LLaVA: what is trained, kept, resumed and scored."""

import io
import json
import os
import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.narrowing import as_scores, known

torch = pytest.importorskip("torch", reason="needs rewardlab[vlm-train]")
pytest.importorskip("transformers", reason="needs rewardlab[vlm-train]")

import rewardlab
from rewardlab.cli import main
from rewardlab.core.episode import episode_from_frames, level_of_progress
from rewardlab.core.errors import DataError, ModelError, PlanError, RunError
from rewardlab.core.run import open_run
from rewardlab.core.settings import Execution
from rewardlab.core.terminal import ProgressBar
from rewardlab.core.video_encoding import encode
from rewardlab.data import open_dataset
from rewardlab.models import name_model
from rewardlab.models.backends.fused_ops import fuse_norms
from rewardlab.perturbations import PERTURBATIONS
from rewardlab.training import vlm
from rewardlab.training.lora import loaded_peft
from rewardlab.training.optimizer import MasterAdamW, OptimizerConfig, learning_rate
from rewardlab.training.vlm import MIXTURES, RECIPES, VlmSettings, lacking, train_vlm, vlm_settings
from rewardlab.training.vlm.base_model import load_base, name_base
from rewardlab.training.vlm.batches import BatchOrder, Clips, Pass, clip_features, collate
from rewardlab.training.vlm.examples import (
    Example,
    FrameSampling,
    mixture_examples,
    show_as_is,
    split_episodes,
    training_perturbations,
    validation_examples,
)
from rewardlab.training.vlm.network import TrainedParts, answer_losses
from rewardlab.training.vlm.train import optimizer_config
from tests.conftest import moving_square, write_rows
from tests.models import tiny_vlms

pytestmark = pytest.mark.usefixtures("one_torch_thread")
KINDS = {"llava": "", "qwen3_vl": "?pixels=3000"}
TASKS = ("put the red cup on the plate", "open the drawer", "push the green block left", "close the window")
EPOCHS = 5


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four tasks, each with a success whose progress is known and a failure."""
    folder, rows = tmp_path_factory.mktemp("rollouts"), []
    for number, task in enumerate(TASKS):
        rising = [min(1.0, (i + 1) / 12) for i in range(12)]
        rows.append({"file_name": f"arm/{number}-good.mp4", "task": task, "reward": 5, "progress": rising})
        rows.append({"file_name": f"arm/{number}-bad.mp4", "task": task, "reward": 1 + number % 3})
    write_rows(folder, rows)
    for row in rows:
        path = folder / str(row["file_name"])
        path.parent.mkdir(exist_ok=True)
        encode(moving_square(path.name, count=12, size=32), path, fps=10)
    return folder


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root, made = tmp_path_factory.mktemp("bases"), {}

    def saved(kind: str) -> Path:
        if kind not in made:
            made[kind] = tiny_vlms.SAVE[kind](root / kind)
        return made[kind]

    return saved


@pytest.fixture(scope="module", params=["qwen3_vl", pytest.param("llava", marks=pytest.mark.slow)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def plan_of(base: Path, kind: str, data: Path, out: Path, **changes: Any) -> VlmSettings:
    settings = {"lr": 2e-3, "epochs": EPOCHS, "eval_every": 1, "frames": "uniform:4", "holdout": 0.25}
    settings |= {"workers": 0, "micro_batch_size": 8, "model": f"{base}{KINDS[kind]}", "data": data, "out": out}
    return vlm_settings(**settings | changes)


@pytest.fixture(scope="module")
def trained(
    kind: str, bases: Callable[[str], Path], data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[VlmSettings, str]:
    plan = plan_of(bases(kind), kind, data, tmp_path_factory.mktemp("trained") / kind)
    (model,) = train_vlm(**vars(plan))
    return plan, model


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "model.safetensors"))


def record(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "training.json").read_text()))


def curve(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]


def untimed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.endswith("_per_s")} for row in rows]


def kill_at_step_2(plan: VlmSettings) -> None:
    """Train in a process of its own, and kill it."""
    words = [plan.model, *plan.data, "--out", str(plan.out), "--lr", "2e-3", "--epochs", str(EPOCHS)]
    words += ["--eval-every", "1", "--frames", "uniform:4", "--holdout", "0.25"]
    words += ["--workers", "0", "--micro-batch-size", "8"]
    command = [sys.executable, "-m", "rewardlab", "train", "vlm", *words]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as run:
        assert run.stderr is not None
        assert next((line for line in run.stderr if line.startswith("step 2:")), "")
        run.kill()


class InterruptsAtStep2(io.StringIO):
    """A terminal whose user presses Ctrl-C when she reads of step 2."""

    def write(self, text: str) -> int:
        if text.startswith("step 2:"):
            raise KeyboardInterrupt
        return super().write(text)


def interrupt_at_step_2(plan: VlmSettings) -> None:
    with redirect_stderr(InterruptsAtStep2()), pytest.raises(KeyboardInterrupt):
        train_vlm(**vars(plan))


STOP = {"llava": kill_at_step_2, "qwen3_vl": interrupt_at_step_2}  # a process that loads torch takes ten seconds


@pytest.mark.slow
def test_a_stopped_training_resumes_to_the_same_weights(
    kind: str, trained: tuple[VlmSettings, str], tmp_path: Path
) -> None:
    plan, _ = trained
    again = replace(plan, out=tmp_path / "stopped")
    STOP[kind](again)
    assert (again.out / "training" / "state.pt").exists() and not (again.out / "training.json").exists()
    with pytest.raises(RunError, match=r"begun with other settings \(.*limit"):
        train_vlm(**vars(replace(again, limit=7)))
    train_vlm(**vars(again))
    first, second = weights(plan.out), weights(again.out)
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    assert untimed(curve(again.out)) == untimed(curve(plan.out))
    assert not (again.out / "training").exists()


def test_the_tower_is_bit_identical_and_the_rest_has_moved(
    kind: str, trained: tuple[VlmSettings, str], bases: Callable[[str], Path]
) -> None:
    before, after = weights(bases(kind)), weights(trained[0].out)
    tower = {name for name in before if "vision_tower" in name or ("visual" in name and "merger" not in name)}
    fusion = {name for name in before if "projector" in name or "merger" in name}
    assert before.keys() == after.keys() and tower and fusion
    assert all(torch.equal(before[name], after[name]) for name in tower)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert fusion <= moved and any("layers" in name and name not in tower for name in moved)


def test_the_kept_checkpoint_is_the_best_by_validation_and_scores_through_hf_as_in_training(
    trained: tuple[VlmSettings, str],
) -> None:
    plan, model = trained
    errors = {row["step"]: row["validation_mae_all"] for row in curve(plan.out) if "validation_mae_all" in row}
    best, found = min(errors, key=lambda step: errors[step]), record(plan.out)
    assert len(errors) == EPOCHS and len(set(errors.values())) > 1
    assert found["best_step"] == best
    assert found["validation"]["by_source"]["all"] == pytest.approx(errors[best], abs=1e-6)
    held_out, sampling = validation_examples(split_episodes(plan)), FrameSampling(plan.hyperparameters.frames, 0)
    answers = as_scores(name_model(model).build().score([sampling(example, 0) for example in held_out]))
    labels = [1 + int(np.argmax(known(answer.probabilities))) for answer in answers]
    mae = np.abs(np.subtract(labels, [example.level for example in held_out])).mean()
    assert mae == pytest.approx(errors[best], abs=1e-6)
    lines = [json.loads(line) for line in (plan.out / "validation.jsonl").read_text().splitlines()]
    assert [line["predicted"] for line in lines] == labels
    np.testing.assert_allclose([line["said"] for line in lines], [answer.level for answer in answers], atol=1e-5)


@pytest.mark.slow
def test_documented_commands_train_and_bench_with_the_same_frames_and_prompt(
    bases: Callable[[str], Path], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[2] / "docs/howto/train-vlm.md").read_text()
    train, bench = (
        next(line.split()[1:] for line in guide.splitlines() if line.startswith(f"    rewardlab {verb}") and end(line))
        for verb, end in (("train vlm", lambda line: "dry-run" not in line), ("bench", bool))
    )
    here = {"Qwen/Qwen3-VL-4B-Instruct": str(bases("llava")), "DATA": str(data), "TEST_DATA": str(data)}
    train, bench = ([here.get(word, word) for word in command] for command in (train, bench))
    monkeypatch.chdir(tmp_path)
    quick = ["--validation", str(data), "--epochs", "1", "--micro-batch-size", "8", "--workers", "0", "--lr", "2e-3"]
    assert main([*train, *quick]) == 0
    assert main([*bench, "--out", "benched", "--no-controls", "--no-duplicates", "--quiet"]) == 0
    trials = open_run("benched").trials()
    scored = dict(zip(trials.text("episode"), trials.number("level"), strict=True))
    rows = [json.loads(line) for line in Path("reward-4b/validation.jsonl").read_text(encoding="utf-8").splitlines()]
    said = {row["episode"]: row["said"] for row in rows if row["source"] == "original"}
    assert scored == pytest.approx(said, abs=1e-5) and len(set(scored.values())) > 1
    (errors,) = json.loads(Path("benched/bench.json").read_text(encoding="utf-8"))["models"].values()
    assert errors["helm_levels"] == "mode"
    assert errors["helm"]["micro"]["value"] == pytest.approx(
        record(Path("reward-4b"))["validation"]["by_source"]["original"]
    )


def test_the_best_checkpoint_need_not_be_the_last(bases: Callable[[str], Path], data: Path, tmp_path: Path) -> None:
    low, high = (relabelled(data, tmp_path / str(level), level) for level in (1, 4))
    plan = plan_of(bases("llava"), "llava", low, tmp_path / "out", validation=str(high), lr=1e-2, epochs=4)
    train_vlm(**vars(plan))
    errors = [row["validation_mae_all"] for row in curve(plan.out) if "validation_mae_all" in row]
    assert errors[-1] > errors[0] + 0.5
    assert record(plan.out)["best_step"] < record(plan.out)["steps"] == 4
    assert record(plan.out)["validation"]["by_source"]["all"] == pytest.approx(min(errors), abs=1e-6)


def relabelled(data: Path, folder: Path, level: int) -> Path:
    """Write the same clips, all at one level; a model that learns another level from them errs more with every step."""
    shutil.copytree(data / "arm", folder / "arm")
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()]
    return write_rows(folder, [row | {"reward": level, "progress": None} for row in rows])


@pytest.fixture(scope="module")
def described(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same clips with a caption of its own length in each row."""
    folder = tmp_path_factory.mktemp("captions")
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()]
    shutil.copytree(data / "arm", folder / "arm")
    return write_rows(folder, [row | {"caption": "the red cup is put " * (1 + n % 3)} for n, row in enumerate(rows)])


@pytest.mark.slow
def test_captions_are_learned_by_the_fusion_alone_and_the_folder_then_learns_levels(
    kind: str, bases: Callable[[str], Path], described: Path, tmp_path: Path
) -> None:
    plan = plan_of(bases(kind), kind, described, tmp_path / "stage1", recipe="llava-projector", lr=1e-2)
    train_vlm(**vars(plan))
    before, after, found = weights(bases(kind)), weights(plan.out), record(plan.out)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all("projector" in name or "merger" in name for name in moved)
    losses = [row["validation_loss_all"] for row in curve(plan.out) if "validation_loss_all" in row]
    assert found["validation"] == {"measure": "loss", "by_source": {"all": min(losses)}} and losses[-1] < losses[0]
    assert "projector has learned captions" in (plan.out / "README.md").read_text()
    second = plan_of(plan.out, kind, described, tmp_path / "stage2", epochs=1)
    (scored,) = train_vlm(**vars(second))
    assert record(second.out)["validation"]["measure"] == "mae" and scored.startswith("hf:")


def test_the_loss_on_captions_of_several_lengths_is_that_of_each_alone(
    kind: str, bases: Callable[[str], Path], data: Path
) -> None:
    base = load_base(name_base(str(bases(kind)) + KINDS[kind]), TrainedParts(), "cpu")
    episodes = split_episodes(plan_of(bases(kind), kind, data, Path("x"))).train
    sampling = FrameSampling("uniform:4", 0)
    captions = ("the cup", "the drawer is opened by the arm", "push the block")
    examples = [Example(each, 0, "captioned", text) for each, text in zip(episodes, captions, strict=False)]
    samples = [base.inputs.sample(sampling(example, 0), example.answer) for example in examples]
    base.network.eval()
    with torch.no_grad():
        alone = [losses_of(base, [sample]) for sample in samples]
        together = losses_of(base, samples)
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=1e-4)
    assert len({len(sample.labels) for sample in samples}) == 3


def losses_of(base: Any, samples: list[Any]) -> Any:
    rows = tuple(range(len(samples)))
    (batch,) = collate(samples, Pass(0, rows, (1.0,) * len(rows)), base.inputs.padding)
    return answer_losses(base.network(batch), batch)


def test_the_card_states_data_recipe_and_what_a_constant_gets(trained: tuple[VlmSettings, str]) -> None:
    plan, model = trained
    card, found = (plan.out / "README.md").read_text(), record(plan.out)
    assert f"by the constant 3 that sees nothing | {found['constant_mae']:.3f}" in card
    assert f"| all | {found['validation']['by_source']['all']:.3f} |" in card and "1 of 4 tasks, held out whole" in card
    assert "vision tower frozen, fusion and language layers trained; 5 epochs, learning rate 0.002" in card
    assert f"rewardlab train vlm {plan.model.split('?')[0]}" in card.replace("'", "")
    assert not list(plan.out.rglob("*.bin")) and not list(plan.out.rglob("*.pt"))
    assert model == f"hf:{plan.out}" + KINDS[plan.model.split("?")[0].rsplit("/", 1)[1]]


def test_a_finished_training_is_not_made_again_and_other_settings_are_refused(trained: tuple[VlmSettings, str]) -> None:
    plan, model = trained
    before = (plan.out / "model.safetensors").stat().st_mtime_ns
    assert train_vlm(**vars(plan)) == (model,) and (plan.out / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(RunError, match="holds a training with other settings"):
        train_vlm(**vars(replace(plan, lr=1e-3)))
    (plan.out / "training.json").rename(plan.out / "moved.json")
    with pytest.raises(RunError, match="holds a checkpoint already, which would be overwritten"):
        train_vlm(**vars(plan))
    (plan.out / "moved.json").rename(plan.out / "training.json")


@pytest.mark.parametrize(
    ("kind", "end"), [("llava", "<|im_end|>"), ("gemma3", "<|im_end|>"), ("qwen3_vl", "<|im_end|>")]
)
def test_only_the_answer_is_learned_as_the_template_writes_it(
    kind: str, end: str, bases: Callable[[str], Path], data: Path
) -> None:
    base = load_base(name_base(str(bases(kind)) + KINDS.get(kind, "")), TrainedParts(), "cpu")
    example = mixture_examples(split_episodes(plan_of(bases(kind), "llava", data, data)).train, "no-negatives", 0)[0]
    sample = base.inputs.sample(FrameSampling("uniform:4", 0)(example, 0), 4)
    inputs: Any = base.inputs
    tokenizer = inputs.builder.tokenizer if kind == "qwen3_vl" else inputs.renderer.processor.tokenizer
    assert tokenizer.decode(sample.labels).replace(" ", "") == f"ANSWER:4{end}"
    read = tokenizer.decode(sample.tokens["input_ids"])
    assert read.endswith("ANSWER: 4") and example.episode.instruction in read
    assert sample.tokens["input_ids"][-len(sample.labels) + 1 :].tolist() == sample.labels[:-1].tolist()


@pytest.mark.parametrize("kind", [*(f"{kind}?frames=images" for kind in tiny_vlms.SAVE), "qwen3_vl?pixels=3000"])
def test_training_reads_what_scoring_reads_with_features_or_without(
    kind: str, bases: Callable[[str], Path], data: Path
) -> None:
    name, _, options = kind.partition("?")
    model = f"hf:{bases(name)}?{options}"
    base = load_base(name_base(model), TrainedParts(), "cpu")
    examples = mixture_examples(split_episodes(vlm_settings(model="m", data=str(data))).train, "full", 0)[:3]
    shown = [FrameSampling("uniform:4", 0)(example, 0) for example in examples]
    samples = [base.inputs.sample(episode, 2) for episode in shown]
    batches = collate(samples, Pass(0, (0, 1, 2), (1.0, 1.0, 1.0)), base.inputs.padding)
    with torch.no_grad():
        logits = torch.cat([base.network.eval()(batch) for batch in batches])
    probs = logits[:, -2, list(base.inputs.reply.choices)].softmax(dim=-1).numpy()
    scored = [known(answer.probabilities) for answer in as_scores(name_model(model).build().score(shown))]
    np.testing.assert_allclose(probs, scored, atol=2e-5)
    fuses = base.network.can_fuse(samples[0].pictures)
    assert fuses == (name in ("llava", "gemma3", "internvl") or options == "pixels=3000")
    if fuses:
        with torch.no_grad():
            features = torch.cat([base.network.encode(sample.pictures) for sample in samples])
            kept = base.network(replace(batches[0], pictures={}, features=features))
        torch.testing.assert_close(kept, logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["llava", "gemma3"])
def test_fused_norms_change_rounding_only_in_answers_and_gradients(kind: str, bases: Callable[[str], Path]) -> None:
    shown = episode_from_frames(moving_square("clip", count=4, size=32), "open the drawer", fps=2.0)
    found = []
    for fused in (False, True):
        base = load_base(name_base(str(bases(kind))), TrainedParts(), "cpu")
        if fused:
            fuse_norms(base.model)
        (batch,) = collate([base.inputs.sample(shown, 4)], Pass(0, (0,), (1.0,)), base.inputs.padding)
        answer_losses(base.network(batch), batch).sum().backward()
        found.append({name: p.grad for name, p in base.network.named_parameters() if p.requires_grad})
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("kind", [*tiny_vlms.SAVE, "qwen3_vl?pixels=3000"])
def test_a_clip_under_several_instructions_reads_as_under_each_alone(kind: str, bases: Callable[[str], Path]) -> None:
    name, _, options = kind.partition("?")
    inputs = load_base(name_base(f"{bases(name)}?{options or 'frames=images'}"), TrainedParts(), "cpu").inputs
    shown = episode_from_frames(moving_square("clip", count=4, size=32), "", fps=2.0)
    asked: list[tuple[str, int | str]] = [
        ("open the drawer", 2),
        ("push the green block left, then lift it", 5),
        ("", "the drawer was pulled"),
    ]
    several = inputs.samples(shown, asked)
    assert several[0].pictures and not any(sample.pictures for sample in several[1:])
    for sample, (text, answer) in zip(several, asked, strict=True):
        alone = inputs.sample(replace(shown, instruction=text), answer)
        assert torch.equal(sample.labels, alone.labels) and sample.tokens.keys() == alone.tokens.keys()
        assert all(torch.equal(sample.tokens[name], alone.tokens[name]) for name in alone.tokens)


@pytest.mark.slow
def test_features_that_are_kept_train_the_same_weights(
    bases: Callable[[str], Path], data: Path, tmp_path: Path
) -> None:
    plans = [plan_of(bases("llava"), "llava", data, tmp_path / str(gb), epochs=2, cache_gb=gb) for gb in (1.0, 0.0)]
    first, second = (weights(plan.out) for plan in plans if train_vlm(**vars(plan)))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_encoding_many_clips_keeps_few_files_open(bases: Callable[[str], Path], tmp_path: Path) -> None:
    base = load_base(name_base(str(bases("llava"))), TrainedParts(), "cpu")
    shown = [episode_from_frames(np.full((1, 8, 8, 3), i, np.uint8), "lift it") for i in range(200)]
    clips = Clips(base.inputs, [Example(each, 3, "original") for each in shown], show_as_is)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/dev/fd"))) + 100, before[1]))
    try:
        store = clip_features(
            base.network, clips, tmp_path / "f.safetensors", cache_gb=1.0, workers=1, view=ProgressBar("", 200, 0)
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert store is not None and len(store.tokens) == 200


@pytest.mark.slow
def test_adapters_are_merged_and_kept(bases: Callable[[str], Path], data: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from safetensors.torch import load_file
    from transformers import AutoModelForImageTextToText

    plan = plan_of(bases("llava"), "llava", data, tmp_path / "out", epochs=3, lora=2, lr=2e-2)
    train_vlm(**vars(plan))
    before, after = weights(bases("llava")), weights(plan.out)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("projector" in name or ("proj" in name and "language" in name) for name in changed)
    model = AutoModelForImageTextToText.from_pretrained(bases("llava"))
    with loaded_peft("this test needs peft") as peft:
        adapted = peft.PeftModel.from_pretrained(model, plan.out / "adapter").merge_and_unload()
    adapted.load_state_dict(load_file(plan.out / "adapter" / "fusion.safetensors"), strict=False)
    whole = AutoModelForImageTextToText.from_pretrained(plan.out)
    for (name, mine), theirs in zip(adapted.named_parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=0, msg=name)


def test_mixtures_hold_what_their_rules_can_label(data: Path) -> None:
    split = split_episodes(vlm_settings(model="m", data=str(data), holdout=0.25))
    assert len(split.train) == 6 and len(split.validation) == 2
    assert not {e.provenance.task for e in split.train} & {e.provenance.task for e in split.validation}
    made = {name: mixture_examples(split.train, name, 0) for name in MIXTURES}
    sources = {name: Counter(example.source for example in examples) for name, examples in made.items()}
    assert set(sources["no-negatives"]) == {"original"} and set(sources["no-clipping"]) == {
        "original",
        "counterfactual",
    }
    assert set(sources["full"]) == {"original", "counterfactual", "clipped"}
    assert len(made["clean"]) == len(made["perturbed"]) == 2 * len(made["full"])
    for example in made["full"]:
        if example.source == "clipped":
            assert example.episode.label.progress is not None and example.level < 5
            assert example.level == level_of_progress(example.episode.label.progress[-1])
        if example.source == "counterfactual":
            original = next(e for e in split.train if e.clip.source.digest == example.episode.clip.source.digest)
            assert original.label.level == 5 and example.episode.instruction != original.instruction
            assert example.level < 5


def augmented(data: Path, folder: Path) -> Path:
    """Return the dataset as `data augment` leaves it: texts rewritten, counterfactual rows, and clips of their own."""
    shutil.copytree(data, folder)
    rows = []
    for line in (data / "metadata.jsonl").read_text().splitlines():
        row = json.loads(line)
        name = row["file_name"]
        about = {"original_task": row["task"], "provenance": {"stage": "rewrite", "source_episode": name}}
        rows.append({**row, **about, "task": f"Please {row['task']}, {Path(name).stem}."})
        if row["reward"] == 5:
            made = {**row, **about, "reward": 2, "progress": None}
            other = {**made["provenance"], "stage": "counterfactual"}
            rows.append({**made, "task": f"do not {row['task']}", "provenance": other})
            cut = name.replace("good", "cut")
            encode(moving_square(name, count=6, size=32), folder / cut, fps=10)
            rows.append({**made, "file_name": cut, "provenance": {**other, "stage": "clip"}})
    return write_rows(folder, rows)


def test_tasks_held_out_are_those_of_the_source_and_their_videos_with_them(data: Path, tmp_path: Path) -> None:
    split = split_episodes(vlm_settings(model="m", data=str(augmented(data, tmp_path / "more")), holdout=0.25))
    assert (len(split.train), len(split.validation)) == (12, 4) and split.rule == "1 of 4 tasks, held out whole"
    for shared in (lambda e: e.clip.source.digest, lambda e: Path(e.id).name[0]):  # a video, a task
        assert not {shared(e) for e in split.train} & {shared(e) for e in split.validation}


def test_mixtures_take_negatives_of_augmented_data_by_the_stage_that_made_them(data: Path, tmp_path: Path) -> None:
    split = split_episodes(vlm_settings(model="m", data=str(augmented(data, tmp_path / "more")), holdout=0.25))
    made = {e.id for e in split.train if e.provenance.stage in ("counterfactual", "clip")}
    cut = {e.id for e in split.train if e.provenance.stage == "clip"}
    found = {name: mixture_examples(split.train, name, 0) for name in ("full", "no-negatives", "no-clipping")}
    ids = {name: {example.episode.id for example in examples} for name, examples in found.items()}
    assert (len(made), len(cut)) == (6, 3) and made <= ids["full"]
    assert not ids["no-negatives"] & made and len(found["no-negatives"]) == 6
    assert ids["no-clipping"] & made == made - cut
    sources = {example.episode.id: example.source for example in found["full"] if example.episode.id in made}
    assert {name: "clipped" if name in cut else "counterfactual" for name in made} == sources
    with pytest.raises(DataError, match="no-negatives holds no example"):
        mixture_examples([e for e in split.train if e.id in made], "no-negatives", 0)


def test_tasks_that_share_a_video_are_held_out_together(data: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()]
    shutil.copytree(data, tmp_path / "two")
    for n in range(2):  # one video under the instructions of two tasks, and another spelling of a task
        rows.append({**rows[4 * n], "task": TASKS[2 * n + 1].upper() + ".", "reward": 1, "progress": None})
    for holdout in (0.25, 0.75):
        settings = vlm_settings(model="m", data=str(write_rows(tmp_path / "two", rows)), holdout=holdout)
        split = split_episodes(settings)
        assert split.rule == "1 of 2 tasks, held out whole"
        assert len(split.train) == len(split.validation) == 5
        assert not {e.clip.source.digest for e in split.train} & {e.clip.source.digest for e in split.validation}


def test_captions_of_videos_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "none", [{"file_name": "a.mp4", "task": "open it", "caption": "it opens"}])
    with pytest.raises(DataError, match=r"no episode .* can be used; run `rewardlab data check"):
        split_episodes(vlm_settings(model="m", data=str(folder), recipe="llava-projector"))


def test_perturbed_copies_keep_the_label_and_are_drawn_anew_in_every_epoch(data: Path) -> None:
    split = split_episodes(vlm_settings(model="m", data=str(data), holdout=0.25))
    copies = [e for e in mixture_examples(split.train, "perturbed", 0) if e.source == "perturbed"][:4]
    sampling = FrameSampling("uniform:4", 0)
    shown = [[sampling(copy, epoch) for copy in copies] for epoch in (0, 0, 1)]
    looks = [[(e.frames.tobytes(), e.instruction) for e in one] for one in shown]
    assert looks[0] == looks[1] != looks[2]
    assert training_perturbations() and all(p.label in ("keeps", "keeps_if") for p in training_perturbations())
    assert len(training_perturbations()) < sum(p.label in ("keeps", "keeps_if") for p in PERTURBATIONS.values())


def test_what_a_mixture_lacks_is_one_sentence_each() -> None:
    clip = episode_from_frames(moving_square("a", 2), "open it")
    notes = lacking("full", [Example(clip, level, "original") for level in (1, 5, 5)])
    assert [note.split(":")[0] for note in notes[:2]] == [
        "mixture full holds no counterfactual examples",
        "mixture full holds no clipped examples",
    ]
    assert notes[2] == "no training example deserves level 2 or 3 or 4, so the model cannot learn to say so"


_BOTH_WAYS = """
import os, sys
from pathlib import Path
from rewardlab.cli import main
for sharded in ("false", "true"):
    for name in ("ACCELERATE_USE_FSDP", "FSDP_CPU_RAM_EFFICIENT_LOADING"):  # as accelerate launch sets them
        os.environ[name] = sharded
    assert main([*sys.argv[2:], "--out", f"{sys.argv[1]}/{sharded}"]) == 0
Path(sys.argv[1], "rank" + os.environ["RANK"]).touch()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sizes"), [("llava", 1), ("qwen3_vl", 2)])
def test_two_processes_end_in_the_weights_of_one(
    kind: str, sizes: int, bases: Callable[[str], Path], data: Path, tmp_path: Path
) -> None:
    pytest.importorskip("accelerate", reason="needs rewardlab[vlm-train]")
    if sizes > 1:  # pictures that a model takes as they are: those of one pass do not fit into one tensor
        data = Path(shutil.copytree(data, tmp_path / "data"))
        for path in sorted(data.glob("arm/*-bad.mp4"))[::2]:
            encode(moving_square(path.name, count=12, size=96), path, fps=10)
    plan = plan_of(bases(kind), kind, data, tmp_path / "one", epochs=2, micro_batch_size=2, cache_gb=0.0)
    train_vlm(**vars(plan))
    one, start = weights(plan.out), weights(bases(kind))
    assert max(float((one[name] - start[name]).abs().max()) for name in one) > 1e-3
    (tmp_path / "both.py").write_text(_BOTH_WAYS)
    flags = f"--lr {plan.lr} --epochs 2 --micro-batch-size 2 --eval-every 1 --frames uniform:4 --holdout 0.25".split()
    flags += ["--workers", "0", "--device", "cpu", "--cache-gb", "0"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*launch, str(tmp_path / "both.py"), str(tmp_path), "train", "vlm", plan.model, str(data), *flags],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "rank0").exists() and (tmp_path / "rank1").exists()
    for sharded in ("false", "true"):
        two = weights(tmp_path / sharded)
        assert all(torch.allclose(value, two[name], atol=1e-4) for name, value in one.items()), sharded


def test_the_shipped_file_has_accelerate_share_out_parameters() -> None:
    pytest.importorskip("accelerate", reason="needs rewardlab[vlm-train]")
    from accelerate.commands.config.config_args import load_config_from_file

    shipped = load_config_from_file(str(Path(vlm.__file__).with_name("fsdp.yaml")))
    assert shipped.distributed_type == "FSDP" and shipped.fsdp_config["fsdp_version"] == 2


@pytest.mark.parametrize("world", [1, 3])
def test_every_epoch_sees_every_example_once_whatever_the_number_of_processes(world: int) -> None:
    lengths = tuple((i % 7, i) for i in range(50))
    orders = [BatchOrder(lengths, 32, 5, 2, seed=1, rank=rank, world=world) for rank in range(world)]
    assert orders[0].steps == 4
    for epoch in (0, 1):
        counted: Counter[int] = Counter()
        for step in (2 * epoch, 2 * epoch + 1):
            passes = [order.step(step) for order in orders]
            assert len({len(some) for some in passes}) == 1
            rows = [
                (place, share)
                for some in passes
                for one in some
                for place, share in zip(one.places, one.weights, strict=True)
            ]
            assert sum(share for _, share in rows) == pytest.approx(world)
            counted.update(place for place, share in rows if share)
            for some in passes:
                frames = [
                    lengths[place]
                    for one in some
                    for place, share in zip(one.places, one.weights, strict=True)
                    if share
                ]
                assert frames == sorted(frames)
        assert counted == Counter(range(50))
    assert orders[0].step(0) != orders[0].step(2)


def test_the_schedule_is_that_of_the_library() -> None:
    from transformers import get_cosine_schedule_with_warmup

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3e-6)
    schedule = get_cosine_schedule_with_warmup(optimizer, 2, 40)
    for step in range(40):
        assert learning_rate(step, 40, optimizer_config(RECIPES["roboreward-4b"])) == pytest.approx(
            schedule.get_last_lr()[0], rel=1e-6
        )
        optimizer.step()
        schedule.step()


def test_steps_too_small_for_bfloat16_add_up_in_the_masters() -> None:
    network = torch.nn.Linear(4, 1, bias=False).to(torch.bfloat16)
    with torch.no_grad():
        network.weight.fill_(1.0)
    optimizer = MasterAdamW(network, OptimizerConfig(lr=1e-4, weight_decay=0.0), "cpu")
    for _ in range(60):
        network(torch.ones(1, 4, dtype=torch.bfloat16)).sum().backward()
        optimizer.collect()
        optimizer.step(1e-4)
    torch.testing.assert_close(optimizer.trained()["weight"], torch.full((1, 4), 1 - 60e-4), atol=1e-5, rtol=0)
    assert network.weight.detach().tolist() == [[0.9921875] * 4]  # the nearest that bfloat16 has


@pytest.mark.slow
def test_several_mixtures_are_one_command_and_one_table(
    bases: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "vlm", str(bases("llava")), str(data), "--out", str(tmp_path / "table"), "--frames", "uniform:4"]
    words += ["--mixture", "no-negatives,perturbed", "--epochs", "1", "--holdout", "0.25"]
    words += ["--workers", "0", "--micro-batch-size", "16"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert [line.rsplit("/", 1)[1] for line in shown.out.splitlines()] == ["no-negatives-seed0", "perturbed-seed0"]
    assert max(map(len, shown.err.splitlines())) < 120
    rows = (tmp_path / "table" / "mixtures.csv").read_text().splitlines()
    assert rows[0].startswith("mixture,seeds,mae,") and [row.split(",")[0] for row in rows[1:]] == [
        "no-negatives",
        "perturbed",
    ]
    found = [record(tmp_path / "table" / f"{name}-seed0") for name in ("no-negatives", "perturbed")]
    sources = [each["validation"]["by_source"].keys() for each in found]
    assert sources[0] == sources[1] >= {"clipped", "counterfactual"}


def test_a_dry_run_tells_memory_and_time_and_writes_nothing(
    bases: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["train", "vlm", str(bases("llava")), str(data), "--out", str(out), "--frames", "uniform:4", "--dry-run"]
    assert main([*words, "--workers", "0"]) == 0 and not out.exists()
    lines = capsys.readouterr().out.splitlines()
    assert "3 epochs: 3 steps" in lines[0] and "million parameters are trained" in lines[1]
    assert "MB (weights 1, gradients 1, optimizer 2, activations" in lines[2] and lines[3].startswith("time: about")


def test_mistakes_are_one_sentence_each(bases: Callable[[str], Path], data: Path, tmp_path: Path) -> None:
    llava, out = str(bases("llava")), tmp_path / "out"
    one_task = write_rows(tmp_path / "one", [{"file_name": "arm/a.mp4", "task": "open it", "reward": 5}])
    (one_task / "arm").mkdir()
    encode(moving_square("a", 4, 32), one_task / "arm" / "a.mp4", fps=10)
    good = plan_of(bases("llava"), "llava", data, out)
    for plan, kind, said in (
        (replace(good, data=(str(one_task),)), DataError, "are of one task, 'open it', or .* none can be held out"),
        (replace(good, model=str(tmp_path / "none")), PlanError, "there is no folder"),
        (replace(good, model=f"hf:{llava}?answer=generate"), PlanError, "leave out answer=generate"),
        (replace(good, data=(str(tmp_path / "none"),)), DataError, "no dataset at"),
        (replace(good, lr=1e30, out=tmp_path / "nan", dtype="float32"), ModelError, "not a number at step|not finite"),
    ):
        with pytest.raises(kind, match=said):
            train_vlm(**vars(plan))
    short = tiny_vlms.save_llava(tmp_path / "short", context=100)
    with pytest.raises(ModelError, match=r"episode 'arm/.*' are \d+ tokens, and the model reads 100 at most"):
        train_vlm(**vars(replace(good, model=str(short), out=tmp_path / "long")))
    if not torch.cuda.is_available():
        with pytest.raises(PlanError, match="dtype bfloat16 was asked for, and torch sees no GPU here"):
            train_vlm(**vars(replace(good, dtype="bfloat16")))
    for changes, said in (
        ({"recipe": "robo"}, "no recipe is called 'robo'"),
        ({"mixture": ("ful",)}, "did you mean full"),
        ({"holdout": 1.0}, "holdout is a fraction between 0 and 1, got 1.0"),
        ({"micro_batch_size": 0}, "micro_batch_size must be at least 1"),
    ):
        with pytest.raises(PlanError, match=said):
            vlm_settings(**vars(good) | changes)


def test_an_episode_without_a_level_is_left_out_and_a_success_is_a_five(tmp_path: Path) -> None:
    rows = [
        {"file_name": f"arm/{n}.mp4", "task": f"open the {n}", "success": n == "drawer"} for n in ("drawer", "door")
    ]
    folder = write_rows(tmp_path / "rows", rows)
    (folder / "arm").mkdir()
    for row in rows:
        encode(moving_square("a", 4, 32), folder / str(row["file_name"]), fps=10)
    split = split_episodes(vlm_settings(model="m", data=str(folder), validation=str(folder)))
    assert [episode.label.level for episode in split.train] == [5] and split.rule == f"all of {folder}"
    assert split.notes[0] == f"{folder}: 1 episodes have no level from 1 to 5 and are left out"


@pytest.mark.slow
def test_negatives_that_rules_made_of_real_clips_train_a_model(bases: Callable[[str], Path], tmp_path: Path) -> None:
    quiet = Execution(engine="local", quiet=True)
    made = rewardlab.data_augment(
        "sample", vision="rules", text="rules", unvalidated=True, per_source=4, splits=("train=0.6", "test=0.4"),
        out=tmp_path / "made", execution=quiet,
    )  # fmt: skip
    parts = {name: open_dataset(made.folder / "split" / name).episodes for name in ("train", "test")}
    videos = [{Path(e.id).name.split("-first")[0].removesuffix(".mp4") for e in part} for part in parts.values()]
    assert all(videos) and not videos[0] & videos[1]
    plan = plan_of(bases("llava"), "llava", made.folder / "split" / "train", tmp_path / "out", epochs=1)
    split = split_episodes(plan)
    held = [{e.clip.source.digest for e in part} for part in (split.train, split.validation)]
    assert all(held) and not held[0] & held[1]
    (model,) = train_vlm(**vars(plan))
    answers = name_model(model).build().score(parts["test"][:2])
    assert len(as_scores(answers)) == 2
