"""Descriptions of wrong rewards: what a vision-language model says it sees in the clips that it misjudged."""

from collections.abc import Mapping

from rewardlab.analysis.wrong_rewards import COLUMNS, wrong_rewards
from rewardlab.core.episode import strip_labels
from rewardlab.core.run import Run
from rewardlab.core.trial import Failure, Trial
from rewardlab.models.contract import Describer
from rewardlab.runner.cell_scoring import ScoringContext
from rewardlab.runner.perturbed_episode_rebuild import CellReplay

DESCRIPTIONS = "descriptions.json"


def describe_failures(run: Run, context: ScoringContext, most: int) -> None:
    """Ask each judged model that can tell what it sees to describe its worst clips; what is described stays so.

    Each description is kept as soon as it is there. What a model costs counts against the budget of the run.
    """
    trials, shown = run.trials(COLUMNS), CellReplay({e.id: e for e in context.dataset}, context)
    for model in (context.models[name] for name in context.judged):
        known = stored_descriptions(run)
        open_ids = [name for name in wrong_rewards(trials, model.name, most) if name not in known]
        if model.describe is None or not open_ids:
            continue
        describer = model.describe(context.budget)
        for trial in run.trials_called(open_ids):
            _keep(run, trial, _described(describer, shown, trial))


def stored_descriptions(run: Run) -> dict[str, str]:
    """Return what models said they see, by the id of the trial; empty where nobody was asked."""
    content = run.stored(DESCRIPTIONS) or {}
    texts = content.get("texts")
    return {str(name): str(text) for name, text in texts.items()} if isinstance(texts, Mapping) else {}


def _described(describer: Describer, shown: CellReplay, trial: Trial) -> str:
    clip = shown.change(trial.episode, trial.perturbation, trial.severity).episode
    (said,) = describer.describe([strip_labels(clip)])
    return f"no description: {said.reason}" if isinstance(said, Failure) else said


def _keep(run: Run, trial: Trial, text: str) -> None:
    run.save(DESCRIPTIONS, {"texts": stored_descriptions(run) | {trial.id: text}})
