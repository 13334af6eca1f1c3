"""Numbers, intervals, p-values and model names as people read them; kinds of failure reasons."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, count
from typing import Protocol

from rewardlab.core.errors import PlanError, RewardlabError
from rewardlab.core.run import Run, open_run
from rewardlab.core.run_files import RunRecord
from rewardlab.core.trial_table import TrialTable
from rewardlab.models import MODELS, name_model


class WithInterval(Protocol):
    """Anything measured with an interval."""

    @property
    def low(self) -> float | None:
        """Return the lower end, None where it is undefined."""

    @property
    def high(self) -> float | None:
        """Return the upper end, None where it is undefined."""


class WithCoverage(Protocol):
    """Anything measured on some of the trials that were asked for."""

    @property
    def scored(self) -> int:
        """Return the number of scored trials."""

    @property
    def asked(self) -> int:
        """Return the number of trials for which it is defined."""


def format_number(value: float | None, decimals: int = 2) -> str:
    """Return a number for people; a dash where there is none."""
    return "-" if value is None or value != value else f"{value:.{decimals}f}"


def format_interval(measured: WithInterval, decimals: int = 2) -> str:
    """Return the 95 % interval of a number, nothing where it has none."""
    low, high = measured.low, measured.high
    return "" if low is None or high is None else f"[{low:.{decimals}f}, {high:.{decimals}f}]"


def format_percent(fraction: float | None) -> str:
    """Return a fraction in percent; a dash where there is none."""
    return "-" if fraction is None or fraction != fraction else f"{fraction:.0%}"


def format_percent_interval(measured: WithInterval) -> str:
    """Return the 95 % interval of a fraction in percent, nothing where it has none."""
    low, high = measured.low, measured.high
    return "" if low is None or high is None or low != low else f"[{100 * low:.0f}, {100 * high:.0f}]"


def format_coverage(measured: WithCoverage) -> str:
    """Return how many of the asked trials are behind a number."""
    return f"{measured.scored}/{measured.asked}"


def format_threshold(threshold: int | None) -> str:
    """Return a severity threshold in words that fit a table."""
    return "-" if threshold is None else "none" if threshold < 0 else str(threshold)


def format_date(text: str) -> str:
    """Return a time as people write it; what is no time in ISO 8601 stays as it is."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time.day} {time:%B %Y, %H:%M} {time.tzname() or ''}".strip()


def format_p_value(p: float | None) -> str:
    """Return a p-value as people write it."""
    if p is None or math.isnan(p):
        return "p unknown"
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence."""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def markdown_text(text: str) -> str:
    """Return text that stays in its line and its table of Markdown, and is no HTML, no code and no link."""
    return re.sub(r"([\\`<|]|\](?=[(\[:]))", r"\\\1", " ".join(text.split()))


# Short names of models for tables and pages; a trial keeps the whole model string, which is its identity.

FITS = 24  # characters of a name that a table of 80 columns has room for; a string that is no longer stays as it is
_URL = re.compile(r"[a-z]+://([^/?]+)")
_PARTS = re.compile(r"[:/@?&+,\s]+")


def display_names(models: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Return a name for each model that no other has: the chosen one, or one derived from its string."""
    wanted = {model: _cut(chosen.get(model) or derived_name(model)) for model in dict.fromkeys(models)}
    found: dict[str, str] = {}
    for model, name in wanted.items():
        alike = [other for other in wanted if wanted[other] == name and other != model]
        full = f"{name} ({own})" if (own := _own_part(model, alike)) else name
        numbered = (f"{full} {number}" for number in count(2))
        found[model] = next(free for free in chain([full], numbered) if free not in found.values())
    return found


def names_of_run(record: RunRecord, models: Iterable[str]) -> dict[str, str]:
    """Return what the models of a run are called where people read."""
    return display_names(list(dict.fromkeys((*record.evaluated, *models))), record.names)


def model_meant(text: str, names: Mapping[str, str]) -> str | None:
    """Return which of these models, each with its short name, a text means; None where it is none of them.

    It may be the whole string, the short name, or a string with options about speed and price.
    """
    if text in names:
        return text
    short = next((model for model, name in names.items() if name == text), None)
    if short is not None or "?" not in text:
        return short
    try:
        name = name_model(text).name
    except RewardlabError:  # such as a module that is not on this machine
        return None
    return name if name in names else None


def derived_name(model: str, room: int = FITS) -> str:
    """Return the part of a model string that tells people which model it is; the whole string where it has room."""
    if len(model) <= room:
        return model
    base, plus, calibration = model.partition("+")
    kind, _, argument = base.partition(":")
    fitted = f"+{_last_part(calibration)}" if plus else ""
    over = MODELS.own[kind].over if kind in MODELS.own else ""
    if over == "model":
        return f"{kind}:{derived_name(argument, room - len(kind) - 1)}{fitted}"
    if kind == "ensemble":
        return f"ensemble of {argument.count(',') + 1}"
    before = f"{kind}:" if over else ""  # another question to the same model, so it stays in its name
    return before + (_last_part(argument) or kind) + fitted


def _last_part(text: str) -> str:
    """Return the last part of a path or repository; of an address its host, of module:name the name."""
    text = re.sub(r"@(?=https?://).*", "", text, flags=re.DOTALL)
    address = _URL.match(text)
    if address:
        return address[1]
    return text.partition("?")[0].rstrip("/").rpartition("/")[2].rpartition(":")[2]


def _own_part(model: str, alike: Sequence[str]) -> str:
    """Return the words of a string that none of those of the same name has, as many as fit."""
    others = {word for other in alike for word in _PARTS.split(other)}
    own = [word for word in _PARTS.split(model) if word and word not in others] if alike else []
    return " ".join(own)[:FITS]


def _cut(name: str) -> str:
    """Return a name that fits: of a longer one its beginning and its end."""
    words = " ".join(name.split())
    return words if len(words) <= FITS else f"{words[: FITS - 10]}…{words[-9:]}"


# What runs and their models are called: on a page of several runs, and on the command line.


def run_names(runs: Sequence[Run]) -> list[str]:
    """Return a name for each run: its folder's, with a number where two are alike. The same run twice is refused."""
    folders = [run.folder.resolve() for run in runs]
    if len(set(folders)) < len(folders):
        raise PlanError("the same run folder is named twice")
    names = [folder.name for folder in folders]
    return [f"{name} {place}" if names.count(name) > 1 else name for place, name in enumerate(names, start=1)]


def run_and_model(text: str) -> tuple[Run, str]:
    """Read `FOLDER` or `FOLDER::MODEL`, by its string or short name; a run that evaluated one model needs no name."""
    folder, _, model = text.partition("::")
    run = open_run(folder)
    evaluated, names = run.record.evaluated, names_of_run(run.record, run.record.plan.models)
    if not model and len(evaluated) != 1:
        raise PlanError(f"{folder} evaluated {len(evaluated)} models; say which one: {folder}::{names[evaluated[0]]}")
    return run, (model_meant(model, names) or model) if model else evaluated[0]


# Why models failed: reasons that differ only in numbers and quoted words are one, counted and shown by an example.

_PARTICULARS = re.compile(r"'[^']*'|\"[^\"]*\"|\d+(\.\d+)?")


@dataclass(frozen=True)
class FailureReason:
    """A reason why a model failed, as it was given first with its traceback, and how many of its trials failed so.

    `member` is the member of an ensemble that gave no answer where others did.
    """

    model: str
    reason: str
    count: int
    traceback: str | None = None
    member: str = ""


def reason_kind(reason: str) -> str:
    """Return what a reason has in common with others of its kind: no numbers, no quotations."""
    return _PARTICULARS.sub("_", reason)


def failure_reasons(trials: TrialTable) -> list[FailureReason]:
    """Return the reasons of every model, the most frequent first."""
    failed = trials.where(trials.matches("status", "failed"))
    columns = (failed.text(name) for name in ("model", "reason", "traceback"))
    found = [FailureReason(str(model), str(reason), 1, trace) for model, reason, trace in zip(*columns, strict=True)]
    for row in trials.select(("model", "member_failures")).arrow.drop_null().to_pylist():  # most trials have none
        found += [FailureReason(row["model"], why, 1, member=name) for name, why in row["member_failures"]]
    counts: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], FailureReason] = {}
    for each in found:
        key = each.model, each.member, reason_kind(each.reason)
        counts[key] += 1
        examples.setdefault(key, each)
    return [replace(examples[key], count=count) for key, count in counts.most_common()]


def traceback_lines(trials: TrialTable, names: Mapping[str, str], *, every: bool = False) -> list[str]:
    """Return where the code of a model raised: for the most frequent reason, or for every one."""
    raised = [found for found in failure_reasons(trials) if found.traceback]
    lines = []
    for found in raised if every else raised[:1]:
        lines += [f"{names[found.model]} raised:", *(f"  {line}" for line in str(found.traceback).splitlines())]
    return lines
