"""A study so small that a test can run it: the real simulator and networks, a few hundred steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewardlab.core.episode import Episode
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.rl.plan import RlPlan, plan_from_json

SETTINGS: dict[str, Any] = {
    "tasks": ["button-press"],
    "rewards": ["true"],
    "seeds": 1,
    "control": {"hold": 2, "chunk": 2, "decisions": 3},
    "demonstrations": {"episodes": 3},
    "policy": {"hidden": 16, "steps": 10, "train_denoising": 8, "denoising": 2},
    "sac": {"hidden": 8, "batch": 8, "gradient_steps": 1, "initial_episodes": 2},
    "schedule": {"episodes": 8, "simulators": 2, "evaluations": 1, "evaluated": 2, "final": 2, "clips": 0},
    "watch": {"size": 32, "frames": 2},
    "heads": {"episodes": 2, "frames": 2, "hidden": 4, "steps": 2, "batch": 2},
    "offline": {"episodes": 2, "perturbations": ["gaussian_noise"], "severities": [4]},
}


def tiny_plan(**changes: Any) -> RlPlan:
    """Return the tiny plan with some settings changed; tables are changed setting by setting."""
    return plan_from_json(_changed(changes), "a test")


def write_plan(path: Path, **changes: Any) -> Path:
    """Write the tiny plan as TOML."""
    written = _changed(changes)
    tables = {name: value for name, value in written.items() if isinstance(value, dict)}
    lines = [f"{name} = {_toml(value)}" for name, value in written.items() if name not in tables]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _changed(changes: dict[str, Any]) -> dict[str, Any]:
    tables = {name: SETTINGS[name] | value for name, value in changes.items() if isinstance(value, dict)}
    return SETTINGS | changes | tables


def _toml(value: object) -> str:
    return repr(value).replace("'", '"')


@dataclass(frozen=True)
class Abstains:
    """A reward model that says nothing of every second clip, and 5 of the others."""

    every: int = 2

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return a Failure for every second episode."""
        silent = Failure("not sure enough")
        return [silent if place % self.every else Score(5.0) for place, _ in enumerate(episodes)]


@dataclass(frozen=True)
class NeverAnswers:
    """A reward model that never says anything."""

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return a Failure for every episode."""
        return [Failure("never sure enough") for _ in episodes]
