"""What is installed: every requirement has a held version, and the extra `all` is all of them."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rewardlab import core

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
HELD = sorted((ROOT / "constraints").glob("py*.txt"))


def requirements() -> list[Requirement]:
    groups = [each for group in PROJECT["dependency-groups"].values() for each in group if isinstance(each, str)]
    lists = [PROJECT["project"]["dependencies"], *EXTRAS.values(), groups]
    return [Requirement(text) for texts in lists for text in texts if not text.startswith("rewardlab[")]


def extras_of(name: str) -> set[str]:
    """Return an extra and those that it includes."""
    named = [Requirement(text) for text in EXTRAS[name] if text.startswith("rewardlab[")]
    return {name}.union(*(extras_of(each) for requirement in named for each in requirement.extras))


@pytest.mark.parametrize("file", HELD, ids=lambda file: file.stem)
def test_every_requirement_has_a_held_version_that_it_allows(file: Path) -> None:
    held = dict(line.split("==") for line in file.read_text(encoding="utf-8").splitlines())
    python = re.sub(r"py3(\d+)", r"3.\1", file.stem)
    for requirement in requirements():
        if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
            version = held.get(canonicalize_name(requirement.name))
            assert version and requirement.specifier.contains(version), f"{requirement}, {version}: `make constraints`"


def test_there_are_held_versions_for_every_python_that_is_promised() -> None:
    pythons = re.findall(r"Python :: 3\.(\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert [file.stem for file in HELD] == [f"py3{minor}" for minor in sorted(pythons, key=int)]


def test_the_extra_all_includes_every_other() -> None:
    assert extras_of("all") == set(EXTRAS)


def test_the_changelog_has_a_section_for_this_version() -> None:
    sections = re.findall(r"^## (\d[\w.]*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert core.__version__ in sections[:2]  # released, or the one before what is being written
