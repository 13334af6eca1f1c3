"""Submissions to a leaderboard: a folder with `submission.json` and the run that it names, read and checked.

A stranger's submission is data: nothing in it is run, followed or trusted beyond what its trials show.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rewardlab.core.errors import RewardlabError, RunError
from rewardlab.core.records import read_json, record_from_json, record_to_json
from rewardlab.core.run import Run, open_run
from rewardlab.core.run_files import RunRecord
from rewardlab.core.trial import CLEAN
from rewardlab.core.trial_table import TrialTable, trials_digest
from rewardlab.data.safe_files import require_name
from rewardlab.data.sources import source_called
from rewardlab.evaluation.display import listed
from rewardlab.evaluation.summary import load_summary

SUBMISSION, SCHEMA = "submission.json", 1
StatedBy = Literal["nobody", "model", "publisher"]
LINK = re.compile(r"https://[A-Za-z0-9.-]+(?::\d+)?(?:/[A-Za-z0-9._~/%+-]*)?")  # nothing that a page could be misled by
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_MOST_NAMES, _MOST_TEXT = 200, 200
_KEEPS = "write it anew with `rewardlab runs publish`"


@dataclass(frozen=True)
class Submission:
    """The content of submission.json: one model of one run, and what it was trained on as far as that is stated."""

    schema: int  # 1
    model: str  # as the run names it
    run: str  # folder of the run, below that of this file
    trained_on: tuple[str, ...]  # public datasets; with `stated_by` nobody it is empty and says nothing
    stated_by: StatedBy
    link: str  # where more is told, https only; may be empty
    trials_sha256: str  # digest of the trials

    def to_json(self) -> dict[str, Any]:
        """Return the content of submission.json."""
        content: dict[str, Any] = record_to_json(self)
        return content


@dataclass(frozen=True)
class Submitted:
    """A run as the leaderboard takes it; `models` are those that are shown, None for all that it evaluated."""

    run: Run
    place: Path
    submission: Submission | None = None

    @property
    def models(self) -> tuple[str, ...] | None:
        """Return the models that are submitted."""
        return None if self.submission is None else (self.submission.model,)


@dataclass(frozen=True)
class CheckedSubmission:
    """What `leaderboard --check` finds about a submission; without problems it can be taken."""

    place: str
    model: str
    problems: tuple[str, ...]


def valid_submitted(place: Run | str | Path) -> Submitted:
    """Return what `open_submitted` returns; RunError names the first problem of a submission."""
    submitted = open_submitted(place)
    problem = next(_problems(submitted, submitted.run.record), "") if submitted.submission is not None else ""
    if problem:
        raise RunError(f"{submitted.place}: {problem}; `rewardlab leaderboard {submitted.place} --check` lists all")
    return submitted


def open_submitted(place: Run | str | Path) -> Submitted:
    """Return the run of a folder, of a folder with a submission, or of a submission.json."""
    if isinstance(place, Run):
        return Submitted(place, place.folder)
    path = Path(place)
    folder = path.parent if path.name == SUBMISSION else path
    if not (folder / SUBMISSION).exists():
        return Submitted(open_run(place), path)
    submission = read_submission(folder / SUBMISSION)
    return Submitted(Run(folder / submission.run), folder, submission)


def read_submission(path: Path) -> Submission:
    """Return what a submission.json states; RunError names the first field that does not fit."""
    try:
        submission = record_from_json(Submission, read_json(path))
        _check_fields(submission, path.parent)
    except (RewardlabError, ValueError, OSError) as error:
        raise RunError(f"{path} is no submission: {error}; {_KEEPS}") from None
    return submission


def _check_fields(submission: Submission, folder: Path) -> None:
    if submission.schema != SCHEMA:
        raise ValueError(f"schema must be {SCHEMA}, got {submission.schema}")
    require_name(submission.run, "run")
    if not Path(os.path.realpath(folder / submission.run)).is_relative_to(os.path.realpath(folder)):
        raise ValueError(f"run must stay below the folder, got {submission.run!r}")
    if submission.stated_by not in get_args(StatedBy):
        raise ValueError(f"stated_by must be one of {', '.join(get_args(StatedBy))}, got {submission.stated_by!r}")
    if submission.link and not LINK.fullmatch(submission.link):
        raise ValueError(f"link must be an https address without query or fragment, got {submission.link[:60]!r}")
    if not re.fullmatch("[0-9a-f]{64}", submission.trials_sha256):
        raise ValueError("trials_sha256 must be 64 hexadecimal digits")
    if submission.stated_by == "nobody" and submission.trained_on:
        raise ValueError("trained_on must be empty where nobody stated it")
    check_names(submission.trained_on)


def check_names(names: tuple[str, ...]) -> None:
    """Raise a ValueError where names of datasets are too many, too long or not printable."""
    if len(names) > _MOST_NAMES:
        raise ValueError(f"trained_on must name at most {_MOST_NAMES} datasets, got {len(names)}")
    for name in names:
        if not (name.strip() and name.isprintable() and len(name) <= _MOST_TEXT):
            raise ValueError(f"trained_on must hold printable names of at most {_MOST_TEXT} characters, got {name!r}")


def check_submission(place: Run | str | Path) -> CheckedSubmission:
    """Return every problem of a submission or run: its form, links, missing trials, numbers that its trials deny."""
    try:
        submitted = open_submitted(place)
        record = submitted.run.record
        models = submitted.models or record.evaluated
        problems = tuple(_problems(submitted, record))
    except (RewardlabError, OSError) as error:
        return CheckedSubmission(str(place), "", (str(error),))
    return CheckedSubmission(str(place), ", ".join(models), problems)


def _problems(submitted: Submitted, record: RunRecord) -> Iterator[str]:
    links = [path for path in sorted(submitted.place.rglob("*")) if path.is_symlink()]
    if links:
        yield f"{links[0]} is a link; a submission holds files only"
    trials = submitted.run.trials(repeats=True)
    if len(trials) < record.trials:
        yield f"the run holds {len(trials):,} of {record.trials:,} trials: finish it by running its command again"
    unknown = [model for model in submitted.models or () if model not in record.evaluated]
    if unknown:
        yield f"the run evaluated {listed(record.evaluated)}, not {unknown[0]}"
    stated = submitted.submission
    if stated is not None and stated.trials_sha256 != trials_digest(trials):
        yield f"trials_sha256 is not the digest of the trials of the run; {_KEEPS}"
    try:
        load_summary(submitted.run)  # refuses a summary that the trials do not give, and what cannot be ranked
    except RewardlabError as error:
        yield str(error)


# What a model was trained on, and whether that is what it is evaluated on.


def training_sentences(
    trials: TrialTable, record: RunRecord, model: str, trained_on: tuple[str, ...], stated_by: StatedBy
) -> list[str]:
    """Say which public datasets a model was trained on, as stated, and which of them it is evaluated on here."""
    if stated_by == "nobody":
        said = ["Training data: not stated, so nobody can tell whether it has seen these episodes."]
    else:
        who = "the model" if stated_by == "model" else "its publisher"
        said = [f"Training data, as {who} states: {listed(trained_on) if trained_on else 'no public dataset'}."]
    clean = trials.where(trials.matches("perturbation", CLEAN) & trials.matches("model", model))
    known = {_key(name) for name in trained_on}
    evaluated = dict.fromkeys([*_data_names(record.settings.data), *map(str, clean.codes("subset")[1])])
    both = [name for name in evaluated if _key(name) in known]
    if both:
        said.append(f"It is evaluated on {listed(both)}, which is among them: these numbers are not of unseen data.")
    tasks, trained = [str(task) for task in clean.codes("task")[1]], set(record.trained_tasks.get(model, ()))
    if trained:
        count = sum(task in trained for task in tasks)
        said.append(
            f"It was trained on {len(trained)} tasks that it names; {count} of the {len(tasks)} here are among them."
        )
    return said


def _key(name: str) -> str:
    """Return what two spellings of one dataset share: its entry in the registry of sources, else its letters."""
    known = source_called(name, name.rpartition("/")[2])
    return known.key if known else re.sub(r"[\W_]+", "", name.casefold())


def _data_names(data: str) -> list[str]:
    hub = hub_dataset(data)
    return [hub] if hub else [data]


def hub_dataset(data: str) -> str:
    """Return OWNER/NAME of data that is on the hub, empty for any other."""
    name = "/".join(data.removeprefix("hub:").split("/")[:2])
    return name if data.startswith("hub:") and HUB_ID.fullmatch(name) else ""


def stated_training(record: RunRecord, model: str, given: tuple[str, ...]) -> tuple[tuple[str, ...], StatedBy]:
    """Return what a model was trained on and who says so: the publisher where they do, else the model itself."""
    if given:
        return () if given == ("none",) else given, "publisher"
    own = record.trained_on.get(model, ())
    return own, "model" if own else "nobody"
