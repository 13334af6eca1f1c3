"""Trains pocket on 27 tasks in several ways and tests it on 13 others: what helps with tasks never seen?

    python results/pocket/trials.py --out runs/trials [--steps 1500] [--device cuda]

The table of trials in README.md was measured by a predecessor of this script, on the renderings of the third attempt.
This one repeats the trials with the recipe as it is now, so its numbers differ; it was run small since, never at full
size. It takes every setting of `rewardlab train pocket` from its defaults and replaces constants of the recipe in this
process, so batches are drawn here and not in worker processes. The rollouts and renderings are made once for all
trials. Of the 13 tasks 5 are the validation tasks and 8 are left out of the training tasks here. Prints one line per
trial.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from rewardlab.core.seeding import rng_for
from rewardlab.models.pocket import WORD_VECTORS
from rewardlab.models.pocket.wordpiece import load_word_pieces
from rewardlab.training.pocket import batches, clip_sampling, training_loop
from rewardlab.training.pocket.batches import Batch, whole_clips
from rewardlab.training.pocket.frame_store import FrameStore, gather_frames, make_frame_store
from rewardlab.training.pocket.network import NETWORK_CONFIGS, PocketNetwork
from rewardlab.training.pocket.plan import PocketPlan
from rewardlab.training.pocket.rollout_table import without_texts
from rewardlab.training.pocket.rollouts import simulate_all
from rewardlab.worlds.metaworld.instructions import phrasings

# fmt: off
LEFT_OUT = ("drawer-close", "soccer", "handle-pull", "peg-insert-side", "lever-pull", "sweep-into", "pick-out-of-hole",
            "plate-slide-back")
# fmt: on
MORE_WORLDS = {"plain0": 0.15, "plain1": 0.15, "world": 0.4, "view": 0.3}
KINDS = dict(clip_sampling._CLIP_KINDS) | {"forward": 0.45, "synthetic": 0.25, "mismatch": 0.08}


@dataclass(frozen=True)
class Trial:
    kinds: dict[str, float] = field(default_factory=lambda: KINDS)
    sources: dict[str, float] = field(default_factory=lambda: batches._ROBUST_SOURCES)
    displacement_weight: float = 0.5
    colour_jitter: float = 0.0  # share of clips whose colours are changed and exchanged


TRIALS = {
    "as attempt 3, displacement weight 0.5": Trial(),
    "more worlds, colour jitter": Trial(sources=MORE_WORLDS, colour_jitter=0.5),
    "the same without displacements": Trial(sources=MORE_WORLDS, colour_jitter=0.5, displacement_weight=0.0),
    "the same, displacements, fewer mismatches": Trial(
        KINDS | {"forward": 0.42, "synthetic": 0.35, "mismatch": 0.03}, MORE_WORLDS, 0.5, 0.5
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/trials"))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    plan = PocketPlan(
        "pocket", variants=("pocket",), steps=(arguments.steps,), device=arguments.device, out=arguments.out
    )
    plan.out.mkdir(parents=True, exist_ok=True)
    simulate_all(plan)
    run_trials(plan, make_frame_store(plan, robust=True), LEFT_OUT)


def run_trials(plan: PocketPlan, store: FrameStore, left_out: tuple[str, ...]) -> None:
    table = store.table
    validation = np.setdiff1d(np.arange(len(table.tasks)), table.training)
    kept = np.array([row for row in table.training if table.tasks[row] not in left_out])
    held_out = {text for task in left_out for text in phrasings()[task]["train"]}
    reduced = replace(store, table=replace(without_texts(table, held_out), training=kept))
    for number, (name, trial) in enumerate(TRIALS.items()):
        trial_plan = replace(plan, out=plan.out / str(number), workers=1)  # worker processes would not see the changes
        trial_plan.out.mkdir(exist_ok=True)
        with changed_recipe(trial):
            training_loop.fit(trial_plan, "pocket", reduced)
        model = PocketNetwork(replace(NETWORK_CONFIGS["pocket"], size=plan.size)).to(plan.device)
        model.load_state_dict(torch.load(trial_plan.out / "pocket.pt", weights_only=True))
        numbers = measured(plan, reduced, model, validation)
        print(f"{name}: " + ", ".join(f"{what} {value:.3f}" for what, value in numbers.items()), flush=True)


@contextmanager
def changed_recipe(trial: Trial) -> Iterator[None]:
    total = sum(trial.kinds.values())
    kinds = {kind: share / total for kind, share in trial.kinds.items()}
    frames = with_colour_jitter(gather_frames, trial.colour_jitter)
    with (
        mock.patch.object(clip_sampling, "_CLIP_KINDS", kinds),
        mock.patch.object(batches, "_ROBUST_SOURCES", trial.sources),
        mock.patch.object(training_loop, "_DISPLACEMENT_WEIGHT", trial.displacement_weight),
        mock.patch.object(training_loop, "gather_frames", frames),
    ):
        yield


def with_colour_jitter(gather: Any, share: float) -> Any:
    def frames(store: FrameStore, batch: Batch, rng: Any) -> torch.Tensor:
        x: torch.Tensor = gather(store, batch, rng)
        if rng is None or not share:
            return x
        count, device = len(x), x.device
        chosen = torch.rand(count, 1, device=device) < share
        gain = torch.where(chosen, 2 ** (1.2 * torch.rand(count, 3, device=device) - 0.6), 1.0).half()
        offset = torch.where(chosen, 50 * torch.rand(count, 3, device=device) - 25, 0.0).half()
        permuted = chosen & (torch.rand(count, 1, device=device) < 0.5)
        order = torch.where(permuted, torch.rand(count, 3, device=device).argsort(1), torch.arange(3, device=device))
        x = torch.gather(x, 4, order[:, None, None, None].expand_as(x))
        return (x.half() * gain[:, None, None, None] + offset[:, None, None, None]).clamp(0, 255).to(torch.uint8)

    return frames


def measured(plan: PocketPlan, store: FrameStore, model: PocketNetwork, rows: Any) -> dict[str, float]:
    """Return errors on seen and unseen tasks, with and without words, and what the other requirements ask for."""
    table, vocabulary = store.table, load_word_pieces(WORD_VECTORS)
    tasks = np.array([table.tasks[row] for row in rows])
    seen = np.isin(tasks, table.task_names)
    clips = whole_clips(table, rows)
    truth = clips.level[:, -1]

    def error(ids: Any = None) -> Any:
        asked = clips if ids is None else replace(clips, piece_ids=ids)
        return np.abs(predicted_levels(store, model, asked, plan.batch) - truth)

    def mean(errors: Any, which: Any) -> float:
        return float(np.mean([errors[tasks == task].mean() for task in dict.fromkeys(tasks[which])]))

    rng = rng_for(0, "trial")
    own = {task: table.texts[int(rows[np.flatnonzero(tasks == task)[0]])][0] for task in table.task_names}
    others = [own[str(rng.choice([name for name in own if name != task] or [task]))] for task in tasks]
    phrased = {
        kind: np.stack([vocabulary.piece_ids(phrasings()[task][kind][int(rng.integers(2))]) for task in tasks])
        for kind in ("train", "held_out")
    }
    plain = seen & np.array(["{where}" not in phrasings()[task]["train"][0] for task in tasks])
    mismatched = replace(clips, piece_ids=np.stack([vocabulary.piece_ids(text) for text in others]))
    level = predicted_levels(store, model, mismatched, plan.batch)
    guess = predicted_levels(store, model, clips, plan.batch)
    return {
        "seen": mean(error(), seen),
        "seen success": float(((guess == 5) == (truth == 5))[seen].mean()),
        "unseen": mean(error(), ~seen),
        "unseen without words": mean(error(np.full_like(clips.piece_ids, -1)), ~seen),
        "success under another task": float(level[seen & (truth == 5)].mean()),
        "held-out phrasings cost": float((error(phrased["held_out"]) - error(phrased["train"]))[plain].mean()),
    }


def predicted_levels(store: FrameStore, model: PocketNetwork, clips: Batch, size: int) -> Any:
    """Return the level at the end of every clip."""
    return training_loop.median_levels(training_loop.final_level_logits(store, model, clips, size))


if __name__ == "__main__":
    main()
