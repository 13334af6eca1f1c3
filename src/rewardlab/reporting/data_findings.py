"""What a report on a dataset says first: its findings, each in one sentence, the gravest on top."""

from collections.abc import Sequence

from rewardlab.analysis.blind_models import BlindScore
from rewardlab.analysis.dataset_overview import GroupCounts, RowConflicts
from rewardlab.analysis.format import format_number
from rewardlab.reporting.data_report import DataFacts

_UNEVEN = 0.5  # share of one level from which labels are called uneven
_NAMES = {"clock": "A clock, which sees only how long a clip is,", "text": "A model that reads only the instruction"}


def blind_sentence(score: BlindScore) -> str:
    """Say what a blind model does to the constant's error, and what that means."""
    name = _NAMES[score.name]
    if score.saved is None:
        return f"What {name[0].lower()}{name[1:].rstrip(',')} reaches cannot be told: {_why_unknown(score)}."
    interval = f"{_percent(score.low)} to {_percent(score.high)}"
    if score.finding == "blind":
        errors = f"{format_number(score.error)} against {format_number(score.constant_error)} levels of error"
        return f"{name} does no better than a constant on tasks that are new to it ({errors})."
    gone = f"{name} removes {_percent(score.saved)} of the error of a constant ({interval})"
    if score.finding == "solved":
        return f"{gone}: it solves this dataset without looking, so a low error here does not show that a model sees."
    return f"{gone}: labels can partly be told without looking."


def _why_unknown(score: BlindScore) -> str:
    if score.tasks < 2:
        return "fewer than two tasks have what it needs" if score.rows else "no length is known"
    return "all labels are the same"


def balance_sentence(group: GroupCounts) -> str:
    """Say how even the labels are."""
    known = {level: count for level, count in group.levels.items() if level is not None}
    if not known:
        return "No row has a level."
    total, (level, most) = sum(known.values()), max(known.items(), key=lambda item: item[1])
    missing = [str(level) for level in range(1, 6) if not known.get(level)]
    said = f"Level {level} is {_percent(most / total)} of {total:,} labels"
    said += f"; level {' and '.join(missing)} never comes" if missing else ""
    uneven = most / total >= _UNEVEN
    return f"{said}: the labels are uneven." if uneven or missing else f"{said}: the labels are balanced."


def copy_sentences(facts: DataFacts, conflicts: RowConflicts) -> list[str]:
    """Say what is there twice."""
    copies = sum(len(group) - 1 for group in facts.copies.groups)
    said = []
    if conflicts.contradictions:
        said.append(_count(len(conflicts.contradictions), "question") + " asked twice with different answers.")
    if conflicts.repeated:
        said.append(_count(conflicts.repeated, "row") + " said twice, word for word.")
    if copies:
        said.append(_count(copies, "video") + " the copy of another, byte for byte.")
    if facts.near_copies:
        said.append(_count(len(facts.near_copies), "video") + " nearly the copy of another.")
    return said


def leak_sentences(facts: DataFacts, tasks: Sequence[str]) -> list[str]:
    """Say what splits share; empty where the dataset has none."""
    if len(facts.listings) < 2:
        return []
    across = [group for group in facts.copies.groups if len({split for split, _ in group}) > 1]
    near = [copy for copy in facts.near_copies or () if copy.leaks]
    said = []
    if tasks:
        said.append(f"Splits leak: {_count(len(tasks), 'task')} in more than one split.")
    if across:
        said.append(f"Splits leak: {_count(len(across), 'video')} in more than one split, byte for byte.")
    if near:
        said.append(f"Splits leak: {_count(len(near), 'video')} nearly the copy of one in another split.")
    return said or [f"The {len(facts.listings)} splits share no task and no video{_unlooked(facts)}."]


def _unlooked(facts: DataFacts) -> str:
    return "; near copies were not looked for" if facts.near_copies is None else ""


def _count(number: int, word: str) -> str:
    return f"{number:,} {word} is" if number == 1 else f"{number:,} {word}s are"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{format_number(100 * share, 0)}%"
