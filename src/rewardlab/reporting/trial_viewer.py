"""Single trials to read on the page: what a judged model was asked, what it said, what was read from it, and stills."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.core.errors import RewardlabError
from rewardlab.core.run import Run
from rewardlab.core.run_record import INSTRUCTION, RunRecord
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Trial, TrialTable
from rewardlab.reporting.failure_clips import data_address, shrink
from rewardlab.runner.perturbed_episode_rebuild import CellReplay

MOST_TRIALS = 60  # on a page, of all judged models together
FILMED = 18  # of them with stills
_STILLS, _STILL_HEIGHT = 4, 84
_MOST_CHARACTERS = 4_000  # of a prompt or an answer
_NO_TRUTH = 0.5  # where nothing is known to be wrong, after every error and before every right answer
_FAILED = 9.0  # no answer at all is worse than any error in levels

Verdict = Literal["failed", "wrong", "right", "no truth"]


@dataclass(frozen=True)
class ViewedTrial:
    """One trial as people read it; `stills` is a strip of shown frames as a data address, "" where there is none."""

    trial: Trial
    verdict: Verdict
    prompt: str
    raw: str
    stills: str


def viewed_trials(run: Run, trials: TrialTable, shown: CellReplay | None) -> list[ViewedTrial]:
    """Return the worst trials of the judged models and a few by chance, at most so many that a page stays small.

    `trials` may lack what models said: of the chosen ones alone it is read. Without `shown` there are no stills.
    """
    record = run.record
    most = max(2, MOST_TRIALS // len(record.judged))
    rows = np.concatenate([_chosen(trials, model, most, record.settings.seed) for model in record.judged])
    order = {str(name): place for place, name in enumerate(trials.text("id")[rows])}
    chosen = sorted(run.trials_called(order), key=lambda trial: order[trial.id])
    filmed = _filmed(chosen, len(record.judged))
    return [_viewed(trial, record, shown if trial.id in filmed else None) for trial in chosen[:MOST_TRIALS]]


def _filmed(chosen: Sequence[Trial], models: int) -> set[str]:
    """Return which trials get stills: of each model the worst and, of those by chance, the last."""
    each, found = max(3, FILMED // models), set[str]()
    for model in dict.fromkeys(trial.model for trial in chosen):
        mine = [trial.id for trial in chosen if trial.model == model]
        found |= {*mine[: each - each // 3], *mine[len(mine) - each // 3 :]}
    return found


def _chosen(trials: TrialTable, model: str, most: int, seed: int) -> NDArray[np.int64]:
    """Return the rows of the worst two thirds, worst first, then some of the others by chance."""
    mine = np.flatnonzero(trials.matches("model", model) & ~trials.matches("status", "dropped"))
    error = _errors(trials)[mine]
    ranked = mine[np.lexsort((trials.text("id")[mine].astype(str), -error))]
    worst, others = ranked[: most - most // 3], ranked[most - most // 3 :]
    drawn = rng_for(seed, "viewed trials", model).permutation(len(others))[: most // 3]
    return np.concatenate([worst, others[np.sort(drawn)]]).astype(np.int64)


def _errors(trials: TrialTable) -> NDArray[np.float64]:
    error = np.abs(trials.number("level") - trials.number("truth_level"))
    return np.where(trials.matches("status", "failed"), _FAILED, np.where(np.isnan(error), _NO_TRUTH, error))


def _viewed(trial: Trial, record: RunRecord, shown: CellReplay | None) -> ViewedTrial:
    prompt = record.prompts.get(trial.model, "").replace(INSTRUCTION, trial.instruction)
    return ViewedTrial(
        trial, _verdict(trial), words_shown(prompt), words_shown(trial.raw or ""), stills_of(trial, shown)
    )


def _verdict(trial: Trial) -> Verdict:
    if trial.status == "failed" or trial.level is None:
        return "failed"
    if trial.truth_level is None:
        return "no truth"
    return "right" if abs(trial.level - trial.truth_level) < _NO_TRUTH else "wrong"


def words_shown(text: str) -> str:
    """Return a text, cut where it is too long for a page."""
    more = len(text) - _MOST_CHARACTERS
    return f"{text[:_MOST_CHARACTERS]} … and {more:,} characters more" if more > 0 else text


def stills_of(trial: Trial, shown: CellReplay | None) -> str:
    """Return a few of the frames that the model saw, side by side."""
    if shown is None or (trial.perturbation != "clean" and trial.perturbation not in shown.context.perturbations):
        return ""
    try:
        frames = shown.change(trial.episode, trial.perturbation, trial.severity).episode.frames
    except (RewardlabError, OSError, ValueError):
        return ""
    return strip_of(frames)


def strip_of(frames: Frames) -> str:
    """Return first, last and some frames between in one small picture, as a data address."""
    places: Sequence[int] = np.unique(np.linspace(0, len(frames) - 1, _STILLS).round().astype(int)).tolist()
    strip = np.hstack(list(shrink(frames[places], _STILL_HEIGHT)))
    _, picture = cv2.imencode(".jpg", strip[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 55])
    return data_address("image/jpeg", picture.tobytes())
