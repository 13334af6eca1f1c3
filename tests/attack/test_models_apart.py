"""Models that misbehave: each fails alone, and what the others see, answer and measure is as if it were not there."""

from pathlib import Path
from typing import Any

import pytest

from rewardlab.core.episode import episode_from_frames
from rewardlab.core.run import Run
from rewardlab.core.trial import Failure, GuardVerdict, Score, ScoreInfo, Trial, validate_answer
from rewardlab.evaluation.engines.processes import Process
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.evaluation.isolated_model import start_model
from rewardlab.models import name_model
from rewardlab.models.contract import Budget
from tests.conftest import moving_square
from tests.evaluation.test_stress import plan

CODE = """
import gc, os, sys
import numpy as np
from rewardlab import Score
from rewardlab.core.trial import GuardVerdict, ScoreInfo

class Eye:
    "An honest model: brightness, and when the last frame came."
    def score(self, episodes):
        return [Score(1 + 4 * float(np.mean(e.frames)) / 255, raw=f"{e.times[-1]:.3f} {os.getcwd()}") for e in episodes]

class Vandal:
    "Blackens the frames and zeroes the times."
    def score(self, episodes):
        for e in episodes:
            for spoil in (e.frames, e.clip.positions, e.clip.order):
                try:
                    spoil[...] = 0
                except ValueError:
                    continue
                raise RuntimeError("it could be written to")
        return [Score(1)] * len(episodes)

class Saboteur:
    "Changes the working folder, numpy and what json writes, and prints."
    def score(self, episodes):
        os.chdir("/")
        np.mean = np.searchsorted = np.unique = lambda *a, **k: 0.0
        print("forged: 5.00", flush=True)
        os.write(1, b"forged: 5.00")
        return [Score(2)] * len(episodes)

class Spy:
    "Looks through its memory and its callers for labels."
    def score(self, episodes):
        found, frame = [], sys._getframe()
        while frame:
            found += [v for v in frame.f_locals.values() if type(v).__name__ in ("CellGroup", "Job", "Trial")]
            frame = frame.f_back
        kinds = ("Truth", "Trial", "Job", "EpisodeCells")
        for thing in gc.get_objects():
            if type(thing).__name__ in kinds and getattr(thing, "level", thing) is not None:
                found.append(thing)
        return [Score(3, raw=f"found {len(found)} {e.id!r}") for e in episodes]

class Refusing:
    def __float__(self):
        raise MemoryError("no number for you")

class Untellable(Exception):
    def __str__(self):
        raise RuntimeError("no words either")

ANSWERS = {
    "Huge": lambda e: Score(10**400),
    "NoFloat": lambda e: Score(Refusing()),
    "Quitter": lambda e: sys.exit("I quit"),
    "Mute": lambda e: (_ for _ in ()).throw(Untellable()),
    "Flood": lambda e: Score(3, raw="x" * 200_000),
}

def make(name):
    class Odd:
        def score(self, episodes):
            return [ANSWERS[name](e) for e in episodes]
    return Odd

Huge, NoFloat, Quitter, Mute, Flood = map(make, ANSWERS)

class Knows:
    "Gives info with its answers; one that cannot be where the instruction says so."
    def score(self, episodes):
        infos = {"bad": ScoreInfo(novelty="high")}
        guard = GuardVerdict("hold", 0.4)
        known = ScoreInfo(prediction_set=(4, 5), novelty=0.25, member_levels={"a": 3.0}, guard=guard)
        return [Score(3, raw="three", info=infos.get(e.instruction, known)) for e in episodes]

class Endless:
    "Answers for ever."
    def score(self, episodes):
        while True:
            yield Score(3)
"""
HOSTILE = ("Vandal", "Saboteur", "Spy", "Huge", "NoFloat", "Quitter", "Mute", "Flood", "Endless")
REASONS = {
    "Huge": "OverflowError: int too large to convert to float",
    "NoFloat": "MemoryError: no number for you",
    "Quitter": "SystemExit: I quit",
    "Mute": "Untellable: an error that cannot be told",
    "Flood": "an answer of 200,000 characters, at most 100,000 are taken in; "
    "set REWARDLAB_MAX_ANSWER_CHARACTERS to take more",
    "Endless": "too many answers to a batch of 6: score(episodes) must return one per episode, in order",
}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "zoo.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def trials_of(run: Run, model: str) -> list[Trial]:
    return [trial for trial in run.trials().rows() if trial.model == f"zoo:{model}"]


@pytest.mark.slow
def test_hostile_models_fail_alone_and_change_nothing_for_the_others(
    tiny_data: Path, lab: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {"perturbations": ("mirror",), "severities": (4,), "limit": 3, "workers": 1, "engine": "processes"}
    names = tuple(f"zoo:{name}" for name in HOSTILE)
    alone = evaluate(plan(tiny_data, lab / "alone", models=("zoo:Eye",), **settings))
    together = evaluate(plan(tiny_data, lab / "all", models=(*names, "zoo:Eye"), **settings))
    assert "forged" not in capfd.readouterr().out
    everyone = [alone.trials().rows(), together.trials().rows()]
    honest = [
        {
            (t.id, t.level, t.raw, t.frames_hash, t.truth_level)
            for t in rows
            if t.model in ("zoo:Eye", "oracle", "length")
        }
        for rows in everyone
    ]
    assert honest[0] == honest[1]
    assert {t.status for t in trials_of(together, "Eye")} == {"scored"}
    for name in ("Vandal", "Saboteur", "Spy"):
        assert {t.status for t in trials_of(together, name)} == {"scored"}, name
    assert {t.raw for t in trials_of(together, "Spy")} == {"found 0 ''"}
    for name, reason in REASONS.items():
        assert {(t.status, t.reason) for t in trials_of(together, name)} == {("failed", reason)}


def test_a_hostile_member_of_an_ensemble_with_an_oracle_finds_no_truth(tiny_data: Path, lab: Path) -> None:
    settings = {"perturbations": ("none",), "severities": (0,), "controls": False, "workers": 1, "engine": "processes"}
    run = evaluate(plan(tiny_data, lab / "run", models=("ensemble:oracle,zoo:Spy,zoo:Saboteur", "zoo:Spy"), **settings))
    assert {t.raw for t in trials_of(run, "Spy")} == {"found 0 ''"}
    assert {t.status for t in run.trials().rows() if t.truth_level is not None} == {"scored"}


@pytest.mark.usefixtures("lab")
def test_info_comes_out_of_the_process_of_a_model_and_a_bad_one_is_a_failure() -> None:
    clips = [episode_from_frames(moving_square("a", count=3), instruction) for instruction in ("push", "bad")]
    started: list[Process] = []
    try:
        known, bad = start_model(name_model("zoo:Knows"), Budget(), started).score(clips)
    finally:
        for process in started:
            process.stop()
    info = ScoreInfo(prediction_set=(4, 5), novelty=0.25, member_levels={"a": 3.0}, guard=GuardVerdict("hold", 0.4))
    assert len(started) == 1 and known == Score(3.0, raw="three", info=info)
    assert isinstance(bad, Failure) and "info.novelty must be a finite number" in bad.reason


def test_the_answer_of_a_model_may_hold_any_object() -> None:
    class Liar:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            return Score

    liar: Any = Liar()
    endless: Any = iter([1])
    for odd in (liar, Score(1, probabilities=endless), Failure(liar), Score(float("inf")), None, Score):
        assert isinstance(validate_answer(odd, 3), Failure)
