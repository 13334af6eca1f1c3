"""The held-out part of the catalog: drawn once when a training begins, then read from its folder."""

import json
from pathlib import Path

from rewardlab.core.seeding import rng_for
from rewardlab.core.storage import write_file
from rewardlab.models.pocket import CatalogSplit, read_split
from rewardlab.perturbations import PERTURBATIONS
from rewardlab.worlds.edits import WORLD_EDITS

# The goal is never shown here, so it cannot be hidden; an object of another colour would not be what the words say.
_UNSUITABLE_WORLDS = ("world_goal_hidden", "world_object_colour")
# Another arm is never trained with: a new embodiment stays a test.
_NEVER_TRAINED_WORLDS = ("world_robot",)
_HELD_OUT_FRACTION = 0.3  # of every category of perturbations
# Changes of the compressed video need a codec; they are held out, so that training needs none.
_CODEC_PERTURBATIONS = ("codec", "codec_h265", "bit_error", "packet_loss")


def recorded_split(folder: Path) -> CatalogSplit:
    """Return the split of a training; the first call draws it from the catalog and writes it into the folder."""
    path = folder / "catalog_split.json"
    if not path.exists():
        write_file(path, json.dumps(draw_split().to_json(), indent=2) + "\n")
    return read_split(path)


def draw_split() -> CatalogSplit:
    """Draw a fraction of every category of the catalog."""
    groups: dict[str, list[str]] = {}
    # What changes a video, not the world it was rendered in.
    videos = [p for p in PERTURBATIONS.own.values() if p.category != "pair" and not p.name.startswith("world_")]
    for p in videos:
        groups.setdefault(p.category, []).append(p.name)
    drawn = [name for category, names in groups.items() for name in _drawn(category, names)]
    held_out = tuple(dict.fromkeys((*_CODEC_PERTURBATIONS, *drawn)))
    drawn_worlds = _drawn("world", [name for name in WORLD_EDITS if name not in _NEVER_TRAINED_WORLDS])
    held_out_worlds = (*drawn_worlds, *_NEVER_TRAINED_WORLDS)
    return CatalogSplit(
        tuple(p.name for p in videos if p.name not in held_out),
        tuple(name for name in WORLD_EDITS if name not in (*held_out_worlds, *_UNSUITABLE_WORLDS)),
        held_out,
        held_out_worlds,
    )


def _drawn(category: str, names: list[str]) -> tuple[str, ...]:
    rng = rng_for(0, "kept away from pocket", category)
    return tuple(str(name) for name in rng.choice(sorted(names), round(_HELD_OUT_FRACTION * len(names)), replace=False))
