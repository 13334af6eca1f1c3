"""Who judges what next: overlap, disagreements first, nothing handed out twice, and what is exported."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rewardlab.core.errors import DataError, PlanError
from rewardlab.data import open_dataset
from rewardlab.data.row_listing import ListedRow, RowListing, RowProvenance, list_rows
from rewardlab.serving.listening import RequestRejected
from rewardlab.serving.verdicts import Decision, Verdict, VerdictStore
from rewardlab.serving.verification_state import Assignments, live_agreement
from rewardlab.serving.verified_split import verified_split, write_verified_split
from rewardlab.serving.verify import open_verification
from tests.serving.judged_data import judged_data


def rows(count: int, doubted: int | None = None) -> list[ListedRow]:
    return [
        ListedRow(f"row {n}", n + 1, "a.mp4", "push", 3, "push", "", RowProvenance("clip", True, n == doubted))
        for n in range(count)
    ]


def verdict(item: str, annotator: str, decision: Decision = "accept", level: int | None = 3) -> Verdict:
    return Verdict(item, annotator, decision, level)


def judge_all(queue: Assignments, annotator: str) -> list[str]:
    """Accept whatever one person is given until nothing is left."""
    given = []
    while shown := queue.next_rows(annotator, 1):
        given.append(shown[0].key)
        queue.record(verdict(shown[0].key, annotator))
    return given


def test_without_overlap_each_row_is_judged_once_and_with_overlap_a_share_of_them_twice() -> None:
    queue = Assignments(rows(400), 0.0, 0)
    assert len(judge_all(queue, "anna")) == 400 and judge_all(queue, "ben") == []
    queue = Assignments(rows(400), 0.25, 0)
    assert len(judge_all(queue, "anna")) == 400
    again = judge_all(queue, "ben")
    assert 70 < len(again) < 130 and judge_all(queue, "carl") == []
    assert queue.progress("carl").done == 400 and queue.progress("carl").left == 0


def test_two_people_at_once_are_not_given_the_same_row_and_a_reload_gives_the_same_one() -> None:
    queue = Assignments(rows(9), 0.0, 0)
    anna, ben = (queue.next_rows(name, 3) for name in ("anna", "ben"))
    assert not {row.key for row in anna} & {row.key for row in ben}
    assert queue.next_rows("anna", 3) == anna


def test_a_row_that_somebody_left_is_given_to_others_after_a_while() -> None:
    now = [0.0]
    queue = Assignments(rows(1), 0.0, 0, clock=lambda: now[0])
    assert len(queue.next_rows("anna", 1)) == 1 and queue.next_rows("ben", 1) == []
    now[0] = 3600.0
    assert len(queue.next_rows("ben", 1)) == 1


def test_disagreements_come_first_then_second_opinions_then_doubted_rows_then_the_rest() -> None:
    queue = Assignments(rows(6, doubted=5), 1.0, 0)
    queue.record(verdict("row 1", "anna"))
    queue.record(verdict("row 2", "anna", "reject", None))
    queue.record(verdict("row 2", "ben"))
    queue.record(verdict("row 3", "anna", "flag", None))
    order = [row.key for row in queue.next_rows("carl", 6)]
    assert set(order[:2]) == {"row 2", "row 3"} and order[2:4] == ["row 1", "row 5"]
    assert queue.progress("carl").disputed == 2
    queue.record(verdict("row 2", "carl"))  # two of three: settled
    assert queue.progress("dora").disputed == 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VerdictStore]:
    opened = VerdictStore(tmp_path / "verdicts.sqlite")
    yield opened
    opened.close()


def test_a_request_sent_twice_is_one_verdict_and_undo_leaves_what_others_said(store: VerdictStore) -> None:
    first = store.record(verdict("row 1", "anna"), "request-1")
    assert first is not None
    assert store.record(verdict("row 1", "anna"), "request-1") == first
    store.record(verdict("row 1", "ben", "correct", 4), "request-2")
    assert [each.annotator for each in store.standing()] == ["anna", "ben"]
    assert store.undo("ben", first.id) is None  # of another
    assert store.undo("anna", first.id) == first and store.undo("anna", first.id) == first
    assert store.record(verdict("row 1", "anna"), "request-1") is None  # it came late, and is undone
    assert [(each.annotator, each.level) for each in store.standing()] == [("ben", 4)]


def test_the_undo_of_a_verdict_that_was_replaced_leaves_the_standing_one(tmp_path: Path) -> None:
    data = judged_data(tmp_path / "data", 1)
    server = open_verification(list_rows(str(data)), None, 0.0, 0)
    key = server.listing.rows[0].key
    first = server.record(verdict(key, "anna"), "request-1")["undo"]["id"]
    second = server.record(verdict(key, "anna", "correct", 5), "request-2")["undo"]["id"]
    with pytest.raises(RequestRejected, match="undo the later verdict"):  # from a tab that shows the first
        server.undo("anna", first)
    assert server.state_for("anna")["progress"]["mine"] == 1
    assert [each.level for each in server.assignments.verdicts[key].values()] == [5]
    assert [each.level for each in server.store.standing()] == [5]
    assert server.undo("anna", second)["progress"]["mine"] == 0
    server.close()


def test_what_another_process_writes_is_seen(store: VerdictStore) -> None:
    assert not store.changed_elsewhere()
    other = VerdictStore(store.path)
    other.record(verdict("row 1", "ben"), "request-1")
    other.close()
    assert store.changed_elsewhere() and not store.changed_elsewhere()
    assert len(store.standing()) == 1


def test_agreement_counts_rows_that_two_people_labelled_and_no_flags() -> None:
    said = {"a": (3, 3), "b": (5, 5), "c": (4, 5), "d": (None, None), "e": (2, None)}
    both = [
        {n: verdict(key, n, "correct", level) for n, level in zip("xy", pair, strict=True)}
        for key, pair in said.items()
    ]
    flagged = {"x": verdict("f", "x"), "y": verdict("f", "y", "flag", None)}
    found = live_agreement([*both, flagged, {"x": verdict("g", "x")}])
    (pair,) = found.pairs
    assert found.rows == pair.rows == 5 and pair.alike == 0.6
    assert pair.kappa == pytest.approx((0.6 - 5 / 25) / (1 - 5 / 25))  # by chance 1 of 25 on 3, 2 on 5, 2 on rejections
    assert found.alpha is not None and found.alpha_of_levels is not None and found.alpha < found.alpha_of_levels
    assert live_agreement([]).alpha is None


def split_of(folder: Path, decisions: dict[int, list[Decision]]) -> tuple[RowListing, dict[str, dict[str, Verdict]]]:
    """Return a listing with, for some rows, the decisions of people; those who correct say 2."""
    listing = list_rows(str(folder))
    verdicts: dict[str, dict[str, Verdict]] = {}
    for place, given in decisions.items():
        row = listing.rows[place]
        levels = {"accept": row.level, "correct": 2}
        people = [verdict(row.key, f"person {n}", said, levels.get(said)) for n, said in enumerate(given)]
        verdicts[row.key] = {each.annotator: each for each in people}
    return listing, verdicts


def test_the_verified_split_is_a_dataset_and_what_is_left_out_stays_with_the_reason(tmp_path: Path) -> None:
    data = judged_data(tmp_path / "data", 8)
    (data / "arm/world.npz").write_bytes(b"states")
    lines = (data / "metadata.jsonl").read_text(encoding="utf-8").splitlines()
    more = {"world": {"kind": "metaworld", "file": "arm/world.npz"}, "views": {"side": "arm/1.mp4"}}
    lines[0] = json.dumps(json.loads(lines[0]) | more)
    (data / "metadata.jsonl").write_text("\n".join(lines), encoding="utf-8")
    listing, verdicts = split_of(
        data,
        {
            0: ["accept"],
            1: ["reject"],
            2: ["accept", "reject"],
            3: ["accept", "accept", "correct"],
            4: ["correct", "correct"],
            5: ["flag"],
        },
    )
    split = verified_split(listing, verdicts)
    expected = "3 verified rows (1 at a corrected level), 1 disputed, 1 flagged, 1 rejected, 2 not judged"
    assert split.sentence() == expected
    write_verified_split(split, tmp_path / "verified")
    contents = open_dataset(str(tmp_path / "verified"))
    assert contents.problems == ()
    assert [(e.instruction, e.label.level) for e in contents.episodes] == [
        ("push square 0", 1),
        ("push square 3", 4),
        ("push square 4", 2),
    ]
    assert (tmp_path / "verified/arm/world.npz").read_bytes() == b"states"
    assert [list(episode.views) for episode in contents.episodes] == [["side"], [], []]
    lines = (tmp_path / "verified/rejected.jsonl").read_text(encoding="utf-8").splitlines()
    reasons = {row["task"]: row["provenance"]["rejected"] for row in map(json.loads, lines)}
    assert reasons["push square 1"] == "people say: rejected" and len(reasons) == 3
    with pytest.raises(PlanError, match="exists already"):
        write_verified_split(split, tmp_path / "verified")
    with pytest.raises(DataError, match="is verified yet"):
        write_verified_split(verified_split(listing, {}), tmp_path / "none")


def test_listing_opens_no_video_and_names_what_is_wrong_with_a_line(tmp_path: Path) -> None:
    good = {"file_name": "not/there.mp4", "task": "push", "reward": 4, "success": False}
    bad = [{"task": "push"}, good | {"file_name": "../out.mp4"}, good | {"reward": 9}, good | {"task": " "}]
    lines = [json.dumps(row) for row in (good, *bad, good)]
    (tmp_path / "metadata.jsonl").write_text("\n".join(lines), encoding="utf-8")
    listing = list_rows(str(tmp_path))
    assert [row.level for row in listing.rows] == [4, 4] and len({row.key for row in listing.rows}) == 2
    assert [problem.place for problem in listing.problems] == ["line 2", "line 3", "line 4", "line 5"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="rewardlab data convert"):
        list_rows(str(tmp_path / "empty"))
    (tmp_path / "split/test").mkdir(parents=True)
    (tmp_path / "split/test/metadata.jsonl").write_text(lines[0], encoding="utf-8")
    with pytest.raises(DataError, match=f"name one of its splits: {tmp_path}/split/test"):
        list_rows(str(tmp_path / "split"))


def test_verdicts_stay_with_a_row_when_rows_are_added_before_it_and_leave_it_when_it_changes(tmp_path: Path) -> None:
    data = judged_data(tmp_path, 3)
    before = {row.instruction: row.key for row in list_rows(str(data)).rows}
    path = data / "metadata.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    changed = json.dumps(json.loads(lines[2]) | {"reward": 1})
    new = json.dumps({"file_name": "arm/3.mp4", "task": "new"})
    path.write_text("\n".join([new, *lines[:2], changed]), encoding="utf-8")
    after = {row.instruction: row.key for row in list_rows(str(data)).rows}
    assert after["push square 0"] == before["push square 0"] and after["push square 2"] != before["push square 2"]


def test_the_cause_that_most_name_is_exported_at_their_middle_frame_and_a_success_has_none(tmp_path: Path) -> None:
    data = judged_data(tmp_path / "data", 2)
    lines = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()]
    stated = [row | {"reward": 2, "failure_cause": "other", "failure_frame": 1} for row in lines]
    (data / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in stated))
    listing = list_rows(str(data))
    first, second = listing.rows
    assert (first.failure_cause, first.failure_frame) == ("other", 1)
    named = {"anna": ("dropped", 4), "ben": ("dropped", 6), "carl": ("collision", 1), "dora": ("", None)}
    given = {
        who: Verdict(first.key, who, "accept", 2, failure_cause=cause, failure_frame=frame)
        for who, (cause, frame) in named.items()
    }
    split = verified_split(listing, {first.key: given, second.key: {"anna": verdict(second.key, "anna", "correct", 5)}})
    write_verified_split(split, tmp_path / "out")
    one, two = (json.loads(line) for line in (tmp_path / "out" / "metadata.jsonl").read_text().splitlines())
    assert (one["failure_cause"], one["failure_frame"]) == ("dropped", 4)
    assert one["provenance"]["verdicts"][-2]["failure_cause"] == "collision"
    assert two["success"] is True and "failure_cause" not in two and "failure_frame" not in two
    without = verified_split(listing, {first.key: {"dora": given["dora"]}})
    write_verified_split(without, tmp_path / "kept")
    (kept,) = (json.loads(line) for line in (tmp_path / "kept" / "metadata.jsonl").read_text().splitlines())
    assert (kept["failure_cause"], kept["failure_frame"]) == ("other", 1)  # nobody said otherwise


def test_a_file_of_verdicts_of_an_earlier_version_is_read_and_takes_causes(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.sqlite"
    VerdictStore(path).close()
    with closing(sqlite3.connect(path)) as file, file:
        for column in ("failure_cause", "failure_frame"):
            file.execute(f"ALTER TABLE verdicts DROP COLUMN {column}")
        columns = "(request, item, annotator, decision, level, note, rationale_seen, seconds, made_at)"
        file.execute(f"INSERT INTO verdicts {columns} VALUES ('r', 'row 1', 'anna', 'accept', 3, '', 0, 1.0, '')")
    with closing(VerdictStore(path)) as store:
        (old,) = store.standing()
        assert (old.item, old.level, old.failure_cause, old.failure_frame) == ("row 1", 3, "", None)
        store.record(Verdict("row 2", "anna", "accept", 3, failure_cause="dropped", failure_frame=4), "request-2")
        assert [(v.failure_cause, v.failure_frame) for v in store.standing()] == [("", None), ("dropped", 4)]
