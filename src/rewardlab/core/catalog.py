"""Catalogs: entries by name, ours and those that other packages register, and code at `package.module:name`.

A package registers an entry in its metadata, as an entry point of the group `rewardlab.models`, `rewardlab.readers`,
`rewardlab.perturbations`, `rewardlab.metrics` or `rewardlab.objectives`:

    [project.entry-points."rewardlab.models"]
    brightness = "mylab.reward:Brightness"
"""

import importlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from difflib import get_close_matches
from functools import cache
from hashlib import sha256
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoints, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TypeVar

from rewardlab.core.errors import PlanError

Entry = TypeVar("Entry")


class Catalog(MutableMapping[str, Entry]):
    """Our `own` entries by name, joined with those that other packages register in a group.

    Code of other packages is imported only when a name is none of our own, or all entries are asked for. `load` makes
    an entry of a registered name and its `package.module:name`.
    """

    def __init__(self, own: dict[str, Entry], group: str, load: Callable[[str, str], Entry]) -> None:
        self.own, self._group, self._load = own, f"rewardlab.{group}", load

    def _registered(self) -> dict[str, str]:
        found = _installed_entries(self._group, tuple(sys.path))
        return {point.name: point.value for point in found if point.name not in self.own}

    def __getitem__(self, name: str) -> Entry:
        if name in self.own:
            return self.own[name]
        path = self._registered()[name]
        try:
            return self._load(name, path)
        except Exception as error:  # whatever the code of another package does
            said = " ".join(str(error).split())
            raise PlanError(f"{name}, registered by an installed package as {path}, cannot be used: {said}") from error

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        for name in self._registered():
            try:
                self[name]
            except PlanError as error:  # one broken package must not stop what needs it not
                logging.getLogger("rewardlab").warning("%s", error)
            else:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __setitem__(self, name: str, entry: Entry) -> None:
        self.own[name] = entry

    def __delitem__(self, name: str) -> None:
        del self.own[name]


@cache
def _installed_entries(group: str, _places: tuple[str, ...]) -> EntryPoints:
    """Return the entry points of every package; finding them reads the metadata of all that is installed."""
    return entry_points(group=group)


_QUOTED = 200  # characters of a wrong name that an error repeats


def find(catalog: Mapping[str, Entry], name: str, what: str, others: Iterable[str] = ()) -> Entry:
    """Return the entry called `name`, or say which names are close, also of others that may be meant."""
    if name in catalog:
        return catalog[name]
    few = ", ".join(sorted(catalog)[:8]) + (", ..." if len(catalog) > 8 else "")
    hint = did_you_mean(name, (*others, *catalog)).removesuffix(" ") or f"known: {few}"
    raise PlanError(f"no {what} is called {quoted(name)}; {hint}")


def quoted(name: str) -> str:
    """Return a name in quotation marks as an error repeats it: of a long one, the beginning."""
    return f"{name[:_QUOTED]!r}{'...' * (len(name) > _QUOTED)}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question which of the known names was meant, with a blank behind it; empty where none is close."""
    close = get_close_matches(name, list(known), n=3)
    return f"did you mean {' or '.join(close)}? " if close else ""


def load_object(path: str) -> tuple[object, str]:
    """Import `package.module:name`; return the object and a hash of the files that define it.

    Where only the current folder holds it, that folder goes to the end of the import path: it can hide no module.
    """
    module_name, _, attribute = path.partition(":")
    here, package = str(Path.cwd()), module_name.partition(".")[0]
    if not _is_found(package) and PathFinder.find_spec(package, [here]) is not None:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module does while it is imported
        why = str(error)[: 2 * _QUOTED]  # it may repeat the name
        raise PlanError(
            f"cannot import {quoted(module_name)} for {quoted(path)}: {why}; is it installed here?"
        ) from error
    if not hasattr(module, attribute):
        own = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_")
            and not isinstance(value, ModuleType)
            and (not isinstance(value, type | FunctionType) or value.__module__ == module_name)
        ]
        raise PlanError(
            f"module {module_name!r} has no {quoted(attribute)}; it defines {', '.join(own[:20]) or 'none'}"
        )
    found = getattr(module, attribute)
    return found, _code_hash(module_name, found)


def _code_hash(module: str, found: object) -> str:
    """Return the hash of the files of a module, and of those in its package that define the object and its bases."""
    classes = found.__mro__ if isinstance(found, type) else type(found).__mro__
    package = module.partition(".")[0]
    names = {module, *(kind.__module__ for kind in classes if kind.__module__.partition(".")[0] == package)}
    if isinstance(found, FunctionType) and found.__module__.partition(".")[0] == package:
        names.add(found.__module__)
    modules = (sys.modules[name] for name in names if name in sys.modules)
    files = {module.__file__ for module in modules if "__file__" in vars(module)}  # one built into Python has none
    return sha256(b"".join(sorted(sha256(Path(file).read_bytes()).digest() for file in files if file))).hexdigest()


def _is_found(package: str) -> bool:
    try:
        return package in sys.modules or find_spec(package) is not None
    except ValueError:  # no name at all
        return False
