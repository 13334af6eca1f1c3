"""Perturbed copies of a dataset, written in the layout that everything reads."""

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from rewardlab.bench.replay import Replay
from rewardlab.core.errors import DataError
from rewardlab.core.run import writable
from rewardlab.data.folder import METADATA, write_episode


def write_copies(shown: Replay, severities: tuple[int, ...], out: Path) -> Iterator[str]:
    """Write every perturbed copy that is not there yet; yield the file name of each, or why it was left out."""
    with writable(out):
        out.mkdir(parents=True, exist_ok=True)
    present = _present(out)
    for episode in shown.episodes.values():
        for name in shown.bench.perturbations:
            for severity in severities:
                target = _target(episode.id, name, severity)
                if target not in present:
                    yield _write(shown, episode.id, name, severity, out / target)


def _write(shown: Replay, episode: str, name: str, severity: int, path: Path) -> str:
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
        write_episode(out, change.episode, target, extra)
    return target


def _target(episode: str, name: str, severity: int) -> str:
    path = PurePosixPath(episode.replace("#", "-"))
    subset = path.parts[0] if len(path.parts) > 1 else "episodes"
    stem = "-".join((*path.parts[1:-1], path.stem)) if len(path.parts) > 1 else path.stem
    return f"{subset}/{stem}.{name}.{severity}.mp4"


def _present(out: Path) -> set[str]:
    path = out / METADATA
    if not path.exists():
        return set()
    return {json.loads(line)["file_name"] for line in path.read_text(encoding="utf-8").splitlines() if line.strip()}
