"""The training loop with a trainable of one number: checkpoints, curve, best weights, resuming."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs rewardlab[train]")

from rewardlab.core.errors import ModelError
from rewardlab.training import loop
from rewardlab.training.loop import Progress, Step, TrainingFiles, files_in, fit, read_curve
from rewardlab.training.optimizer import OptimizerConfig, learning_rate
from rewardlab.training.processes import Processes


class Counter:
    """A weight that grows by one with each step; its error is told by step."""

    def __init__(self, errors: Mapping[int, float] | None = None, nan_at: int = 0) -> None:
        self.weight, self.errors, self.nan_at = 0.0, errors, nan_at

    def batches(self, start: int) -> Iterator[int]:
        yield from range(start, 6)

    def step(self, number: int, batch: int) -> Step:
        assert number == batch
        self.weight += 1
        loss = float("nan") if self.nan_at == number + 1 else float(number)
        return Step({"loss": torch.tensor(loss)}, lr=0.1, counts={"clips": 2})

    def validate(self) -> tuple[float | None, dict[str, float]]:
        error = None if self.errors is None else self.errors[round(self.weight)]
        return error, {"weight": self.weight}

    def state(self) -> dict[str, Any]:
        return {"trained": {"weight": torch.tensor(self.weight)}}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.weight = float(state["trained"]["weight"])


def run(trainable: Counter, files: TrainingFiles, **settings: Any) -> Progress:
    files.state.parent.mkdir(parents=True, exist_ok=True)
    show = settings.pop("show", lambda _progress, _row: None)
    return fit(trainable, files, steps=6, eval_every=2, processes=Processes("cpu"), show=show, **settings)


def best_weight(files: TrainingFiles) -> float:
    from safetensors.torch import load_file

    assert files.best is not None
    return float(load_file(files.best)["weight"])


def test_rows_hold_mean_losses_and_validation_values(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    run(Counter(), files, log_every=3)
    rows = read_curve(files.curve)
    assert [(row["step"], row["loss"], row.get("weight")) for row in rows] == [
        (2, 0.5, 2.0),
        (3, 2.0, None),
        (4, 3.0, 4.0),
        (6, 4.5, 6.0),
    ]
    assert all(row["clips_per_s"] > 0 and row["lr"] == 0.1 for row in rows)


def test_the_best_weights_are_kept_and_without_an_error_the_last(tmp_path: Path) -> None:
    files = files_in(tmp_path / "best")
    found = run(Counter({2: 0.5, 4: 0.2, 6: 0.3}), files)
    assert (found.best_step, found.best_error, best_weight(files)) == (4, 0.2, 4.0)
    files = files_in(tmp_path / "last")
    assert run(Counter(), files).best_step == 6 and best_weight(files) == 6.0


@pytest.mark.parametrize("when", ["before the checkpoint", "before the row", "after the row"])
def test_a_stopped_training_resumes_with_every_row_once(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, add, save = files_in(tmp_path), loop.Curve.add, torch.save

    def stop(*_arguments: Any, **_named: Any) -> None:
        raise KeyboardInterrupt

    def stop_at_4(progress: Progress, _row: Mapping[str, float]) -> None:
        if progress.step == 4:
            stop()

    with monkeypatch.context() as patched:
        patched.setattr(
            loop.Curve, "add", lambda *given: stop() if given[1] == 4 and when == "before the row" else add(*given)
        )
        patched.setattr(
            torch,
            "save",
            lambda state, path: (
                stop() if state["progress"]["step"] == 4 and when == "before the checkpoint" else save(state, path)
            ),
        )
        with pytest.raises(KeyboardInterrupt):
            run(Counter(), files, show=stop_at_4)
    again = Counter()
    assert run(again, files).step == 6 and again.weight == 6.0
    expected = [2, 6] if when == "before the row" else [2, 4, 6]
    assert [row["step"] for row in read_curve(files.curve)] == expected


def test_a_loss_that_is_not_finite_is_told_with_its_step(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the loss of triplet is not a number at step 3"):
        run(Counter(nan_at=3), files_in(tmp_path), name="triplet")
    assert [row["step"] for row in read_curve(files_in(tmp_path).curve)] == [2]


def test_each_schedule_warms_up_and_ends_near_zero() -> None:
    cosine = [learning_rate(step, 100, OptimizerConfig(1.0)) for step in range(100)]
    product = [learning_rate(step, 100, OptimizerConfig(1.0, schedule="cosine-from-start")) for step in range(100)]
    assert cosine[:6] == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0]) and cosine[-1] < 0.001
    assert product[0] == 0.0 and product[5] == pytest.approx(0.99384, abs=1e-5) and product[-1] < 0.001
