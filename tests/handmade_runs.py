"""The record of a run made by hand: complete, so that only what a test is about has to be said."""

from collections.abc import Iterable
from typing import Any

from rewardlab.core.trial import Trial


def record_of(trials: Iterable[Trial], /, **changes: Any) -> dict[str, Any]:
    """Return the record of a run whose plan is that of these trials; `changes` are keys of run.json."""
    trials = list(trials)
    models = list(dict.fromkeys([*changes.get("evaluated", ()), *(trial.model for trial in trials)]))
    names = [name for name in dict.fromkeys(trial.perturbation for trial in trials) if name != "clean"]
    seed = trials[0].seed if trials else 0
    severities = sorted({trial.severity for trial in trials} - {0})
    plan = {"models": dict.fromkeys(models, "0"), "definitions": dict.fromkeys(names, "0"), "severities": severities}
    made = {
        "kind": "stress",
        "plan": plan | {"seed": seed, "accuracy_threshold": 0.7, "data_digest": "0"},
        "settings": {"data": "by hand", "perturbations": names, "frames": "uniform:16", "seed": seed, "limit": None},
        "evaluated": models[:1],
        "command": "rewardlab stress <made by hand>",
        "episodes": len({trial.episode for trial in trials}),
        "trials": len(trials),
        "skipped": [],
        "versions": {"rewardlab": "0"},
        "created": "2026-01-01T00:00:00+00:00",
    }
    return made | changes
