"""Which wrong rewards are shown: false and missed successes by turns, one per episode, the worst first."""

from rewardlab.evaluation.replay import wrong_rewards
from tests.metrics.handmade_trials import table, trial


def test_false_and_missed_successes_take_turns_and_right_answers_are_left_out() -> None:
    trials = table([trial(5.0, 4), trial(5.0, 1), trial(5.0, 5), trial(4.4, 5), trial(1.0, 5), trial(2.0, 2)])
    assert wrong_rewards(trials, "m") == {
        "1": "false success", "4": "missed success", "0": "false success", "3": "missed success",
    }  # fmt: skip
    assert list(wrong_rewards(trials, "m")) == ["1", "4", "0", "3"]
    assert list(wrong_rewards(trials, "m", most=1)) == ["1"]
    assert wrong_rewards(trials, "another") == {}


def test_an_episode_is_shown_once_unchanged_where_that_is_wrong_already() -> None:
    changed = {"perturbation": "fog", "category": "visual", "severity": 4}
    e = [trial(5.0, 1, episode="e", **changed), trial(4.6, 2, episode="e")]
    trials = table([*e, trial(5.0, 1, episode="f", **changed), trial(5.0, 1, episode="g")])
    assert list(wrong_rewards(trials, "m")) == ["3", "1", "2"]
