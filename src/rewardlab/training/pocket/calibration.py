"""Probes on validation rollouts, and the calibration fitted on other folds."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from rewardlab.core.episode import is_success
from rewardlab.core.seeding import pick, rng_for
from rewardlab.evaluation.fit_calibration import conformal_quantile
from rewardlab.models.pocket.inference import (
    CLIP_FRAMES,
    FEATURES,
    LEVELS,
    calibration_features,
    flag_threshold,
    image_ood_score,
    knn_ood_score,
    mapped_probabilities,
    unit_length,
)
from rewardlab.training.pocket import PocketSettings, Training
from rewardlab.training.pocket.frame_store import FrameStore, gather_frames, gather_words
from rewardlab.training.pocket.network import NetworkConfig, PocketNetwork
from rewardlab.training.pocket.rendering import Ints, RolloutTable, evenly, levels_of
from rewardlab.training.pocket.sampling import SampledClip
from rewardlab.training.pocket.sources import (
    DEMONSTRATION_FRAMES,
    Batch,
    Demonstrations,
    Tabletop,
    known_of_demonstration,
    labelled,
    make_batch,
    other_instruction,
)
from rewardlab.worlds.metaworld.instructions import ask_for_distractor, phrasings
from rewardlab.worlds.metaworld.tasks import OPPOSITE_TASKS

Floats = NDArray[np.float64]
Predictions = dict[str, NDArray[Any]]

_COVERAGE = 0.9
_PENALTY = 1e-3  # on the squares of what is fitted
_PARTS = 5  # of the tasks, for the conformal threshold
_FALSE_ALARMS = 0.08  # share of the validation clips of the strangest source that are flagged
# Probes whose level is known:
_CALIBRATED = (
    *("own", "still", "other_thing", "tabletop", "tabletop_other"),
    *("demonstrations", "demonstrations_other", "demonstrations_backwards"),
)
_NOTHING_DONE = ("other_thing", "demonstrations_other")  # whose recorded level is that under the own instruction
_OWN_WORDS = ("own", "tabletop", "demonstrations")  # probes of every source under its own instructions


@dataclass(frozen=True, eq=False)
class ProbedClips:
    """What trainings say of validation clips."""

    features: Floats  # (n, FEATURES)
    level: NDArray[np.int64]  # 1 to 5
    group: NDArray[Any]  # the source, whether its task was seen, and whether it is shown as it was
    own: NDArray[np.bool_]  # whether it is shown as it was, under its own instruction
    task: NDArray[Any]

    def where(self, chosen: NDArray[np.bool_]) -> "ProbedClips":
        return ProbedClips(**{name: column[chosen] for name, column in vars(self).items()})


def fit_novelty_calibration(settings: PocketSettings, training: Training) -> dict[str, Any]:
    """Return the calibration of a training as its settings hold it, fitted on the other folds of the same variant.

    A calibration so never meets its own predictions for unseen tasks; with one fold alone, it has to.
    """
    folds = [each for each in settings.trainings if each.variant == training.variant]
    others = [each for each in folds if each.fold != training.fold] or folds
    parts = [vars(probed_clips(settings, each)) for each in others]
    clips = ProbedClips(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    weight, bias = fit_linear_map(clips)
    return {
        "calibration": {"weight": np.round(weight, 5).tolist(), "bias": np.round(bias, 5).tolist()},
        "conformal": round(_conformal_threshold(settings, clips), 6),
        "calibrated_on": {"folds": [each.fold for each in others], "clips": len(clips.level)},
    }


def fit_flag(settings: PocketSettings, training: Training) -> dict[str, float]:
    """Return the distance from training above which a clip is flagged, so that few of the validation clips are."""
    found = probed(settings, training)
    sources = [found[f"{name}/image"] for name in _OWN_WORDS if f"{name}/image" in found]
    familiar = found["trained/image"].astype(np.float16).astype(np.float32)
    above = max(flag_threshold(image_ood_score(images, familiar), _FALSE_ALARMS) for images in sources)
    return {"unfamiliar_above": round(above, 4), "false_alarms": _FALSE_ALARMS}


def probed(settings: PocketSettings, training: Training) -> Predictions:
    """Return what a training keeps of its validation."""
    with np.load(settings.out / f"{training.name}-probes.npz") as found:
        return dict(found)


def probed_clips(settings: PocketSettings, training: Training) -> ProbedClips:
    """Return the predictions for validation clips of known level."""
    found, names = probed(settings, training), settings.unseen(training.fold)
    familiar = unit_length(found["trained/state"].astype(np.float32))
    parts = []
    for probe in _CALIBRATED:
        if f"{probe}/level" not in found:
            continue
        source, level = probe.partition("_")[0], found[f"{probe}/level"].astype(np.int64)
        logits, states = (found[f"{probe}/{what}"] for what in ("logits", "state"))
        task = found.get(f"{probe}/task", np.full(len(level), source))
        place = np.where(np.isin(task, names), "unseen", "seen") if source in ("own", "still", "other") else source
        features = calibration_features(logits.astype(np.float64), knn_ood_score(states.astype(np.float32), familiar))
        own = np.full(len(task), probe in _OWN_WORDS)
        group = np.char.add(np.broadcast_to(place, len(task)), np.where(own, " own", " other"))
        parts.append((features, np.where(probe in _NOTHING_DONE, 1, level), group, own, task))
    features, level, group, own, task = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return ProbedClips(features, level, group, own, task)


def fit_linear_map(clips: ProbedClips) -> tuple[Floats, Floats]:
    """Return weight (FEATURES, LEVELS) and bias (LEVELS,) of least cross-entropy, every group weighing the same."""
    centre, scale = clips.features.mean(axis=0), clips.features.std(axis=0) + 1e-6
    design = np.hstack([(clips.features - centre) / scale, np.ones((len(clips.level), 1))])
    truth = np.eye(LEVELS)[clips.level - 1]
    _, group, counts = np.unique(clips.group, return_inverse=True, return_counts=True)
    importance = 1 / counts[group] / len(counts)

    def loss(flat: Floats) -> tuple[float, Floats]:
        logits = design @ flat.reshape(-1, LEVELS)
        error = softmax(logits, axis=1) - truth
        value = -importance @ (log_softmax(logits, axis=1) * truth).sum(axis=1) + _PENALTY * flat @ flat
        return float(value), (design.T @ (importance[:, None] * error)).ravel() + 2 * _PENALTY * flat

    start = np.zeros((FEATURES + 1) * LEVELS)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x.reshape(-1, LEVELS)
    weight = found[:-1] / scale[:, None]
    return weight, found[-1] - centre @ weight


def _conformal_threshold(settings: PocketSettings, clips: ProbedClips) -> float:
    """Return the least probability of a level in a 90 % set, from tasks each evaluated by a map fitted without them.

    It holds in every group of clips under their own instructions; others are mostly at level 1 and easy.
    """
    names = np.unique(clips.task)
    part_of = dict(zip(names, rng_for(settings.seed, "conformal parts").permutation(len(names)) % _PARTS, strict=True))
    parts = np.array([part_of[task] for task in clips.task])
    scores, groups = [], []
    for part in np.unique(parts):
        evaluated = clips.where((parts == part) & clips.own)
        fitted = clips.where(parts != part) if (parts != part).any() else clips
        weight, bias = fit_linear_map(fitted)
        probs = mapped_probabilities(evaluated.features, weight, bias)
        scores.append(1 - probs[np.arange(len(evaluated.level)), evaluated.level - 1])
        groups.append(evaluated.group)
    score, group = np.concatenate(scores), np.concatenate(groups)
    found = [conformal_quantile(score[group == each], _COVERAGE) for each in np.unique(group)]
    return min(0.0 if quantile is None else 1 - quantile for quantile in found)


# Probes: what a trained network says of rollouts it was not trained on, under instructions that show what it reads.

_FAMILIAR = 400  # training clips, of each source, that say what is familiar
_STATES = 3  # of every so many of them the state is kept; of all the mean image token
_OTHERS = 3  # instructions of others for each demonstration


def probe_all(settings: PocketSettings, store: FrameStore, network: NetworkConfig, model: PocketNetwork) -> Predictions:
    """Return for every probe the rollouts, the logits, progress and last states, and the level under their own task."""
    sources, found = store.sources, Predictions()
    probes = {name: ("metaworld", clips) for name, clips in _probes(settings, sources.metaworld).items()}
    if sources.tabletop:
        probes |= {name: ("tabletop", clips) for name, clips in _tabletop_probes(sources.tabletop).items()}
    if sources.demonstrations:
        shown = _demonstration_probes(settings, sources.demonstrations)
        probes |= {name: ("demonstrations", clips) for name, clips in shown.items()}
    for name, (source, clips) in probes.items():
        if clips:
            batch = make_batch(sources.metaworld, [(source, [clip]) for clip in clips])
            predicted = predict(store, network, model, batch, settings.batch_size)
            found |= {f"{name}/{what}": values for what, values in predicted.items()}
            found[f"{name}/row"], found[f"{name}/level"] = batch.row, batch.level[:, -1]
            if source == "metaworld":
                found[f"{name}/task"] = np.array([sources.metaworld.tasks[row] for row in batch.row])
            elif source == "tabletop" and sources.tabletop:
                found[f"{name}/task"] = np.array([sources.tabletop.rollouts[row].unseen for row in batch.row])
    familiar = [name for name in probes if name.startswith("trained") and f"{name}/state" in found]
    for what, kept in (("state", _STATES), ("image", 1)):
        found[f"trained/{what}"] = np.concatenate([found[f"{name}/{what}"] for name in familiar])[::kept]
    return found


@torch.no_grad()
def predict(
    store: FrameStore, network: NetworkConfig, model: PocketNetwork, clips: Batch, size: int
) -> dict[str, NDArray[np.float32]]:
    """Return level logits, progress per frame, last state and mean image token of every clip, not augmented."""
    model.eval()
    found = []
    for members in np.array_split(np.arange(len(clips.row)), max(1, len(clips.row) // size)):
        part = Batch(**{name: values[members] for name, values in vars(clips).items()})
        with torch.autocast(store.word_vectors.device.type, torch.bfloat16, enabled=store.word_vectors.is_cuda):
            out = model(gather_frames(store, part, network), *gather_words(store, part, augment=False))
        images = out.tokens.unflatten(0, (len(part.row), -1)).mean((1, 2))
        said = (out.levels[:, -1], out.progress, out.states[:, -1], images)
        found.append([values.float().cpu().numpy() for values in said])
    columns = zip(("logits", "progress", "state", "image"), zip(*found, strict=True), strict=True)
    return {name: np.concatenate(values) for name, values in columns}


def _probes(settings: PocketSettings, table: RolloutTable) -> dict[str, list[SampledClip]]:
    rows, trained = table.checks.tolist(), evenly(table.training, _FAMILIAR).tolist()
    done = [row for row in rows if is_success(table.levels[row, -1])]
    both = [row for row in done if table.tasks[row] in OPPOSITE_TASKS]
    others = _other_things(settings, table, done)
    whole = np.linspace(0, table.progress.shape[1] - 1, CLIP_FRAMES).round().astype(np.int64)
    still = np.zeros(CLIP_FRAMES, np.int64)
    own = [table.texts[row][0] for row in rows]
    # By name: the rollouts, the frames, and the instructions.
    probes: dict[str, tuple[list[int], Ints, list[str]]] = {
        "own": (rows, whole, own),
        "trained": (trained, whole, [table.texts[row][0] for row in trained]),
        "held_out": (rows, whole, [table.held_out_texts[row][0] for row in rows]),
        "still": (rows, still, own),
        "reversed": (rows, whole[::-1], own),
        "contrary": (both, whole, [phrasings()[OPPOSITE_TASKS[table.tasks[row]]]["train"][0] for row in both]),
        "other_thing": (list(others), whole, list(others.values())),
    }
    return {
        name: [labelled(row, frames, text, table.progress[row, frames]) for row, text in zip(shown, texts, strict=True)]
        for name, (shown, frames, texts) in probes.items()
    }


def _tabletop_probes(table: Tabletop) -> dict[str, list[SampledClip]]:
    frames = np.arange(CLIP_FRAMES)
    probes: dict[str, list[SampledClip]] = {"tabletop": [], "tabletop_other": [], "trained_tabletop": []}
    for row in (*table.checks.tolist(), *evenly(table.training, _FAMILIAR).tolist()):
        rollout, checked = table.rollouts[row], row >= table.checks[0]
        nothing = np.flatnonzero(levels_of(rollout.progress[:, -1]) == 1)
        asked = [("tabletop" if checked else "trained_tabletop", 0)]
        asked += [("tabletop_other", int(nothing[nothing > 0][0]))] if checked and (nothing > 0).any() else []
        for name, at in asked:
            probes[name].append(labelled(row, frames, rollout.texts[at], rollout.progress[at]))
    return probes


def _demonstration_probes(settings: PocketSettings, table: Demonstrations) -> dict[str, list[SampledClip]]:
    whole = np.linspace(0, DEMONSTRATION_FRAMES - 1, CLIP_FRAMES).round().astype(np.int64)
    half = np.linspace(0, DEMONSTRATION_FRAMES // 2 - 1, CLIP_FRAMES).round().astype(np.int64)
    rows, trained = table.checks.tolist(), evenly(table.training, _FAMILIAR).tolist()
    rng = rng_for(settings.seed, "other demonstrations")
    return {
        "demonstrations": [known_of_demonstration(row, whole, table.texts[row]) for row in rows],
        "demonstrations_half": [known_of_demonstration(row, half, table.texts[row]) for row in rows],
        "demonstrations_backwards": [known_of_demonstration(row, whole[::-1], table.texts[row]) for row in rows],
        "demonstrations_other": [
            known_of_demonstration(row, whole, other_instruction(table, row, table.checks, rng))
            for _ in range(_OTHERS)
            for row in rows
        ],
        "trained_demonstrations": [known_of_demonstration(row, whole, table.texts[row]) for row in trained],
    }


def _other_things(settings: PocketSettings, table: RolloutTable, rows: list[int]) -> dict[int, str]:
    """Return the instruction for another thing that stands in the scene of each rollout that has one."""
    found = {}
    for row in rows:
        asked = [task for _, tasks in table.scenes[row].things for task in tasks]
        if asked:
            rng = rng_for(settings.seed, "other thing", row)
            found[row] = ask_for_distractor(pick(asked, rng), "train", rng).text
    return found
