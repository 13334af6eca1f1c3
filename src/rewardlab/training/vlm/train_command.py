"""`rewardlab train vlm`: one training for each mixture and seed, and a table where there are several."""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from rewardlab.core.csv_export import csv_text
from rewardlab.core.episode import LEVELS
from rewardlab.core.errors import PlanError
from rewardlab.core.run import atomic_write
from rewardlab.core.terminal_text import one_line
from rewardlab.training.vlm.plan import VlmPlan, VlmTraining
from rewardlab.training.vlm.recipes import CLIPPED, COUNTERFACTUAL, MIXTURES, ORIGINAL

if TYPE_CHECKING:
    from rewardlab.training.vlm.example import Example
    from rewardlab.training.vlm.mixtures import EpisodeSplit
    from rewardlab.training.vlm.processes import Processes
    from rewardlab.training.vlm.result_folder import Trained
    from rewardlab.training.vlm.training_loop import TrainingData

TABLE = "mixtures.csv"


def train_vlm(plan: VlmPlan) -> tuple[str, ...]:
    """Train every mixture and seed of a plan, and return the model strings; what is already there is not made again."""
    require_libraries(plan)
    from rewardlab.training.vlm.mixtures import split_episodes
    from rewardlab.training.vlm.processes import open_processes

    processes, split = open_processes(plan.device), split_episodes(plan)
    if processes.first:
        _say(split.notes)
    results = [train_one(each, partial(training_data, each, split), processes) for each in plan.trainings]
    if len(plan.trainings) > 1 and processes.first and not plan.captions:
        _write_table(plan, results)
    return tuple(trained.model for trained in results) if processes.first else ()


def train_one(training: VlmTraining, data: "Callable[[], TrainingData]", processes: "Processes") -> "Trained":
    """Train one model on examples of any origin and return what came out; one that is there is not made again."""
    from rewardlab.training.vlm.base_model import name_base
    from rewardlab.training.vlm.result_folder import finished, start_folder, write_result
    from rewardlab.training.vlm.training_loop import fit

    named = name_base(training.plan.model)
    done = finished(training, named)
    if done is not None:
        return done
    found = data()
    if processes.first:
        _say([] if training.plan.captions else lacking(training.mixture, found.examples))
    start_folder(training, named, found)
    progress = fit(training, named, found, processes)
    if processes.first:
        write_result(training, named, found, progress)
    processes.wait()
    done = finished(training, named)
    assert done is not None
    return done


def forecast_vlm(plan: VlmPlan) -> list[str]:
    """Return what the trainings of a plan would take, in sentences, having measured the first."""
    require_libraries(plan)
    from rewardlab.training.vlm.base_model import name_base
    from rewardlab.training.vlm.estimate import estimate
    from rewardlab.training.vlm.mixtures import split_episodes
    from rewardlab.training.vlm.processes import open_processes

    named, first = name_base(plan.model), plan.trainings[0]
    data = training_data(first, split_episodes(plan))
    _say([] if plan.captions else lacking(first.mixture, data.examples))
    lines = estimate(first, named, data, open_processes(plan.device)).lines
    more = len(plan.trainings) - 1
    return [*lines, *([f"and {more} trainings more, each with its own mixture or seed"] if more else [])]


def require_libraries(plan: VlmPlan) -> None:
    """Say what is not installed before anything is read."""
    needed = ("torch", "transformers", "PIL", *(("peft",) if plan.lora else ()))
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise PlanError(f"train vlm needs {', '.join(missing)}; install with pip install 'rewardlab[vlm-train]'")


def training_data(training: VlmTraining, split: "EpisodeSplit") -> "TrainingData":
    """Return the examples of a training, and those it is judged by."""
    from rewardlab.training.vlm.mixtures import (
        FrameSampling,
        captioned_examples,
        training_examples,
        validation_examples,
    )
    from rewardlab.training.vlm.training_loop import TrainingData

    sampling = FrameSampling(training.plan.frames, training.seed)
    if training.plan.captions:
        train, validation = (captioned_examples(part, split.captions) for part in (split.train, split.validation))
        return TrainingData(train, validation, sampling, split.rule)
    return TrainingData(training_examples(split, training), validation_examples(split), sampling, split.rule)


def _say(notes: Iterable[str]) -> None:
    for note in notes:
        print(one_line(note), file=sys.stderr)


def lacking(mixture: str, examples: "Sequence[Example]") -> list[str]:
    """Return a sentence for each kind of negative that a mixture should hold and for the levels nobody shows."""
    sources, levels = {example.source for example in examples}, {example.level for example in examples}
    why = {
        COUNTERFACTUAL: "no success has an instruction that a rule can turn into another",
        CLIPPED: "no success has progress for every frame, which tells how much a shorter clip deserves",
    }
    notes = [
        f"mixture {mixture} holds no {part} examples: {why[part]}"
        for part in MIXTURES[mixture]
        if part in why and part not in sources
    ]
    absent = [str(level) for level in LEVELS if level not in levels]
    if absent:
        notes.append(f"no training example deserves level {' or '.join(absent)}, so the model cannot learn to say so")
    return notes


def _write_table(plan: VlmPlan, results: "Sequence[Trained]") -> None:
    """Write the error of every mixture over all seeds: on all validation examples, and on the original ones."""
    rows: list[tuple[object, ...]] = [
        ("mixture", "seeds", "mae", "mae_least", "mae_most", "mae_original", "mae_constant")
    ]
    for mixture in dict.fromkeys(training.mixture for training in plan.trainings):
        found = [r for t, r in zip(plan.trainings, results) if t.mixture == mixture]
        overall = [r.errors.overall for r in found]
        originals = np.mean([r.errors.by_source[ORIGINAL] for r in found])
        numbers = (np.mean(overall), min(overall), max(overall), originals, np.mean([r.constant for r in found]))
        rows.append((mixture, len(found), *(f"{number:.4f}" for number in numbers)))
    with atomic_write(plan.out / TABLE) as partial:
        partial.write_text(csv_text(rows), encoding="utf-8")
