"""The page 'your model' is true: every code block is a file that runs, and does what the page says."""

import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import rewardlab
from rewardlab.models.contract import AnyModel
from rewardlab.testing import check_model
from tests.conftest import IN_PROCESS
from tests.narrowing import as_scores, known

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "your-model.md"
FILES = (
    "reward.py",
    "bright.py",
    "careful.py",
    "weighted.py",
    "network.py",
    "test_bright.py",
)  # in the order of the page


@pytest.fixture
def mylab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with one file for each code block of the page."""
    package = tmp_path / "elsewhere" / "mylab"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name, code in zip(FILES, re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL), strict=True):
        (package / name).write_text(code)
    np.savez(package / "w.npz", weights=np.array([1.0, 2.0, 1.0]))
    monkeypatch.syspath_prepend(str(package.parent))
    _forget()  # what other tests call so
    yield package
    _forget()


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "mylab"]:
        del sys.modules[name]


def stressed(model: AnyModel, data: Path, out: Path) -> rewardlab.Run:
    return rewardlab.stress(
        model, data, perturbations="polite_filler", severities=1, controls=False, execution=IN_PROCESS, out=out
    )


@pytest.mark.usefixtures("mylab")
def test_a_function_and_a_class_are_models_by_name_and_as_objects(tiny_data: Path, tmp_path: Path) -> None:
    function, bright = import_module("mylab.reward").reward, import_module("mylab.bright").Bright()
    models = ("mylab.reward:reward", function, "mylab.bright:Bright", bright)
    runs = [stressed(model, tiny_data, tmp_path / str(place)) for place, model in enumerate(models)]
    levels = [sorted(known(trial.level) for trial in run.trials().rows()) for run in runs]
    assert levels[0] == levels[1] == levels[2] == levels[3] and len(set(levels[0])) > 1
    import_module("mylab.test_bright").test_bright_keeps_the_contract()


@pytest.mark.usefixtures("mylab")
def test_every_kind_of_answer(tiny_data: Path) -> None:
    careful = import_module("mylab.careful").Careful()
    check_model(careful, rewardlab.open_dataset(tiny_data).episodes)
    score = rewardlab.score(careful, tiny_data / "arm" / "a.mp4", "lift the cup")
    assert isinstance(score, rewardlab.Score) and score.probabilities and score.progress and score.raw
    one = rewardlab.score(careful, np.zeros((1, 8, 8, 3), np.uint8), "lift the cup")
    assert one == rewardlab.Failure("one frame shows no progress")


def test_arguments_reach_a_class_and_a_function_needs_none(mylab: Path, tiny_data: Path, tmp_path: Path) -> None:
    name = f"mylab.weighted:Weighted?path={mylab / 'w.npz'}&scale=0.5"
    run = stressed(name, tiny_data, tmp_path / "run")
    assert run.summary.outcomes(name).failed == 0
    check_model(rewardlab.load_model("mylab.weighted:small_model"), rewardlab.open_dataset(tiny_data).episodes)
    plain, halved = (rewardlab.load_model(text) for text in ("mylab.weighted:small_model", name))
    episodes = rewardlab.open_dataset(tiny_data).episodes[:1]
    (whole,), (half,) = (as_scores(model.score(episodes)) for model in (plain, halved))
    assert half.level - 1 == pytest.approx((whole.level - 1) / 2)


@pytest.mark.usefixtures("mylab")
def test_the_network_scores_clips_of_several_sizes_in_batches(tiny_data: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1))
    torch.save(network.state_dict(), tmp_path / "network.pt")
    name = f"mylab.network:Network?path={tmp_path / 'network.pt'}&batch=5&device=cpu"
    episodes = [*rewardlab.open_dataset(tiny_data).episodes[:2], *rewardlab.open_dataset("sample").episodes[:1]]
    check_model(rewardlab.load_model(name), episodes)
    assert stressed(name, tiny_data, tmp_path / "run").summary.outcomes(name).failed == 0


class Greying:
    """A model that prepares its frames in place."""

    def score(self, episodes: Sequence[rewardlab.Episode]) -> list[rewardlab.Score]:
        return [self._score(episode.frames) for episode in episodes]

    def _score(self, frames: np.ndarray) -> rewardlab.Score:
        frames[..., 0] = frames[..., 1]
        return rewardlab.Score(3.0)


@pytest.mark.parametrize("source", ["video", "array"])
def test_a_model_that_writes_to_its_frames_breaks_the_contract(tiny_data: Path, source: str) -> None:
    episodes = rewardlab.open_dataset(tiny_data).episodes
    if source == "array":
        episodes = tuple(rewardlab.episode_from_frames(each.frames, each.instruction) for each in episodes)
    with pytest.raises(ValueError, match="read-only"):
        check_model(Greying(), episodes)
