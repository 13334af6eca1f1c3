"""Domain perturbations: another scene, with another robot, background, table or things, or seen in a mirror."""

from rewardlab.perturbations.domain.distractors import distractor_objects
from rewardlab.perturbations.domain.mirror import mirror
from rewardlab.perturbations.domain.scene_appearance import background_replace, robot_recolour, table_texture
from rewardlab.perturbations.world import WORLD_PERTURBATIONS

DOMAIN = (
    background_replace,
    table_texture,
    robot_recolour,
    distractor_objects,
    mirror,
    *(p for p in WORLD_PERTURBATIONS if p.category == "domain"),
)
