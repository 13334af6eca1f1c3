"""The factory on workers: an episode that kills them is refused, and what was answered is never asked again."""

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from rewardlab.augmentation.augment import data_augment
from rewardlab.augmentation.batched_teacher import CallCache, FactoryWorkers
from rewardlab.augmentation.labels import shortened
from rewardlab.augmentation.rows import StageRows, read_dataset, write_dataset
from rewardlab.core.episode import whole_clip
from rewardlab.core.errors import PlanError
from rewardlab.core.settings import Execution
from rewardlab.core.video_encoding import encode
from rewardlab.data import open_dataset
from tests.augmentation.local_teacher import COMMANDS, POISONED, DeadlyFrames, make_counterfactuals
from tests.conftest import moving_square, write_rows

PROCESSES, IN_PROCESS = Execution(workers=2), Execution(workers=2, engine="local")


def write_demos(folder: Path, sides: Sequence[int]) -> Path:
    """Write demonstrations of one task, in frames of these sides."""
    (folder / "lab").mkdir(parents=True)
    for number, side in enumerate(sides):
        encode(moving_square(f"demo {number}", size=side), folder / f"lab/{number}.mp4", fps=10)
    task = "Put the red cup on the plate."
    rows = [{"file_name": f"lab/{number}.mp4", "task": task, "reward": 5} for number in range(len(sides))]
    return write_rows(folder, rows)


def asked(folder: Path) -> Counter[str]:
    return Counter((folder / "asked").read_text().splitlines())


@pytest.mark.slow
def test_an_episode_that_kills_its_worker_twice_is_refused_and_costs_no_other(tmp_path: Path) -> None:
    data = write_demos(tmp_path / "data", (48, POISONED, 56))
    made = make_counterfactuals(data, tmp_path, PROCESSES)
    commands = [row.row["task"] for row in made.kept if row.provenance["stage"] == "counterfactual"]
    assert commands == [*COMMANDS.values()] * 2
    assert [row.row["reward"] for row in made.rejected] == [1, 2, 3, 4]
    assert {row.row["file_name"] for row in made.rejected} == {"lab/1.mp4"}
    assert all("a worker process ended with exit code -11" in row.provenance["rejected"] for row in made.rejected)
    times = asked(tmp_path)
    assert max(times.values()) == 2 and sum(count > 1 for count in times.values()) <= 2  # and one beside it


def test_answers_of_a_killed_command_are_not_asked_for_again_on_another_engine(tmp_path: Path) -> None:
    data = write_demos(tmp_path / "data", (40, 48, 56))
    (tmp_path / "hold").touch()
    code = (
        "from pathlib import Path\nfrom rewardlab.core.settings import Execution\n"
        "from tests.augmentation.local_teacher import make_counterfactuals\n"
        f"make_counterfactuals(Path({str(data)!r}), Path({str(tmp_path)!r}), Execution(workers=2))"
    )
    first = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL)
    while not (tmp_path / "asked").exists() or asked(tmp_path).total() <= 12:
        with suppress(subprocess.TimeoutExpired):
            pytest.fail(f"it ended with {first.wait(0.1)}")
    first.kill()
    first.wait()
    kept = len(CallCache(tmp_path))
    (tmp_path / "hold").unlink()
    (tmp_path / "asked").unlink()
    made = make_counterfactuals(data, tmp_path, IN_PROCESS)
    assert kept >= 8
    assert asked(tmp_path).total() == len(CallCache(tmp_path)) - kept
    assert len(made.kept) == 3 * 5 and not made.rejected


def test_a_video_that_kills_its_worker_takes_its_row_out_and_no_other(tmp_path: Path) -> None:
    rows = read_dataset(str(write_demos(tmp_path / "data", (48, 48))), skip_invalid=False)
    poison = replace(rows[1], episode=replace(rows[1].episode, clip=whole_clip(DeadlyFrames(tmp_path / "tries"), 10.0)))
    short = replace(rows[0], episode=shortened(rows[0].episode, 8))
    with FactoryWorkers({}, Execution(workers=1)) as workers:
        made = write_dataset(tmp_path / "out", StageRows((short, poison)), (), workers.write_videos)
    assert [row.row["file_name"] for row in made.kept] == ["lab/0.mp4"]
    assert "could not be written: a worker process ended with exit code -11" in made.rejected[0].provenance["rejected"]
    assert (tmp_path / "tries").read_text() == "xx"
    assert [len(episode.clip) for episode in open_dataset(str(tmp_path / "out")).episodes] == [8]


def write_tasks(folder: Path, count: int, **first: object) -> Path:
    """Write successes of so many tasks, all with one video; `first` are more columns of the first."""
    folder.mkdir()
    encode(moving_square("demo"), folder / "a.mp4", fps=10)
    rows = [{"file_name": "a.mp4", "task": f"push block number {n}", "reward": 5} for n in range(count)]
    return write_rows(folder, [rows[0] | first, *rows[1:]])


def test_a_teacher_that_failed_twenty_times_for_good_can_be_queried_again(tmp_path: Path) -> None:
    data, stages = write_tasks(tmp_path / "data", 24, world={"kind": "metaworld"}), ("rewrite", "counterfactual")
    for _ in range(2):  # the second time the cache has the rewritten tasks, and every other question fails again
        made = data_augment(data, out=tmp_path / "out", stage=stages, execution=Execution(engine="local", quiet=True))
        assert [(stage.kept, stage.rejected) for stage in made.stages] == [(24, 0), (24, 4 * 24)]
    assert made.cached["rewrite"] == 24


@pytest.mark.parametrize("stages", [("all",), ("counterfactual",), ("clip",), ("rewrite", "validate")])
def test_the_scripted_teacher_is_refused_at_once_where_no_row_has_a_simulator_record(
    tmp_path: Path, stages: tuple[str, ...]
) -> None:
    made = {"row": "x", "source_episode": "a", "stage": "clip", "history": [], "verdicts": [], "license": "MIT"}
    more = {"reward": 2, "original_task": "push", "provenance": made}
    data = write_tasks(tmp_path / "data", 3, **more)
    with pytest.raises(PlanError, match=r"--vision openai:MODEL@URL or hf:FOLDER"):
        data_augment(data, out=tmp_path / "out", stage=stages, execution=Execution(quiet=True))
    assert not (tmp_path / "out").exists()


def test_an_object_store_is_no_place_for_a_dataset() -> None:
    with pytest.raises(PlanError, match="must be a folder, one that all machines share"):
        data_augment("sample", out=Path("s3://lab/made"))
