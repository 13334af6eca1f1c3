"""Clips before and after, single trials to read, the gallery of wrong rewards."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames
from rewardlab.core.errors import RewardlabError
from rewardlab.core.run import Run
from rewardlab.core.run_files import INSTRUCTION
from rewardlab.core.seeding import rng_for
from rewardlab.core.summary import WorstPerturbation, in_control_order
from rewardlab.core.trial import CLEAN, Trial, describe_info, familiarity_sentence
from rewardlab.core.trial_table import TrialTable
from rewardlab.core.video_encoding import encode_bytes
from rewardlab.evaluation.findings import Contrast
from rewardlab.evaluation.plan import MOST_DESCRIBED
from rewardlab.evaluation.replay import TrialReplay, WrongReward, stored_descriptions, wrong_rewards
from rewardlab.reporting.page import data_address

CLIP_HEIGHT = 144
CLIP_FPS = 6.0
_LEAST_DAMAGE = 0.5  # in levels; a smaller change is not worth a clip


@dataclass(frozen=True)
class EmbeddedClip:
    """A small video and its last frame as data addresses, so that the page needs no other file."""

    video: str
    poster: str


@dataclass(frozen=True)
class ScoreShift:
    """How one model's score moved."""

    model: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class ShownTrial:
    """What a card says of the trial that it shows."""

    id: str
    model: str
    episode: str
    perturbation: str
    category: str
    severity: int
    expectation: str
    truth_level: int | None
    instruction: str
    level: float | None


@dataclass(frozen=True)
class ClipCard:
    """One trial to look at: two clips, two instructions, and what the models said."""

    trial: ShownTrial
    summary: str
    kept: float  # fraction of expectations kept under this perturbation at this severity
    damage: float  # in levels, by how much the change made the answer worse
    instruction_before: str
    before: EmbeddedClip
    after: EmbeddedClip
    shifts: tuple[ScoreShift, ...]
    holds: ScoreShift | None = None  # of another evaluated model, which the same change leaves right


def clip_cards(
    shown: TrialReplay, trials: TrialTable, worst: Sequence[WorstPerturbation], parted: Contrast | None
) -> tuple[list[ClipCard], list[str]]:
    """Return the worst clip under each of the worst perturbations of each evaluated model, the worst of all first.

    Before them comes the clip on which one of two models that a change parts breaks while the other holds; and
    sentences why some have none. An answer that the change made worse by less than half a level is not shown.
    """
    broken = [entry for entry in worst if entry.expectation_kept < 1]
    known = [entry for entry in broken if entry.perturbation in shown.context.perturbations]
    try:
        cards = [_card(shown, trials, entry) for entry in known]
        first = [_card(shown, trials, entry, parted.holds) for entry in known if parted and parted.is_about(entry)]
    except (RewardlabError, OSError, ValueError) as error:  # a path that a stranger wrote can be no path at all
        return [], [cannot_show(error)]
    others = dict.fromkeys(entry.perturbation for entry in broken if entry not in known)
    unknown = (
        f"No clip shows {', '.join(others)}: code from outside the catalogue is imported only with --allow-code "
        "(allow_code=True). Use it for runs of your own."
    )
    shown_cards = sorted((card for card in cards if card is not None), key=lambda card: -card.damage)
    parting = [card for card in first if card is not None]
    ids = {(card.trial.id, card.trial.model) for card in parting}
    others_shown = [card for card in shown_cards if (card.trial.id, card.trial.model) not in ids]
    return parting + others_shown, [unknown] if others else []


def cannot_show(error: Exception) -> str:
    """Return the sentence that stands where the clips would be."""
    return f"The clips cannot be shown: {error}"


def _card(shown: TrialReplay, trials: TrialTable, entry: WorstPerturbation, holds: str = "") -> ClipCard | None:
    """Return the clip that a change damages most for a model, beyond what it does to the model that holds."""
    model, name, severity = entry.model, entry.perturbation, entry.severity
    damages = _damages(trials, model, name, severity)
    held = {trial.episode: max(0.0, rise) for trial, (rise, _) in _damages(trials, holds, name, severity)}
    places = ((rise - held.get(t.episode, 0.0), error, t.id, t, rise) for t, (rise, error) in damages)
    *_, trial, damage = max(places, default=(None, 0.0))
    if trial is None or damage < _LEAST_DAMAGE:
        return None
    before = shown.change(trial.episode, CLEAN, 0).episode
    after = shown.change(trial.episode, name, severity).episode
    same = trials.where(trials.matches("episode", trial.episode))
    old = {other.model: other.level for other in _shown_trials(same, CLEAN, 0)}
    new = {other.model: other.level for other in _shown_trials(same, name, severity)}
    models = (model, *in_control_order(sorted(new.keys() - {model})))
    return ClipCard(
        trial=trial,
        summary=shown.context.perturbations[name].summary,
        kept=entry.expectation_kept,
        damage=damage,
        instruction_before=before.instruction,
        before=_clip(before),
        after=_clip(after),
        shifts=tuple(ScoreShift(each, old.get(each), new[each]) for each in models),
        holds=ScoreShift(holds, old.get(holds), new[holds]) if holds in new else None,
    )


def _shown_trials(trials: TrialTable, perturbation: str, severity: int) -> list[ShownTrial]:
    """Return the trials of one condition."""
    under = trials.where(trials.matches("perturbation", perturbation) & (trials.number("severity") == severity))
    return [ShownTrial(**record) for record in under.records([field.name for field in fields(ShownTrial)])]


def _damages(
    trials: TrialTable, model: str, perturbation: str, severity: int
) -> list[tuple[ShownTrial, tuple[float, float]]]:
    """Return the scored trials of a model under a change, each with its damage."""
    own = trials.where(trials.matches("model", model))
    clean = {trial.episode: trial for trial in _shown_trials(own, CLEAN, 0)}
    mine = _shown_trials(own.where(own.matches("status", "scored")), perturbation, severity)
    return [(trial, _damage(trial, clean.get(trial.episode))) for trial in mine]


def _damage(trial: ShownTrial, clean: ShownTrial | None) -> tuple[float, float]:
    """Return by how many levels a change made the answer worse, and how wrong it is now.

    That is the rise of its error; without a true level, how far it departs from what was expected.
    """
    if trial.level is None or clean is None or clean.level is None:
        return 0.0, 0.0
    if trial.truth_level is not None and clean.truth_level is not None:
        error = abs(trial.level - trial.truth_level)
        return error - abs(clean.level - clean.truth_level), error
    if trial.expectation == "lower":
        return max(0.0, trial.level - clean.level), 0.0
    return abs(trial.level - clean.level) if trial.expectation == "same" else 0.0, 0.0


def _clip(episode: Episode) -> EmbeddedClip:
    frames = shrink(episode.frames, CLIP_HEIGHT)
    _, poster = cv2.imencode(".jpg", frames[-1][..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 60])
    video = encode_bytes(frames, CLIP_FPS, crf=30)
    return EmbeddedClip(data_address("video/mp4", video), data_address("image/jpeg", poster.tobytes()))


def shrink(frames: Frames, height: int) -> Frames:
    """Return frames scaled to a height, never enlarged."""
    if frames.shape[1] <= height:
        return frames
    width = max(2, round(frames.shape[2] * height / frames.shape[1]))
    return np.stack([cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in frames])


# Single trials to read on the page: what a evaluated model was asked, what it said, what was read from it, and stills.

MOST_TRIALS = 60  # on a page, of all evaluated models together
RENDERED = 18  # of them with stills
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
    info: str
    stills: str


def viewed_trials(run: Run, trials: TrialTable, shown: TrialReplay | None) -> list[ViewedTrial]:
    """Return the worst trials of the evaluated models and a few by chance, at most so many that a page stays small.

    `trials` may lack what models said: of the chosen ones alone it is read. Without `shown` there are no stills.
    """
    record = run.record
    most = max(2, MOST_TRIALS // len(record.evaluated))
    rows = np.concatenate([_chosen(trials, model, most, record.settings.seed) for model in record.evaluated])
    order = {str(name): place for place, name in enumerate(trials.text("id")[rows])}
    chosen = sorted(run.trials_called(order), key=lambda trial: order[trial.id])
    rendered = _rendered(chosen, len(record.evaluated))
    found = []
    for trial in chosen[:MOST_TRIALS]:
        prompt = words_shown(record.prompts.get(trial.model, "").replace(INSTRUCTION, trial.instruction))
        known = "; ".join(filter(None, (familiarity_sentence(trial.info), describe_info(trial.info))))
        raw, info = words_shown(trial.raw or ""), words_shown(known)
        stills = stills_of(trial, shown) if trial.id in rendered else ""
        found.append(ViewedTrial(trial, _verdict(trial), prompt, raw, info, stills))
    return found


def _rendered(chosen: Sequence[Trial], models: int) -> set[str]:
    """Return which trials get stills: of each model the worst and, of those by chance, the last."""
    each, found = max(3, RENDERED // models), set[str]()
    for model in dict.fromkeys(trial.model for trial in chosen):
        mine = [trial.id for trial in chosen if trial.model == model]
        found |= {*mine[: each - each // 3], *mine[len(mine) - each // 3 :]}
    return found


def _chosen(trials: TrialTable, model: str, most: int, seed: int) -> NDArray[np.int64]:
    """Return the rows of the worst two thirds, worst first, then some of the others by chance."""
    mine = np.flatnonzero(trials.matches("model", model) & ~trials.matches("status", "dropped"))
    error = np.abs(trials.number("level") - trials.number("truth_level"))
    error = np.where(trials.matches("status", "failed"), _FAILED, np.where(np.isnan(error), _NO_TRUTH, error))[mine]
    ranked = mine[np.lexsort((trials.text("id")[mine].astype(str), -error))]
    worst, others = ranked[: most - most // 3], ranked[most - most // 3 :]
    drawn = rng_for(seed, "viewed trials", model).permutation(len(others))[: most // 3]
    return np.concatenate([worst, others[np.sort(drawn)]]).astype(np.int64)


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


def stills_of(trial: Trial, shown: TrialReplay | None) -> str:
    """Return a few of the frames that the model saw, side by side, as a data address."""
    if shown is None or (trial.perturbation != "clean" and trial.perturbation not in shown.context.perturbations):
        return ""
    try:
        frames = shown.change(trial.episode, trial.perturbation, trial.severity).episode.frames
    except (RewardlabError, OSError, ValueError):
        return ""
    places: Sequence[int] = np.unique(np.linspace(0, len(frames) - 1, _STILLS).round().astype(int)).tolist()
    strip = np.hstack(list(shrink(frames[places], _STILL_HEIGHT)))
    _, picture = cv2.imencode(".jpg", strip[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 55])
    return data_address("image/jpeg", picture.tobytes())


# The gallery of wrong rewards on the page: false and missed successes with stills, and what the model says it saw.

_ON_A_PAGE = 36  # of all models together, so that a page stays small


@dataclass(frozen=True)
class GalleryCard:
    """One wrong reward; `description` is what the model said it sees, "" where it was not asked."""

    trial: Trial
    kind: WrongReward
    stills: str
    description: str


def gallery_cards(run: Run, trials: TrialTable, shown: TrialReplay | None) -> list[GalleryCard]:
    """Return the wrong rewards of the evaluated models, worst first; without `shown` there are no stills."""
    evaluated, described = run.record.evaluated, stored_descriptions(run)
    most = max(2, min(MOST_DESCRIBED, _ON_A_PAGE // len(evaluated)))
    kinds = {name: kind for model in evaluated for name, kind in wrong_rewards(trials, model).items()}
    chosen = {name for model in evaluated for name in list(wrong_rewards(trials, model))[:most]}
    wanted = [name for name in kinds if name in chosen or name in described]
    place = {name: number for number, name in enumerate(wanted)}
    rows = sorted(run.trials_called(wanted), key=lambda trial: place[trial.id])
    return [
        GalleryCard(row, kinds[row.id], stills_of(row, shown), words_shown(described.get(row.id, ""))) for row in rows
    ]
