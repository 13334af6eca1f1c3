"""Negatives of real clips by rule: from words alone, each with its certainty, and validated by nobody."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rewardlab
from rewardlab.augmentation.augment import Augmented
from rewardlab.augmentation.questions import Question
from rewardlab.augmentation.rows import with_provenance
from rewardlab.augmentation.rules import RULES, RulesTeacher, relation_of, two_steps
from rewardlab.core.episode import Episode, show_only
from rewardlab.core.errors import PlanError
from rewardlab.core.settings import Execution
from rewardlab.data import open_dataset
from rewardlab.data.row_listing import list_rows
from rewardlab.serving.verdicts import Verdict
from rewardlab.serving.verified_split import verified_split, write_verified_split

OFFLINE: dict[str, Any] = {"vision": RULES, "text": RULES, "execution": Execution(engine="local", quiet=True)}
SPLITS = ("train=0.6", "test=0.4")


def rows_of(folder: Path, name: str = "metadata.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Augmented:
    out = tmp_path_factory.mktemp("made") / "out"
    return rewardlab.data_augment("sample", out=out, unvalidated=True, splits=SPLITS, **OFFLINE)


@pytest.mark.parametrize(
    ("other", "relation"),
    [
        ("Open the drawer.", "no object"),
        ("put the carrot in the pot", "verb"),
        ("take the mushroom out of the pot", "object"),
        ("put the mushroom on the towel", "verb and object"),
        ("place the mushroom in the pot", ""),
    ],
)
def test_words_say_what_two_instructions_have_in_common(other: str, relation: str) -> None:
    assert relation_of("put the mushroom in the pot", other) == relation


def test_a_further_step_is_asked_only_with_another_thing() -> None:
    both = two_steps("Put the mushroom in the pot.", "Open the drawer.")
    assert both == "Put the mushroom in the pot, then open the drawer."
    assert two_steps("Put the mushroom in the pot.", "put the mushroom on the towel") == ""


def asked(episode: Episode, task: str, score: int) -> str:
    question = Question("validate", "vision", "", episode, task, score)
    (answer,) = RulesTeacher({}).answer([question])
    assert isinstance(answer, str)
    return answer


def test_a_verdict_states_its_rule_and_certainty() -> None:
    episode = next(
        each for each in open_dataset("sample").episodes if each.instruction == "put the mushroom in the pot"
    )
    said = asked(episode, "Put the carrot in the pot.", 1)
    assert "asks for the same with another thing" in said and "(certainty 0.73)" in said and said.endswith("TRUE")
    assert asked(episode, "Put the carrot in the pot.", 3).endswith("FALSE")
    assert asked(episode, "Put the mushroom in the pot, then open the drawer.", 3).endswith("TRUE")
    assert asked(episode, "place the mushroom in the pot", 1).startswith("No rule knows")
    short = show_only(episode, np.arange(max(2, round(0.4 * episode.clip.source.count))))
    assert asked(short, "Put the mushroom in the pot.", 1).endswith("TRUE"), "40 % of a demonstration is level 1"
    assert asked(short, "Put the mushroom in the pot.", 2).endswith("FALSE")


@pytest.mark.slow
def test_the_whole_factory_runs_on_real_clips_offline(made: Augmented) -> None:
    rows = [row for part in ("train", "test") for row in rows_of(made.folder / "split" / part)]
    kinds = {(row["provenance"]["stage"], row["reward"]) for row in rows if row["provenance"]["stage"] != "rewrite"}
    assert {("counterfactual", 1), ("counterfactual", 3), ("clip", 1), ("clip", 2), ("clip", 4)} <= kinds
    for row in rows:
        about = row["provenance"]
        if about["stage"] in ("counterfactual", "clip"):
            assert about["unvalidated"] and about["verdicts"][-1]["by"] == RULES
            assert 0 < about["verdicts"][-1]["certainty"] < 1
        else:
            assert "unvalidated" not in about
    videos = [
        {row["provenance"]["source_episode"] for row in rows_of(made.folder / "split" / p)} for p in ("train", "test")
    ]
    assert not videos[0] & videos[1]
    assert all(row["provenance"]["rejected"] for row in rows_of(made.folder / "clip", "rejected.jsonl"))


@pytest.mark.slow
def test_neither_capital_nor_full_stop_tells_what_rules_made(made: Augmented) -> None:
    forms = {"counterfactual": set[tuple[bool, bool]](), "rewrite": set[tuple[bool, bool]]()}
    for row in rows_of(made.folder / "counterfactual"):
        task = row["task"]
        if row["provenance"]["stage"] in forms and row["reward"]:
            forms[row["provenance"]["stage"]].add((task[0].isupper(), task.endswith(".")))
    assert forms["counterfactual"] == forms["rewrite"] == {(True, True)}


@pytest.mark.slow
def test_what_nobody_validated_is_split_on_request_alone(made: Augmented, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"nobody has validated the rows.*--unvalidated"):
        rewardlab.data_augment("sample", out=tmp_path / "a", **OFFLINE)
    clips = made.folder / "clip"
    with pytest.raises(PlanError, match=r"\d+ of \d+ rows were graded by rules and validated by nobody"):
        rewardlab.data_augment(clips, stage="split", out=tmp_path / "b", execution=OFFLINE["execution"])


@pytest.mark.slow
def test_a_verdict_of_somebody_who_saw_the_video_validates_a_row(made: Augmented) -> None:
    row = next(row for row in rows_of(made.folder / "clip") if row["provenance"]["stage"] == "clip")
    episode = open_dataset(made.folder / "clip").episodes[0]
    graded = with_provenance(row, episode)
    assert graded.unvalidated
    refused = graded.with_verdict("openai:m", "it is not so", "", verdict=False)
    seen = graded.with_verdict("openai:m", "it is so", "", verdict=True)
    assert refused.provenance["unvalidated"] and not seen.unvalidated and not seen.provenance["unvalidated"]


def verified(data: Path, folder: Path, corrected: int | None = None) -> Path:
    """Write what one person makes of every row: the level is accepted, or all made rows get another one."""
    listing = list_rows(str(data))
    verdicts = {
        row.key: {"anna": Verdict(row.key, "anna", "accept", row.level)}
        if corrected is None or row.level in (None, 5)
        else {"anna": Verdict(row.key, "anna", "correct", corrected)}
        for row in listing.rows
    }
    write_verified_split(verified_split(listing, verdicts), folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("corrected", [None, 2])
def test_what_people_verified_is_split_without_being_asked_for(
    made: Augmented, tmp_path: Path, corrected: int | None
) -> None:
    rows = [row for row in rows_of(made.folder / "clip") if row.get("reward")]
    folder = tmp_path / "graded"
    folder.mkdir()
    for row in rows:
        (folder / row["file_name"]).parent.mkdir(parents=True, exist_ok=True)
        (folder / row["file_name"]).write_bytes((made.folder / "clip" / row["file_name"]).read_bytes())
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    seen = verified(folder, tmp_path / "seen", corrected)
    assert {row["provenance"].get("unvalidated") for row in rows_of(seen)} == {None, False}
    out = rewardlab.data_augment(
        seen, stage="split", splits=SPLITS, out=tmp_path / "parts", execution=OFFLINE["execution"]
    )
    assert out.stages[0].kept == len(rows)


@pytest.mark.slow
def test_rows_whose_outcome_people_stated_enter_the_factory(tmp_path: Path) -> None:
    data = rewardlab.data_convert("sample", tmp_path / "data", sample=6, keep_duplicates=True)
    listing = list_rows(str(data.folder))
    verdicts = {row.key: {"anna": Verdict(row.key, "anna", "correct", 5)} for row in listing.rows[:4]}
    verdicts |= {row.key: {"anna": Verdict(row.key, "anna", "reject", None)} for row in listing.rows[4:]}
    write_verified_split(verified_split(listing, verdicts), tmp_path / "seen")
    out = rewardlab.data_augment(tmp_path / "seen", stage="clip", out=tmp_path / "clips", **OFFLINE)
    assert out.stages[0].levels["5"] == 4 and out.stages[0].kept > 4
    source = next(row for row in rows_of(tmp_path / "clips") if row["provenance"]["stage"] == "source")
    assert source["provenance"]["verdicts"][0]["by"] == "person:anna"
