"""LeRobot's own code on what rewardlab writes: datasets, progress files and the command of `data rank`.

    python3 -m venv with-lerobot && with-lerobot/bin/pip install 'lerobot[training]' . pytest pytest-timeout hypothesis
    with-lerobot/bin/python -m pytest tests/data/test_lerobot_itself.py

Skipped elsewhere: LeRobot needs torchvision, and other versions of torch than rewardlab is tested with. On Python 3.11
this installs LeRobot 0.4.4, from 3.12 on 0.6.1.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

import rewardlab
from rewardlab.data import open_dataset
from rewardlab.data.lerobot import PROGRESS_FILE
from tests.conftest import IN_PROCESS, moving_square

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("lerobot") is None, reason="needs LeRobot, in an environment of its own"),
    pytest.mark.filterwarnings("ignore"),  # LeRobot and torchvision warn of what they will leave out one day
]
CAMERA, FPS, COUNTS = "observation.images.front", 10, (14, 9, 11)
FEATURES = {
    CAMERA: {"dtype": "video", "shape": (64, 64, 3), "names": ["height", "width", "channels"]},
    "observation.state": {"dtype": "float32", "shape": (3,), "names": None},
    "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    "next.success": {"dtype": "bool", "shape": (1,), "names": None},
    "subtask_index": {"dtype": "int64", "shape": (1,), "names": None},
    "note": {"dtype": "string", "shape": (1,), "names": None},
}


@pytest.fixture(scope="module", autouse=True)
def offline() -> Any:
    """Keep LeRobot from looking for datasets on the hub."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record three episodes with LeRobot itself, the first of them a success."""
    import pandas
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    folder = tmp_path_factory.mktemp("lerobot") / "recorded"
    made = LeRobotDataset.create("recorded", FPS, FEATURES, root=folder, robot_type="so100", use_videos=True)
    for number, count in enumerate(COUNTS):
        for step, frame in enumerate(moving_square(f"{number}", count=count, size=64)):
            row = {CAMERA: frame, "task": ("lift the cup", "open the drawer")[number % 2], "note": f"step {step}"}
            row |= {"observation.state": np.array([number, step, 0.5], np.float32)}
            row |= {"action": np.array([step, -step], np.float32)}
            row |= {"subtask_index": np.array([int(step > 4)])}
            made.add_frame(row | {"next.success": np.array([number == 0 and step == count - 1])})
        made.save_episode()
    made.finalize()
    subtasks = pandas.DataFrame({"subtask_index": [0, 1]}, index=["reach", "lift"])
    subtasks.to_parquet(folder / "meta" / "subtasks.parquet")
    return folder


@pytest.fixture(scope="module")
def converted(recorded: Path) -> Path:
    """Write the recording again with rewardlab."""
    rewardlab.data_convert(recorded, recorded.parent / "converted", to="lerobot")
    return recorded.parent / "converted"


def rabc_weights(progress: Path, **settings: Any) -> Any:
    """Return what LeRobot weighs samples with."""
    import torch

    try:
        from lerobot.rewards.sarm.rabc import RABCWeights
    except ImportError:  # before LeRobot 0.5
        from lerobot.utils.rabc import RABCWeights
    return RABCWeights(progress, device=torch.device("cpu"), **settings)


def opened(folder: Path) -> Any:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    return LeRobotDataset(folder.name, root=folder, video_backend="pyav")


def test_what_lerobot_records_is_read(recorded: Path) -> None:
    episodes = open_dataset(recorded).episodes
    assert [len(episode.clip) for episode in episodes] == list(COUNTS)
    assert [episode.label.success for episode in episodes] == [True, False, False]
    assert [episode.instruction for episode in episodes] == ["lift the cup", "open the drawer", "lift the cup"]
    assert {stage.instruction for episode in episodes for stage in episode.label.stages} == {"reach", "lift"}


def test_lerobot_reads_the_converted_dataset_with_every_column(recorded: Path, converted: Path) -> None:
    before, after = opened(recorded), opened(converted)
    assert set(before.features) == set(after.features) and len(before) == len(after) == sum(COUNTS)
    for old, new in zip(before, after, strict=True):
        assert old.keys() == new.keys()
        for name in ("observation.state", "action", "next.success", "index", "timestamp", "episode_index"):
            assert_allclose(np.array(new[name]), np.array(old[name]), atol=1e-6)
        texts = [name for name in ("note", "task", "subtask") if name in old]  # LeRobot 0.6 reads no subtasks
        assert len(texts) > 1 and all(new[name] == old[name] for name in texts)
        assert abs(new[CAMERA] - old[CAMERA]).mean() < 0.02
    for name in ("action", "observation.state"):
        for what in ("min", "max", "mean", "std", "count"):
            assert_allclose(after.meta.stats[name][what], before.meta.stats[name][what], atol=1e-5)


def test_language_columns_are_kept(recorded: Path, tmp_path: Path) -> None:
    language = pytest.importorskip("lerobot.datasets.language", reason="LeRobot has them from 0.6 on")
    source, out = shutil.copytree(recorded, tmp_path / "source"), tmp_path / "out"
    info = json.loads((source / "meta" / "info.json").read_text())
    info["features"] |= language.language_feature_info()
    (source / "meta" / "info.json").write_text(json.dumps(info))
    (path,) = (source / "data").rglob("*.parquet")
    table = pq.read_table(path).replace_schema_metadata(None)
    said = {"role": "user", "content": "lift it", "style": "subtask", "camera": None, "tool_calls": None}
    persistent = pa.array([[said | {"timestamp": 0.0}]] * len(table))  # without a type, as LeRobot's annotations do
    events = pa.array([[said] if n % 3 == 0 else [] for n in range(len(table))])
    table = table.append_column(language.LANGUAGE_PERSISTENT, persistent)
    pq.write_table(table.append_column(language.LANGUAGE_EVENTS, events), path)
    rewardlab.data_convert(source, out, to="lerobot")
    for old, new in zip(opened(source), opened(out), strict=True):
        assert old["language_persistent"] and new["language_persistent"] == old["language_persistent"]
        assert new["language_events"] == old["language_events"]


def test_make_dataset_and_reward_weighted_training_take_dataset_and_progress(converted: Path, tmp_path: Path) -> None:
    import torch
    from accelerate import Accelerator
    from lerobot.configs.default import DatasetConfig
    from lerobot.configs.train import TrainPipelineConfig
    from lerobot.datasets.factory import make_dataset
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.scripts.lerobot_train import update_policy
    from lerobot.utils.logging_utils import AverageMeter, MetricsTracker

    policy_config = ACTConfig(chunk_size=4, n_action_steps=4, push_to_hub=False, device="cpu")
    data_config = DatasetConfig("converted", root=str(converted), video_backend="pyav")
    dataset = make_dataset(TrainPipelineConfig(dataset=data_config, policy=policy_config))
    batch = next(iter(torch.utils.data.DataLoader(dataset, batch_size=8)))
    assert batch["action"].shape == (8, 4, 2) and batch[CAMERA].shape == (8, 3, 64, 64)

    progress = tmp_path / "progress.parquet"
    made = rewardlab.relabel(converted, model="length:20", out=progress, run=tmp_path / "run", execution=IN_PROCESS)
    assert (made.frames, made.failed) == (len(dataset), 0)
    for mode in ("sparse", "dense"):
        weights = rabc_weights(progress, chunk_size=4, head_mode=mode)
        assert weights.get_stats()["num_frames"] == len(dataset)
        assert {n: each["end"] - each["start"] for n, each in weights.episode_boundaries.items()} == dict(
            enumerate(COUNTS)
        )
    found, about = weights.compute_batch_weights(batch)
    assert torch.isfinite(found).all() and float(found.sum()) == pytest.approx(8, abs=1e-3)
    assert about["num_full_weight"] == 8  # longer is further for `length`: every frame makes progress

    class Linear(torch.nn.Module):
        """A policy that gives a loss per sample, as reward-weighted training asks."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, batch: Any, reduction: str = "mean") -> tuple[Any, dict[str, Any]]:
            loss = (self.layer(batch["observation.state"])[:, None] - batch["action"]).square().mean(dim=(1, 2))
            return (loss if reduction == "none" else loss.mean()), {}

    policy, meters = Linear(), {name: AverageMeter(name, ":.3f") for name in ("loss", "grad_norm", "lr", "update_s")}
    tracker = MetricsTracker(8, len(dataset), dataset.num_episodes, meters)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
    (weighted_by,) = {"rabc_weights_provider", "sample_weighter"} & set(signature(update_policy).parameters)
    given = (tracker, policy, batch, optimizer, 1.0, Accelerator(cpu=True))
    _, output = update_policy(*given, **{weighted_by: weights})
    assert [value for name, value in output.items() if name.endswith("num_full_weight")] == [8]
    assert tracker.loss.val > 0


def test_progress_without_numbers_falls_back_to_the_weight_one(recorded: Path, tmp_path: Path) -> None:
    import torch

    progress = tmp_path / "progress.parquet"
    made = rewardlab.relabel(recorded, model="length:20", limit=1, out=progress, run=tmp_path, execution=IN_PROCESS)
    assert made.frames == COUNTS[0]
    weights = rabc_weights(progress, chunk_size=4)
    assert weights.compute_batch_weights({"index": torch.arange(COUNTS[0], sum(COUNTS))})[0].tolist() == [
        pytest.approx(1.0)
    ] * sum(COUNTS[1:])


def test_lerobot_reads_the_progress_that_a_conversion_writes(tmp_path: Path) -> None:
    rewardlab.data_convert("sample-sim", tmp_path / "sim", to="lerobot", sample=3)
    weights = rabc_weights(tmp_path / "sim" / PROGRESS_FILE, chunk_size=5)
    assert weights.get_stats()["num_frames"] == len(opened(tmp_path / "sim"))


def test_the_command_of_data_rank_leaves_the_episodes_out_of_a_copy(converted: Path, tmp_path: Path) -> None:
    found = rewardlab.data_rank(converted, model="length:20", worst=1, run=tmp_path, execution=IN_PROCESS)
    assert [each.episode for each in found.worst] == ["episode_000001"]  # the shortest
    before, *command = shlex.split(found.remove)
    name, _, value = before.partition("=")
    program = [sys.executable, "-m", "lerobot.scripts.lerobot_edit_dataset", *command[1:]]
    done = subprocess.run(program, env=os.environ | {name: value}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept = opened(converted.with_name("converted_kept"))
    assert kept.num_episodes == 2 and len(kept) == COUNTS[0] + COUNTS[2]
    assert [len(episode.clip) for episode in open_dataset(kept.root).episodes] == [COUNTS[0], COUNTS[2]]
    states = np.stack([np.array(row["observation.state"]) for row in kept])
    assert states[:, 0].tolist() == [0] * COUNTS[0] + [2] * COUNTS[2]
    stats = json.loads((kept.root / "meta" / "stats.json").read_text())
    assert_allclose(stats["observation.state"]["mean"], states.mean(axis=0), atol=1e-5)
    assert np.array(stats[CAMERA]["mean"]).shape == (3, 1, 1)
    assert pq.read_table(converted / "meta" / "tasks.parquet").num_rows == 2 and len(opened(converted)) == sum(COUNTS)
