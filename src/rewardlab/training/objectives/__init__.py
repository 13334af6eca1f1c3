"""The catalog of learning objectives. Adding one is one function in a family file and its line in `OBJECTIVES`.

Code outside the package is named as `package.module:name`; it needs torch (extra `train`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from rewardlab.core.catalog_lookup import find, load_object
from rewardlab.core.errors import PlanError
from rewardlab.models.constructor_arguments import Argument, read_arguments
from rewardlab.models.model_string import Pairs, parse_model_string
from rewardlab.training.objectives.contract import LEVEL, PROGRESS, SUCCESS, Loss, Objective
from rewardlab.training.objectives.contrastive import infonce, triplet, vlc
from rewardlab.training.objectives.regression import bradley_terry, classification, ordinal, progress_bins, rewind
from rewardlab.training.objectives.temporal import liv, r3m, tcn, vip

OBJECTIVES: dict[str, Objective] = {
    entry.name: entry
    for entry in (
        Objective(triplet, SUCCESS, "margin", (0.2, 0.5), "Schroff et al. 2015"),
        Objective(tcn, SUCCESS, "alignment", (0.0, 1.0), "Sermanet et al. 2018, as in R3M's code"),
        Objective(vip, SUCCESS, "goal", ("image", "text"), "Ma et al. 2023a"),
        Objective(liv, SUCCESS, "language", (0.0, 1.0), "Ma et al. 2023b"),
        Objective(r3m, SUCCESS, "temperature", (0.1, 1.0), "Nair et al. 2022"),
        Objective(vlc, SUCCESS, "temperature", (0.07, 0.01), "Alakuijala et al. 2024"),
        Objective(infonce, SUCCESS, "temperature", (0.07, 0.2), "van den Oord et al. 2018; Radford et al. 2021"),
        Objective(rewind, SUCCESS, "probability", (0.8, 0.4), "Zhang et al. 2025"),
        Objective(progress_bins, PROGRESS, "width", (0.1, 0.05)),
        Objective(bradley_terry, PROGRESS, "temperature", (0.1, 0.05), "Christiano et al. 2017; Wang et al. 2024"),
        Objective(classification, LEVEL, "width", (0.2, 0.1), "RoboReward's five levels"),
        Objective(ordinal, LEVEL, "temperature", (0.1, 0.05), "McCullagh 1980"),
    )
}


@dataclass(frozen=True)
class NamedObjective:
    """An objective as it was asked for: the text, the entry, its options, and a hash of code outside the package."""

    text: str
    entry: Objective
    options: Mapping[str, Argument]
    code: str = ""

    @property
    def loss(self) -> Loss:
        """Return the loss with its options, a function of a batch alone."""
        return partial(self.entry.loss, **self.options)

    def tuned(self, value: Argument) -> "NamedObjective":
        """Return the objective with this value of the option that is tuned, unless the text states one."""
        return replace(self, options={self.entry.option: value, **self.options})


def name_objective(text: str) -> NamedObjective:
    """Return the objective that `NAME?option=value` or `package.module:name?option=value` means."""
    string = parse_model_string(text)
    if not string.argument:
        return _named(text, find(OBJECTIVES, string.name, "objective"), string.options)
    found, code = load_object(f"{string.name}:{string.argument}")
    if not isinstance(found, Objective) and not callable(found):
        raise PlanError(f"{text} must be a function of a batch of clips that returns a loss, got {found!r}")
    return _named(text, found if isinstance(found, Objective) else Objective(found), string.options, code)


def _named(text: str, entry: Objective, pairs: Pairs, code: str = "") -> NamedObjective:
    return NamedObjective(text, entry, read_arguments(text, partial(entry.loss, None), pairs), code)
