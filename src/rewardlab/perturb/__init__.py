"""The catalog of perturbations. Adding one is one function in a family file and its name in the family list."""

from rewardlab.core.catalog import find
from rewardlab.perturb.contract import CATEGORIES, Perturbation
from rewardlab.perturb.domain import DOMAIN
from rewardlab.perturb.instruction import INSTRUCTION
from rewardlab.perturb.temporal import TEMPORAL
from rewardlab.perturb.visual import VISUAL

PERTURBATIONS: dict[str, Perturbation] = {p.name: p for p in (*VISUAL, *INSTRUCTION, *TEMPORAL, *DOMAIN)}


def choose_perturbations(names: tuple[str, ...]) -> tuple[Perturbation, ...]:
    """Return the perturbations meant by names, categories or `all`, each once, in catalog order."""
    wanted: set[str] = set()
    for name in names:
        if name == "all":
            wanted |= PERTURBATIONS.keys()
        elif name in CATEGORIES:
            wanted |= {p.name for p in PERTURBATIONS.values() if p.category == name}
        else:
            wanted.add(find(PERTURBATIONS, name, "perturbation or category").name)
    return tuple(p for p in PERTURBATIONS.values() if p.name in wanted)
