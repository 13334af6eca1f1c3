"""Go back to trials of a run: rebuild what the model saw, pick the worst wrong rewards, have them described."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, strip_labels
from rewardlab.core.errors import DataError
from rewardlab.core.run import Run
from rewardlab.core.trial import Failure
from rewardlab.core.trial_table import TrialTable
from rewardlab.data import DATASETS, open_dataset, split_camera
from rewardlab.data.reading import draw_episodes, with_stage_questions
from rewardlab.evaluation.plan import MOST_DESCRIBED, EpisodeTrials, PlannedTrial, ScoringContext
from rewardlab.evaluation.scoring import perturb_trials
from rewardlab.metrics.accuracy import rounded
from rewardlab.metrics.contract import answered
from rewardlab.perturbations import is_in_catalogue
from rewardlab.perturbations.contract import PerturbedEpisode


@dataclass(frozen=True)
class TrialReplay:
    """The dataset and the protocol of a run, ready to rebuild any of its trials."""

    episodes: dict[str, Episode]
    context: ScoringContext

    def change(self, episode: str, perturbation: str, severity: int) -> PerturbedEpisode:
        """Return the episode exactly as the models saw it."""
        if episode not in self.episodes:
            raise DataError(f"the dataset no longer holds episode {episode!r}")
        trial = PlannedTrial("", perturbation, severity, "")
        (group,) = perturb_trials(EpisodeTrials(self.episodes[episode], (trial,)), self.context)
        if isinstance(group.outcome, str):
            raise DataError(group.outcome)
        return group.outcome


def replay(run: Run, *, allow_code: bool) -> TrialReplay:
    """Open the dataset that a run was made from; DataError if it is no longer there.

    Without `allow_code` no code that the run names is imported, and no dataset outside its folder opened.
    """
    settings = run.record.settings
    data = settings.data if allow_code else _harmless_dataset(run, settings.data)
    names = tuple(name for name in settings.perturbations if allow_code or is_in_catalogue(name))
    contents = open_dataset(data, demonstrations=bool(settings.demonstrations))
    episodes = draw_episodes(contents.episodes, settings.limit, settings.seed)
    if settings.stages:
        episodes = with_stage_questions(episodes)
    return trial_replay(episodes, names, settings.frames, settings.seed)


def _harmless_dataset(run: Run, data: str) -> str:
    """Return a dataset that is shipped, or the whole path of one in the run folder, which names no reader or hub."""
    if data in DATASETS:
        return data
    name, camera = split_camera(data)
    folder = Path(name).resolve()
    if folder.is_relative_to(run.folder.resolve()):
        return f"{folder}@{camera}" if camera else str(folder)
    raise DataError(
        f"a report opens no dataset that a run names ({data!r}) without --allow-code (allow_code=True); "
        "use it for runs of your own"
    )


def trial_replay(episodes: tuple[Episode, ...], perturbations: tuple[str, ...], frames: str, seed: int) -> TrialReplay:
    """Return a TrialReplay over episodes at hand, with no run behind it."""
    context = ScoringContext({}, perturbations, episodes, frames, seed, batch=1)
    return TrialReplay({episode.id: episode for episode in episodes}, context)


# Which trials show a wrong reward best: failures called a success, and successes that were missed.

WrongReward = Literal["false success", "missed success"]
COLUMNS = ("id", "model", "episode", "status", "expectation", "level", "truth_level", "truth_success", "severity")


def wrong_rewards(trials: TrialTable, model: str, most: int = MOST_DESCRIBED) -> dict[str, WrongReward]:
    """Return the ids of a model's worst false and missed successes by turns, one per episode; unchanged clips first."""
    used = trials.where(trials.matches("model", model) & answered(trials, "success"))
    called, truth = rounded(used.number("level")) == 5, used.number("truth_success") == 1
    false, missed = (_worst_first(used, mask) for mask in (called & ~truth, ~called & truth))
    found: dict[str, WrongReward] = {}
    for place in range(max(len(false), len(missed))):
        found |= dict.fromkeys(false[place : place + 1], "false success")
        found |= dict.fromkeys(missed[place : place + 1], "missed success")
    return dict(list(found.items())[:most])


def _worst_first(trials: TrialTable, mask: NDArray[np.bool_]) -> list[str]:
    """Return the id of the worst trial of each episode: unchanged before changed, then by error."""
    wrong = trials.where(mask)
    error = np.nan_to_num(np.abs(wrong.number("level") - wrong.number("truth_level")), nan=1.0)
    ids, episodes = wrong.text("id").astype(str), wrong.text("episode")
    order = np.lexsort((ids, -error, wrong.number("severity")))
    found: dict[str, str] = {}
    for row in order.tolist():
        found.setdefault(str(episodes[row]), str(ids[row]))
    return list(found.values())


# Descriptions of wrong rewards: what a vision-language model describes in the clips that it scored wrongly.

DESCRIPTIONS = "descriptions.json"


def describe_failures(run: Run, context: ScoringContext, most: int) -> None:
    """Ask each evaluated model that can tell what it sees to describe its worst clips; what is described stays so.

    Each description is kept as soon as it is there. What a model costs counts against the budget of the run.
    """
    trials, shown = run.trials(COLUMNS), TrialReplay({e.id: e for e in context.dataset}, context)
    for model in (context.models[name] for name in context.evaluated):
        known = stored_descriptions(run)
        open_ids = [name for name in wrong_rewards(trials, model.name, most) if name not in known]
        if model.describe is None or not open_ids:
            continue
        describer = model.describe(context.budget)
        for trial in run.trials_called(open_ids):
            clip = shown.change(trial.episode, trial.perturbation, trial.severity).episode
            (text,) = describer.describe([strip_labels(clip)])
            text = f"no description: {text.reason}" if isinstance(text, Failure) else text
            run.save(DESCRIPTIONS, {"texts": stored_descriptions(run) | {trial.id: text}})


def stored_descriptions(run: Run) -> dict[str, str]:
    """Return what models said they see, by the id of the trial; empty where nobody was asked."""
    content = run.stored(DESCRIPTIONS) or {}
    texts = content.get("texts")
    return {str(name): str(text) for name, text in texts.items()} if isinstance(texts, Mapping) else {}
