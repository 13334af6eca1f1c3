"""`rewardlab data rank`: the worst episodes with the reasons, and the command that leaves them out of a copy."""

import csv
import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import rewardlab
from rewardlab.cli import main
from rewardlab.core.episode import Episode
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo
from rewardlab.evaluation.rank import Ranking, removal_command
from tests.conftest import IN_PROCESS
from tests.data.lerobot_writer import write_v2, write_v3


class ByTask:
    """Answers by the words of the instruction; one episode it cannot score."""

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        return [self.answer(episode) for episode in episodes]

    def answer(self, episode: Episode) -> Answer:
        n, words = len(episode.clip), episode.instruction
        if "drawer" in words:
            return Failure("the picture is too dark")
        if "cup" in words:  # done, then undone, and still called a success
            return Score(4.8, progress=tuple([0.9] * (n - 1) + [0.3]))
        if "towel" in words:
            return Score(2.0, info=ScoreInfo(unfamiliar=True, unfamiliar_because="a drawing"))
        if "window" in words:
            return Score(4.9, info=ScoreInfo(unfamiliar=True))
        return Score(1.0 if "block" in words else 5.0)


class Nothing:
    """Never answers."""

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        return [Failure("no key") for _ in episodes]


def rank(data: Path, tmp_path: Path, model: str = "tests.evaluation.test_rank:ByTask", **more: object) -> Ranking:
    return rewardlab.data_rank(data, model=model, run=tmp_path / "run", execution=IN_PROCESS, **more)  # type: ignore[arg-type]


def test_the_worst_come_first_with_every_reason(tiny_data: Path, tmp_path: Path) -> None:
    found = rank(tiny_data, tmp_path)
    reasons = {each.episode: each.reasons for each in found.worst}
    assert list(reasons) == ["arm/c.mp4", "hand/e.mp4", "arm/a.mp4", "hand/d.mp4", "hand/f.mp4", "arm/b.mp4"]
    assert reasons["arm/c.mp4"] == ("level 1.0 of 5, and labelled a failure",)
    assert reasons["hand/e.mp4"][1] == "unlike its training data (a drawing)"
    assert reasons["arm/a.mp4"] == ("progress falls from 0.90 to 0.30",)
    assert reasons["hand/d.mp4"] == ("unlike its training data",)
    assert reasons["arm/b.mp4"] == ("no answer: the picture is too dark",)
    assert reasons["hand/f.mp4"] == ("labelled a failure",)  # which the model took for a success
    assert found.remove == "" and len(found.episodes) == 6


def test_at_most_so_many_are_listed_and_as_many_without_an_answer(tiny_data: Path, tmp_path: Path) -> None:
    assert [each.episode for each in rank(tiny_data, tmp_path, worst=1).worst] == ["arm/c.mp4", "arm/b.mp4"]


def test_the_file_holds_every_episode_worst_first(tiny_data: Path, tmp_path: Path) -> None:
    rank(tiny_data, tmp_path, out=tmp_path / "made" / "ranking.json")
    rank(tiny_data, tmp_path, out=tmp_path / "ranking.csv")
    rows = json.loads((tmp_path / "made" / "ranking.json").read_text())
    assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5, 6] and rows[-1]["level"] is None
    assert all(1 <= row["motion"] <= 5 and 1 <= row["change"] <= 5 for row in rows)
    with (tmp_path / "ranking.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["episode"] for row in table] == [row["episode"] for row in rows]
    assert table[0]["reasons"] == "; ".join(rows[0]["reasons"])


def test_accuracy_is_measured_where_there_are_labels_and_unknown_elsewhere(tiny_data: Path, tmp_path: Path) -> None:
    (measured, *_), unlabelled = rank(tiny_data, tmp_path).notes, tmp_path / "unlabelled"
    assert measured.startswith("Success AUC on 6 labelled episodes") and "motion" in measured and "change" in measured
    rows = [json.loads(line) for line in (tiny_data / "metadata.jsonl").read_text().splitlines()]
    shutil.copytree(tiny_data, unlabelled)
    bare = ({key: row[key] for key in ("file_name", "task")} for row in rows)
    (unlabelled / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in bare))
    (unknown, baselines) = rewardlab.data_rank(
        unlabelled, model="length", run=tmp_path / "other", execution=IN_PROCESS
    ).notes
    assert unknown == "No episode has a label: the accuracy of length on this data is unknown."
    assert "motion lists" in baselines and "by chance" not in baselines and "(chance: 6.0)" in baselines


def test_a_baseline_that_ranks_is_no_baseline_of_its_own(tiny_data: Path, tmp_path: Path) -> None:
    ranking = rewardlab.data_rank(
        tiny_data, model="motion", run=tmp_path / "run", out=tmp_path / "ranking.csv", execution=IN_PROCESS
    )
    assert ranking.baselines == ("change",) and not any("motion" in each.baselines for each in ranking.episodes)
    accuracy, beside = ranking.notes
    assert accuracy.count("motion ") == 1 and "motion lists" not in beside and "change lists" in beside
    with (tmp_path / "ranking.csv").open(newline="") as file:
        assert {"level", "change"} <= (columns := set(next(csv.reader(file)))) and "motion" not in columns


def test_a_lerobot_dataset_gets_the_command_that_leaves_them_out(tmp_path: Path) -> None:
    data = write_v3(tmp_path / "my demos")
    ranking = rank(data, tmp_path)
    before, words = ranking.remove.split(" lerobot-edit-dataset ")
    assert before == f"HF_LEROBOT_HOME={shlex.quote(str(tmp_path))}"
    given = shlex.split(words)
    assert dict(zip(given[::2], given[1::2], strict=True)) == {
        "--repo_id": "my demos",
        "--new_repo_id": "my demos_kept",
        "--operation.type": "delete_episodes",
        "--operation.episode_indices": "[1]",  # not 0 and 2, which the model cannot score
    }
    assert [each.level for each in ranking.worst] == [1.0, None, None]


def test_there_is_no_command_where_lerobot_could_not_run_it(tmp_path: Path) -> None:
    old, new, odd = write_v2(tmp_path / "old"), write_v3(tmp_path / "new"), write_v3(tmp_path / "-rf\nx")
    two = ["episode_000000@front", "episode_000002@front", "episode_000002@wrist"]
    assert "[0, 2]" in removal_command(f"{new}@all", two)[0]
    every = [*two, "episode_000001@front"]
    yaml = write_v3(tmp_path / "null")
    for data, episodes, words in (
        (yaml, two, "misread"),
        (old, two, "v2.1: convert it"),
        (new, every, "--worst"),
        (odd, two, "misread"),
    ):
        command, why = removal_command(str(data), episodes)
        assert command == "" and words in why
    assert removal_command("sample", ["x.mp4"]) == removal_command(str(new), []) == ("", "")


def test_the_command_line_prints_them_and_exits_with_3_without_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", "rank", str(write_v3(tmp_path / "demos")), "--model", "tests.evaluation.test_rank:ByTask", "-q"]
    more = ["--engine", "local", "--run", str(tmp_path / "run"), "--out", str(tmp_path / "all.csv")]
    assert main([*words, *more]) == 3
    shown = capsys.readouterr().out
    assert "no answer for 2" in shown and "lerobot-edit-dataset --repo_id demos" in shown and "all.csv" in shown
    assert "watch them first" in shown


def test_what_cannot_be_ranked_is_refused(tiny_data: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="worst must be at least 1, got 0"):
        rank(tiny_data, tmp_path, worst=0)
    with pytest.raises(PlanError, match=r"ends in .csv or .json, got 'a.txt'"):
        rank(tiny_data, tmp_path, out="a.txt")
    with pytest.raises(ModelError, match="gave no answer for any episode; the first reason: no answer: no key"):
        rank(tiny_data, tmp_path, model="tests.evaluation.test_rank:Nothing")
