"""The catalog of perturbations. Adding one is one function in a family file and its name in the family list."""

from dataclasses import replace

from rewardlab.core.catalog import Catalog, find, load_object
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import CLEAN
from rewardlab.perturbations.composition import compose, random_member
from rewardlab.perturbations.contract import Perturbation
from rewardlab.perturbations.domain import DOMAIN
from rewardlab.perturbations.semantic import SEMANTIC
from rewardlab.perturbations.temporal import TEMPORAL
from rewardlab.perturbations.visual import VISUAL

# A small spread of the catalogue, two of each category: what `stress` applies unless told otherwise.
QUICK = (
    "gaussian_noise",
    "low_light",
    "paraphrase",
    "task_swap",
    "drop_uniform",
    "truncate_end",
    "table_texture",
    "distractor_objects",
)
FAMILIES = {"visual": VISUAL, "semantic": SEMANTIC, "temporal": TEMPORAL, "domain": DOMAIN}


def choose_perturbations(names: tuple[str, ...], *, worlds: bool = True) -> tuple[Perturbation, ...]:
    """Return those meant by names, categories, `quick`, `all`, `none`, `a+b` or `random:CATEGORY`, each once.

    Without `worlds`, for data that no simulator can render again, `all` and categories leave out changed worlds.
    """
    chosen: dict[str, Perturbation] = {}
    for name in dict.fromkeys(names):
        for perturbation in _meant(name, worlds):
            if perturbation.name == CLEAN or chosen.get(perturbation.name, perturbation) != perturbation:
                raise PlanError(f"two perturbations are called {perturbation.name!r}; rename yours")
            chosen[perturbation.name] = perturbation
    return tuple(chosen.values())


def is_in_catalogue(name: str) -> bool:
    """Tell whether a name stands for entries of the catalogue alone, so that choosing it imports no other code."""
    head, _, category = name.partition(":")
    return all(":" not in part for part in name.split("+")) or (head == "random" and category in FAMILIES)


def _meant(name: str, worlds: bool) -> tuple[Perturbation, ...]:
    if name == "none":
        return ()
    if name == "quick":
        return tuple(PERTURBATIONS[member] for member in QUICK)
    if name == "all":
        return tuple(p for family in FAMILIES for p in _family(family, worlds))
    if name in FAMILIES:
        return _family(name, worlds)
    head, _, category = name.partition(":")
    if head == "random":
        return (random_member(category, _family(category, worlds)),)
    parts = [_single(part) for part in name.split("+")]
    if len(parts) > 2:
        raise PlanError(f"a composition has two parts, a+b; got {len(parts)} in {name!r}")
    return (compose(*parts),) if len(parts) == 2 else (parts[0],)


def _family(category: str, worlds: bool) -> tuple[Perturbation, ...]:
    return tuple(p for p in find(FAMILIES, category, "category") if worlds or not p.uses_world)


def _single(name: str) -> Perturbation:
    """Return an entry of the catalogue, or the perturbation outside the package at `package.module:name`."""
    if ":" not in name:
        return find(PERTURBATIONS, name, "perturbation or category")
    return _load(name)


def _load(path: str) -> Perturbation:
    found, code = load_object(path)
    if not isinstance(found, Perturbation):
        raise PlanError(
            f"{path} must be a Perturbation, made with on_frames, on_order or on_instruction, got {found!r}"
        )
    return replace(found, content=code)


PERTURBATIONS = Catalog(
    {p.name: p for p in (*VISUAL, *SEMANTIC, *TEMPORAL, *DOMAIN)}, "perturbations", lambda name, path: _load(path)
)
