"""The gallery of wrong rewards on the page: false and missed successes with stills, and what the model says it saw."""

from dataclasses import dataclass

from rewardlab.analysis.wrong_rewards import MOST, WrongReward, wrong_rewards
from rewardlab.core.run import Run
from rewardlab.core.trial import Trial, TrialTable
from rewardlab.reporting.trial_viewer import stills_of, words_shown
from rewardlab.runner.describe_failures import stored_descriptions
from rewardlab.runner.perturbed_episode_rebuild import CellReplay

_ON_A_PAGE = 36  # of all models together, so that a page stays small


@dataclass(frozen=True)
class GalleryCard:
    """One wrong reward; `description` is what the model said it sees, "" where it was not asked."""

    trial: Trial
    kind: WrongReward
    stills: str
    description: str


def gallery_cards(run: Run, trials: TrialTable, shown: CellReplay | None) -> list[GalleryCard]:
    """Return the wrong rewards of the judged models, worst first; without `shown` there are no stills."""
    judged, described = run.record.judged, stored_descriptions(run)
    most = max(2, min(MOST, _ON_A_PAGE // len(judged)))
    kinds = {name: kind for model in judged for name, kind in wrong_rewards(trials, model).items()}
    chosen = {name for model in judged for name in list(wrong_rewards(trials, model))[:most]}
    wanted = [name for name in kinds if name in chosen or name in described]
    place = {name: number for number, name in enumerate(wanted)}
    rows = sorted(run.trials_called(wanted), key=lambda trial: place[trial.id])
    return [
        GalleryCard(row, kinds[row.id], stills_of(row, shown), words_shown(described.get(row.id, ""))) for row in rows
    ]
