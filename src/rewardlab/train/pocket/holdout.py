"""What of the catalogue the robust variants are trained with, and what is kept away to test them by."""

from rewardlab.core.seeding import rng_for
from rewardlab.perturb import PERTURBATIONS
from rewardlab.perturb.contract import Perturbation
from rewardlab.perturb.domain.simulated_world import WORLD_CHANGES

# The goal is never shown here, so it cannot be hidden; a thing of another colour would not be what the words say.
_UNSUITABLE = ("world_goal_hidden", "world_object_colour")
_KEPT_AWAY = 0.3  # share of every category of perturbations
# Changes of the compressed video need a codec; they stay unseen, so that training needs none.
_CODECS = ("codec", "codec_h265", "bit_error", "packet_loss")


def kept_away() -> tuple[str, ...]:
    """Return the perturbations and changed worlds that no variant is trained with, some of every category."""
    names = list(_CODECS)
    groups: dict[str, list[str]] = {"world": sorted(WORLD_CHANGES)}
    for p in _unworldly():
        groups.setdefault(p.category, []).append(p.name)
    for category, members in groups.items():
        rng = rng_for(0, "kept away from pocket", category)
        names += [str(name) for name in rng.choice(sorted(members), round(_KEPT_AWAY * len(members)), replace=False)]
    return tuple(dict.fromkeys(names))


def trained_with() -> tuple[str, ...]:
    """Return the perturbations of pixels, order and instruction that the robust variants are trained with."""
    return tuple(p.name for p in _unworldly() if p.name not in kept_away())


def worlds_trained_with() -> tuple[str, ...]:
    """Return the changed worlds that the robust variants are trained with."""
    return tuple(name for name in WORLD_CHANGES if name not in (*kept_away(), *_UNSUITABLE))


def _unworldly() -> list[Perturbation]:
    """Return the perturbations that change a video, not the world it was filmed in."""
    return [p for p in PERTURBATIONS.values() if p.category != "pair" and not p.name.startswith("world_")]
