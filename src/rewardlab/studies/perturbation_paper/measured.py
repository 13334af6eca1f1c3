"""What a run says about the study: accuracy, losses and tau per condition, to be combined under the same draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run
from rewardlab.core.run_files import RunRecord
from rewardlab.core.summary import Summary
from rewardlab.core.trial import CLEAN, SEVERITIES
from rewardlab.core.trial_table import TrialTable
from rewardlab.evaluation.display import model_meant, names_of_run
from rewardlab.evaluation.findings import KINDS, seen_or_unseen
from rewardlab.evaluation.summary import load_summary
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import Draws, draw_clusters
from rewardlab.metrics.estimates import clean_values, clusters_of, with_clean_answers, with_clusters
from rewardlab.metrics.paired_differences import Column, ConditionMeans, Weights, condition_means, mean_of
from rewardlab.studies.perturbation_paper.paper import (
    CATEGORIES,
    GROUPS,
    ROLES,
    STATED_ACCURACY,
    TASK_SEVERITY,
    group_of,
    name_of_part,
    roles_of,
)
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS
from rewardlab.worlds.metaworld.tasks import unseen_tasks

ACCURACY, TAU = "success_accuracy", "progress_tau_b"


@dataclass(frozen=True, eq=False)
class MeasuredStudy:
    """One run, its summary, and which of its models play the paper's configurations.

    A configuration that several trainings play has the name of an arm, which stands for their mean; there may be arms
    that play none. `fold` is that of the Meta-World tasks that none of them was trained on, `names` what models are
    called where people read.
    """

    record: RunRecord
    summary: Summary
    trials: TrialTable
    draws: Draws
    roles: Mapping[str, str]
    arms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fold: int | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def models(self) -> tuple[str, ...]:
        """Return the arms, and the models of the run that are in none."""
        inside = {name for names in self.arms.values() for name in names}
        return (*self.arms, *(name for name in self.summary.models if name not in inside))

    @property
    def evaluated(self) -> tuple[str, ...]:
        """Return the arms, and the evaluated models that are in none."""
        return tuple(name for name in self.models if name in {*self.arms, *self.summary.evaluated})

    @property
    def drawn(self) -> tuple[str, ...]:
        """Return the arms, or every evaluated model where there are none: a figure has room for few."""
        return tuple(self.arms) or self.evaluated

    def shown(self, name: str) -> str:
        """Return what an arm or model is called where people read."""
        return self.names.get(name, name)

    def trainings(self, name: str) -> tuple[str, ...]:
        """Return the models that a name stands for: those of an arm, else itself."""
        return self.arms.get(name, (name,))

    def model(self, role: str) -> str:
        """Return the model that plays a configuration; a name that no model has where nobody does."""
        return self.roles.get(role, f"no {role} model")

    def part(self, role: str) -> str:
        """Return what is in the place of a configuration, named for what it is."""
        name = self.roles.get(role, "")
        return name if name in self.arms else name_of_part(role, name, self.shown(name))

    def role(self, model: str) -> str:
        """Return the configuration that a model plays, nothing where it plays none."""
        return next((role for role, name in self.roles.items() if name == model), "")

    def stated(self, model: str, category: str) -> float | None:
        """Return what the paper's Table 1 says of the part that a model plays; None where it plays none."""
        return STATED_ACCURACY.get(self.role(model), {}).get(category)

    @property
    def categories(self) -> tuple[str, ...]:
        """Return the paper's categories that were measured."""
        return tuple(name for name in CATEGORIES if name in self.summary.categories)

    @cached_property
    def accuracy(self) -> ConditionMeans:
        """Return success accuracy by model, category and severity, of cells that keep their label."""
        return self._means(np.where(self.keeps_label, self._right, np.nan), self._conditions, proportion=True)

    @cached_property
    def clean_accuracy(self) -> ConditionMeans:
        """Return the clean accuracy of the very episodes behind each condition of `accuracy`."""
        known = ~np.isnan(self._lost)
        clean = np.where(known, clean_values(self.trials, self._right)[0], np.nan)
        return self._means(clean, self._conditions, proportion=True)

    @cached_property
    def relabelled_accuracy(self) -> ConditionMeans:
        """Return success accuracy by model, category and severity, of cells whose label is another, and known."""
        relabelled = self.trials.matches("expectation", "relabel")
        return self._means(np.where(relabelled, self._right, np.nan), self._conditions, proportion=True)

    @cached_property
    def loss(self) -> ConditionMeans:
        """Return the accuracy lost by model, category and severity: each cell against its own clean episode."""
        return self._means(self._lost, self._conditions)

    @cached_property
    def tau(self) -> ConditionMeans:
        """Return tau-b within the episode, between progress and true progress, by model, category and severity."""
        return self._means(METRICS[TAU].values_of(self.trials), self._conditions)

    @cached_property
    def tau_loss(self) -> ConditionMeans:
        """Return the tau-b lost, each cell against its own clean episode."""
        tau = METRICS[TAU].values_of(self.trials)
        return self._means(clean_values(self.trials, tau)[0] - tau, self._conditions)

    @cached_property
    def group_loss(self) -> ConditionMeans:
        """Return the accuracy lost by model, kind of task and category, at the severity of the paper's figure."""
        task, names = self.trials.codes("task")
        groups = [group_of(name) for name in names]
        code = np.array([GROUPS.index(group) if group else -1 for group in groups] or [-1], dtype=np.int64)[task]
        there = self.trials.number("severity") == TASK_SEVERITY
        held_out = unseen_tasks(self.fold) if self.fold is not None else ()
        known = seen_or_unseen(self.trials, tuple(name for name in PROGRESS_SPECS if name not in held_out))
        kind = known if held_out else (np.zeros(len(code), np.int64), ("all",))
        columns = self.trials.codes("model"), (np.where(there, code, -1), GROUPS), kind, self.trials.codes("category")
        return self._means(self._lost, columns)

    def groups_evenly(self, model: str, groups: Sequence[str], categories: Sequence[str] = CATEGORIES) -> Weights:
        """Return the mean over kinds of tasks and categories; tasks that were trained on and others count alike."""
        places, one = self.group_loss.places, self.trainings(model)[0]
        kinds = {group: [k for k in (*KINDS, "all") if any((one, group, k, c) in places for c in categories)]
                 for group in groups}  # fmt: skip
        return mean_of(
            *(mean_of(*(only(model, group, kind, c) for kind in kinds[group] or ("all",)))
              for group in groups for c in categories)
        )  # fmt: skip

    @cached_property
    def _right(self) -> NDArray[np.float64]:
        return METRICS[ACCURACY].values_of(self.trials)

    @cached_property
    def keeps_label(self) -> NDArray[np.bool_]:
        """Return which cells have the label of their clean episode: only there has right or wrong one measure."""
        return self.trials.matches("expectation", "same")

    @cached_property
    def _lost(self) -> NDArray[np.float64]:
        lost = clean_values(self.trials, self._right)[0] - self._right
        return np.where(self.keeps_label, lost, np.nan)

    @property
    def _conditions(self) -> Sequence[Column]:
        severity = self.trials.number("severity").astype(np.int64)
        return self.trials.codes("model"), self.trials.codes("category"), (severity, SEVERITIES)

    def _means(
        self, values: NDArray[np.float64], columns: Sequence[Column], *, proportion: bool = False
    ) -> ConditionMeans:
        return condition_means(
            values, clusters_of(self.trials), columns, self.draws, proportion=proportion, arms=self.arms
        )


def open_study(run: Run, roles: Mapping[str, Sequence[str]] | None = None, fold: int | None = None) -> MeasuredStudy:
    """Read a run; `roles` says which models play general, tuned and ensemble, else their names do.

    A role's model is its string, or its short name in the run; several are trainings of one arm. A role that the paper
    does not have is an arm beside those.

    The draws are those of the run's summary, so that every number is the one on the report page.
    """
    summary = load_summary(run)
    names, parts, arms = names_of_run(run.record, summary.models), roles_of(summary.evaluated), {}
    if roles is not None:
        meant = {role: [model_meant(text, names) for text in texts] for role, texts in roles.items()}
        found = {role: tuple(name for name in each if name is not None) for role, each in meant.items()}
        if [*found.values()] != [tuple(each) for each in meant.values()]:
            models = ", ".join(names.values())
            given = {role: ", ".join(texts) for role, texts in roles.items()}
            raise PlanError(f"roles must be given to models of the run ({models}), got {given}")
        arms = {_arm_of(role, each): each for role, each in found.items() if len(each) > 1 or role not in ROLES}
        of_arm = {each: name for name, each in arms.items()}
        parts = {role: of_arm.get(each, each[0]) for role, each in found.items() if role in ROLES}
    trials = with_clusters(with_clean_answers(run.trials()))
    clusters = int(clusters_of(trials).max(initial=-1)) + 1
    draws = draw_clusters(clusters, summary.bootstrap.draws, summary.bootstrap.seed)
    return MeasuredStudy(run.record, summary, trials, draws, parts, arms, fold, names)


def _arm_of(role: str, models: Sequence[str]) -> str:
    return f"{role}, {len(models)} trainings" if len(models) > 1 else role


def only(*names: str | int) -> Weights:
    """Return the weights of one condition alone."""
    return {names: 1.0}


def at(model: str, category: str, severity: int) -> Weights:
    """Return one condition of severity; 0 of every category is the clean episodes."""
    return only(model, category, severity) if severity else only(model, CLEAN, 0)


def over_categories(model: str, severity: int, categories: Sequence[str] = CATEGORIES) -> Weights:
    """Return the mean over categories."""
    if severity == 0:
        return at(model, CLEAN, 0)
    return mean_of(*(at(model, category, severity) for category in categories))
