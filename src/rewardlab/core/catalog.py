"""Catalogs are plain dicts; this finds an entry by name, or code outside the package by `package.module:name`."""

import importlib
import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from hashlib import sha256
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from rewardlab.core.errors import PlanError

Entry = TypeVar("Entry")


def find(catalog: Mapping[str, Entry], name: str, what: str) -> Entry:
    """Return the entry called `name`, or say which names are close."""
    if name in catalog:
        return catalog[name]
    few = ", ".join(sorted(catalog)[:8]) + (", ..." if len(catalog) > 8 else "")
    hint = did_you_mean(name, catalog).removesuffix(" ") or f"known: {few}"
    raise PlanError(f"no {what} is called {name!r}; {hint}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question which of the known names was meant, with a blank behind it; empty where none is close."""
    close = get_close_matches(name, list(known), n=3)
    return f"did you mean {' or '.join(close)}? " if close else ""


def load_object(path: str) -> tuple[object, str]:
    """Import `package.module:name`; return the object and a hash of the file that defines its module.

    Where only the current folder holds it, that folder goes to the end of the import path: it can hide no module.
    """
    module_name, _, attribute = path.partition(":")
    here, package = str(Path.cwd()), module_name.partition(".")[0]
    if not _is_found(package) and PathFinder.find_spec(package, [here]) is not None:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module does while it is imported
        raise PlanError(f"cannot import {module_name!r} for {path!r}: {error}; is it installed here?") from error
    if not hasattr(module, attribute):
        raise PlanError(f"module {module_name!r} has no {attribute!r}; it defines {', '.join(_public(module))}")
    file = getattr(module, "__file__", None)  # a module that is built into the interpreter has none
    code = sha256(Path(file).read_bytes()).hexdigest() if file else ""
    return getattr(module, attribute), code


def _is_found(package: str) -> bool:
    try:
        return package in sys.modules or find_spec(package) is not None
    except ValueError:  # no name at all
        return False


def _public(module: object) -> list[str]:
    return [name for name in vars(module) if not name.startswith("_")][:20]
