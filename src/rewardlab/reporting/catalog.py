"""Commands `list`, `show`, `completion`: the catalogs as tables and for shells."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from rewardlab.core.catalog import find
from rewardlab.core.errors import PlanError
from rewardlab.core.old_settings import flag_of, flat_fields, setting, setting_text
from rewardlab.core.terminal import safe_markup
from rewardlab.data import DATASETS, READERS
from rewardlab.data.convert import WRITERS
from rewardlab.metrics import METRICS
from rewardlab.models import MODELS
from rewardlab.models.contract import ModelEntry
from rewardlab.models.external import options_of
from rewardlab.perturbations import FAMILIES, PERTURBATIONS, choose_perturbations
from rewardlab.perturbations.contract import Perturbation

CATALOGS: dict[str, Mapping[str, object]] = {
    "perturbations": PERTURBATIONS,
    "models": MODELS,
    "metrics": METRICS,
    "datasets": DATASETS,
    "writers": WRITERS,  # before the readers, some of which have the same names: `show` tells of those
    "readers": READERS,
}


_PROTOCOLS = ("rubric", "gvl", "topreward")  # whose options are joined by those of a backend
_ABOUT = {
    "perturbations": "changes that a reward model is stressed with",
    "models": "reward models, controls, and what asks a vision-language model",
    "metrics": "what is measured",
    "datasets": "episodes shipped with the package",
    "writers": "layouts that `rewardlab data convert` writes",
    "readers": "formats that a folder of your own may have",
}


@dataclass(frozen=True)
class ListPlan:
    """List a catalog, perturbations, models, metrics, datasets, writers or readers, or the catalogs themselves."""

    catalog: str = setting("perturbations, models, metrics, datasets, writers or readers", "", positional=True)
    category: str | None = setting("only perturbations of this category", None)
    search: str | None = setting("only entries with this text in their name or description", None)

    def __post_init__(self) -> None:
        if self.catalog:
            find(CATALOGS, self.catalog, "catalog")
        if self.category is not None:
            find(FAMILIES, self.category, "category")
        if self.category is not None and self.catalog not in ("", "perturbations"):
            raise PlanError(f"only perturbations have a category: rewardlab list --category {self.category}")


@dataclass(frozen=True)
class ShowPlan:
    """Show everything known about one entry of a catalog."""

    name: str = setting("the name of a perturbation, model, metric, dataset or reader", positional=True)


def listing(plan: ListPlan) -> Table:
    """Return what was asked for as a table: the catalogs with their sizes, or the entries of one, or those found."""
    if not plan.catalog and plan.category is None and plan.search is None:
        return _catalogs()
    if plan.catalog == "perturbations" or plan.category is not None:
        return _perturbations(plan.category, plan.search or "")
    chosen = {plan.catalog: CATALOGS[plan.catalog]} if plan.catalog else CATALOGS
    table = Table("name", "what it is", *([] if plan.catalog else ["catalog"]), box=None)
    for catalog, entries in chosen.items():
        for key, entry in entries.items():
            if _found(plan.search or "", key, _summary(entry)):
                row = (key, _summary(entry)) if plan.catalog else (key, _summary(entry), catalog)
                table.add_row(*map(safe_markup, row))
    return _or_error(table, plan.search)


def _catalogs() -> Table:
    table = Table("rewardlab list ...", "entries", "what it holds", box=None)
    for name, entries in CATALOGS.items():
        table.add_row(name, str(len(entries)), _ABOUT[name])
    return table


def _or_error(table: Table, search: str | None) -> Table:
    if not table.row_count:
        raise PlanError(f"nothing has {search!r} in its name or description; `rewardlab list` shows the catalogs")
    return table


def _found(search: str, *texts: str) -> bool:
    return any(search.lower() in text.lower() for text in texts)


def describe(name: str) -> str:
    """Return all facts of a catalog entry as lines of text."""
    everything = {key: entry for catalog in CATALOGS.values() for key, entry in catalog.items()}
    made = name not in everything and ("+" in name or ":" in name)
    entry = choose_perturbations((name,))[0] if made else find(everything, name, "entry of a catalog")
    if isinstance(entry, ModelEntry):
        return "\n".join([f"{name}: {entry.summary}", *_option_lines(entry.options, rest=name in _PROTOCOLS)])
    if not isinstance(entry, Perturbation):
        return f"{name}: {_summary(entry)}"
    facts = [f"{entry.name}: {entry.summary}"]
    facts += [f"  category     {entry.category}", f"  changes      {entry.channel} ({entry.stage})"]
    facts += [f"  expectation  {entry.expect}", f"  label        {entry.label}", f"  randomness   {entry.randomness}"]
    facts += [f"  based on     {entry.based_on}", f"  {entry.parameter}:"]
    facts += [f"    severity {severity}  {value}" for severity, value in enumerate(entry.table, start=1)]
    return "\n".join(facts)


def _option_lines(makers: Sequence[Callable[..., object]], *, rest: bool) -> Iterator[str]:
    """Yield the options of a model: name, default and meaning, for a terminal of eighty columns."""
    options = {name: option for maker in reversed(makers) for name, option in options_of(maker).items()}
    for name, option in options.items():
        head = f"  {name:<13} {setting_text(option.default):<15} "
        meaning = textwrap.wrap(option.help, 80 - len(head))
        yield head + meaning[0]
        yield from (" " * len(head) + line for line in meaning[1:])
    if rest:
        yield "  and those of the backend: `rewardlab show openai`, `rewardlab show hf`"


def _perturbations(category: str | None, search: str) -> Table:
    table = Table("name", "category", "expect", "what happens", box=None)
    for entry in PERTURBATIONS.values():
        cells = (entry.name, entry.category, entry.expect, entry.summary)
        if category in (None, entry.category) and _found(search, *cells):
            table.add_row(*map(safe_markup, cells))
    return _or_error(table, search)


def _summary(entry: object) -> str:
    if isinstance(entry, Path):
        rows = len((entry / "metadata.jsonl").read_text(encoding="utf-8").splitlines())
        return f"{rows} episodes shipped with the package"
    return str(vars(entry)["summary"])


# Shell completion: a script for bash, zsh or fish that knows commands, flags, models, datasets and perturbations.

SHELLS = ("bash", "zsh", "fish")

_BASH = """_rewardlab() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" words="" head=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "@COMMANDS@ --help --version" -- "$cur"))
    return
  fi
  if [ "$prev" = "--perturbations" ]; then
    case "$cur" in *,*) head="${cur%,*},"; cur="${cur##*,}";; esac
    COMPREPLY=($(compgen -P "$head" -W "@PERTURBATIONS@" -- "$cur"))
    return
  fi
  case "${COMP_WORDS[1]}" in
@CASES@
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _rewardlab rewardlab
"""
_ZSH = "#compdef rewardlab\nautoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


@dataclass(frozen=True)
class CompletionPlan:
    """Print a script for a shell that completes commands, flags, models, datasets and perturbations."""

    shell: str = setting('bash, zsh or fish; try: eval "$(rewardlab completion bash)"', positional=True)

    def __post_init__(self) -> None:
        find(dict.fromkeys(SHELLS), self.shell, "shell")


def completion_script(shell: str, plans: Mapping[str, Any]) -> str:
    """Return the script for a shell, made from the settings of every command and from the catalogs."""
    return _fish(plans) if shell == "fish" else _ZSH * (shell == "zsh") + _bash(plans)


def _bash(plans: Mapping[str, Any]) -> str:
    words = {name: " ".join([*_names(plan), *_flags(plan)]) for name, plan in plans.items()}
    cases = "\n".join(f"    {name}) words='{text}';;" for name, text in words.items())
    script = _BASH.replace("@COMMANDS@", " ".join(plans)).replace("@CASES@", cases)
    return script.replace("@PERTURBATIONS@", " ".join(CATALOGS["perturbations"]))


def _fish(plans: Mapping[str, Any]) -> str:
    lines = [f"complete -c rewardlab -n __fish_use_subcommand -f -a '{' '.join(plans)}'"]
    for name, plan in plans.items():
        inside = f"complete -c rewardlab -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{inside} -l {flag.removeprefix('--')}" for flag in _flags(plan)]
        names = " ".join(_names(plan))
        lines += [f"{inside} -a '{names}'"] if names else []
        if "--perturbations" in _flags(plan):
            lines.append(f"{inside} -l perturbations -x -a '{' '.join(CATALOGS['perturbations'])}'")
    return "\n".join(lines) + "\n"


def _flags(plan_type: Any) -> list[str]:
    return [flag_of(entry) for entry, _ in flat_fields(plan_type) if not entry.metadata["positional"]]


def _names(plan_type: Any) -> Iterator[str]:
    """Yield what may stand in the places of a command that are no flags; files the shell itself completes."""
    everything = [name for catalog in CATALOGS.values() for name in catalog]
    known: dict[str, Any] = {
        "models": CATALOGS["models"],
        "model": CATALOGS["models"],
        "data": CATALOGS["datasets"],
        "catalog": CATALOGS,
        "name": everything,
        "shell": SHELLS,
    }
    for entry, _ in flat_fields(plan_type):
        if entry.metadata["positional"]:
            yield from known.get(entry.name, ())
