"""Draw one contact sheet per level, and one of the changed worlds, from a dataset with progress and worlds.

python results/worlds/level_sheets.py DATA OUT
"""

import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from rewardlab.core.episode import LEVELS, Episode, Frames, show_only
from rewardlab.core.errors import NotApplicable
from rewardlab.data import open_dataset
from rewardlab.perturbations.world import WORLD_PERTURBATIONS

FRAMES, ROWS = 6, 14


def main(data: str, out: Path) -> None:
    """Write level-1.jpg to level-5.jpg and changed-worlds.jpg."""
    episodes = [episode for episode in open_dataset(data).episodes if episode.label.progress]
    for level in LEVELS:
        strips = [strip(episode) for episode in episodes if episode.label.level == level][:ROWS]
        if len(strips) % 2:
            strips.append(np.full_like(strips[0], 255))
        half = len(strips) // 2
        sheet = np.hstack([np.vstack(strips[:half]), np.vstack(strips[half:])])
        cv2.imwrite(str(out / f"level-{level}.jpg"), sheet[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 82])
    opened = next(e for e in episodes if e.provenance.task == "drawer-open" and e.label.success)
    worlds(replace(opened, instruction="Open the drawer."), out / "changed-worlds.jpg")


def worlds(episode: Episode, path: Path) -> None:
    """Write the last frame of an episode in every changed world, severities 0 to 4 from left to right."""
    last = show_only(episode, np.array([len(episode.clip) - 1]))
    rows = []
    for entry in WORLD_PERTURBATIONS:
        try:
            row = np.hstack([entry(last, severity, 2).episode.frames[0] for severity in range(5)])
        except NotApplicable:
            continue
        head = np.full((20, row.shape[1], 3), 255, np.uint8)
        write(head, entry.name, (4, 14), (0, 0, 0))
        rows.append(np.vstack([head, row]))
    if len(rows) % 2:
        rows.append(np.full_like(rows[0], 255))
    half = len(rows) // 2
    sheet = np.hstack([np.vstack(rows[:half]), np.vstack(rows[half:])])
    cv2.imwrite(str(path), sheet[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])


def strip(episode: Episode) -> Frames:
    """Return a few frames side by side under the instruction, each with its progress."""
    frames, progress = episode.frames, episode.label.progress or ()
    picks = np.round(np.linspace(0, len(frames) - 1, FRAMES)).astype(int)
    side = frames.shape[2]
    row = np.hstack([frames[pick] for pick in picks])
    head = np.full((22, row.shape[1], 3), 255, np.uint8)
    write(head, f"{episode.provenance.task}: {episode.instruction}"[:105], (4, 15), (0, 0, 0))
    for place, pick in enumerate(picks):
        write(row, f"{progress[pick]:.2f}", (place * side + 3, frames.shape[1] - 4), (255, 255, 0))
    return np.vstack([head, row])


def write(image: Frames, text: str, place: tuple[int, int], colour: tuple[int, int, int]) -> None:
    """Write small text onto an image."""
    cv2.putText(image, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.42, colour, 1, cv2.LINE_AA)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
