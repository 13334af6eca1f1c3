"""Draw ten tasks with the recorded arm and with every severity of world_robot, three frames of each.

python results/worlds/other_arm_sheet.py OUT.jpg
"""

import sys
from pathlib import Path

import cv2
import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.core.errors import NotApplicable
from rewardlab.core.seeding import rng_for
from rewardlab.worlds.edits import WORLD_EDITS
from rewardlab.worlds.metaworld.physics import Trajectory, simulate
from rewardlab.worlds.metaworld.policies import make_policy
from rewardlab.worlds.metaworld.render import CameraView
from rewardlab.worlds.metaworld.scene_edits import render_rollout

TASKS = ("assembly", "basketball", "button-press", "door-open", "drawer-open")
TASKS += ("hammer", "pick-place", "shelf-place", "sweep-into", "window-close")
STEPS, SHOWN, SIDE, SEED = 120, (0, 60, 120), 112, 3


def main(out: Path) -> None:
    """Write the sheet: a task to each row; the recorded arm, then severities 1 to 4."""
    edit, rows = WORLD_EDITS["world_robot"], []
    for number, task in enumerate(TASKS):
        rollout = simulate(task, SEED, STEPS, make_policy("expert", task, SEED))
        draws = [edit.sample(parameter, rng_for(number, "sheet")) for parameter in edit.table]
        changes = [(), *(((edit.edit, amounts),) for amounts in draws)]
        rows.append(np.vstack([_caption(task), np.hstack([_frames(rollout, change) for change in changes])]))
    cv2.imwrite(str(out), np.vstack(rows)[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 78])


def _frames(rollout: Trajectory, change: tuple[tuple[str, tuple[float, ...]], ...]) -> Frames:
    """Return frames side by side, white where the arm cannot follow."""
    white = np.full((SIDE, 4, 3), 255, np.uint8)
    try:
        frames = render_rollout(rollout, SHOWN, CameraView(size=SIDE), change)
    except NotApplicable:
        frames = np.full((len(SHOWN), SIDE, SIDE, 3), 255, np.uint8)
    return np.hstack([*frames, white])


def _caption(task: str) -> Frames:
    head = np.full((18, 5 * (len(SHOWN) * SIDE + 4), 3), 255, np.uint8)
    for column, text in enumerate((task, *(f"world_robot, severity {severity}" for severity in (1, 2, 3, 4)))):
        place = (column * (len(SHOWN) * SIDE + 4) + 3, 13)
        cv2.putText(head, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.42, (0, 0, 0), 1, cv2.LINE_AA)
    return head


if __name__ == "__main__":
    main(Path(sys.argv[1]))
