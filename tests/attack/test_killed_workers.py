"""Workers that are killed, as the memory killer does, at every stage of their work, in real runs."""

from pathlib import Path

import pyarrow as pa
import pytest

from rewardlab.core.errors import Interrupted
from rewardlab.core.run import Run
from rewardlab.core.trial import Trial
from rewardlab.evaluation.engines.ordered_map import map_items
from rewardlab.evaluation.evaluate import evaluate
from tests.attack.kills import kill_campaign
from tests.evaluation.dispatched_work import square_and_die_once
from tests.evaluation.test_stress import plan

pytestmark = pytest.mark.slow
CODE = """
import os
from pathlib import Path
from rewardlab import Score
from rewardlab.perturbations.contract import on_frames, on_instruction

KILLER = Path(__file__).with_name("armed")

def strike(process):
    "Kill once: the file is the one bullet."
    try:
        KILLER.unlink()
    except FileNotFoundError:
        return
    os.kill(process, 9)

class Victim:
    "Judges by brightness; while it scores, its worker is killed."
    def score(self, episodes):
        strike(os.getppid())
        return [Score(1 + 4 * float(e.frames.mean()) / 255) for e in episodes]

class Suicide(Victim):
    "Its own process is killed, as for memory."
    def score(self, episodes):
        strike(os.getpid())
        return Victim.score(self, episodes)

class Loader(Victim):
    "Its worker is killed while the models are loaded."
    def __init__(self):
        strike(os.getppid())

class Deadly:
    "No process survives it."
    def score(self, episodes):
        os._exit(5)

@on_instruction("semantic", parameter="n", table=(1, 2, 3, 4))
def struck_polite(text, n, rng):
    "Kill the worker once while it perturbs."
    strike(os.getpid())
    return text + " please" * n

@on_instruction("semantic", parameter="n", table=(1, 2, 3, 4))
def deadly_drawer(text, n, rng):
    "Kill the worker whenever it is a drawer at severity 4."
    if "drawer" in text and n == 4:
        os._exit(9)
    return text + " please" * n
"""


@pytest.fixture
def armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "deathlab.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "armed"


def table(run: Run) -> pa.Table:
    return run.trials().arrow.drop_columns(["seconds"])


def failed(run: Run) -> list[Trial]:
    return [trial for trial in run.trials().rows() if trial.status == "failed"]


@pytest.mark.parametrize(
    ("model", "perturbation"), [("Victim", "mirror"), ("Suicide", "mirror"), ("Loader", "mirror"), ("Victim", "struck")]
)
def test_a_worker_that_is_killed_costs_nothing(
    tiny_data: Path, tmp_path: Path, armed: Path, model: str, perturbation: str
) -> None:
    name = {"struck": "deathlab:struck_polite"}.get(perturbation, perturbation)
    settings = {"models": (f"deathlab:{model}",), "perturbations": (name,), "severities": (1, 4), "workers": 1}
    calm = evaluate(plan(tiny_data, tmp_path / "calm", **settings))
    armed.touch()
    struck = evaluate(plan(tiny_data, tmp_path / "struck", engine="processes", **settings))
    assert not armed.exists()  # it did strike
    assert table(struck).equals(table(calm))
    assert not failed(struck)


@pytest.mark.usefixtures("armed")
def test_only_the_poison_fails_where_the_perturbing_kills(tiny_data: Path, tmp_path: Path) -> None:
    settings = {"perturbations": ("deathlab:deadly_drawer",), "severities": (1, 4), "workers": 1}
    run = evaluate(plan(tiny_data, tmp_path / "run", engine="processes", **settings))
    lost = failed(run)
    assert {(t.episode, t.severity) for t in lost} == {("arm/b.mp4", 4)}
    assert {t.model for t in lost} == {"length", "constant", "random", "motion", "end-motion", "change", "oracle"}
    reason = "the worker process ended with exit code 9 while the episode was decoded or perturbed"
    assert {t.reason for t in lost} == {reason}


@pytest.mark.usefixtures("armed")
def test_a_model_that_always_dies_ends_the_run_after_a_bounded_number_of_restarts(
    tiny_data: Path, tmp_path: Path
) -> None:
    settings = {"models": ("deathlab:Deadly",), "perturbations": ("none",), "workers": 1, "max_restarts": 3}
    with pytest.raises(Interrupted, match=r"ended 4 times.*process of deathlab:Deadly ended with exit code 5"):
        evaluate(plan(tiny_data, tmp_path / "run", engine="processes", **settings))


def test_a_map_whose_worker_is_killed_gives_every_result(tmp_path: Path) -> None:
    from functools import partial

    (tmp_path / "armed").touch()
    assert list(map_items(partial(square_and_die_once, tmp_path / "armed"), range(8), 2)) == [
        item * item for item in range(8)
    ]


def test_runs_killed_at_random_moments_end_as_if_undisturbed(tmp_path: Path) -> None:
    outcomes = kill_campaign(tmp_path, kills=1, seed=14)
    assert outcomes.kills >= 1
    assert outcomes.bad == []
