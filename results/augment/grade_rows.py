"""Grade what the factory made of simulated successes: `python grade_rows.py MADE OUT.json SOURCES`.

Replaying takes a second an episode or two; what is known of a row is kept in `truth.jsonl` beside MADE.

Labels are held against the simulator: the recorded actions are taken again, and the words of each row give the level of
the state that its clip ends in. Commands that ask for an object elsewhere, in tasks that state their goal as a place,
are graded a second time by the simulator's own measure of success, its goal moved to where the command wants it.
Then made rows of the folder `clip` get another label, and `validate` must find these rows and no others.
"""

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import rewardlab
from rewardlab.core.seeding import rng_for
from rewardlab.data import open_dataset
from rewardlab.worlds import open_world
from rewardlab.worlds.metaworld import graded_commands, physics
from rewardlab.worlds.metaworld.instructions import phrasings
from rewardlab.worlds.metaworld.task_progress import ProgressMeter

Row = dict[str, Any]


def rows_of(path: Path) -> list[Row]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def true_levels(made: Path, count: int) -> dict[str, tuple[int | None, int | None]]:
    """Return by row the level that its words and the state give, and that of the simulator's moved goal.

    Rows of so many sources are graded, drawn at random; the goal is moved for one row of each.
    """
    kept, folder = made.with_name(f"{made.name}-truth.jsonl"), made / "clip"
    known = {row["row"]: (row["level"], row["moved"]) for row in (rows_of(kept) if kept.exists() else [])}
    by_source: dict[str, list[tuple[Row, int]]] = {}
    for row, episode in zip(rows_of(folder / "metadata.jsonl"), open_dataset(str(folder)).episodes, strict=True):
        by_source.setdefault(row["provenance"]["source_episode"], []).append((row, len(episode.clip)))
    sources = sorted(by_source)
    with kept.open("a", encoding="utf-8") as file:
        for place in rng_for(0, "graded").permutation(len(sources))[:count]:
            todo = [each for each in by_source[sources[place]] if each[0]["provenance"]["row"] not in known]
            for row, level, moved in _graded(folder, todo):
                known[row] = (level, moved)
                file.write(json.dumps({"row": row, "level": level, "moved": moved}) + "\n")
            file.flush()
    return known


def _graded(folder: Path, rows: list[tuple[Row, int]]) -> Iterator[tuple[str, int | None, int | None]]:
    again = False
    for row, frames in rows:
        world: Any = open_world(row["world"] | {"file": str(folder / row["world"]["file"])})
        shown = graded_commands.until(world.trajectory, int(world.record.video_steps()[frames - 1]))
        moved = None if again else moved_goal_level(row, shown)
        again = again or moved is not None
        yield row["provenance"]["row"], graded_commands.level_of_command(row["task"], shown), moved


def moved_goal_level(row: Row, shown: physics.Trajectory) -> int | None:
    """Return the level by the simulator's own measure with its goal where the command wants it; None if it has none."""
    said = graded_commands.normal(row["task"])
    goal = graded_commands._stated_goal(said, shown.task)
    by_place = "{where}" in phrasings()[shown.task]["train"][0]
    if row["provenance"]["stage"] != "counterfactual" or goal is None or not by_place:
        return None
    env = physics.open_task(shown.task)
    with physics._without_warnings():
        observation, _ = physics._reset(env, shown.seed)
        env._target_pos = shown.object_pos[0] + goal
        _, info = env.evaluate_state(observation, np.zeros(4, np.float32))
        meter = ProgressMeter(shown.task, env, observation, info)
        reading = meter.read(observation, info)
        for action in shown.actions:
            observation, _, _, _, info = env.step(action)
            reading = meter.read(observation, info)
    return reading.level


def agreement(pairs: list[tuple[int, int]]) -> Row:
    """Return how many labels agree exactly, and how many within one level."""
    exact = sum(label == truth for label, truth in pairs)
    near = sum(abs(label - truth) <= 1 for label, truth in pairs)
    return {
        "rows": len(pairs),
        "exact": round(exact / max(len(pairs), 1), 4),
        "within_one": round(near / max(len(pairs), 1), 4),
    }


def planted_labels(made: Path, work: Path) -> Row:
    """Give rows another label, validate, and return precision and recall of what was refused.

    Every second made row of every eighth source is planted; all made rows are validated.
    """
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(made / "clip", work / "planted")
    shutil.copytree(made / ".calls", work / "calls")
    rows = rows_of(work / "planted" / "metadata.jsonl")
    ours = [row for row in rows if row["provenance"]["stage"] in ("counterfactual", "clip")]
    for row in ours:
        row["provenance"]["verdicts"] = []
    sources = sorted({row["provenance"]["source_episode"] for row in ours})[::8]
    planted = [row for row in ours if row["provenance"]["source_episode"] in sources][::2]
    for row in planted:
        row["reward"] = row["reward"] % 4 + 1
    (work / "planted" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (work / "planted" / "rejected.jsonl").write_text("", encoding="utf-8")
    rewardlab.augment(work / "planted", stage="validate", out=work / "validated", calls=work / "calls", quiet=True)
    wrong = {row["provenance"]["row"] for row in planted}
    refused = {row["provenance"]["row"] for row in rows_of(work / "validated" / "rejected.jsonl")}
    hit = len(wrong & refused)
    return {
        "made_rows": len(ours),
        "planted": len(wrong),
        "refused": len(refused),
        "precision": round(hit / max(len(refused), 1), 4),
        "recall": round(hit / max(len(wrong), 1), 4),
    }


def main() -> None:
    """Grade, plant, and write the numbers."""
    made, out = Path(sys.argv[1]), Path(sys.argv[2])
    truth, kept = true_levels(made, int(sys.argv[3])), rows_of(made / "validate" / "metadata.jsonl")
    refused = rows_of(made / "validate" / "rejected.jsonl")
    ours = [row for row in kept if row["provenance"]["stage"] in ("counterfactual", "clip")]
    graded = {name: row for row in kept if (name := row["provenance"]["row"]) in truth}
    pairs = {name: (row["reward"], *truth[name]) for name, row in graded.items()}
    moved = [pairs[name] for row in ours if (name := row["provenance"]["row"]) in pairs]
    found = {
        "successes": len({row["provenance"]["source_episode"] for row in kept}),
        "kept_rows": len(kept),
        "levels": dict(sorted(Counter(str(row["reward"]) for row in kept).items())),
        "stages": dict(Counter(row["provenance"]["stage"] for row in kept)),
        "refused": dict(Counter(row["provenance"]["rejected"].split(": ")[0][:80] for row in refused)),
        "all_kept_rows": agreement([(label, level or 0) for label, level, _ in pairs.values()]),
        "made_rows": agreement([(label, level or 0) for label, level, _ in moved]),
        "by_the_simulator_with_its_goal_moved": agreement([(a, c) for a, _, c in moved if c is not None]),
        "planted_wrong_labels": planted_labels(made, made.with_name(f"{made.name}-planted")),
    }
    out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
