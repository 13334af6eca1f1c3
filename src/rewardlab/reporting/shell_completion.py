"""Shell completion: a script for bash, zsh or fish that knows commands, flags, models, datasets and perturbations."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rewardlab.core.catalog_lookup import find
from rewardlab.core.command_settings import flag_of, flat_fields, setting
from rewardlab.reporting.catalog_tables import CATALOGS

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
