"""Changed worlds: the recorded rollout is rendered again in its simulator, in an edited scene."""

import re
from dataclasses import replace
from typing import Any

from numpy.random import Generator

from rewardlab.core.episode import Episode, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.core.seeding import pick
from rewardlab.perturbations.contract import Episodes, Perturbation, PerturbedEpisode, on_episode
from rewardlab.perturbations.guards import colours_in
from rewardlab.worlds import open_world
from rewardlab.worlds.edits import COLOSSEUM, EDITS, PAINT_RGB, EditAmounts, WorldEdit

_RENAMED_FROM = 0.6  # opacity of a paint from which an object is called by its colour


def _perturbation(entry: WorldEdit) -> Perturbation:
    def apply(episode: Episode, parameter: Any, rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
        return PerturbedEpisode(_rerender(episode, entry.edit, entry.sample(parameter, rng)), "same")

    apply.__name__, apply.__doc__ = entry.name, entry.summary
    return on_episode(
        entry.category,
        channel="frames",
        parameter=entry.parameter,
        table=entry.table,
        based_on=entry.based_on,
        randomness=entry.randomness,
        uses_world=True,
        version=entry.version,
    )(apply)


def _rerender(episode: Episode, edit: str, amounts: EditAmounts) -> Episode:
    """Return the episode as it looks in the edited scene; only the shown frames are rendered."""
    record = episode.sim_state
    if record is None:
        raise NotApplicable("the episode was not recorded in a simulator, so its scene cannot be edited")
    if record.get("video") != episode.clip.source.digest:
        raise NotApplicable("the pixels are no longer those that the simulator rendered; edit the scene first")
    return with_frames(episode, open_world(record).render(episode.clip.order, edit, amounts))


@on_episode(
    "domain",
    channel="frames+instruction",
    parameter="opacity of another paint",
    table=(0.2, 0.4, 0.7, 1.0),
    based_on=COLOSSEUM,
    randomness="per_clip",
    label="keeps_if",
    uses_world=True,
)
def world_object_colour(episode: Episode, opacity: float, rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """The object of the task is painted in another colour; an instruction that names its colour names the new one."""
    named = colours_in(episode.instruction)
    listed = (episode.sim_state or {}).get("colours")  # the colour words that mean the object of the task
    own = [word for word in named if isinstance(listed, list | tuple) and word in map(str, listed)]
    if len(set(own)) > 1:
        raise NotApplicable(
            f"the instruction names several colours of the object ({', '.join(own)}); one paint cannot be both"
        )
    if own and opacity < _RENAMED_FROM:
        raise NotApplicable(f"the instruction says {own[0]!r}, and this severity paints too thinly for another name")
    colour = pick([name for name in PAINT_RGB if name not in named], rng)
    after = _rerender(episode, "object_colour", (*PAINT_RGB[colour], opacity))
    text = re.sub(rf"\b{own[0]}\b", colour, after.instruction, flags=re.IGNORECASE) if own else after.instruction
    return PerturbedEpisode(replace(after, instruction=text), "same")


WORLD_PERTURBATIONS = (*map(_perturbation, EDITS), world_object_colour)
