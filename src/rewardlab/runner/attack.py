"""`rewardlab attack`: for each episode, a search for the smallest change that turns a right verdict into a wrong one.

It is scored as a stress test is, cell by cell into a run folder. What is asked next is a function of the answers so
far, so that a stopped attack goes through its stored answers again and goes on where it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from rewardlab.analysis.attack_result import ATTACK, AttackResult, attack_result, save_attack
from rewardlab.core.command_settings import as_command, setting
from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run, locked
from rewardlab.core.trial import SEVERITIES, Trial
from rewardlab.models.contract import NamedModel
from rewardlab.perturbations.contract import Perturbation
from rewardlab.perturbations.graded_severity import severity_ladder
from rewardlab.perturbations.rerendered_world import WORLD_PERTURBATIONS
from rewardlab.runner.attack_jobs import AttackJobs, Strategy
from rewardlab.runner.attack_search import Target, most_cells
from rewardlab.runner.cell_scoring import ScoringContext
from rewardlab.runner.scoring_settings import FRAMES_HELP, ScoringSettings
from rewardlab.runner.stress import RunOrigin, StressPlan, keep_names, open_plan, score_jobs, start_scoring

__all__ = ["ATTACK", "AttackPlan", "AttackRun", "run_attack"]
_BOTH = "both"


@dataclass(frozen=True)
class AttackPlan:
    """Search each episode for the smallest change that turns a right verdict into a wrong one."""

    model: str = setting("the model to attack", positional=True)
    data: str = setting("dataset folder or a shipped name such as sample-sim", positional=True)
    perturbations: tuple[str, ...] = setting("what to attack with: names, categories, quick or all", ("all",))
    budget: int = setting("queries per episode and strategy, beside the clean one", 60)
    strategy: str = setting("search, random (the baseline: random changes at random severities) or both", "search")
    frames: str = setting(FRAMES_HELP, "uniform:16")
    scoring: ScoringSettings = ScoringSettings()

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise PlanError(f"budget must be at least 1 query per episode, got {self.budget}")
        if self.strategy not in (*get_args(Strategy), _BOTH):
            raise PlanError(f"strategy must be search, random or both, got {self.strategy!r}")

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """Return the strategies to follow."""
        return tuple(name for name in get_args(Strategy) if self.strategy in (name, _BOTH))

    def stress_plan(self) -> StressPlan:
        """Return the stress test whose models, data and perturbations the attack uses."""
        scoring, severities = self.scoring, SEVERITIES[1:]
        return StressPlan(
            (self.model,), self.data, self.perturbations, severities, self.frames, controls=False, scoring=scoring
        )


@dataclass(frozen=True)
class AttackRun:
    """An attack: what was found, and the run that holds every answer."""

    run: Run
    result: AttackResult


def run_attack(plan: AttackPlan, own: Sequence[NamedModel] = ()) -> AttackRun:
    """Ask what the strategies want to know until they are done, and write down what broke."""
    stress_plan = plan.stress_plan()
    contents, context = open_plan(stress_plan, own)
    targets = attack_targets(context)
    cells = 1 + len(plan.strategies) * most_cells(len(targets), plan.budget)
    identity = {"budget": plan.budget, "strategy": plan.strategy}
    origin = RunOrigin("attack", as_command("attack", plan), identity, cells)
    run = start_scoring(stress_plan, context, contents, origin)
    with locked(run):
        keep_names(run, dict(zip(context.judged, plan.scoring.name)))
        known = _known_trials(run, retry=plan.scoring.retry_failures)
        jobs = AttackJobs(context, targets, plan.strategies, plan.budget, known)
        expected = len(contents.episodes) * (1 + len(plan.strategies) * plan.budget)
        score_jobs(run, jobs, context, plan.scoring, (len(known), expected), jobs.take)
        run.compact()
        result = attack_result(run, jobs.attacks(), jobs.wrong_when_clean(), plan.budget)
        save_attack(run, result)
    return AttackRun(run, result)


def attack_targets(context: ScoringContext) -> list[Target]:
    """Return what the model is attacked with: every change after which the truth is known."""
    known = [p for p in context.perturbations.values() if p.label != "unknown" and p.expect != "lower"]
    if not known:
        raise PlanError("after none of these perturbations is the truth known; choose others with --perturbations")
    return [_target(perturbation) for perturbation in known]


def _target(perturbation: Perturbation) -> Target:
    redraws = perturbation in WORLD_PERTURBATIONS
    return Target(perturbation.name, perturbation.category, severity_ladder(perturbation), redraws)


def _known_trials(run: Run, *, retry: bool) -> dict[str, Trial]:
    return {trial.id: trial for trial in run.trials().rows() if not (retry and trial.status == "failed")}
