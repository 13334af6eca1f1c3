r"""Trains `smol` on the rollouts that pocket learns from, one step at a time. The adapter was made by

    rewardlab train assemble --vision dinov2_vits14.onnx --language SmolLM2-135M-Instruct.Q4_1.gguf \
        --tokens 16 --pool 2 --out smol
    python results/vlm/train_smol.py render rollouts
    python results/vlm/train_smol.py captions rollouts smol aligned --per-task 80 --epochs 4 --batch-size 32
    python results/vlm/train_smol.py levels rollouts aligned smol-reward --per-task 150 --lora 16 --lr 5e-4 \
        --epochs 10 --compile

and questions are asked by

    python results/vlm/train_smol.py probe rollouts smol-reward probes.csv
    python results/vlm/train_smol.py judge rollouts smol-reward answers.csv

`render` simulates and renders; it wants many cores and a GPU. `forget MODEL OUT` gives a model another language model
of the same shape whose weights are random. `probe` asks about validation rollouts of all tasks, trained on or not.
`judge` asks about those of trained tasks that chose no checkpoint, with all their negatives, and about the same under
perturbations that no training had.
"""

import argparse
import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from rewardlab.core.episode import LEVELS, Episode, Label, Provenance, episode_from_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.core.seeding import pick, rng_for
from rewardlab.core.trial import Score
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.evaluation.engines.ordered_map import map_items
from rewardlab.models import name_model
from rewardlab.models.contract import RewardModel
from rewardlab.perturbations import PERTURBATIONS
from rewardlab.training.holdout import draw_split
from rewardlab.training.pocket import CAMERA_SHARES, PocketSettings, pocket_settings
from rewardlab.training.pocket.rendering import RenderedScene, RolloutTable, new_pixels, read_rollout_table
from rewardlab.training.pocket.rollouts import Shard, draw_by_share, load_rollouts, shards_of, simulate_all
from rewardlab.training.processes import open_processes
from rewardlab.training.vlm import ORIGINAL, train_one, vlm_settings
from rewardlab.training.vlm.examples import EpisodeSplit, mixture_examples
from rewardlab.worlds.metaworld.instructions import caption, phrasings
from rewardlab.worlds.metaworld.render import CameraView
from rewardlab.worlds.metaworld.scene_edits import render_rollout
from rewardlab.worlds.metaworld.tasks import OPPOSITE_TASKS

FRAMES = "uniform:8"
RENDERED = "rendered.json"  # tasks and counts of a folder of rollouts
PIXELS = "plain.npy"
VALIDATION = 6  # rollouts of each trained task that choose the checkpoint
PROBED = {"trained": 5, "unseen": 40}  # validation rollouts of each task that are asked about
HARD = (3, 4)  # severities
SCORED_AT_ONCE = 32


@dataclass(frozen=True)
class Rollouts:
    """Rendered rollouts of pocket, and which tasks a training may not see."""

    table: RolloutTable
    pixels: np.ndarray
    unseen: tuple[str, ...]

    def rows(self, which: str, per_task: int, *, unseen: bool = False) -> Iterator[int]:
        """Yield up to so many rollouts of each task, drawn from `training` or `checks`."""
        every = {"training": self.table.training, "checks": self.table.checks}[which].tolist()
        drawn = rng_for(0, which).permutation([r for r in every if (self.table.tasks[r] in self.unseen) == unseen])
        counts: dict[str, int] = {}
        for row in drawn.tolist():
            counts[self.table.tasks[row]] = counts.get(self.table.tasks[row], 0) + 1
            if counts[self.table.tasks[row]] <= per_task:
                yield row

    def episode(self, row: int, text: str = "") -> Episode:
        """Return a rollout as an episode, under one of its training phrasings or another text."""
        table = self.table
        level, progress = int(table.levels[row, -1]), tuple(float(p) for p in table.progress[row])
        said = text or table.texts[row][row % len(table.texts[row])]
        made = episode_from_frames(
            np.asarray(self.pixels[row]), said, fps=10.0, label=Label(level, self.succeeds(row), progress)
        )
        return replace(made, id=f"{table.tasks[row]}-{row}", provenance=Provenance(task=table.tasks[row]))

    def succeeds(self, row: int) -> bool:
        """Return whether a rollout ends with the task done."""
        return bool(self.table.levels[row, -1] == LEVELS[-1])

    def caption(self, row: int) -> str:
        """Return what happened in a rollout, in words."""
        return caption(self.table.tasks[row], self.table.gripper_pos[row], self.table.object_pos[row])


def rollout_settings(folder: Path) -> PocketSettings:
    rendered = json.loads((folder / RENDERED).read_text())
    return pocket_settings(tasks=tuple(rendered.pop("tasks")), workers=0, out=folder, **rendered)


def render(options: argparse.Namespace) -> None:
    counts = {"rollouts": options.counts[0], "near_misses": options.counts[1], "val_rollouts": options.counts[2]}
    options.rollouts.mkdir(parents=True, exist_ok=True)
    (options.rollouts / RENDERED).write_text(json.dumps({"tasks": options.tasks, **counts}))
    settings = rollout_settings(options.rollouts)
    simulate_all(settings)
    shards = shards_of(settings)
    starts = np.cumsum([0, *(shard.count for shard in shards)]).tolist()
    new_pixels(settings.out / PIXELS, starts[-1], settings.frames_per_rollout, settings.size)
    for _ in map_items(partial(render_shard, settings), zip(shards, starts[:-1], strict=True), settings.workers):
        pass


def render_shard(settings: PocketSettings, placed: tuple[Shard, int]) -> None:
    shard, start = placed
    pixels = np.load(settings.out / PIXELS, mmap_mode="r+")
    for index, rollout in enumerate(load_rollouts(settings.out / "rollouts" / shard.name)):
        rng = rng_for(settings.seed, "rendering", shard.name, index)
        view = CameraView(draw_by_share(CAMERA_SHARES, rng), settings.size)
        shown = range(settings.frames_per_rollout)
        pixels[start + index] = render_rollout(rollout.trajectory, shown, view, tiled=True)


def read(options: argparse.Namespace) -> Rollouts:
    settings = rollout_settings(options.rollouts)
    pixels = np.load(settings.out / PIXELS, mmap_mode="r")
    table = read_rollout_table(settings, [RenderedScene()] * len(pixels))
    return Rollouts(table, pixels, settings.unseen(options.fold))


def forget(options: argparse.Namespace) -> None:
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(options.model, dtype=torch.float32)
    torch.manual_seed(0)
    blank = type(model)(model.config)
    model.model.language_model.load_state_dict(blank.model.language_model.state_dict())
    model.lm_head.load_state_dict(blank.lm_head.state_dict())
    model.save_pretrained(options.out)
    AutoProcessor.from_pretrained(options.model).save_pretrained(options.out)


def train(options: argparse.Namespace) -> None:
    rollouts = read(options)
    drawn, held = rollouts.rows("training", options.per_task), list(rollouts.rows("checks", VALIDATION))
    rows = [row for row in drawn if rollouts.succeeds(row) or rollouts.table.tasks[row] not in options.demonstrations]
    episodes = {row: rollouts.episode(row) for row in [*rows, *held]}
    captions = {episodes[row].clip.source.digest: rollouts.caption(row) for row in episodes}
    settings = vlm_settings(
        model=str(options.model),
        data=options.rollouts,
        out=options.out,
        recipe="llava-projector" if options.step == "captions" else "roboreward-4b",
        mixture=(options.mixture,),
        seeds=(options.seed,),
        frames=options.frames,
        lora=options.lora,
        lr=options.lr,
        epochs=options.epochs,
        batch_size=options.batch_size,
        micro_batch_size=options.micro_batch_size,
        eval_every=options.eval_every,
        gradient_checkpointing=False,
        compile=options.compile,
        cache_gb=40.0,
        workers=options.workers,
    )
    rule = f"{VALIDATION} other rollouts of each trained task"
    split = EpisodeSplit(tuple(episodes[row] for row in rows), tuple(episodes[row] for row in held), rule, (), captions)
    (training,) = settings.trainings
    done = train_one(training, split, open_processes(settings.device))
    print(done.model, done.errors, done.constant)


def probe(options: argparse.Namespace) -> None:
    rollouts, model = read(options), name_model(f"hf:{options.model}").build()
    asked = list(questions(rollouts))
    shown = (sample_frames(rollouts.episode(row, text), frame_policy(options.frames)) for _, row, text in asked)
    with options.out.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(("model", "fold", "unseen", "probe", "task", "row", "level", "said", "success"))
        for (name, row, _), answer in zip(asked, answers(model, shown), strict=True):
            task, level = rollouts.table.tasks[row], int(rollouts.table.levels[row, -1])
            numbers = f"{answer.level:.4f}", f"{answer.probabilities[-1]:.4f}"
            known = int(task in rollouts.unseen)
            writer.writerow((options.model.name, options.fold, known, name, task, row, level, *numbers))


def judge(options: argparse.Namespace) -> None:
    rollouts, model = read(options), name_model(f"hf:{options.model}").build()
    chose = set(rollouts.rows("checks", VALIDATION))
    others = [row for row in rollouts.rows("checks", len(rollouts.table.tasks)) if row not in chose]
    examples = mixture_examples([rollouts.episode(row) for row in others], "full", seed=0)
    asked = [(each, "") for each in examples]
    asked += [(each, name) for each in examples if each.source == ORIGINAL for name in held_out_change(each.episode)]
    shown = (shown_under(name, each.episode, options.frames) for each, name in asked)
    with options.out.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(("episode", "source", "level", "under", "said"))
        for (each, name), answer in zip(asked, answers(model, shown), strict=True):
            writer.writerow((each.episode.id, each.source, each.level, name, f"{answer.level:.4f}"))


def answers(model: RewardModel, shown: Iterable[Episode]) -> Iterator[Score]:
    """Yield what the model says of each episode."""
    left = iter(shown)
    while some := list(islice(left, SCORED_AT_ONCE)):
        for answer in model.score(some):
            assert isinstance(answer, Score), answer
            yield answer


def held_out_change(episode: Episode) -> Iterator[str]:
    """Yield one perturbation that no training had and that applies, at severity 3 or 4, drawn for the episode."""
    held_out = (PERTURBATIONS[name] for name in draw_split().held_out_perturbations)
    kept = [each for each in held_out if each.label == "keeps" and not each.uses_world and not each.uses_dataset]
    rng = rng_for(0, "held-out change", episode.id)
    for place in rng.permutation(len(kept)).tolist():
        name = f"{kept[place].name}@{pick(HARD, rng)}"
        try:
            shown_under(name, episode, FRAMES)
        except NotApplicable:
            continue
        yield name
        return


def shown_under(change: str, episode: Episode, frames: str) -> Episode:
    """Return the episode as a model is shown it, under a perturbation `NAME@SEVERITY` or none."""
    policy = frame_policy(frames)
    if not change:
        return sample_frames(episode, policy)
    name, _, severity = change.partition("@")
    perturbation = PERTURBATIONS[name]
    if perturbation.stage == "sampled":
        return perturbation(sample_frames(episode, policy), int(severity), 0).episode
    return sample_frames(perturbation(episode, int(severity), 0).episode, policy)


def questions(rollouts: Rollouts) -> Iterable[tuple[str, int, str]]:
    """Yield what is asked: its name, the rollout, the text. `blank` asks for nothing, `other` for another task."""
    table = rollouts.table
    for where, count in PROBED.items():
        rows = list(rollouts.rows("checks", count, unseen=where == "unseen"))
        for row in rows:
            yield "own", row, table.texts[row][row % len(table.texts[row])]
            yield "held_out", row, table.held_out_texts[row][row % len(table.held_out_texts[row])]
            yield "blank", row, "do the task"
            if rollouts.succeeds(row):
                other = rows[int(rng_for(0, "other", row).integers(len(rows)))]
                if table.tasks[other] != table.tasks[row]:
                    yield "other", row, table.texts[other][0]
                if table.tasks[row] in OPPOSITE_TASKS:
                    yield "contrary", row, phrasings()[OPPOSITE_TASKS[table.tasks[row]]]["train"][0]


def names(text: str) -> list[str]:
    return text.split(",")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    needed = {
        "render": ("rollouts",),
        "forget": ("model", "out"),
        "captions": ("rollouts", "model", "out"),
        "levels": ("rollouts", "model", "out"),
        "probe": ("rollouts", "model", "out"),
        "judge": ("rollouts", "model", "out"),
    }
    for name, places in needed.items():
        step = steps.add_parser(name)
        for place in places:
            step.add_argument(place, type=Path)
        step.add_argument("--tasks", type=names, default=["all"], help="tasks to render")
        step.add_argument("--counts", type=int, nargs=3, default=(150, 40, 40), help="rollouts, near misses, checks")
        step.add_argument("--demonstrations", type=names, default=[], help="tasks of which only successes are learned")
        step.add_argument("--fold", type=int, default=0)
        step.add_argument("--per-task", type=int, default=100)
        step.add_argument("--frames", default=FRAMES)
        step.add_argument("--mixture", default="full")
        step.add_argument("--seed", type=int, default=0)
        step.add_argument("--lora", type=int, default=0)
        step.add_argument("--lr", type=float)
        step.add_argument("--epochs", type=int)
        step.add_argument("--batch-size", type=int)
        step.add_argument("--compile", action="store_true")
        step.add_argument("--micro-batch-size", type=int, default=32)
        step.add_argument("--eval-every", type=int, default=0)
        step.add_argument("--workers", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    options = arguments()
    steps = {"render": render, "forget": forget, "captions": train, "levels": train, "probe": probe, "judge": judge}
    steps[options.step](options)
