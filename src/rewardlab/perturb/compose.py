"""Perturbations made of others: `a+b` applies two in order, `random:CATEGORY` draws one per episode."""

from typing import Any

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Episode
from rewardlab.core.trial import Expectation
from rewardlab.perturb.contract import Change, Label, Peers, Perturbation, Table


def pair(first: Perturbation, second: Perturbation) -> Perturbation:
    """Return the perturbation that applies both, in order, at the same severity."""

    def apply(episode: Episode, parameters: Any, rng: Generator, peers: Peers) -> Change:
        one, two = rng.spawn(2)
        before = first.apply(episode, parameters[0], one, peers)
        after = second.apply(before.episode, parameters[1], two, peers)
        return Change(after.episode, _joint(episode, before, after))

    one, two, three, four = zip(first.table, second.table)
    return Perturbation(
        name=f"{first.name}+{second.name}",
        summary=f"{first.summary} Then: {second.summary}",
        category="pair",
        channel="+".join(dict.fromkeys((first.channel, second.channel))),
        stage="stream" if "stream" in (first.stage, second.stage) else "shown",
        expect=_joint_promise(first.expect, second.expect),
        label=_joint_label(first.label, second.label),
        mode=first.mode if first.mode == second.mode else "none",
        parameter=f"{first.parameter}; {second.parameter}",
        table=(one, two, three, four),
        follows="rewardlab",
        uses_peers=first.uses_peers or second.uses_peers,
        apply=apply,
    )


def one_of(category: str, members: tuple[Perturbation, ...]) -> Perturbation:
    """Return the perturbation that is another member of its category for each episode."""

    def apply(episode: Episode, parameter: Any, rng: Generator, peers: Peers) -> Change:
        raise NotImplementedError("the member is drawn before anything is applied")

    names: Table = ("drawn",) * 4  # the parameter is that of the member
    return Perturbation(
        name=f"random:{category}",
        summary=f"One of the {len(members)} {category} perturbations, drawn anew for each episode.",
        category=members[0].category,
        channel="+".join(dict.fromkeys(part for member in members for part in member.channel.split("+"))),
        stage="stream",
        expect="same",
        label="as drawn",
        mode="static",
        parameter="parameter of the one drawn",
        table=names,
        follows="rewardlab",
        uses_peers=any(member.uses_peers for member in members),
        apply=apply,
        choices=members,
    )


def _joint(clean: Episode, before: Change, after: Change) -> Expectation:
    """Return what is expected of both changes together, `undefined` where their directions do not compose."""
    kinds = {before.expect, after.expect} - {"same"}
    moved = not np.array_equal(after.episode.clip.order, before.episode.clip.order)
    if not kinds:
        return "same"
    if "reversed" in kinds:
        only_order = before.expect == "reversed" and after.expect == "same" and not moved
        return "reversed" if only_order or before.episode.clip is clean.clip else "undefined"
    if kinds == {"relabel"} or (kinds <= {"lower", "relabel"} and after.episode.truth.level is not None):
        return "relabel"
    raised = (before.episode.truth.level or 0) > (clean.truth.level or 5)
    return "lower" if kinds <= {"lower", "relabel"} and not raised else "undefined"


def _joint_promise(first: Expectation, second: Expectation) -> Expectation:
    kinds = {first, second} - {"same"}
    return kinds.pop() if len(kinds) == 1 else "same" if not kinds else "undefined"


def _joint_label(first: Label, second: Label) -> Label:
    return first if first == second else f"{first}, {second}"
