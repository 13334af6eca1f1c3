"""The registry of sources against RoboReward's Table 4, and demonstrations that count as successes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import rewardlab
from rewardlab.augmentation.augment import forecast_augmentation
from rewardlab.cli import main
from rewardlab.core.episode import Label, Provenance, episode_from_frames
from rewardlab.core.errors import DataError
from rewardlab.core.settings import Execution, settings_of
from rewardlab.core.video_encoding import encode
from rewardlab.data import open_dataset
from rewardlab.data.row_listing import folders_of_splits, list_rows, list_splits
from rewardlab.data.sources import SOURCES, describe_episode, source_called
from rewardlab.evaluation.roborewardbench import SUBSETS, published_rows
from tests.augmentation.local_teacher import make_counterfactuals
from tests.conftest import moving_square

BRIDGE = Path(__file__).parent / "real_samples/octo_bridge"
# Embodiment, perspective and examples (train, val, test) of Table 4 of "RoboReward: General-Purpose Vision-Language
# Reward Models for Robotics".
TABLE_4: dict[str, tuple[str, str, int, int, int]] = {
    "Austin BUDS": ("Franka", "exo", 127, 0, 0),
    "Austin Sirius": ("Franka", "exo", 1355, 0, 87),
    "Austin VIOLA": ("Franka", "exo", 167, 239, 60),
    "Berkeley Autolab UR5": ("UR5", "ego", 2388, 430, 100),
    "Berkeley Bridge": ("WidowX", "exo", 3826, 496, 100),
    "Berkeley Fanuc Manipulation": ("Fanuc", "exo", 860, 287, 91),
    "Berkeley MVP": ("xArm", "ego", 1218, 228, 71),
    "Berkeley RPT": ("Franka", "ego", 1069, 364, 86),
    "CMU Franka Pick-Insert": ("Franka", "exo", 1193, 374, 83),
    "CMU Play Fusion": ("Franka", "exo", 1269, 358, 92),
    "DLR Wheelchair Shared Control": ("DLR EDAN", "exo", 168, 28, 19),
    "DROID": ("Franka", "exo", 3071, 378, 100),
    "Freiburg Franka Play": ("Franka", "ego", 2856, 352, 91),
    "KAIST Nonprehensile Objects": ("Franka", "exo", 406, 162, 53),
    "LSMO": ("Cobotta", "exo", 97, 0, 71),
    "NYU ROT": ("xArm", "exo", 35, 8, 0),
    "NYU VINN": ("Hello Stretch", "ego", 2369, 0, 0),
    "RT-1 Robot Action": ("Google Robot", "exo", 3988, 461, 100),
    "RoboArena": ("DROID (Franka-based)", "mix", 7337, 1000, 1000),
    "Roboturk": ("Sawyer", "exo", 1463, 0, 97),
    "Stanford HYDRA": ("Franka", "exo", 507, 203, 91),
    "TOTO": ("Franka", "exo", 2986, 0, 0),
    "Tokyo PR2 Fridge Opening": ("PR2", "exo", 357, 0, 0),
    "Tokyo PR2 Tabletop Manipulation": ("PR2", "exo", 293, 325, 73),
    "UCSD Kitchen": ("xArm", "exo", 393, 122, 95),
    "UCSD Pick Place": ("xArm", "exo", 2384, 0, 100),
    "USC Jaco Play": ("Jaco 2", "exo", 2428, 417, 100),
    "UTokyo xArm Bimanual": ("Dual xArms", "ego", 161, 0, 71),
    "UTokyo xArm Pick-Place": ("xArm", "ego", 301, 0, 0),
}


def test_the_registry_has_embodiment_perspective_and_counts_of_table_4() -> None:
    found = {s.name: (s.embodiment, s.perspective, s.train, s.val, s.test) for s in SOURCES.values()}
    assert {name: found[name] for name in TABLE_4} == TABLE_4
    counts = [row[2:] for row in TABLE_4.values()]
    assert tuple(map(sum, zip(*counts, strict=True))) == (45_072, 6_232, 2_831)  # as printed
    assert set(found) - set(TABLE_4) == {"LIBERO", "RoboTwin", "RoboMIND", "XR-1"}


def test_sources_with_test_examples_are_the_subsets_of_the_published_benchmark() -> None:
    tested = {source.key for source in SOURCES.values() if source.test}
    assert tested == set(SUBSETS) and len(tested) == 23
    assert set(SUBSETS.values()) == set(published_rows()[0].subsets)


def test_all_but_robo_arena_of_the_29_are_demonstrations() -> None:
    of_table = [source for source in SOURCES.values() if source.name in TABLE_4]
    assert [source.name for source in of_table if not source.demonstrations] == ["RoboArena"]


def test_a_licence_and_a_key_come_with_the_place_that_states_them() -> None:
    for source in SOURCES.values():
        assert bool(source.license) == bool(source.license_from), source.key
        assert bool(source.cameras or source.instructions) <= bool(source.keys_from), source.key
        assert source.facts_from, source.key


def test_a_source_is_found_by_key_name_and_alias_in_any_case() -> None:
    for name in ("bridge", "Berkeley Bridge", "BRIDGE_DATASET"):
        assert source_called(name) is SOURCES["bridge"]
    assert source_called("nobody", "droid_100") is SOURCES["droid"]
    assert source_called("bridge_v3") is None


CAMERAS = {"": "ego", "rgb_gripper": "ego", "rgb_static": "", "eye_in_hand_rgb": "ego", "hand-held": ""}


@pytest.mark.parametrize(("camera", "perspective"), CAMERAS.items())
def test_a_camera_other_than_the_published_one_has_no_perspective_but_a_wrist_has(
    camera: str, perspective: str
) -> None:
    episode = episode_from_frames(moving_square("a", count=4), "push")
    described = describe_episode(replace(episode, provenance=Provenance(subset="taco_play", camera=camera)))
    assert (described.provenance.embodiment, described.provenance.perspective) == ("Franka", perspective)


def test_what_an_episode_states_stays() -> None:
    stated = Provenance(source="bridge", embodiment="my arm", perspective="ego")
    episode = replace(episode_from_frames(moving_square("a", count=4), "push"), provenance=stated)
    failed = replace(episode, label=Label(None, False))
    described = describe_episode(failed, demonstrations=True)
    assert described.label == failed.label and described.provenance == stated
    assert describe_episode(episode).label == Label(5, True)


def write_rows(folder: Path, *rows: dict[str, object]) -> Path:
    folder.mkdir(exist_ok=True)
    with (folder / "metadata.jsonl").open("w", encoding="utf-8") as file:
        for number, row in enumerate(rows):
            encode(moving_square(f"clip {number}", count=6, size=32), folder / f"{number}.mp4", fps=10)
            file.write(json.dumps({"file_name": f"{number}.mp4", "task": f"push square {number}", **row}) + "\n")
    return folder


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Return a dataset whose rows state an outcome, a demonstration, its contrary, a source, or nothing."""
    kinds: tuple[dict[str, object], ...] = (
        {"reward": 2, "demonstration": True},
        {"demonstration": True},
        {"demonstration": False, "source": "droid"},
        {"source": "droid"},
        {},
    )
    return write_rows(tmp_path, *kinds)


def test_the_row_the_flag_and_the_source_say_which_episodes_are_demonstrations(mixed: Path) -> None:
    assert [episode.label.level for episode in open_dataset(mixed).episodes] == [2, 5, None, 5, None]
    assumed = open_dataset(mixed, demonstrations=True)
    assert [episode.label.success for episode in assumed.episodes] == [False, True, None, True, True]
    assert assumed.assumed_successes == {"1.mp4", "3.mp4", "4.mp4"}
    assert [row.level for row in list_rows(str(mixed)).rows] == [2, 5, None, 5, None]
    assert [row.embodiment for row in list_rows(str(mixed)).rows] == ["", "", "Franka", "Franka", ""]


def test_a_demonstration_that_is_neither_true_nor_false_is_a_problem(tmp_path: Path) -> None:
    (problem,) = open_dataset(write_rows(tmp_path, {"demonstration": "yes"})).problems
    assert "demonstration must be true or false, got 'yes'" in problem.what


def test_a_table_says_in_its_own_words_which_rows_are_demonstrations(tmp_path: Path) -> None:
    write_rows(tmp_path, {}, {})
    (tmp_path / "metadata.jsonl").unlink()
    (tmp_path / "metadata.csv").write_text("file_name,task,demonstration\n0.mp4,push,yes\n1.mp4,push,no\n")
    assert [episode.label.success for episode in open_dataset(tmp_path).episodes] == [True, None]


def test_check_says_how_many_episodes_state_an_outcome(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["data", "check", str(mixed)])
    assert "1 of 5 episodes state an outcome; 2 others are demonstrations" in capsys.readouterr().out
    main(["data", "check", str(mixed), "--demonstrations"])
    assert "1 of 5 episodes state an outcome; 3 others are demonstrations" in capsys.readouterr().out


def test_check_names_the_flag_and_verify_where_no_episode_states_an_outcome(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["data", "check", str(write_rows(tmp_path, {}, {}))])
    said = capsys.readouterr().out
    assert "0 of 2 episodes state an outcome" in said
    assert "--demonstrations" in said and f"rewardlab data verify {tmp_path}" in said
    video = tmp_path / "1.mp4"
    main(["data", "check", str(video)])
    assert f"rewardlab data verify {video}" in capsys.readouterr().out


def test_a_report_counts_demonstrations_as_successes_and_names_the_flag(mixed: Path, tmp_path: Path) -> None:
    rows = list_splits(folders_of_splits(str(mixed)), demonstrations=True)[""].rows
    assert [row.level for row in rows] == [2, 5, None, 5, 5]
    silent = write_rows(tmp_path / "silent", {})
    for assumed in (False, True):
        page = rewardlab.data_report(silent, out=tmp_path / "page.html", demonstrations=assumed).read_text("utf-8")
        assert ("No row has a level; if all of them are successful demonstrations, add" in page) is not assumed


def test_a_converted_demonstration_is_a_success_that_says_where_this_comes_from(mixed: Path, tmp_path: Path) -> None:
    rewardlab.data_convert(mixed, tmp_path / "out", demonstrations=True, keep_duplicates=True)
    rows = [json.loads(line) for line in (tmp_path / "out/metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row.get("reward") for row in rows] == [2, 5, None, 5, 5]
    assert [row.get("demonstration") for row in rows] == [True, True, False, True, True]


def test_real_bridge_demonstrations_are_successes_of_a_widowx_seen_from_outside() -> None:
    (episode,) = open_dataset(BRIDGE).episodes
    assert (episode.label.level, episode.label.success, episode.provenance.demonstration) == (5, True, True)
    assert (episode.provenance.embodiment, episode.provenance.perspective) == ("WidowX", "exo")
    teachers = {"vision": "openai:a@http://localhost:1", "text": "openai:a@http://localhost:1"}
    assert augmented(BRIDGE, **teachers) == 1


def augmented(data: Path, **given: object) -> int:
    """Return how many successes `data augment` would begin with."""
    settings = {setting.name: setting.default for setting in settings_of(rewardlab.data_augment)}
    return forecast_augmentation(**settings | {"data": data} | given).successes


def test_augment_begins_with_the_demonstrations_that_the_flag_names(tmp_path: Path) -> None:
    data = write_rows(tmp_path, {}, {}, {"success": False})
    teachers = {"vision": "openai:a@http://localhost:1", "text": "openai:a@http://localhost:1"}
    with pytest.raises(DataError, match=r"states a success.*add --demonstrations"):
        augmented(data, **teachers)
    assert augmented(data, **teachers, demonstrations=True) == 2


def test_what_augment_makes_of_a_demonstration_is_itself_none(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "data", {"source": "bridge"})
    made = make_counterfactuals(data, tmp_path, Execution(engine="local", quiet=True)).kept
    found = {row.row["reward"]: (row.row["success"], row.row.get("demonstration")) for row in made}
    assert found.pop(5) == (True, True)
    assert found and set(found.values()) == {(False, None)}


def test_training_learns_from_demonstrations_and_names_the_flag_without_them(tmp_path: Path) -> None:
    from rewardlab.training.vlm import vlm_settings
    from rewardlab.training.vlm.examples import split_episodes

    data = write_rows(tmp_path, {}, {}, {"reward": 1})
    given = {"model": "none", "data": str(data)}
    split = split_episodes(vlm_settings(**given, demonstrations=True))
    assert sorted(str(e.label.level) for e in (*split.train, *split.validation)) == ["1", "5", "5"]
    alone = write_rows(tmp_path / "alone", {}, {})
    with pytest.raises(DataError, match="add --demonstrations"):
        split_episodes(vlm_settings(**given | {"data": str(alone)}))
