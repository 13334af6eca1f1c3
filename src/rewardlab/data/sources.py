"""The registry of sources: what is published about the datasets that robot videos come from (`sources.csv`).

Embodiment, perspective and counts are those of RoboReward's Table 4 for its 29 sources. A camera key is that of the
published perspective; the paper does not say which camera it took. What no place states is empty.
"""

import csv
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files

from rewardlab.core.episode import Episode
from rewardlab.core.trial import SUCCESS_LEVEL
from rewardlab.data.contract import Contents

_ON_ARM = re.compile(r"wrist|gripper|(^|_)hand($|_)", re.IGNORECASE)  # cameras that move with the arm

IF_DEMONSTRATIONS = "if all of them are successful demonstrations, add --demonstrations"


@dataclass(frozen=True)
class Source:
    """One dataset of robot videos; empty or None where it is not published."""

    key: str  # as TensorFlow Datasets and the folders of RoboReward call it
    name: str  # as RoboReward's Table 4 does
    aliases: tuple[str, ...]
    published_as: str  # a subset of RoboRewardBench: its column in the published table
    embodiment: str
    perspective: str  # exo, ego or mix
    train: int | None  # examples in RoboReward
    val: int | None
    test: int | None
    episodes: int | None  # of the source itself
    demonstrations: bool  # whether every episode succeeds unless it says otherwise
    cameras: tuple[str, ...]
    instructions: tuple[str, ...]  # names of the feature that holds the instruction
    license: str
    facts_from: str
    keys_from: str
    license_from: str

    @property
    def summary(self) -> str:
        """Return what the source is, in one line."""
        kind = "demonstrations" if self.demonstrations else "outcomes are stated episode by episode"
        counts = (("train", self.train), ("val", self.val), ("test", self.test), ("episodes", self.episodes))
        shown = ", ".join(f"{count:,} {what}" for what, count in counts if count is not None)
        facts = (self.embodiment, self.perspective, kind, shown, self.license or "no licence stated")
        return f"{self.name}: {'; '.join(filter(None, facts))}"


def _read_registry() -> dict[str, Source]:
    text = files("rewardlab.data").joinpath("sources.csv").read_text(encoding="utf-8")
    return {row["key"]: _source(row) for row in csv.DictReader(text.splitlines())}


def _source(row: dict[str, str]) -> Source:
    train, val, test, episodes = (
        int(row[name]) if row[name] else None for name in ("train", "val", "test", "episodes")
    )
    return Source(
        row["key"],
        row["name"],
        tuple(row["aliases"].split()),
        row["published_as"],
        row["embodiment"],
        row["perspective"],
        train,
        val,
        test,
        episodes,
        row["demonstrations"] == "yes",
        tuple(row["camera"].split()),
        tuple(row["instruction"].split()),
        row["license"],
        row["facts_from"],
        row["keys_from"],
        row["license_from"],
    )


SOURCES = _read_registry()
_BY_NAME = {
    name.casefold(): source
    for source in SOURCES.values()
    for name in (source.key, source.name, source.published_as, *source.aliases)
    if name
}


@lru_cache(maxsize=10_000)  # rows repeat their source
def source_called(*names: str) -> Source | None:
    """Return the source of the first of these names that one has, in any case; None where none has."""
    return next((_BY_NAME[name.casefold()] for name in names if name.casefold() in _BY_NAME), None)


@lru_cache(maxsize=10_000)
def published_facts(source: str, subset: str, camera: str) -> tuple[str, str]:
    """Return embodiment and perspective of the source of an episode, each empty where the registry does not say it.

    The perspective is that of the published camera; another one that is mounted on the arm is ego.
    """
    known = source_called(source, subset)
    perspective = known.perspective if known and (not camera or camera in known.cameras) else ""
    return known.embodiment if known else "", "ego" if _ON_ARM.search(camera) else perspective


def is_demonstration(stated: bool | None, source: str, *, assumed: bool = False) -> bool:
    """Tell whether an episode is a demonstration: its row says so, else `assumed`, else the source that it states."""
    known = source_called(source)
    return stated if stated is not None else assumed or (known is not None and known.demonstrations)


def describe_episode(episode: Episode, *, demonstrations: bool = False) -> Episode:
    """Return the episode with the embodiment and the perspective of its source, unless it states its own.

    A demonstration that states no outcome becomes a success at level 5.
    """
    known = episode.provenance
    embodiment, perspective = published_facts(known.source, known.subset, known.camera)
    found = replace(known, embodiment=known.embodiment or embodiment, perspective=known.perspective or perspective)
    label = episode.label
    if not states_outcome(episode) and is_demonstration(known.demonstration, known.source, assumed=demonstrations):
        found, label = replace(found, demonstration=True), replace(label, level=SUCCESS_LEVEL, success=True)
    return episode if (found, label) == (known, episode.label) else replace(episode, label=label, provenance=found)


def states_outcome(episode: Episode) -> bool:
    """Tell whether the label of an episode says how the rollout ended."""
    return episode.label.level is not None or episode.label.success is not None


def outcome_sentence(contents: Contents, data: str) -> str:
    """Say how many episodes state an outcome, and how those that do not can get one."""
    count, assumed = len(contents.episodes), sum(each.id in contents.assumed_successes for each in contents.episodes)
    stated = sum(map(states_outcome, contents.episodes)) - assumed
    said = f"{stated} of {count} episodes state an outcome"
    if assumed:
        return f"{said}; {assumed} others are demonstrations and count as successes"
    if stated or not count:
        return said
    verify = f"`rewardlab data verify {data}`, by which people state outcomes"
    return f"{said}, so nothing is measured; {IF_DEMONSTRATIONS}; else {verify}"


def describe_contents(contents: Contents, *, demonstrations: bool = False) -> Contents:
    """Return the contents with every episode described, and which of them count as successes as demonstrations."""
    described = tuple(describe_episode(episode, demonstrations=demonstrations) for episode in contents.episodes)
    pairs = zip(contents.episodes, described, strict=True)
    assumed = frozenset(after.id for before, after in pairs if states_outcome(after) and not states_outcome(before))
    return replace(contents, episodes=described, assumed_successes=assumed)
