"""The recipes and mixtures by name: what papers state of their training, and the data of RoboReward's ablation."""

from dataclasses import dataclass
from typing import Literal

ORIGINAL, COUNTERFACTUAL, CLIPPED, PERTURBED, REPEATED, CAPTIONED = (
    "original",
    "counterfactual",
    "clipped",
    "perturbed",
    "repeated",
    "captioned",
)


@dataclass(frozen=True)
class Recipe:
    """Numbers of a training run that a paper states."""

    rate: float  # the highest learning rate
    epochs: int = 3
    warm_up: float = 0.05  # share of the steps
    weight_decay: float = 0.05
    max_norm: float = 1.0  # of the gradient
    batch: int = 32  # examples behind one step
    learns: Literal["levels", "captions"] = "levels"  # captions by the fusion alone, language frozen too


RECIPES = {
    "roboreward-4b": Recipe(3e-6),
    "roboreward-8b": Recipe(5e-6),
    # The first stage of LLaVA-1.5 (Liu et al., 2024), which aligns a new projector.
    "llava-projector": Recipe(1e-3, epochs=1, warm_up=0.03, weight_decay=0.0, batch=256, learns="captions"),
}

# Which examples each mixture trains on. The first three are the rows of RoboReward's Table 3. `perturbed` adds a
# perturbed copy of every example, and `clean` adds a plain one, so that both take equally many steps.
MIXTURES: dict[str, tuple[str, ...]] = {
    "full": (ORIGINAL, COUNTERFACTUAL, CLIPPED),
    "no-negatives": (ORIGINAL,),
    "no-clipping": (ORIGINAL, COUNTERFACTUAL),
    "clean": (ORIGINAL, COUNTERFACTUAL, CLIPPED, REPEATED),
    "perturbed": (ORIGINAL, COUNTERFACTUAL, CLIPPED, PERTURBED),
}
