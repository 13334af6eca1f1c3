"""Command `runs publish`: a folder for a model or dataset hub, with card, results, run and page; and its upload."""

import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from rewardlab.core.errors import PlanError, RunError, require_packages
from rewardlab.core.run import Run
from rewardlab.core.run_files import RunRecord
from rewardlab.core.settings import Help, several
from rewardlab.core.storage import atomic_write, writable, write_file
from rewardlab.core.summary import Summary, rename_models
from rewardlab.core.trial import CLEAN
from rewardlab.core.trial_table import trials_digest
from rewardlab.data.safe_files import open_regular
from rewardlab.evaluation.display import format_interval, markdown_text, names_of_run, run_and_model
from rewardlab.evaluation.summary import load_summary, save_summary
from rewardlab.metrics import METRICS, metrics_shown
from rewardlab.reporting.report import AllowCode, robustness_card, write_report
from rewardlab.reporting.severity_curves import metrics_with_values
from rewardlab.reporting.submissions import (
    HUB_ID,
    LINK,
    SCHEMA,
    SUBMISSION,
    Submission,
    check_names,
    hub_dataset,
    stated_training,
    training_sentences,
)

CARD, RESULTS = "README.md", ".eval_results"
_TASK = {"type": "robotics", "name": "Judging robot videos"}
_KEPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.json")  # files of a run that go along, with those of its trials


def runs_publish(
    run: Annotated[Run | str | Path, Help("run folder, or FOLDER::MODEL where it evaluated several", metavar="RUN")],
    *,
    out: Annotated[Path | str, Help("folder to write")] = "published",
    trained_on: Annotated[
        str | Sequence[str],
        Help("public datasets that the model was trained on, or none; default: what the model itself states", "NAME"),
    ] = (),
    benchmark: Annotated[
        str,
        Help("dataset of the hub that the run evaluates, for .eval_results; default: that of hub: data", "OWNER/NAME"),
    ] = "",
    link: Annotated[str, Help("https address with more about the model", "URL")] = "",
    push: Annotated[
        str, Help("upload the folder to this repository of the hub, with the token in HF_TOKEN", "OWNER/NAME")
    ] = "",
    repo_type: Annotated[Literal["model", "dataset"], Help("kind of the repository")] = "model",
    allow_code: AllowCode = False,
) -> str:
    """Write a folder for a model or dataset hub: card, results, run and page of one model; return where it is.

    The same folder is a submission to a leaderboard. With `push` it is uploaded: to a new, private repository, to one
    that was published like this before, or else as a pull request that leaves the README as it is.

    Examples:
        rewardlab runs publish runs/pocket --out published/pocket
        rewardlab runs publish runs/judge --trained-on teetone/RoboReward,DROID --push me/judge-results
    """
    opened, model = (run, _only_model(run)) if isinstance(run, Run) else run_and_model(str(run))
    record, folder = opened.record, Path(out)
    if model not in record.evaluated:
        raise PlanError(f"{opened.folder} did not evaluate {model}; it evaluated {', '.join(record.evaluated)}")
    given = tuple(several(trained_on))
    _check(given, benchmark, link, push)
    load_summary(opened)  # what cannot be summarised, such as an attack, is refused before anything is written
    submission = _submission(opened, record, model, given, link)
    if benchmark and record.settings.limit is not None:
        raise PlanError(
            f"{opened.place} scored {record.settings.limit} drawn episodes (--limit), which is no result of "
            f"{benchmark}; run it whole, or leave --benchmark out"
        )
    whole = record.settings.limit is None
    benchmark = benchmark or (hub_dataset(record.settings.data) if whole else "")
    source = f"https://huggingface.co/{'datasets/' * (repo_type == 'dataset')}{push}" if push else link
    copied = _copy_run(opened, folder)
    write_report([copied], folder / "report.html", allow_code=allow_code)
    summary = load_summary(copied)
    write_file(folder / CARD, model_card(copied, summary, submission, benchmark))
    if benchmark:
        entries = result_entries(record, summary, model, benchmark, source)
        write_file(folder / RESULTS / "rewardlab.yaml", yaml_text(entries) + "\n")
    write_file(folder / SUBMISSION, json.dumps(submission.to_json(), indent=2, sort_keys=True) + "\n")
    return upload(folder, push, repo_type) if push else str(folder)


def _only_model(run: Run) -> str:
    evaluated = run.record.evaluated
    if len(evaluated) != 1:
        raise PlanError(f"{run.place} evaluated {len(evaluated)} models; name one: {run.place}::{evaluated[0]}")
    return evaluated[0]


def _check(trained_on: tuple[str, ...], benchmark: str, link: str, push: str) -> None:
    for name, text in (("benchmark", benchmark), ("push", push)):
        if text and not HUB_ID.fullmatch(text):
            raise PlanError(f"{name} must be OWNER/NAME, got {text!r}")
    if link and not LINK.fullmatch(link):
        raise PlanError(f"link must be an https address without query or fragment, got {link!r}")
    try:
        check_names(trained_on)
    except ValueError as error:
        raise PlanError(str(error)) from None
    if push:
        require_packages("--push", "huggingface_hub", extra="hub")
        if not os.environ.get("HF_TOKEN"):
            raise PlanError(
                "--push needs a token that may write to the repository in the environment variable HF_TOKEN"
            )


def _submission(run: Run, record: RunRecord, model: str, given: tuple[str, ...], link: str) -> Submission:
    trials = run.trials(repeats=True)
    if len(trials) < record.trials:
        held = f"{run.place} holds {len(trials):,} of {record.trials:,} trials"
        raise RunError(f"{held}: finish it by running its command again")
    names, stated_by = stated_training(record, model, given)
    try:
        check_names(names)
    except ValueError as error:
        raise RunError(f"{run.place}: {error}; state them with --trained-on") from None
    return Submission(SCHEMA, model, "run", names, stated_by, link, trials_digest(trials))


def _copy_run(run: Run, folder: Path) -> Run:
    """Copy what makes the numbers of a run: records and trials, no ledger, no log and nothing behind a link."""
    target = folder / "run"
    records = [path for path in sorted(run.folder.glob("*.json")) if _KEPT.fullmatch(path.name)]
    files = [*records, *run.parts()]
    for path in files:
        if path.is_symlink() or not path.is_file():
            raise RunError(f"{path} is no regular file; copy the file itself into the run")
    with writable(folder):
        if folder.resolve() == run.folder.resolve() or folder.resolve().is_relative_to(run.folder.resolve()):
            raise PlanError(f"--out must be outside of the run, got {folder}")
        if any(each.is_symlink() for each in (folder, target, folder / "report", folder / RESULTS)):
            raise RunError(f"{folder} holds links to other places, where nothing is written; name another --out")
        foreign = folder.exists() and any(folder.iterdir()) and not (folder / SUBMISSION).is_file()
        if foreign:
            raise PlanError(f"{folder} holds other files; name a new folder with --out")
        if target.exists():
            shutil.rmtree(target)
        (target / "trials").mkdir(parents=True)
    for path in files:
        place = target / path.relative_to(run.folder)
        with open_regular(path) as source, atomic_write(place) as partial, partial.open("wb") as written:
            shutil.copyfileobj(source, written)
    copied = Run(target)
    save_summary(copied)
    return copied


# The card: YAML for the hub, Markdown for people.


def model_card(run: Run, summary: Summary, submission: Submission, benchmark: str) -> str:
    """Return README.md: front matter with `model-index`, training data, the robustness card, how to check it."""
    record, model = run.record, submission.model
    names = names_of_run(record, summary.models)
    training = training_sentences(run.trials(), record, model, submission.trained_on, submission.stated_by)
    known = [name for name in submission.trained_on if HUB_ID.fullmatch(name)]
    matter = {
        "tags": ["rewardlab", "reward-model", "robotics"],
        **({"datasets": known} if known else {}),
        "model-index": [{"name": names[model], "results": list(index_results(record, summary, model, benchmark))}],
    }
    shown = rename_models(replace(summary, evaluated=(model,)), names)
    more = [f"More about the model: <{submission.link}>", ""] if submission.link else []
    parts = [
        *("---", yaml_text(matter), "---", ""),
        *(f"# {_text(names[model])}: how far its rewards can be trusted", ""),
        f"Measured with rewardlab {_text(record.version)} ({_text(record.kind)}) on {_text(record.settings.data)}, "
        f"{record.episodes:,} episodes, frames {_text(record.settings.frames)}. The model string is {_text(model)}.",
        *("", *more, "## Training data", "", *(f"- {_text(sentence)}" for sentence in training), ""),
        robustness_card(shown, [record]),
        *("## Check it", ""),
        "`run/` holds every trial with checksums, `report.html` is the page. With rewardlab installed, "
        "`rewardlab leaderboard --check .` compares the numbers with the trials.",
    ]
    return "\n".join(parts) + "\n"


def _text(text: str) -> str:
    """Return a text as Markdown that is no heading, list, emphasis, code, link or HTML, whatever it holds."""
    return re.sub(
        r"(?<!\\)([*_#>\[\]!~&])", r"\\\1", markdown_text("".join(c for c in text if c.isprintable() or c == " "))
    )


def index_results(record: RunRecord, summary: Summary, model: str, benchmark: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of `model-index`: headline numbers on clean episodes, then success under each category."""
    kind = benchmark or "other"
    headline = metrics_with_values(summary, metrics_shown(lambda display: display.headline), {CLEAN})
    groups = [(CLEAN, 0, [metric.name for metric in headline])]
    groups += [(category, summary.highest_severity, ["success_accuracy"]) for category in summary.categories]
    for group, severity, names in groups:
        rows = [(name, summary.measurement(model, group, severity, name)) for name in names]
        metrics = [
            {
                "type": name,
                "value": round(row.value, 6),
                "name": f"{METRICS[name].heading} {format_interval(row)}".strip(),
                "args": {"scored": row.scored, "asked": row.asked},
            }
            for name, row in rows
            if row.value is not None and math.isfinite(row.value)
        ]
        if metrics:
            where = "clean episodes" if group == CLEAN else f"{group} perturbations at severity {severity}"
            dataset = {"type": kind, "name": f"{record.settings.data}, {where}", "args": {"severity": severity}}
            yield {"task": _TASK, "dataset": dataset, "metrics": metrics}


def result_entries(
    record: RunRecord, summary: Summary, model: str, benchmark: str, source: str
) -> list[dict[str, Any]]:
    """Return the content of a file of .eval_results: the headline numbers on clean episodes of a dataset of the hub."""
    headline = metrics_with_values(summary, metrics_shown(lambda display: display.headline), {CLEAN})
    rows = [(metric, summary.clean(model, metric.name)) for metric in headline]
    how = f"rewardlab {record.version} {record.kind}, frames {record.settings.frames}, plan {record.plan_digest[:16]}"
    where = {"source": {"url": source, "name": "rewardlab run"}} if source else {}
    dated = {"date": record.created} if re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}[+\d:]*", record.created) else {}
    return [
        {
            "dataset": {"id": benchmark, "task_id": metric.name},
            "value": round(row.value, 6),
            **dated,
            **where,
            "notes": f"{how}, {row.scored} of {row.asked} episodes scored",
        }
        for metric, row in rows
        if row.value is not None and math.isfinite(row.value)
    ]


def yaml_text(value: Any, indent: int = 0) -> str:
    """Return plain data as YAML in blocks; every text is quoted, so that none can end a value or the document."""
    space = " " * indent
    if isinstance(value, Mapping) and value:
        lines = [f"{space}{key}:{_yaml_value(item, indent + 2)}" for key, item in value.items()]
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        lines = [f"{space}- {yaml_text(item, indent + 2).lstrip()}" for item in value]
    else:
        return space + _yaml_scalar(value)
    return "\n".join(lines)


def _yaml_value(value: Any, indent: int) -> str:
    nested = isinstance(value, Mapping | list | tuple) and bool(value)
    return f"\n{yaml_text(value, indent)}" if nested else f" {_yaml_scalar(value)}"


def _yaml_scalar(value: Any) -> str:
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")  # 1e-05 is a text in YAML 1.1
    if not isinstance(value, str):
        return json.dumps(value)
    quoted = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^\x20-\x7e]|[<>]", lambda found: _yaml_escape(ord(found[0])), quoted)


def _yaml_escape(code: int) -> str:
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


# Upload to a hub.


def upload(folder: Path, repository: str, repo_type: Literal["model", "dataset"]) -> str:
    """Upload a published folder and return the address of what was made; the token comes from HF_TOKEN alone."""
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, token=os.environ["HF_TOKEN"])
    try:
        new = not api.repo_exists(repository, repo_type=repo_type)
        if new:
            api.create_repo(repository, repo_type=repo_type, private=True)
        ours = new or api.file_exists(repository, SUBMISSION, repo_type=repo_type)
        names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
        added = [CommitOperationAdd(name, folder / name) for name in names if ours or name != CARD]
        message = "Results measured with rewardlab"
        made = api.create_commit(repository, added, commit_message=message, repo_type=repo_type, create_pr=not ours)
    except Exception as error:  # whatever the network or the hub does
        said = " ".join(str(error).replace(os.environ["HF_TOKEN"], "HF_TOKEN").split())[:300]
        raise RunError(
            f"{folder} is written, but {repository} did not take it ({type(error).__name__}: {said})"
        ) from None
    return str(made.pr_url or made.commit_url)
