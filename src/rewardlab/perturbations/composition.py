"""Perturbations composed of others: `a+b` applies two in order, `random:CATEGORY` draws one for each episode."""

from typing import Any, get_args

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Episode
from rewardlab.core.trial import Expectation
from rewardlab.perturbations.contract import Episodes, LabelEffect, Perturbation, PerturbedEpisode, SeverityTable


def compose(first: Perturbation, second: Perturbation) -> Perturbation:
    """Return the perturbation that applies both, in order, at the same severity."""

    def apply(episode: Episode, parameters: Any, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
        first_rng, second_rng = rng.spawn(2)
        between = first.apply(episode, parameters[0], first_rng, dataset)
        after = second.apply(between.episode, parameters[1], second_rng, dataset)
        return PerturbedEpisode(after.episode, _joint_expectation(episode, between, after))

    one, two, three, four = zip(first.table, second.table)
    return Perturbation(
        name=f"{first.name}+{second.name}",
        summary=f"{first.summary} Then: {second.summary}",
        category="pair",
        channel="+".join(dict.fromkeys((first.channel, second.channel))),
        stage="stream" if "stream" in (first.stage, second.stage) else "sampled",
        expect=_declared_expectation(first.expect, second.expect),
        label=_strongest_effect(first, second),
        randomness=first.randomness if first.randomness == second.randomness else "none",
        parameter=f"{first.parameter}; {second.parameter}",
        table=(one, two, three, four),
        based_on="rewardlab",
        uses_dataset=first.uses_dataset or second.uses_dataset,
        apply=apply,
        uses_world=first.uses_world or second.uses_world,
    )


def random_member(category: str, members: tuple[Perturbation, ...]) -> Perturbation:
    """Return the perturbation that applies a member of its category, drawn for each episode, not for each severity."""

    def apply(episode: Episode, parameter: Any, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
        raise NotImplementedError("the member is drawn before anything is applied")

    table: SeverityTable = ("drawn",) * 4  # the parameter is that of the member
    return Perturbation(
        name=f"random:{category}",
        summary=f"One of {len(members)} {category} perturbations, drawn for each episode, the same at every severity.",
        category=members[0].category,
        channel="+".join(dict.fromkeys(part for member in members for part in member.channel.split("+"))),
        stage="stream",
        expect="same",
        label=_strongest_effect(*members),
        randomness="per_clip",
        parameter="parameter of the member",
        table=table,
        based_on="rewardlab",
        uses_dataset=any(member.uses_dataset for member in members),
        apply=apply,
        members=members,
    )


def _joint_expectation(clean: Episode, between: PerturbedEpisode, after: PerturbedEpisode) -> Expectation:
    """Return what is expected of both changes together, `undefined` where their directions do not compose."""
    expectations = {between.expect, after.expect} - {"same"}
    reordered = not np.array_equal(after.episode.clip.order, between.episode.clip.order)
    if not expectations:
        return "same"
    if "reversed" in expectations:
        only_order = between.expect == "reversed" and after.expect == "same" and not reordered
        return "reversed" if only_order or between.episode.clip is clean.clip else "undefined"
    directed = expectations <= {"lower", "relabel"}
    if expectations == {"relabel"} or (directed and after.episode.truth.level is not None):
        return "relabel"
    raised = (between.episode.truth.level or 0) > (clean.truth.level or 5)
    return "lower" if directed and not raised else "undefined"


def _declared_expectation(first: Expectation, second: Expectation) -> Expectation:
    expectations = {first, second} - {"same"}
    return expectations.pop() if len(expectations) == 1 else "same" if not expectations else "undefined"


def _strongest_effect(*members: Perturbation) -> LabelEffect:
    """Return the effect on the label that leaves least of it certain."""
    return max((member.label for member in members), key=get_args(LabelEffect).index)
