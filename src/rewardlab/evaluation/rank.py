"""Command `data rank`: the worst episodes of a dataset by a model's scores, why, and the command that removes them.

A model that is wrong ranks wrongly. So two baselines that look at no task rank the same episodes beside it. Where
episodes have labels, the success AUC of all three is stated.
"""

import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from rewardlab.core.episode import is_success
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.run import Run
from rewardlab.core.settings import (
    Budget,
    Data,
    Demonstrations,
    Execution,
    FramePolicyText,
    Help,
    Limit,
    Scoring,
    Seed,
    SkipInvalid,
)
from rewardlab.core.storage import csv_text, write_file
from rewardlab.core.summary import Summary
from rewardlab.core.trial import Trial, familiarity_sentence
from rewardlab.data import HUB, recognised_folder, split_camera, split_name
from rewardlab.data.lerobot import LEROBOT, count_episodes, episode_number, read_dataset_info
from rewardlab.evaluation.display import format_interval, listed
from rewardlab.models import name_model

BASELINES = ("motion", "change")  # they see how much pixels change, neither what moves nor what was asked for
_FALL = 0.2  # of progress, from its highest value to its last: a smaller one is no reason
_AUC = "success_auc"


@dataclass(frozen=True)
class RankedEpisode:
    """One episode, what the model and the baselines answered, and every reason to look at it; level None: no answer."""

    episode: str
    instruction: str
    level: float | None
    fall: float  # of progress, from its highest value to its last
    unfamiliar: bool | None  # whether it is unlike the training data of the model; None where the model cannot tell
    label: bool | None  # whether it succeeded, where the dataset states that
    reasons: tuple[str, ...]
    baselines: dict[str, float]  # their levels


@dataclass(frozen=True)
class Ranking:
    """Every episode, worst first; `worst` are those to look at, `notes` what to know of them, `remove` a command."""

    model: str
    baselines: tuple[str, ...]  # those scored beside the model
    episodes: tuple[RankedEpisode, ...]
    worst: tuple[RankedEpisode, ...]
    notes: tuple[str, ...]
    remove: str
    run: Run


def data_rank(
    data: Data,
    *,
    model: Annotated[str, Help("model whose scores rank the episodes")] = "pocket",
    worst: Annotated[int, Help("list at most N episodes, and as many without an answer")] = 10,
    frames: FramePolicyText = "uniform:16",
    limit: Limit = None,
    demonstrations: Demonstrations = False,
    skip_invalid: SkipInvalid = False,
    seed: Seed = 0,
    run: Annotated[
        Path | str | None, Help("run folder of the scores; default: runs/ and a name made from the settings")
    ] = None,
    out: Annotated[Path | str | None, Help("also write every episode to this file: .csv or .json")] = None,
    execution: Execution = Execution(),
    scoring: Scoring = Scoring(),
    budget: Budget = Budget(),
) -> Ranking:
    """List the worst episodes of a dataset by a model's scores, with the reason.

    For a LeRobot dataset it prints the `lerobot-edit-dataset` command that leaves them out of a copy. Nothing is
    removed: watch the clips first, because the model may be wrong.

    Examples:
        rewardlab data rank sample --model pocket --worst 5
        rewardlab data rank lerobot:demos@front --model openai:MODEL@URL --out ranking.csv
    """
    given = dict(locals())
    from rewardlab.evaluation.evaluate import evaluate
    from rewardlab.evaluation.plan import make_plan
    from rewardlab.evaluation.summary import load_summary

    if worst < 1:
        raise PlanError(f"worst must be at least 1, got {worst}")
    if out is not None and Path(out).suffix not in (".csv", ".json"):
        raise PlanError(f"out must be a file that ends in .csv or .json, got {str(out)!r}")
    plan = make_plan("data rank", data_rank, given, kind="rank", out=run)
    (named,) = plan.models
    beside = tuple(name for name in BASELINES if name != named.name)
    scored = evaluate(replace(plan, controls=tuple(map(name_model, beside))))
    trials = scored.trials().rows()
    episodes = rank_trials(trials, named.name)
    failed = [each for each in episodes if each.level is None]
    if len(failed) == len(episodes):
        raise ModelError(f"{named.name} gave no answer for any episode; the first reason: {failed[0].reasons[0]}")
    found = [each for each in episodes if each.reasons and each.level is not None][:worst]
    notes = [
        *_accuracy_notes(load_summary(scored), episodes, named.name),
        *_baseline_notes(episodes, found, named.name, beside),
    ]
    notes += [f"{named.name}: {named.caveat}"] if named.caveat else []
    remove, why_not = removal_command(str(data), [each.episode for each in found])
    notes += [why_not] if why_not else []
    ranking = Ranking(named.name, beside, episodes, (*found, *failed[:worst]), tuple(notes), remove, scored)
    if out is not None:
        _write(ranking, Path(out))
    return ranking


def rank_trials(trials: Sequence[Trial], model: str) -> tuple[RankedEpisode, ...]:
    """Return every episode, worst first: by its level, less what its progress loses; those without an answer last."""
    levels: dict[str, dict[str, float]] = {}
    for trial in trials:
        if trial.model in BASELINES and trial.model != model and trial.level is not None:
            levels.setdefault(trial.episode, {})[trial.model] = trial.level
    ranked = [_ranked(trial, levels.get(trial.episode, {})) for trial in trials if trial.model == model]
    return tuple(sorted(ranked, key=_place))


def _place(ranked: RankedEpisode) -> tuple[bool, float, str]:
    level = ranked.level
    return level is None, (level or 0.0) - (4 * ranked.fall if ranked.fall >= _FALL else 0.0), ranked.episode


def _ranked(trial: Trial, baselines: dict[str, float]) -> RankedEpisode:
    progress = trial.progress or (0.0,)
    fall = max(progress) - progress[-1]
    reasons = []
    if trial.level is None:
        reasons.append(f"no answer: {trial.reason}")
    elif not is_success(trial.level):
        stated = {True: ", but labelled a success", False: ", and labelled a failure", None: ""}
        reasons.append(f"level {trial.level:.1f} of 5{stated[trial.truth_success]}")
    elif trial.truth_success is False:
        reasons.append("labelled a failure")
    if fall >= _FALL:
        reasons.append(f"progress falls from {max(progress):.2f} to {progress[-1]:.2f}")
    if trial.info.guard is not None and trial.info.guard.decision != "pass":
        reasons.append(f"guard: {trial.info.guard.decision}")
    if trial.info.unfamiliar:
        reasons.append(familiarity_sentence(trial.info).partition(":")[0])
    return RankedEpisode(
        trial.episode,
        trial.instruction,
        trial.level,
        round(fall, 4),
        trial.info.unfamiliar,
        trial.truth_success,
        tuple(reasons),
        baselines,
    )


def _accuracy_notes(summary: Summary, episodes: Sequence[RankedEpisode], model: str) -> list[str]:
    """Return how well the model tells successes from failures here, or that nothing shows it."""
    labels = [each.label for each in episodes if each.label is not None]
    if len(set(labels)) < 2:
        known = f"all {len(labels)} labelled episodes are {'successes' if labels[0] else 'failures'}" if labels else ""
        return [f"{(known or 'no episode has a label').capitalize()}: the accuracy of {model} on this data is unknown."]
    measured = {each.model: each for each in summary.measurements if each.metric == _AUC and each.group == "clean"}
    parts = [
        f"{name} {each.value:.2f} {format_interval(each)}".strip()
        for name in dict.fromkeys((model, *BASELINES))
        if (each := measured.get(name)) is not None and each.value is not None
    ]
    return [f"Success AUC on {len(labels)} labelled episodes (0.5 is chance): {', '.join(parts)}."] if parts else []


def _baseline_notes(
    episodes: Sequence[RankedEpisode], found: Sequence[RankedEpisode], model: str, baselines: Sequence[str]
) -> list[str]:
    """Return how many of the listed episodes each baseline would list too, were it asked for as many."""
    if not found:
        return []
    names, shared = {each.episode for each in found}, []
    for baseline in baselines:
        known = sorted((each.baselines[baseline], each.episode) for each in episodes if baseline in each.baselines)
        shared.append(f"{baseline} lists {sum(name in names for _, name in known[: len(found)])}")
    many, chance = len(found), len(found) ** 2 / len(episodes)
    return [f"Of the {many} that {model} ranks lowest, {listed(shared)} among its own {many} (chance: {chance:.1f})."]


# LeRobot: the command that leaves episodes out. Its text is for people to read and to run; nothing is run here.

_NEW = "_kept"  # appended to the name of the dataset that is written
_NAME = re.compile(r"[A-Za-z](?:[\w. -]*\w)?", re.ASCII)  # what LeRobot reads as YAML, and YAML as a text
_NO_TEXT = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}  # but for these words


def removal_command(data: str, episodes: Sequence[str]) -> tuple[str, str]:
    """Return the command that leaves episodes out of a copy of a LeRobot dataset, or "" and why there is none.

    Without `--new_repo_id` LeRobot would move the dataset away. It finds both by HF_LEROBOT_HOME, because what `--root`
    means depends on its release.
    """
    name, _ = split_camera(data)
    reader, folder = recognised_folder(name)
    if reader != LEROBOT.name or not episodes:
        return "", ""
    numbers = sorted({number for each in episodes if (number := episode_number(each)) is not None})
    info = read_dataset_info(folder)
    if not info.is_v3:
        return "", f"`lerobot-edit-dataset` needs version v3.0, this is {info.version}: convert it, and rank it again."
    if len(numbers) == count_episodes(info):
        return "", "`lerobot-edit-dataset` cannot remove every episode: list fewer with --worst."
    before, repository = "", ""
    if name.startswith(HUB):
        repository, split = split_name(name)
        if split:
            return "", "`lerobot-edit-dataset` edits whole datasets of the hub: download this one and name its folder."
    else:
        whole = Path(os.path.abspath(folder))
        repository, before = whole.name, f"HF_LEROBOT_HOME={shlex.quote(str(whole.parent))} "
        if not str(whole).isprintable() or not _NAME.fullmatch(repository) or repository.lower() in _NO_TEXT:
            return "", "`lerobot-edit-dataset` may misread the name of this folder: rename it to letters and digits."
    given = {"repo_id": repository, "new_repo_id": f"{repository}{_NEW}", "operation.type": "delete_episodes"}
    words = [f"--{key} {shlex.quote(value)}" for key, value in given.items()]
    return f"{before}lerobot-edit-dataset {' '.join(words)} --operation.episode_indices {shlex.quote(str(numbers))}", ""


def _write(ranking: Ranking, path: Path) -> None:
    """Write every episode, worst first, as a table or a list of objects."""
    rows = [
        {"rank": place, **{name: value for name, value in vars(each).items() if name != "baselines"}}
        | {name: each.baselines.get(name) for name in ranking.baselines}
        for place, each in enumerate(ranking.episodes, start=1)
    ]
    if path.suffix == ".json":
        text = json.dumps(rows, indent=1) + "\n"
    else:
        cells = [[*({**row, "reasons": "; ".join(row["reasons"])}).values()] for row in rows]
        text = csv_text([list(rows[0]), *cells])
    write_file(path, text)
