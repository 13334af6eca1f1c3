"""Command `data perturb`: perturbed copies of a dataset, or contact sheets."""

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import numpy as np

from rewardlab.core.episode import rearrange
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.settings import Data, Demonstrations, Help, Seed, SkipInvalid, several
from rewardlab.core.storage import read_journal, writable
from rewardlab.data import dataset_folder, open_dataset, refuse_problems
from rewardlab.data.reading import draw_episodes
from rewardlab.data.roboreward import write_episode
from rewardlab.data.roboreward_rows import METADATA

if TYPE_CHECKING:
    from rewardlab.evaluation.replay import TrialReplay


def data_perturb(
    data: Data,
    *,
    perturbations: Annotated[
        str | Sequence[str], Help("names, categories (visual, semantic, temporal, domain) or all", metavar="NAME")
    ] = ("all",),
    severities: Annotated[int | Sequence[int], Help("severities to write")] = (1, 2, 3, 4),
    sheet: Annotated[bool, Help("write one contact sheet (PNG) for each perturbation instead of copies")] = False,
    limit: Annotated[
        int | None, Help("use only N episodes, spread over tasks and levels; default: all, or the first for sheets")
    ] = None,
    demonstrations: Demonstrations = False,
    skip_invalid: SkipInvalid = False,
    seed: Seed = 0,
    out: Annotated[Path | str, Help("folder to write to")] = "perturbed",
    tell: Callable[[str], object] = lambda _line: None,
) -> list[str]:
    """Write perturbed copies of a dataset, or contact sheets that show what a perturbation does.

    Returns a line for each file: its name, or why it was left out.

    Examples:
        rewardlab data perturb sample --perturbations gaussian_noise --out noisy
        rewardlab data perturb sample --perturbations visual --sheet --out sheets
    """
    from rewardlab.evaluation.plan import require_limit, require_selection
    from rewardlab.evaluation.replay import trial_replay

    names, levels, folder = several(perturbations), several(severities), Path(out)
    require_selection(names, levels)
    require_limit(limit)
    contents = open_dataset(str(data), demonstrations=demonstrations)
    if not skip_invalid:
        refuse_problems(data, contents.problems)
    if not contents.episodes:
        raise DataError(f"{data} holds no usable episode; run `rewardlab data check {quote(str(data))}`")
    if folder.resolve() == dataset_folder(str(data)).resolve():
        raise PlanError(f"--out {folder} is the dataset itself; choose another folder")
    frames = "uniform:16" if sheet else "all"
    episodes = contents.episodes[:1] if sheet and limit is None else draw_episodes(contents.episodes, limit, seed)
    shown = trial_replay(episodes, names, frames, seed)
    written = _write_sheets(shown, folder) if sheet else write_copies(shown, levels, folder)
    lines = []
    for line in chain((f"left out {problem}" for problem in contents.problems), written):
        tell(line)
        lines.append(line)
    return lines


def write_copies(shown: "TrialReplay", severities: tuple[int, ...], out: Path) -> Iterator[str]:
    """Write every perturbed copy that is missing; yield the file name of each, or why it was left out."""
    with writable(out):
        out.mkdir(parents=True, exist_ok=True)
    path = out / METADATA
    if path.exists():  # a row that a killed run has torn is written again
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    present = {row["file_name"] for row in read_journal(path, ("file_name",))}
    for episode in shown.episodes.values():
        for name in shown.context.perturbations:
            for severity in severities:
                target = _target(episode.id, name, severity)
                if target not in present:
                    yield _write(shown, episode.id, name, severity, out / target)


def _write(shown: "TrialReplay", episode: str, name: str, severity: int, path: Path) -> str:
    out, target = path.parents[1], f"{path.parent.name}/{path.name}"
    try:
        change = shown.change(episode, name, severity)
    except DataError as error:
        return f"left out {target}: {error}"
    extra = {"original": episode, "perturbation": name, "severity": severity, "expectation": change.expect}
    played, positions = change.episode, change.episode.clip.positions
    if played.clip.is_even:  # as a player shows it, a missing frame repeats the one before; else frames have own times
        played = rearrange(played, np.searchsorted(positions, np.arange(positions[-1] + 1), side="right") - 1)
    with writable(path):
        write_episode(out, played, target, extra)
    return target


def _target(episode: str, name: str, severity: int) -> str:
    """Return the file name of a copy; it contains the whole name of the original, so no two are alike."""
    subset, _, rest = episode.partition("/") if "/" in episode else ("episodes", "", episode)
    stem = rest.removesuffix(".mp4").replace("/", "--").replace(".mp4#", "#").replace("#", "-row")
    return f"{subset}/{stem}.{name.replace(':', '-')}.{severity}.mp4"


def _write_sheets(shown: "TrialReplay", out: Path) -> Iterator[str]:
    from rewardlab.reporting.contact_sheets import write_sheet

    for number, episode in enumerate(shown.episodes):
        for perturbation in shown.context.perturbations.values():
            suffix = f"-{number + 1}" if len(shown.episodes) > 1 else ""
            path = out / f"{perturbation.name.replace(':', '-')}{suffix}.png"
            write_sheet(shown, episode, perturbation, path)
            yield str(path)
