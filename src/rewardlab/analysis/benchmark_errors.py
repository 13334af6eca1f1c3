"""The errors of a benchmark run as typed records: `bench.json`, by model, protocol and subset."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rewardlab.core.dataclass_json import meaning, record_from_json, record_to_json
from rewardlab.core.sealed_json import without_checksums

# The number that HELM reads in a text; whole levels of a model without text; the most probable of its levels; and, with
# no HELM score: levels that are expectations without probabilities; texts in another format.
HelmLevels = Literal["text", "level", "mode", "expectation", "other format"]
BENCH_SCHEMA = 2  # of bench.json


@dataclass(frozen=True)
class ErrorEstimate:
    """A mean absolute error in levels with its interval and its coverage."""

    value: float | None = meaning("the error; null where nothing was scored")
    low: float | None = meaning("lower end of the 95 % interval; null where it is undefined")
    high: float | None = meaning("upper end of the 95 % interval; null where it is undefined")
    scored: int = meaning("episodes behind the value")
    asked: int = meaning("episodes that should have been behind it")


@dataclass(frozen=True)
class ProtocolErrors:
    """The errors of a model under one protocol of reading its answers."""

    macro: ErrorEstimate = meaning("mean over subsets, the headline of RoboRewardBench")
    micro: ErrorEstimate = meaning("mean over episodes")
    subsets: dict[str, ErrorEstimate] = meaning("mean over the episodes of each subset")


@dataclass(frozen=True)
class AnswerCounts:
    """What became of the episodes that a model was asked about."""

    asked: int = meaning("episodes with a true level")
    scored: int = meaning("episodes with a level as rewardlab reads it")
    texts: int = meaning("answers that are a text")
    unread: int = meaning("texts in which rewardlab reads no level")
    unread_by_helm: int = meaning("texts in which HELM reads no number")
    missing: int = meaning("episodes without an answer")


@dataclass(frozen=True)
class ModelErrors:
    """One model of the benchmark."""

    counts: AnswerCounts = meaning("what became of its answers")
    strict: ProtocolErrors = meaning("as rewardlab reads them; an unreadable answer lowers the coverage")
    helm: ProtocolErrors | None = meaning("as HELM reads them; null where it can read none")
    helm_levels: HelmLevels = meaning("where the whole levels of HELM's scoring come from, or why it has none")


@dataclass(frozen=True)
class BenchmarkDraws:
    """How the intervals were made."""

    draws: int = meaning("bootstrap draws behind every interval")
    seed: int = meaning("seed of the draws")
    clusters: int = meaning("clusters: episodes that share a task or a video")


@dataclass(frozen=True)
class BenchmarkErrors:
    """Every error of a benchmark run; `bench.json` holds it."""

    schema: int = meaning(f"version of this layout, {BENCH_SCHEMA}")
    data: str = meaning("the dataset")
    frames: str = meaning("which frames the models were shown")
    subsets: tuple[str, ...] = meaning("the subsets of the dataset")
    missing_subsets: tuple[str, ...] = meaning("subsets of RoboRewardBench that the dataset does not have")
    models: dict[str, ModelErrors] = meaning("the errors by model")
    bootstrap: BenchmarkDraws = meaning("how the intervals were made")

    def to_json(self) -> dict[str, Any]:
        """Return what bench.json holds."""
        content: dict[str, Any] = record_to_json(self)
        return content

    @staticmethod
    def from_json(content: object) -> "BenchmarkErrors":
        """Return the errors that JSON content holds; a ValueError says what does not fit."""
        if not isinstance(content, Mapping) or content.get("schema") != BENCH_SCHEMA:
            raise ValueError(f"it does not say `schema: {BENCH_SCHEMA}`")
        return record_from_json(BenchmarkErrors, without_checksums(content))
