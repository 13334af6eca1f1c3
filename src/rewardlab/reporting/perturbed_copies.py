"""Command `data perturb`: copies of a dataset, or sheets."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rewardlab.core.episode import Episode, rearrange
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.old_settings import setting
from rewardlab.core.storage import writable
from rewardlab.data import dataset_folder, open_dataset
from rewardlab.data.roboreward import write_episode
from rewardlab.data.roboreward_rows import METADATA
from rewardlab.evaluation.plan import require_limit, require_selection
from rewardlab.evaluation.replay import TrialReplay, trial_replay
from rewardlab.reporting.contact_sheets import write_sheet


@dataclass(frozen=True)
class PerturbPlan:
    """Write perturbed copies of a dataset, or contact sheets that show what a perturbation does."""

    data: str = setting("dataset folder or a shipped name such as sample", positional=True)
    perturbations: tuple[str, ...] = setting("names, categories (visual, semantic, temporal, domain) or all", ("all",))
    severities: tuple[int, ...] = setting("severities to write", (1, 2, 3, 4))
    seed: int = setting("seed of everything that is random", 0)
    limit: int | None = setting("use only the first N episodes; a sheet shows one episode unless this says more", None)
    sheet: bool = setting("write one contact sheet (PNG) per perturbation instead of copies", False)
    out: Path = setting("folder to write to", Path("perturbed"))

    def __post_init__(self) -> None:
        require_selection(self.perturbations, self.severities)
        require_limit(self.limit)


def write_copies(shown: TrialReplay, severities: tuple[int, ...], out: Path) -> Iterator[str]:
    """Write every perturbed copy that is not there yet; yield the file name of each, or why it was left out."""
    with writable(out):
        out.mkdir(parents=True, exist_ok=True)
    present = _present(out)
    for episode in shown.episodes.values():
        for name in shown.context.perturbations:
            for severity in severities:
                target = _target(episode.id, name, severity)
                if target not in present:
                    yield _write(shown, episode.id, name, severity, out / target)


def _write(shown: TrialReplay, episode: str, name: str, severity: int, path: Path) -> str:
    out, target = path.parents[1], f"{path.parent.name}/{path.name}"
    try:
        change = shown.change(episode, name, severity)
    except DataError as error:
        return f"left out {target}: {error}"
    extra: dict[str, object] = {
        "original": episode,
        "perturbation": name,
        "severity": severity,
        "expectation": change.expect,
    }
    with writable(path):
        write_episode(out, _as_played(change.episode), target, extra)
    return target


def _as_played(episode: Episode) -> Episode:
    """Return the episode as a player shows it: where frames are missing, the one before stands still.

    Frames that come at their own times are written at these times; a player lets each stand until the next.
    """
    positions = episode.clip.positions
    if not episode.clip.is_even:
        return episode
    return rearrange(episode, np.searchsorted(positions, np.arange(positions[-1] + 1), side="right") - 1)


def _target(episode: str, name: str, severity: int) -> str:
    """Return the file name of a copy; the whole name of the original is in it, so that no two are alike."""
    subset, _, rest = episode.partition("/") if "/" in episode else ("episodes", "", episode)
    stem = rest.removesuffix(".mp4").replace("/", "--").replace(".mp4#", "#").replace("#", "-row")
    return f"{subset}/{stem}.{name.replace(':', '-')}.{severity}.mp4"


def _present(out: Path) -> set[str]:
    path = out / METADATA
    if not path.exists():
        return set()
    return {json.loads(line)["file_name"] for line in path.read_text(encoding="utf-8").splitlines() if line.strip()}


def perturbed_files(plan: PerturbPlan) -> Iterator[str]:
    """Write one file at a time and yield its name, or why it was left out."""
    contents = open_dataset(plan.data)
    if not contents.episodes:
        raise DataError(f"{plan.data} holds no usable episode; run `rewardlab data check {plan.data}`")
    if plan.out.resolve() == dataset_folder(plan.data).resolve():
        raise PlanError(f"--out {plan.out} is the dataset itself; choose another folder")
    limit = plan.limit or (1 if plan.sheet else None)
    frames = "uniform:16" if plan.sheet else "all"
    shown = trial_replay(contents.episodes[:limit], plan.perturbations, frames, plan.seed)
    yield from _sheets(shown, plan.out) if plan.sheet else write_copies(shown, plan.severities, plan.out)


def _sheets(shown: TrialReplay, out: Path) -> Iterator[str]:
    for number, episode in enumerate(shown.episodes):
        for perturbation in shown.context.perturbations.values():
            suffix = f"-{number + 1}" if len(shown.episodes) > 1 else ""
            path = out / f"{perturbation.name.replace(':', '-')}{suffix}.png"
            write_sheet(shown, episode, perturbation, path)
            yield str(path)
