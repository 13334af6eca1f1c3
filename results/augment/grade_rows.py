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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import rewardlab
from rewardlab.core.seeding import rng_for
from rewardlab.core.settings import Execution
from rewardlab.data import open_dataset
from rewardlab.worlds import open_world
from rewardlab.worlds.metaworld import graded_commands, physics
from rewardlab.worlds.metaworld.instructions import phrasings
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS, ProgressMeter

Row = dict[str, Any]


def rows_of(path: Path) -> list[Row]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def true_levels(made: Path, count: int) -> dict[str, Row]:
    """Return by row the level that its words and the state give, and that of the simulator's moved goal.

    Rows of so many sources are graded, drawn at random.
    """
    kept, folder = made.with_name(f"{made.name}-truth.jsonl"), made / "clip"
    known = {row["row"]: row for row in (rows_of(kept) if kept.exists() else [])}
    by_source: dict[str, list[tuple[Row, int]]] = {}
    for row, episode in zip(rows_of(folder / "metadata.jsonl"), open_dataset(str(folder)).episodes, strict=True):
        by_source.setdefault(row["provenance"]["source_episode"], []).append((row, len(episode.clip)))
    sources = sorted(by_source)
    with kept.open("a", encoding="utf-8") as file:
        for place in rng_for(0, "graded").permutation(len(sources))[:count]:
            todo = [each for each in by_source[sources[place]] if each[0]["provenance"]["row"] not in known]
            for graded in graded_rows(folder, todo):
                known[graded["row"]] = graded
                file.write(json.dumps(graded) + "\n")
            file.flush()
    return known


def graded_rows(folder: Path, rows: list[tuple[Row, int]]) -> list[Row]:
    """Return what is true of the rows of one source, all of which show the first frames of one video."""
    if not rows:
        return []
    first = rows[0][0]
    world: Any = open_world(first["world"] | {"file": str(folder / first["world"]["file"])})
    whole, steps = world.trajectory, world.record.video_steps()
    asked = [stated_goal(row, whole.task) for row, frames in rows]
    moved = iter(moved_goal_levels(whole, [goal for goal in asked if goal is not None]))
    return [
        {
            "row": row["provenance"]["row"],
            "task": whole.task,
            "level": graded_commands.level_of_command(
                row["task"], graded_commands.until(whole, int(steps[frames - 1]))
            ),
            "moved": None if goal is None else next(moved),
        }
        for (row, frames), goal in zip(rows, asked, strict=True)
    ]


def stated_goal(row: Row, task: str) -> Any:
    """Return where a command wants the object, in a task that states its goal as a place; None for other rows."""
    by_place = "{where}" in phrasings()[task]["train"][0]
    if row["provenance"]["stage"] != "counterfactual" or not by_place:
        return None
    return graded_commands._stated_goal(graded_commands.normal(row["task"]), task)


def moved_goal_levels(whole: physics.Trajectory, goals: list[Any]) -> list[dict[str, int]]:
    """Return the level of the last state by the simulator's own distance and success, for goals moved to these places.

    `as_the_task` is how the task itself is measured: where a tool moves the object, fetching it is a third of the way.
    The commands do not ask for that, so that `place` looks at the object alone.
    """
    if not goals:
        return []
    env, still = physics.open_task(whole.task), np.zeros(4, np.float32)
    with physics.without_warnings():
        observation, _ = physics.reset_scene(env, whole.seed)
        meters = []
        for goal in goals:
            env._target_pos = whole.object_pos[0] + goal
            meters.append(ProgressMeter(whole.task, env, observation, env.evaluate_state(observation, still)[1]))
        for action in whole.actions:
            observation, _, _, _, _ = env.step(action)
        levels = []
        for goal, meter in zip(goals, meters, strict=True):
            env._target_pos = whole.object_pos[0] + goal
            info = env.evaluate_state(observation, still)[1]
            as_the_task = meter.read(observation, info).level
            meter.spec = replace(meter.spec, tool=None)
            levels.append({"as_the_task": as_the_task, "place": meter.read(observation, info).level})
    return levels


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
    rewardlab.data_augment(
        work / "planted",
        stage="validate",
        out=work / "validated",
        cache_dir=work / "calls",
        execution=Execution(quiet=True),
    )
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
    pairs = {name: (row["reward"], truth[name]["level"] or 0) for name, row in graded.items()}
    names = [name for row in ours if (name := row["provenance"]["row"]) in pairs]
    moved = [(pairs[name][0], truth[name]) for name in names if truth[name]["moved"] is not None]
    with_tool = {task for task, spec in PROGRESS_SPECS.items() if spec.tool}
    found = {
        "successes": len({row["provenance"]["source_episode"] for row in kept}),
        "kept_rows": len(kept),
        "levels": dict(sorted(Counter(str(row["reward"]) for row in kept).items())),
        "stages": dict(Counter(row["provenance"]["stage"] for row in kept)),
        "refused": dict(Counter(row["provenance"]["rejected"].split(": ")[0][:80] for row in refused)),
        "all_kept_rows": agreement(list(pairs.values())),
        "made_rows": agreement([pairs[name] for name in names]),
        "by_the_simulator_with_its_goal_moved": {
            "the object alone": agreement([(label, each["moved"]["place"]) for label, each in moved]),
            "as the task is measured": agreement([(label, each["moved"]["as_the_task"]) for label, each in moved]),
            "as the task is measured, no tool": agreement(
                [(label, each["moved"]["as_the_task"]) for label, each in moved if each["task"] not in with_tool]
            ),
        },
        "planted_wrong_labels": planted_labels(made, made.with_name(f"{made.name}-planted")),
    }
    out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
