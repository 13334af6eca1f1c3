"""Trains pocket on 27 tasks in several ways and judges it on 13 others: what helps with tasks never seen?

    python results/pocket/trials.py --out runs/trials [--steps 1500] [--device cuda]

Takes every setting of `rewardlab train pocket` from its defaults; the rollouts and films are made once for all trials.
Of the 13 tasks 5 are the validation tasks and 8 are left out of the training tasks here. Prints one line per trial.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from rewardlab.core.seeding import rng_for
from rewardlab.models.pocket import WORDS
from rewardlab.models.pocket.wordpiece import load_words
from rewardlab.train.pocket import batches, training_loop
from rewardlab.train.pocket.batches import Lesson, whole_clips, without_texts
from rewardlab.train.pocket.network import SHAPES, Pocket
from rewardlab.train.pocket.plan import PocketPlan
from rewardlab.train.pocket.rollouts import simulate_all
from rewardlab.worlds.metaworld.instructions import phrasings

# fmt: off
LEFT_OUT = ("drawer-close", "soccer", "handle-pull", "peg-insert-side", "lever-pull", "sweep-into", "pick-out-of-hole",
            "plate-slide-back")
# fmt: on
MORE_WORLDS = {"plain0": 0.15, "plain1": 0.15, "world": 0.4, "view": 0.3}
KINDS = dict(batches._KINDS) | {"forward": 0.45, "made_up": 0.25, "mismatch": 0.08}


@dataclass(frozen=True)
class Trial:
    kinds: dict[str, float] = field(default_factory=lambda: KINDS)
    sources: dict[str, float] = field(default_factory=lambda: batches._ROBUST)
    ways: float = 0.5  # how much the ways of hand and thing count in the loss
    colours: float = 0.0  # share of clips whose colours are changed and exchanged


TRIALS = {
    "as attempt 3, ways count 0.5": Trial(),
    "more worlds, other colours": Trial(sources=MORE_WORLDS, colours=0.5),
    "the same without ways": Trial(sources=MORE_WORLDS, colours=0.5, ways=0.0),
    "the same, ways, fewer mismatches": Trial(
        KINDS | {"forward": 0.42, "made_up": 0.35, "mismatch": 0.03}, MORE_WORLDS, 0.5, 0.5
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
    run_trials(plan, training_loop.make_store(plan, robust=True), LEFT_OUT)


def run_trials(plan: PocketPlan, store: training_loop.Store, left_out: tuple[str, ...]) -> None:
    facts = store.facts
    checks = np.setdiff1d(np.arange(len(facts.tasks)), facts.training)
    kept = np.array([row for row in facts.training if facts.tasks[row] not in left_out])
    unheard = {text for task in left_out for text in phrasings()[task]["train"]}
    some = replace(store, facts=replace(without_texts(facts, unheard), training=kept))
    for number, (name, trial) in enumerate(TRIALS.items()):
        mine = replace(plan, out=plan.out / str(number))
        mine.out.mkdir(exist_ok=True)
        with changed(trial):
            training_loop.training_loop(mine, "pocket", some)
        model = Pocket(replace(SHAPES["pocket"], size=plan.size)).to(plan.device)
        model.load_state_dict(torch.load(mine.out / "pocket.pt", weights_only=True))
        told = ", ".join(f"{what} {value:.3f}" for what, value in measured(plan, some, model, checks).items())
        print(f"{name}: {told}", flush=True)


@contextmanager
def changed(trial: Trial) -> Iterator[None]:
    """Train as the trial says; processes that draw batches are forked, for fresh ones would not know."""
    total = sum(trial.kinds.values())
    kinds = {kind: share / total for kind, share in trial.kinds.items()}
    with (
        mock.patch.object(batches, "_KINDS", kinds),
        mock.patch.object(batches, "_ROBUST", trial.sources),
        mock.patch.object(training_loop, "_WAYS_COUNT", trial.ways),
        mock.patch.object(training_loop, "_frames", recoloured(training_loop._frames, trial.colours)),
        mock.patch.object(batches, "get_context", return_value=get_context("fork")),
    ):
        yield


def recoloured(frames_of: Any, share: float) -> Any:
    def frames(store: training_loop.Store, lesson: Lesson, rng: Any) -> torch.Tensor:
        x: torch.Tensor = frames_of(store, lesson, rng)
        if rng is None or not share:
            return x
        count, device = len(x), x.device
        chosen = torch.rand(count, 1, device=device) < share
        gain = torch.where(chosen, 2 ** (1.2 * torch.rand(count, 3, device=device) - 0.6), 1.0).half()
        more = torch.where(chosen, 50 * torch.rand(count, 3, device=device) - 25, 0.0).half()
        exchange = chosen & (torch.rand(count, 1, device=device) < 0.5)
        order = torch.where(exchange, torch.rand(count, 3, device=device).argsort(1), torch.arange(3, device=device))
        x = torch.gather(x, 4, order[:, None, None, None].expand_as(x))
        return (x.half() * gain[:, None, None, None] + more[:, None, None, None]).clamp(0, 255).to(torch.uint8)

    return frames


def measured(plan: PocketPlan, store: training_loop.Store, model: Pocket, rows: Any) -> dict[str, float]:
    """Return errors on seen and unseen tasks, told and untold, and what the other requirements ask for."""
    facts, words = store.facts, load_words(WORDS)
    tasks = np.array([facts.tasks[row] for row in rows])
    seen = np.isin(tasks, facts.task_names)
    lesson = whole_clips(facts, rows)
    truth = lesson.level[:, -1]

    def error(text: Any = None) -> Any:
        return np.abs(judged(store, model, lesson if text is None else replace(lesson, text=text), plan.batch) - truth)

    def mean(wrong: Any, which: Any) -> float:
        return float(np.mean([wrong[tasks == task].mean() for task in dict.fromkeys(tasks[which])]))

    rng = rng_for(0, "trial")
    own = {task: facts.texts[int(rows[np.flatnonzero(tasks == task)[0]])][0] for task in facts.task_names}
    others = [own[str(rng.choice([name for name in own if name != task] or [task]))] for task in tasks]
    phrased = {
        kind: np.stack([words.ids(phrasings()[task][kind][int(rng.integers(2))]) for task in tasks])
        for kind in ("train", "held_out")
    }
    plain = seen & np.array(["{where}" not in phrasings()[task]["train"][0] for task in tasks])
    told, untold = error(), error(np.full_like(lesson.text, -1))
    level = judged(store, model, replace(lesson, text=np.stack([words.ids(text) for text in others])), plan.batch)
    guess = judged(store, model, lesson, plan.batch)
    return {
        "seen": mean(told, seen),
        "seen success": float(((guess == 5) == (truth == 5))[seen].mean()),
        "unseen": mean(told, ~seen),
        "unseen without words": mean(untold, ~seen),
        "success under another task": float(level[seen & (truth == 5)].mean()),
        "held-out phrasings cost": float((error(phrased["held_out"]) - error(phrased["train"]))[plain].mean()),
    }


def judged(store: training_loop.Store, model: Pocket, lesson: Lesson, batch: int) -> Any:
    """Return the level at the end of every clip."""
    return training_loop.median_levels(training_loop.asked(store, model, lesson, batch))


if __name__ == "__main__":
    main()
