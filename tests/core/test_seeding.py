import subprocess
import sys

from rewardlab.core.seeding import digest, rng_for


def test_names_and_seed_decide_the_draws() -> None:
    assert rng_for(1, "a", "b").random() == rng_for(1, "a", "b").random()
    draws = {rng_for(1, "a", "b").random(), rng_for(2, "a", "b").random(), rng_for(1, "b", "a").random()}
    assert len(draws) == 3


def test_boundaries_between_names_count() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest(1) != digest("1")


def test_another_process_draws_the_same() -> None:
    code = "from rewardlab.core.seeding import rng_for; print(rng_for(3, 'x').integers(10**9))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(out) == rng_for(3, "x").integers(10**9)
