"""What is done with the work of a worker that died, on paper: the poison is found, nothing else is lost."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardlab.core.episode import episode_from_frames
from rewardlab.evaluation.plan import EpisodeTrials, Job, PlannedTrial
from rewardlab.evaluation.worker_pool import UnderWay, after_hang, retry_after_failure

EPISODE = episode_from_frames(np.zeros((2, 4, 4, 3), np.uint8), "open the drawer")
BATCH = 8


def job_of(count: int) -> Job:
    trials = tuple(PlannedTrial(f"c{number}", "jpeg", 1, "mine") for number in range(count))
    return Job((EpisodeTrials(EPISODE, trials),))


def play(job: Job, poison: set[str], strikes: list[int]) -> tuple[list[str], set[str], int]:
    """Score batch by batch; a poisonous batch kills, and so do strikes from outside. Return done, given up, deaths."""
    queue, done, given_up, deaths, step = [job], [], set(), 0, 0
    while queue:
        now = queue.pop(0)
        finished: set[str] = set()
        for start in range(0, len(now.trials), BATCH):
            batch = frozenset(trial.id for trial in now.trials[start : start + BATCH])
            step += 1
            if batch & poison or step in strikes:
                deaths += 1
                left = retry_after_failure(now, frozenset(finished), UnderWay(batch))
                queue[:0] = left.jobs
                given_up |= {trial.id for trial in left.given_up}
                break
            finished |= batch
            done += sorted(batch)
    return done, given_up, deaths


@given(st.integers(1, 60), st.sets(st.integers(0, 59), max_size=5), st.lists(st.integers(1, 30), max_size=1))
@settings(max_examples=200, deadline=None)
def test_every_cell_but_the_poison_is_scored_once_whoever_strikes(
    count: int, poison: set[int], strikes: list[int]
) -> None:
    bad = {f"c{number}" for number in poison if number < count}
    done, given_up, deaths = play(job_of(count), bad, strikes)
    assert given_up == bad
    assert sorted(done) == sorted({trial.id for trial in job_of(count).trials} - bad)
    assert deaths <= 7 * len(bad) + len(strikes) + 2


def test_one_death_puts_the_whole_job_back_as_it_was() -> None:
    left = retry_after_failure(job_of(20), frozenset({"c0", "c1"}), UnderWay(frozenset({"c2", "c3"})))
    (again,) = left.jobs
    assert not left.given_up
    assert [trial.id for trial in again.trials] == [f"c{number}" for number in range(2, 20)]
    assert not again.alone


def test_cells_that_are_prepared_together_are_one_suspect_and_are_given_up_after_two_tries() -> None:
    job, prepared = job_of(10), UnderWay(frozenset({"c4", "c5"}), prepared=True)
    others, suspects = retry_after_failure(job, frozenset(), prepared).jobs
    assert {trial.id for trial in suspects.trials} == {"c4", "c5"}
    assert others.exits == 0
    left = retry_after_failure(suspects, frozenset(), prepared)
    assert {trial.id for trial in left.given_up} == {"c4", "c5"}
    assert not left.jobs


def test_a_cell_that_is_asked_alone_is_given_up_after_two_tries() -> None:
    """The first death may be anybody's fault, the second is its own; those not under way are never suspected."""
    others, suspect = retry_after_failure(job_of(5), frozenset({"c0"}), UnderWay(frozenset({"c1"}))).jobs
    assert [trial.id for trial in others.trials] == ["c2", "c3", "c4"]
    left = retry_after_failure(suspect, frozenset(), UnderWay(frozenset({"c1"})))
    assert [trial.id for trial in left.given_up] == ["c1"]


def test_after_a_hang_each_is_asked_alone_and_one_that_hangs_alone_is_given_up() -> None:
    job, batch = job_of(10), frozenset({"c4", "c5"})
    (again,) = after_hang(job, frozenset({"c0"}), UnderWay(batch)).jobs
    assert again.alone == batch and len(again.trials) == 9
    left = after_hang(again, frozenset({"c0"}), UnderWay(frozenset({"c5"})))
    assert [trial.id for trial in left.given_up] == ["c5"]
    assert len(left.jobs[0].trials) == 8
