"""Dumps of RoboArena: old and new names of cameras, grades as levels, and YAML that means harm."""

import json
from pathlib import Path

import av
import pytest

import rewardlab
from rewardlab.augmentation.rows import made_row, read_dataset
from rewardlab.core.episode import Label, Preference
from rewardlab.core.errors import DataError
from rewardlab.core.settings import Execution
from rewardlab.core.video_encoding import encode
from rewardlab.data import dataset_notes, open_dataset
from tests.conftest import moving_square
from tests.narrowing import known

yaml = pytest.importorskip("yaml")

NEW = ("left_shoulder", "right_shoulder", "wrist")
OLD = ("2025_05_01_left", "2025_05_01_right")


def write_session(folder: Path, name: str, grades: dict[str, float], cameras: tuple[str, ...]) -> Path:
    session = folder / "evaluation_sessions" / name
    for letter in grades:
        (session / f"{letter}_pi0_fast").mkdir(parents=True)
        for camera in cameras:
            frames = moving_square(f"{name} {letter} {camera}", count=5 + len(camera) % 7)
            encode(frames, session / f"{letter}_pi0_fast" / f"{camera}.mp4", 15)
    policies = {letter: {"policy_name": "pi0_fast", "partial_success": grade} for letter, grade in grades.items()}
    stated = {"language_instruction": f"put the {name} cup down", "policies": policies}
    (session / "metadata.yaml").write_text(yaml.safe_dump(stated))
    return session


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    write_session(tmp_path, "new", {"A": 0.5, "B": 1.0}, NEW)
    write_session(tmp_path, "old", {"A": 0.0}, OLD)
    (tmp_path / "global_metadata.yaml").write_text("sessions: 2\n")
    return tmp_path


def test_grades_texts_and_frames_are_those_of_the_files(dump: Path) -> None:
    contents = open_dataset(str(dump))
    assert contents.problems == ()
    assert {(each.id, each.instruction, each.label) for each in contents.episodes} == {
        ("new/A_pi0_fast@left", "put the new cup down", Label(3, False)),
        ("new/B_pi0_fast@left", "put the new cup down", Label(5, True)),
        ("old/A_pi0_fast@left", "put the old cup down", Label(1, False)),
    }
    for episode in contents.episodes:
        session, policy = episode.id.removesuffix("@left").split("/")
        (path,) = (dump / "evaluation_sessions" / session / policy).glob("*left*.mp4")
        with av.open(str(path)) as container:
            stamps = [float(frame.time) for frame in container.decode(video=0)]
        assert len(episode.frames) == len(stamps) and episode.times.tolist() == pytest.approx(stamps)
        assert (episode.provenance.source, episode.provenance.subset) == ("pi0_fast", "robo_arena")


def test_a_view_is_named_or_all_are_asked_for(dump: Path) -> None:
    assert len(open_dataset(f"roboarena:{dump}@all").episodes) == 8
    right = open_dataset(f"{dump}@right_shoulder").episodes
    assert {each.provenance.camera for each in right} == {"right"} and len(right) == 3
    assert "left is read; others by DATA@NAME, or DATA@all: right, wrist" in str(dataset_notes(str(dump))[0])
    wrist = open_dataset(f"{dump}@wrist")
    assert len(wrist.episodes) == 2 and "no camera 'wrist'; there are left, right" in wrist.problems[0].what
    with pytest.raises(DataError, match="no camera 'top'; there are left, right, wrist"):
        open_dataset(f"{dump}@top")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("language_instruction: ''\npolicies: {}\n", "language_instruction must be a text, got ''"),
        ("language_instruction: open it\npolicies: [A]\n", "policies must be a mapping of mappings, got ['A']"),
        ("language_instruction: open it\npolicies: {Z: {partial_success: 1}}\n", "expected one folder 'Z_...'"),
        (
            "language_instruction: open it\npolicies: {A: {partial_success: 170}}\n",
            "or to 100 in all the dump, got 170",
        ),
        ("a: &a [x, x]\nb: [*a, *a]\n", "line 2 has an alias; write the values out"),
        ("a: " + "[" * 70 + "]" * 70, "too many values inside each other"),
        ("a: !!python/object/apply:os.system ['touch hacked']\n", "not YAML that can be used (could not determine"),
        ("- a list\n", "expected a mapping, got list"),
        ("a: [", "not YAML that can be used (while parsing a flow node"),
    ],
)
def test_a_broken_session_is_one_sentence_and_the_others_are_read(dump: Path, text: str, words: str) -> None:
    (dump / "evaluation_sessions" / "new" / "metadata.yaml").write_text(text)
    contents = open_dataset(str(dump))
    assert [each.id for each in contents.episodes] == ["old/A_pi0_fast@left"]
    assert words in contents.problems[0].what
    assert not Path("hacked").exists()


def test_a_video_that_is_a_link_to_elsewhere_is_not_read(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "left.mp4"
    encode(moving_square("secret"), outside, 15)
    path = dump / "evaluation_sessions" / "new" / "A_pi0_fast" / "left_shoulder.mp4"
    path.unlink()
    path.symlink_to(outside)
    (problem,) = open_dataset(str(dump)).problems
    assert "a link leads out of the dataset's folder" in problem.what


def test_grades_from_0_to_100_are_levels_too_and_one_of_them_sets_the_scale(tmp_path: Path) -> None:
    write_session(tmp_path, "a", {"A": 100, "B": 70, "C": 40}, NEW[:1])
    write_session(tmp_path, "b", {"A": 1, "B": 10.0}, NEW[:1])
    levels = {each.id.split("_")[0]: each.label for each in open_dataset(str(tmp_path)).episodes}
    assert {name: truth.level for name, truth in levels.items()} == {"a/A": 5, "a/B": 4, "a/C": 3, "b/A": 1, "b/B": 2}
    assert [name for name, truth in levels.items() if truth.success] == ["a/A"]


def test_which_policy_was_preferred_stands_in_the_rows_of_both(dump: Path, tmp_path: Path) -> None:
    path = dump / "evaluation_sessions" / "new" / "metadata.yaml"
    said = yaml.safe_load(path.read_text()) | {"preference": "B", "longform_feedback": "A stopped halfway."}
    path.write_text(yaml.safe_dump(said))
    stated = {each.id: each.label.preference for each in open_dataset(str(dump)).episodes}
    assert stated == {
        "new/A_pi0_fast@left": Preference("new@left", "other", "A stopped halfway."),
        "new/B_pi0_fast@left": Preference("new@left", "this", "A stopped halfway."),
        "old/A_pi0_fast@left": None,
    }
    views = [each.label.preference for each in open_dataset(f"{dump}@all").episodes if each.id.startswith("new/")]
    assert sorted(known(each).pair for each in views) == sorted(2 * ["new@left", "new@right", "new@wrist"])
    out = tmp_path / "out"
    rewardlab.data_augment(dump, stage="rewrite", out=out, execution=Execution(engine="local", quiet=True))
    rows = [json.loads(line) for line in (out / "metadata.jsonl").read_text().splitlines()]
    assert {row["episode_id"].split("@")[0]: row["reward"] for row in rows} == {
        **{"new/A_pi0_fast": 3, "new/B_pi0_fast": 5, "old/A_pi0_fast": 1}
    }
    assert {each.label.preference for each in open_dataset(str(out)).episodes} == set(stated.values())
    compared = [row for row in read_dataset(str(out), skip_invalid=False) if "preference" in row.row]
    assert len(compared) == 2 and "preference" not in made_row(compared[0], "clip", 2, (), {}).row


def test_no_preference_is_made_up_where_none_of_two_policies_is_named(dump: Path) -> None:
    path = dump / "evaluation_sessions" / "new" / "metadata.yaml"
    content = yaml.safe_load(path.read_text())
    for said, meant in (("tie", "tie"), ("neither", None), (None, None)):
        path.write_text(yaml.safe_dump(content | {"preference": said}))
        stated = [each.label.preference for each in open_dataset(str(dump)).episodes]
        assert [each and each.preferred for each in stated] == [meant, meant, None]
