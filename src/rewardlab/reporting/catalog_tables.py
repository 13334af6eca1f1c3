"""The catalogs as people read them: a table of each, and all facts of one entry."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from rewardlab.core.catalog_lookup import find
from rewardlab.core.command_settings import setting
from rewardlab.core.terminal_console import safe_markup
from rewardlab.data import DATASETS, READERS
from rewardlab.metrics import METRICS
from rewardlab.models import MODELS
from rewardlab.perturbations import PERTURBATIONS, choose_perturbations
from rewardlab.perturbations.contract import Perturbation

CATALOGS: dict[str, Mapping[str, object]] = {
    "perturbations": PERTURBATIONS,
    "models": MODELS,
    "metrics": METRICS,
    "datasets": DATASETS,
    "readers": READERS,
}


@dataclass(frozen=True)
class ListPlan:
    """List a catalog: perturbations, models, metrics, datasets or readers."""

    catalog: str = setting("perturbations, models, metrics, datasets or readers", positional=True)


@dataclass(frozen=True)
class ShowPlan:
    """Show everything known about one entry of a catalog."""

    name: str = setting("the name of a perturbation, model, metric, dataset or reader", positional=True)


def catalog_table(name: str) -> Table:
    """Return a catalog as a table for the terminal."""
    find(CATALOGS, name, "catalog")
    if name == "perturbations":
        return _perturbations()
    table = Table("name", "what it is", box=None)
    for key, entry in CATALOGS[name].items():
        table.add_row(safe_markup(key), safe_markup(_summary(entry)))
    return table


def describe(name: str) -> str:
    """Return all facts of a catalog entry as lines of text."""
    everything = {key: entry for catalog in CATALOGS.values() for key, entry in catalog.items()}
    made = name not in everything and ("+" in name or ":" in name)
    entry = choose_perturbations((name,))[0] if made else find(everything, name, "entry of a catalog")
    if not isinstance(entry, Perturbation):
        return f"{name}: {_summary(entry)}"
    facts = [f"{entry.name}: {entry.summary}"]
    facts += [f"  category     {entry.category}", f"  changes      {entry.channel} ({entry.stage})"]
    facts += [f"  expectation  {entry.expect}", f"  label        {entry.label}", f"  randomness   {entry.randomness}"]
    facts += [f"  based on     {entry.based_on}", f"  {entry.parameter}:"]
    facts += [f"    severity {severity}  {value}" for severity, value in enumerate(entry.table, start=1)]
    return "\n".join(facts)


def _perturbations() -> Table:
    table = Table("name", "category", "expect", "label", "what happens", "based on", box=None)
    for entry in PERTURBATIONS.values():
        cells = (entry.name, entry.category, entry.expect, entry.label, entry.summary, entry.based_on)
        table.add_row(*map(safe_markup, cells))
    return table


def _summary(entry: object) -> str:
    if isinstance(entry, Path):
        rows = len((entry / "metadata.jsonl").read_text(encoding="utf-8").splitlines())
        return f"{rows} episodes shipped with the package"
    return str(vars(entry)["summary"])
