"""Changes from the middle of the clip on, and what the reward does then beside the twin that does not change."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rewardlab
from rewardlab.core.episode import Episode, Label, episode_from_frames
from rewardlab.core.errors import NotApplicable, PlanError
from rewardlab.core.settings import Execution
from rewardlab.core.trial import Answer, Score
from rewardlab.core.video_encoding import encode
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.metrics import METRICS
from rewardlab.metrics.contract import eligible
from rewardlab.perturbations import PERTURBATIONS, choose_perturbations, is_in_catalogue
from rewardlab.perturbations.composition import graded_perturbation
from rewardlab.reporting.report import write_report
from rewardlab.testing import check_perturbation
from tests.conftest import moving_square, write_rows
from tests.metrics.handmade_trials import table, trial

LABEL = Label(5, True, tuple(np.linspace(0, 1, 9)))
EPISODE = episode_from_frames(moving_square("midway", count=9, size=48), "push the square", label=LABEL)
NAMES = ("midway:low_light", "midway:camera_move", "midway:light_gradient", "midway:fog")


@pytest.mark.parametrize("name", NAMES)
def test_the_first_half_stays_bit_for_bit_and_the_second_changes(name: str) -> None:
    (midway,) = choose_perturbations((name,))
    assert (midway.name, midway.category, midway.expect) == (name, "temporal", "same")
    check_perturbation(midway, [EPISODE])
    change = midway(EPISODE, 4, 0)
    before, after = EPISODE.frames, change.episode.frames
    assert np.array_equal(after[:4], before[:4])
    assert all((one != other).any() for one, other in zip(after[4:], before[4:], strict=True))
    assert change.expect == "same" and change.episode.label == EPISODE.label
    assert midway.fingerprint != PERTURBATIONS[name.removeprefix("midway:")].fingerprint


def test_lamps_and_camera_of_a_simulator_change_in_the_middle_too() -> None:
    episode = next(e for e in open_dataset("sample-sim").episodes if e.sim_state)
    shown = sample_frames(episode, frame_policy("uniform:4"))
    for name in ("midway:world_light_intensity", "midway:world_camera"):
        (midway,) = choose_perturbations((name,))
        frames = midway(shown, 4, 0).episode.frames
        drift = np.abs(frames.astype(int) - shown.frames).mean(axis=(1, 2, 3))
        assert drift[:2].max() == 0 and drift[2:].min() > 2


def test_names_compose_and_are_graded_and_what_cannot_begin_in_the_middle_is_refused() -> None:
    (both,) = choose_perturbations(("midway:low_light+polite_filler",))
    change = both(EPISODE, 2, 0)
    assert change.episode.instruction != EPISODE.instruction and np.array_equal(
        change.episode.frames[:4], EPISODE.frames[:4]
    )
    assert is_in_catalogue("midway:low_light+midway:fog") and not is_in_catalogue("midway:mylab.lights:dim")
    known = {p.name: p for p in choose_perturbations(("midway:low_light",))}
    halfway = graded_perturbation("midway:low_light@2.5", known)(EPISODE, 1, 0).episode.frames
    darker, lighter = (known["midway:low_light"](EPISODE, s, 0).episode.frames.mean() for s in (3, 2))
    assert darker < halfway.mean() < lighter
    for name in ("midway:task_swap", "midway:reverse", "midway:codec", "midway:random:visual"):
        with pytest.raises(PlanError):
            choose_perturbations((name,))
    (midway,) = choose_perturbations(("midway:low_light",))
    with pytest.raises(NotApplicable, match="no middle"):
        midway(episode_from_frames(EPISODE.frames[:1], "push"), 2, 0)


def test_shift_and_jump_are_those_from_the_middle_on() -> None:
    clean = trial(4.0, progress=(0.0, 0.2, 0.4, 0.6, 0.8), shown=tuple(range(5)))
    changed = replace(
        clean, id="changed", perturbation="midway:low_light", category="temporal", severity=2,
        progress=(0.9, 0.9, 0.1, 0.6, 0.8),
    )  # fmt: skip
    words = replace(changed, id="words", perturbation="task_swap", category="semantic", expectation="lower")
    noise = replace(changed, id="noise", perturbation="gaussian_noise", category="visual")
    found = table([replace(each, episode="one") for each in (clean, changed, words, noise)])
    assert eligible(found, "changed midway").tolist() == [False, True, True, False]
    used = found.where(eligible(found, "changed midway"))
    for name in ("midway:low_light", "task_swap"):
        one = used.where(used.matches("perturbation", name))
        assert METRICS["midway_shift"](one) == pytest.approx(((0.1 + 0.6 + 0.8) - (0.4 + 0.6 + 0.8)) / 3)
        assert METRICS["midway_jump"](one) == pytest.approx(0.3)


class Startled:
    """Believes in the task as long as the light does not change, and forgets it when it gets dark."""

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        return [self._answer(episode) for episode in episodes]

    def _answer(self, episode: Episode) -> Answer:
        light = episode.frames.mean(axis=(1, 2, 3))
        rising = np.linspace(0.2, 1, len(light))
        progress = np.where(light < 0.7 * light[0], rising - 0.2, rising)
        return Score(1 + 4 * float(progress[-1]), progress=tuple(progress.tolist()))


def test_a_stress_test_shows_shift_and_jump_beside_the_controls(tmp_path: Path) -> None:
    data = write_rows(
        tmp_path / "data", [{"file_name": f"{n}.mp4", "task": f"push square {n}", "reward": 5} for n in range(6)]
    )
    for number in range(6):
        encode(moving_square(f"clip {number}", count=8, size=64), data / f"{number}.mp4", fps=10)
    run = rewardlab.stress(
        [Startled(), "prefixes:motion"],
        data,
        perturbations=("midway:low_light", "polite_filler"),
        severities=(4,),
        out=tmp_path / "run",
        execution=Execution(engine="local", quiet=True),
    )
    rows = {
        (row.model, row.group): row
        for row in run.summary.measurements
        if row.metric == "midway_shift" and row.severity == 4
    }
    startled = rows["Startled", "midway:low_light"]
    assert startled.value == pytest.approx(-0.2) and startled.scored == 6 and startled.low is not None
    assert rows["Startled", "polite_filler"].value == 0 == rows["length", "midway:low_light"].value
    assert ("prefixes:motion", "midway:low_light") in rows  # a model with levels alone
    page = write_report([run], tmp_path / "page.html").read_text()
    section = page.partition('id="midway"')[2].partition("</table>")[0]
    for words in ("Startled", "length", "prefixes:motion", "midway:low_light", "polite_filler", "-0.2"):
        assert words in section, words
