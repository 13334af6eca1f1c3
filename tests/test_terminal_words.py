"""What a person meets on the command line: lists, options, mistakes in one sentence, completion."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rewardlab.cli import COMMANDS, main
from rewardlab.models import MODELS
from rewardlab.models.contract import options_of
from rewardlab.perturbations import BY_NAME, FAMILIES, PERTURBATIONS
from rewardlab.reporting.catalog import catalogs
from tests.command_here import run_here
from tests.terminal import in_terminal


def on_a_terminal(*arguments: str) -> tuple[int, str]:
    """Run the command on a pseudo-terminal of eighty columns; return its exit code and what was shown."""
    environment = os.environ | {"COLUMNS": "80", "TERM": "dumb"}
    code, shown = in_terminal([sys.executable, "-m", "rewardlab", *arguments], environment)
    return code, shown.decode().replace("\r\n", "\n")


MISTAKES: list[tuple[list[str], str]] = [
    (["strss", "length", "sample"], "no command is called 'strss'; did you mean stress?"),
    (["stress"], "MODELS and DATA must be given: rewardlab stress MODELS... DATA [options]; `rewardlab stress --help`"),
    (["stress", "length"], "DATA must be given"),
    (["stress", "length", "sample", "--pertubations", "none"], "takes no '--pertubations'; did you mean --perturb"),
    (["stress", "length", "sample", "--sed=3"], "takes no '--sed'; did you mean --seed or --shard or --stages?"),
    (["stress", "length", "sample", "--seed", "soon"], "--seed: expected a whole number, got 'soon'"),
    (["stress", "length", "sample", "--timeout", "nan"], "--timeout: expected a number, got 'nan'"),
    (["stress", "length", "sample", "--severities", "1,high"], "--severities: expected a whole number, got 'high'"),
    (["stress", "length", "sample", "--seed"], "--seed needs a value"),
    (["show", "length", "random"], "rewardlab show takes no 'random'"),
    (["stress", "sample", "pocket"], "sample is a dataset and pocket is a model; name the models first"),
    (["attack", "sample-sim", "hf:some/where"], "sample-sim is a dataset and hf:some/where is a model; name"),
    (["score", "x" * 4_000, "a.mp4", "lift"], "no model is called '" + "x" * 200 + "'...; known"),
    (["score", "x" * 100_000, "a.mp4", "lift"], "a model string has at most 4,096 characters, got 100,000: 'xxx"),
    (["show", "length", ""], "rewardlab show takes no ''"),
    (["show", "length", "  "], "rewardlab show takes no ''"),
    (["stress", "length", "smple"], "no dataset at 'smple'; did you mean sample"),
    (["list", "modls"], "no catalog is called 'modls'; did you mean models"),
    (["list", "--category", "visul"], "no category is called 'visul'; did you mean visual?"),
    (["list", "models", "--category", "visual"], "only perturbations have a category"),
    (["list", "--search", "no such thing"], "nothing has 'no such thing' in its name"),
    (["completion", "fsh"], "SHELL: expected one of bash, zsh, fish, got 'fsh'; did you mean fish"),
]


@pytest.mark.parametrize(("words", "expected"), MISTAKES)
def test_a_mistake_is_one_sentence_in_our_words(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) in (2, 4)  # a dataset that is not there may count as bad data
    _check_sentence(capsys.readouterr().err, expected)


@pytest.mark.parametrize("place", [0, 1, 3])
def test_it_is_so_on_a_terminal(place: int) -> None:
    words, expected = MISTAKES[place]
    code, shown = on_a_terminal(*words)
    assert code == 2
    _check_sentence(shown, expected)


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert shown == capsys.readouterr().out


def _check_sentence(shown: str, expected: str) -> None:
    assert expected in shown
    assert shown.startswith("rewardlab: ") and shown.count("\n") == 1 and "usage" not in shown


def test_list_alone_shows_the_catalogs_with_their_sizes() -> None:
    code, shown = on_a_terminal("list")
    assert code == 0 and max(map(len, shown.splitlines())) <= 80
    rows = {line.split()[0]: line.split()[1] for line in shown.splitlines()}
    assert all(rows[name] == str(len(entries)) for name, entries in catalogs().items())


def test_list_keeps_to_a_category_and_to_what_is_searched() -> None:
    shown = run_here("list", "--category", "temporal").stdout
    names = {line.split()[0] for line in shown.splitlines()[1:] if line[1] != " "}
    assert names == {entry.name for entry in (*FAMILIES["temporal"], *BY_NAME)}
    some = run_here("list", "perturbations", "--search", "FOCUS").stdout
    assert "defocus_blur" in some and "motion_blur" not in some
    everywhere = run_here("list", "--search", "oracle").stdout
    assert "noisy-oracle" in everywhere and "models" in everywhere


@pytest.mark.parametrize("name", [name for name, entry in MODELS.items() if entry.options])
def test_show_tells_every_option_with_its_default_and_meaning_in_eighty_columns(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", name]) == 0
    shown = capsys.readouterr().out
    lines = {line.split()[0]: line for line in shown.splitlines()[1:] if line.startswith("  ") and line[2] != " "}
    for options in MODELS[name].options:
        for option, stated in options_of(options).items():
            assert lines[option].split()[1:], option
            assert stated.help.split()[0] in lines[option]
    assert max(map(len, shown.splitlines()[1:])) <= 80
    assert name not in ("openai",) or "concurrency   32 " in shown


BASH = shutil.which("bash")


def completed(script: str, *words: str) -> list[str]:
    """Return what bash completes the last of these words to."""
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _rewardlab; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    assert BASH is not None
    done = subprocess.run([BASH, "--norc", "-c", script + ask], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_bash_completes_commands_flags_models_datasets_and_perturbations() -> None:
    script = run_here("completion", "bash").stdout
    assert completed(script, "rewardlab", "str") == ["stress"]
    assert {name.split()[0] for name in COMMANDS} <= set(completed(script, "rewardlab", ""))
    for first, _, second in (name.partition(" ") for name in COMMANDS if " " in name):
        assert second in completed(script, "rewardlab", first, "")
    assert completed(script, "rewardlab", "runs", "prune", "--w") == ["--where"]
    assert {"sample", "sample-sim"} <= set(completed(script, "rewardlab", "data", "perturb", "sam"))
    assert completed(script, "rewardlab", "stress", "leng") == ["length"]
    assert {"sample", "sample-sim"} <= set(completed(script, "rewardlab", "stress", "length", "sam"))
    assert completed(script, "rewardlab", "stress", "length", "sample", "--sev") == ["--severities"]
    one = completed(script, "rewardlab", "stress", "length", "sample", "--perturbations", "defoc")
    assert one == ["defocus_blur"]
    two = completed(script, "rewardlab", "stress", "length", "sample", "--perturbations", "jpeg,defoc")
    assert two == ["jpeg,defocus_blur"]
    assert completed(script, "rewardlab", "list", "metr") == ["metrics"]
    assert completed(script, "rewardlab", "completion", "z") == ["zsh"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_take_their_script(shell: str, tmp_path: Path) -> None:
    script = run_here("completion", shell).stdout
    words = {word for name in COMMANDS for word in name.split()}
    assert all(name in script for name in (*words, *PERTURBATIONS, "sample-sim", "severities"))
    found = shutil.which(shell)
    if found is not None:
        (tmp_path / "script").write_text(script)
        assert subprocess.run([found, "-n", str(tmp_path / "script")], check=False).returncode == 0


def test_the_readme_names_only_commands_that_exist() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| you want to |")[2].partition("\n\n")[0]
    named = re.findall(r"`([a-z]+)(?: ([\w-]+(?: / [\w-]+)*))?`", table)
    found = {f"{first} {part}".strip() for first, parts in named for part in parts.split(" / ")}
    assert len(found) > 20 and found - set(COMMANDS) == set()
