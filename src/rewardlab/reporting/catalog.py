"""Commands `list`, `show`, `completion`: the catalogs as tables and for shells."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rewardlab.core.catalog import find
from rewardlab.core.errors import PlanError
from rewardlab.core.settings import Help, Setting, setting_text
from rewardlab.core.terminal import safe_markup
from rewardlab.data import DATASETS, READERS
from rewardlab.data.convert import WRITERS
from rewardlab.data.sources import SOURCES, Source
from rewardlab.metrics import METRICS
from rewardlab.models import MODELS
from rewardlab.models.contract import ModelEntry, options_of

if TYPE_CHECKING:
    from rich.table import Table

_ABOUT = {
    "perturbations": "changes for stress tests",
    "models": "reward models, baselines, and protocols for vision-language models",
    "metrics": "what is measured",
    "datasets": "episodes shipped with the package",
    "sources": "published datasets of robot videos: embodiment, perspective, counts, licence",
    "writers": "layouts that `rewardlab data convert` writes",
    "readers": "formats that a folder of your own may have",
}


def catalogs() -> dict[str, Mapping[str, object]]:
    """Return every catalog by its name."""
    from rewardlab.perturbations import PERTURBATIONS

    return {
        "perturbations": PERTURBATIONS,
        "models": MODELS,
        "metrics": METRICS,
        "datasets": DATASETS,
        "sources": SOURCES,
        "writers": WRITERS,  # before the readers: where names are equal, `show` explains the reader
        "readers": READERS,
    }


def list_catalog(
    catalog: Annotated[str, Help("perturbations, models, metrics, datasets, sources, writers or readers")] = "",
    *,
    category: Annotated[str | None, Help("only perturbations of this category", metavar="NAME")] = None,
    search: Annotated[str | None, Help("only entries with this text in their name or description")] = None,
) -> "Table":
    """List the entries of a catalog, or the catalogs themselves.

    Examples:
        rewardlab list perturbations --category temporal
        rewardlab list --search blur
    """
    from rich.table import Table

    from rewardlab.perturbations import FAMILIES, PERTURBATIONS

    if catalog:
        find(catalogs(), catalog, "catalog")
    if category is not None:
        find(FAMILIES, category, "category")
    if category is not None and catalog not in ("", "perturbations"):
        raise PlanError(f"only perturbations have a category: rewardlab list --category {category}")
    if not catalog and category is None and search is None:
        table = Table("rewardlab list ...", "entries", "what it holds", box=None)
        for name, entries in catalogs().items():
            table.add_row(name, str(len(entries)), _ABOUT[name])
        return table
    if catalog == "perturbations" or category is not None:
        table = Table("name", "category", "expect", "what happens", box=None)
        kept = (entry for entry in PERTURBATIONS.values() if category in (None, entry.category))
        rows = [(entry.name, entry.category, entry.expect, entry.summary) for entry in kept]
        searched = 4
    else:
        chosen = {catalog: catalogs()[catalog]} if catalog else catalogs()
        table = Table("name", "what it is", *([] if catalog else ["catalog"]), box=None)
        named = [(of, key, entry) for of, entries in chosen.items() for key, entry in entries.items()]
        rows = [(key, _summary(entry), *(() if catalog else (of,))) for of, key, entry in named]
        searched = 2
    for row in rows:
        if any((search or "").lower() in text.lower() for text in row[:searched]):
            table.add_row(*map(safe_markup, row))
    if not table.row_count:
        raise PlanError(f"nothing has {search!r} in its name or description; `rewardlab list` shows the catalogs")
    return table


def show_entry(
    name: Annotated[str, Help("name of a perturbation, model, metric, dataset, source, writer or reader")],
) -> str:
    """Explain one entry of a catalog: what it does and its options or severities.

    Examples:
        rewardlab show gaussian_noise
        rewardlab show openai
    """
    from rewardlab.perturbations import choose_perturbations
    from rewardlab.perturbations.contract import Perturbation

    known = (*catalogs().values(), MODELS)  # a model has options to explain, a writer of the same name none
    everything = {key: entry for catalog in known for key, entry in catalog.items()}
    made = name not in everything and ("+" in name or ":" in name)
    entry = choose_perturbations((name,))[0] if made else find(everything, name, "entry of a catalog")
    if isinstance(entry, ModelEntry):
        return "\n".join([f"{name}: {entry.summary}", *_option_lines(entry.options, rest=entry.over == "backend")])
    if isinstance(entry, Source):
        return "\n".join([f"{name}: {entry.summary}", *_source_lines(entry)])
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


def _source_lines(source: Source) -> Iterator[str]:
    """Yield names and keys of a source, and the places that state its facts."""
    facts = {
        "also called": ", ".join(source.aliases),
        "camera": ", ".join(source.cameras),
        "instruction": ", ".join(source.instructions),
        "facts from": source.facts_from,
        "keys from": source.keys_from,
        "licence from": source.license_from,
    }
    yield from (f"  {what:<13} {text}" for what, text in facts.items() if text)


def _summary(entry: object) -> str:
    if isinstance(entry, Path):
        rows = len((entry / "metadata.jsonl").read_text(encoding="utf-8").splitlines())
        return f"{rows} episodes shipped with the package"
    return entry.summary if isinstance(entry, Source) else str(vars(entry)["summary"])


_BASH = """_rewardlab() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" words="" head="" command=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "@FIRST@ --help --version" -- "$cur"))
    return
  fi
  if [ "$prev" = "--perturbations" ]; then
    case "$cur" in *,*) head="${cur%,*},"; cur="${cur##*,}";; esac
    COMPREPLY=($(compgen -P "$head" -W "@PERTURBATIONS@" -- "$cur"))
    return
  fi
  command="${COMP_WORDS[1]}"
  case "$command" in
@FAMILIES@
  esac
  case "$command" in
@COMMANDS@
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _rewardlab rewardlab
"""
_BASH_FAMILY = """    @FIRST@)
      if [ "$COMP_CWORD" -eq 2 ]; then
        COMPREPLY=($(compgen -W "@SECOND@ --help" -- "$cur"))
        return
      fi
      command="@FIRST@ ${COMP_WORDS[2]}";;"""
_ZSH = "#compdef rewardlab\nautoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"], Help('bash, zsh or fish; try: eval "$(rewardlab completion bash)"')
    ],
    commands: Mapping[str, Sequence[Setting]],
) -> str:
    """Print a script that makes a shell complete commands, flags, models, datasets and perturbations.

    Examples:
        eval "$(rewardlab completion bash)"
        rewardlab completion fish > ~/.config/fish/completions/rewardlab.fish
    """
    find(dict.fromkeys(("bash", "zsh", "fish")), shell, "shell")
    return _fish(commands) if shell == "fish" else _ZSH * (shell == "zsh") + _bash(commands)


def _families(commands: Iterable[str]) -> dict[str, list[str]]:
    """Return the first words of the commands, each with the second words that may follow."""
    found: dict[str, list[str]] = {}
    for first, _, second in (name.partition(" ") for name in commands):
        found.setdefault(first, []).extend([second] if second else [])
    return found


def _bash(commands: Mapping[str, Sequence[Setting]]) -> str:
    families = _families(commands)
    pairs = {first: " ".join(second) for first, second in families.items() if second}
    blocks = (_BASH_FAMILY.replace("@FIRST@", first).replace("@SECOND@", second) for first, second in pairs.items())
    words = {name: " ".join([*_names(settings), *_flags(settings)]) for name, settings in commands.items()}
    cases = "\n".join(f"    '{name}') words='{text}';;" for name, text in words.items())
    script = _BASH.replace("@FIRST@", " ".join(families)).replace("@FAMILIES@", "\n".join(blocks))
    return script.replace("@COMMANDS@", cases).replace("@PERTURBATIONS@", " ".join(catalogs()["perturbations"]))


def _fish(commands: Mapping[str, Sequence[Setting]]) -> str:
    families = _families(commands)
    lines = [f"complete -c rewardlab -n __fish_use_subcommand -f -a '{' '.join(families)}'"]
    for first, second in families.items():
        if second:
            chosen = f"__fish_seen_subcommand_from {first}; and not __fish_seen_subcommand_from {' '.join(second)}"
            lines.append(f"complete -c rewardlab -n '{chosen}' -f -a '{' '.join(second)}'")
    for name, settings in commands.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        inside = f"complete -c rewardlab -n '{seen}'"
        lines += [f"{inside} -l {flag.removeprefix('--')}" for flag in _flags(settings)]
        names = " ".join(_names(settings))
        lines += [f"{inside} -a '{names}'"] if names else []
        if "--perturbations" in _flags(settings):
            lines.append(f"{inside} -l perturbations -x -a '{' '.join(catalogs()['perturbations'])}'")
    return "\n".join(lines) + "\n"


def _flags(settings: Sequence[Setting]) -> list[str]:
    return [setting.flag for setting in settings if not setting.positional]


def _names(settings: Sequence[Setting]) -> Iterator[str]:
    """Yield what may stand in the places of a command that are no flags; files the shell itself completes."""
    known: dict[str, Iterable[str]] = {
        "models": catalogs()["models"],
        "model": catalogs()["models"],
        "data": catalogs()["datasets"],
        "catalog": catalogs(),
        "name": [name for catalog in catalogs().values() for name in catalog],
    }
    for setting in settings:
        if setting.positional:
            yield from setting.choices or known.get(setting.name, ())
