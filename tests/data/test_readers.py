"""The catalog of readers: which one reads a folder, and what a person is told where none does."""

import sys
from pathlib import Path

import numpy as np
import pytest

from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.run import Run
from rewardlab.data import READERS, choose_split, dataset_folder, open_dataset
from rewardlab.evaluation.evaluate import evaluate
from tests.conftest import moving_square, write_rows
from tests.plans import stress_plan

NPZ_READER = '''
"""Episodes as .npz files: frames, instruction and level."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rewardlab.core.episode import Episode, Label, Provenance, whole_clip
from rewardlab.data.contract import Contents, Problem, Reader


@dataclass(frozen=True)
class NpzFrames:
    path: Path
    count: int

    @property
    def digest(self):
        return self.path.stem

    def read(self, indices):
        return np.load(self.path)["frames"][indices]


def recognises(folder):
    return any(folder.glob("*.npz"))


def read(folder):
    episodes, problems = [], []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as stored:
            if "level" not in stored:
                problems.append(Problem(path.name, "has no level"))
                continue
            truth = Label(int(stored["level"]))
            clip = whole_clip(NpzFrames(path, int(stored["count"])), 10.0)
            episodes.append(Episode(path.name, str(stored["instruction"]), clip, truth, Provenance("npz", path.stem)))
    return Contents(tuple(episodes), tuple(problems))


NPZ = Reader("npz", "one .npz file per episode", "files that end in .npz", recognises, read)
'''


@pytest.fixture
def npz_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a reader in a package of its own."""
    package = tmp_path / "code" / "npz_lab"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "npz_folder.py").write_text(NPZ_READER)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    for module in ("npz_lab", "npz_lab.npz_folder"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return "npz_lab.npz_folder:NPZ"


@pytest.fixture
def npz_data(tmp_path: Path) -> Path:
    folder = tmp_path / "episodes" / "test"
    folder.mkdir(parents=True)
    for level in (1, 3, 5):
        frames = moving_square(f"npz {level}")
        np.savez(folder / f"{level}.npz", frames=frames, count=len(frames), instruction="push the block", level=level)
    return folder


def test_a_reader_outside_the_package_works_end_to_end(npz_reader: str, npz_data: Path, tmp_path: Path) -> None:
    settings = dict(workers=1, engine="local", out=tmp_path / "run")
    data = f"{npz_reader}:{npz_data}"
    run = evaluate(stress_plan(("length",), data, ("jpeg",), (1,), controls=False, **settings))
    trials = Run(run.folder).trials().rows()
    assert {(trial.episode, trial.truth_level) for trial in trials} == {("1.npz", 1), ("3.npz", 3), ("5.npz", 5)}
    assert {trial.status for trial in trials} == {"scored"}
    assert dataset_folder(data) == npz_data
    assert choose_split(f"{npz_reader}:{npz_data.parent}", "test") == data


def test_a_problem_stands_where_its_format_says(npz_reader: str, npz_data: Path) -> None:
    np.savez(npz_data / "9.npz", frames=moving_square("9"))
    assert [str(problem) for problem in open_dataset(f"{npz_reader}:{npz_data}").problems] == ["9.npz: has no level"]


def test_a_reader_of_the_catalog_recognises_a_folder_or_is_named(tiny_data: Path) -> None:
    by_folder, by_reader = (open_dataset(name).episodes for name in (str(tiny_data), f"roboreward:{tiny_data}"))
    assert [episode.hash for episode in by_folder] == [episode.hash for episode in by_reader] != []


@pytest.mark.parametrize("name", READERS)
def test_a_folder_that_no_reader_recognises_is_one_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"no reader takes \(.*\b{name}\b.*\); it holds nothing; name"):
        open_dataset(str(tmp_path))
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError, match=rf"{name} does not take: it expects .*; it holds notes\.txt; name another"):
        open_dataset(f"{name}:{tmp_path}")


def test_the_splits_of_a_folder_are_offered(tmp_path: Path) -> None:
    write_rows(tmp_path / "train", [])
    write_rows(tmp_path / "test", [])
    (tmp_path / "other").mkdir()
    with pytest.raises(DataError, match="name one of its folders that do: test, train"):
        open_dataset(str(tmp_path))
    assert choose_split(str(tmp_path), "test") == str(tmp_path / "test")
    assert choose_split(f"roboreward:{tmp_path}", "test") == f"roboreward:{tmp_path}/test"


def test_a_path_may_have_an_at_of_its_own(tiny_data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rig@home"
    folder.symlink_to(tiny_data)
    for name in (str(folder), f"roboreward:{folder}", f"{folder}@all"):
        assert len(open_dataset(name).episodes) == 6
    with pytest.raises(DataError, match="no episode of a camera 'wrist'; there are no named cameras"):
        open_dataset(f"{folder}@wrist")
    assert choose_split(f"roboreward:{folder}@wrist", "test") == f"roboreward:{folder}@wrist"


def test_a_name_that_is_no_reader_and_a_folder_that_is_not_there_are_said(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"must be a rewardlab\.data\.contract\.Reader, got function"):
        open_dataset(f"rewardlab.data.roboreward:read_folder:{tmp_path}")
    with pytest.raises(DataError, match="no dataset at 'no/such/folder'"):
        open_dataset("roboreward:no/such/folder")
    with pytest.raises(DataError, match="no dataset at 'no/such/folder'") as told:
        open_dataset("no/such/folder")
    assert not any(reader.expects in str(told.value) for reader in READERS.values())  # a path is wrong, not a format
