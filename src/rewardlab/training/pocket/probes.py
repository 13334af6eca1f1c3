"""Probes: what a trained network says of rollouts it was not trained on, under instructions that show what it reads."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rewardlab.core.seeding import pick, rng_for
from rewardlab.models.pocket.clip_padding import CLIP_FRAMES
from rewardlab.training.pocket.batches import Batch, make_batch
from rewardlab.training.pocket.clip_sampling import SampledClip
from rewardlab.training.pocket.frame_store import FrameStore, gather_frames, gather_words
from rewardlab.training.pocket.network import PocketNetwork
from rewardlab.training.pocket.plan import PocketPlan
from rewardlab.training.pocket.rollout_table import Ints, RolloutTable, levels_of
from rewardlab.worlds.metaworld.instructions import ask_for_thing, phrasings
from rewardlab.worlds.metaworld.objects import OPPOSITE_TASKS

Predictions = dict[str, NDArray[Any]]
TextOf = Callable[[int], str]  # the instruction for a rollout
_SUCCESS = 5
_FAMILIAR = 1200  # training clips that say what is familiar


def probe_all(plan: PocketPlan, store: FrameStore, model: PocketNetwork) -> Predictions:
    """Return for every probe the rollouts, the logits, progress and last states, and the level under their own task."""
    table, found = store.table, Predictions()
    for name, (source, clips) in _probes(plan, table).items():
        if clips:
            batch = make_batch(table, np.full(len(clips), source, dtype=object), clips)
            found |= {f"{name}/{what}": values for what, values in predict(store, model, batch, plan.batch).items()}
            found[f"{name}/row"], found[f"{name}/level"] = batch.row, batch.level[:, -1]
            found[f"{name}/task"] = np.array([table.tasks[row] for row in batch.row])
    return found


@torch.no_grad()
def predict(store: FrameStore, model: PocketNetwork, clips: Batch, size: int) -> dict[str, NDArray[np.float32]]:
    """Return the logits of the level, progress per frame and the state at the end of every clip, not augmented."""
    model.eval()
    parts: dict[str, list[NDArray[np.float32]]] = {"logits": [], "progress": [], "state": []}
    for members in np.array_split(np.arange(len(clips.row)), max(1, len(clips.row) // size)):
        part = Batch(**{name: values[members] for name, values in vars(clips).items()})
        out = model(gather_frames(store, part, None), *gather_words(store, part, augment=False))
        parts["logits"].append(out.levels[:, -1].float().cpu().numpy())
        parts["progress"].append(out.progress.float().cpu().numpy())
        parts["state"].append(out.states[:, -1].float().cpu().numpy())
    return {name: np.concatenate(values) for name, values in parts.items()}


def _probes(plan: PocketPlan, table: RolloutTable) -> dict[str, tuple[str, list[SampledClip]]]:
    rows, trained = table.checks.tolist(), table.training[:: max(1, len(table.training) // _FAMILIAR)].tolist()
    done = [row for row in rows if table.levels[row, -1] == _SUCCESS]
    both = [row for row in done if table.tasks[row] in OPPOSITE_TASKS]
    whole = np.linspace(0, table.progress.shape[1] - 1, CLIP_FRAMES).round().astype(np.int64)
    probes = {
        "own": ("plain", _clips(table, rows, whole, lambda row: table.texts[row][0])),
        "trained": ("plain", _clips(table, trained, whole, lambda row: table.texts[row][0])),
        "held_out": ("plain", _clips(table, rows, whole, lambda row: table.held_out_texts[row][0])),
        "still": ("plain", _clips(table, rows, np.zeros(CLIP_FRAMES, np.int64), lambda row: table.texts[row][0])),
        "wordless": ("plain", _clips(table, rows, whole, lambda row: "")),
        "reversed": ("plain", _clips(table, rows, whole[::-1], lambda row: table.texts[row][0])),
        "contrary": ("plain", _clips(table, both, whole, _opposite_text(table))),
    }
    if "crowd" in table.scenes:
        probes["crowd"] = ("crowd", _clips(table, rows, whole, lambda row: table.texts[row][0]))
        probes["other_thing"] = ("crowd", list(_other_thing(plan, table, done, whole)))
    return probes


def _clips(table: RolloutTable, rows: Iterable[int], frames: Ints, text_of: TextOf) -> list[SampledClip]:
    return [_clip(table, row, frames, text_of(row)) for row in rows]


def _clip(table: RolloutTable, row: int, frames: Ints, text: str) -> SampledClip:
    progress = table.progress[row, frames]
    return SampledClip(row, frames, text, progress, levels_of(progress))


def _opposite_text(table: RolloutTable) -> TextOf:
    return lambda row: phrasings()[OPPOSITE_TASKS[table.tasks[row]]]["train"][0]


def _other_thing(plan: PocketPlan, table: RolloutTable, rows: Iterable[int], frames: Ints) -> Iterator[SampledClip]:
    """Yield successes under the instruction for another thing that stands in the same scene."""
    for row in rows:
        scene = table.scenes["crowd"][row]
        asked = [task for _, tasks in scene.things for task in tasks] if scene else []
        if asked:
            rng = rng_for(plan.seed, "other thing", row)
            yield _clip(table, row, frames, ask_for_thing(pick(asked, rng), "train", rng).text)
