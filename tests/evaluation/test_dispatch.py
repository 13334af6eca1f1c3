"""The map over processes: in order, bounded, the same for any number of workers, and clear where one dies."""

import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rewardlab.core.errors import DataError, RunError
from rewardlab.evaluation.engines.ordered_map import map_items
from rewardlab.evaluation.engines.processes import start_process
from tests.evaluation.dispatched_work import die_at, fail_at, scaled


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_come_in_order_whatever_the_number_of_workers(workers: int) -> None:
    shared = np.arange(300_000, dtype=np.float64)  # more than a pipe takes at once
    found = list(map_items(partial(scaled, shared), range(20), workers))
    assert [value for _, value in found] == [2.0 * item for item in range(20)]
    processes = {process for process, _ in found}
    assert (processes == {os.getpid()}) if workers == 1 else (os.getpid() not in processes)


def test_no_more_items_are_taken_than_there_is_room_for() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    results = map_items(partial(scaled, np.zeros(100)), items(), 2, ahead=3)
    assert next(results)[1] == 0.0
    assert len(taken) <= 2 + 3 + 1
    assert isinstance(results, Generator)
    results.close()
    assert len(taken) <= 2 + 3 + 1


def test_what_the_work_raises_is_raised_here_after_the_results_before_it() -> None:
    results = map_items(partial(fail_at, 3), range(8), 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataError, match="item 3 is broken") as caught:
        next(results)
    assert "in a worker process" in caught.value.__notes__[0]


def test_a_worker_that_dies_is_one_clear_error() -> None:
    with pytest.raises(RunError, match="a worker process ended with exit code 7; run the same command again"):
        list(map_items(partial(die_at, 2), range(6), 2))
    with pytest.raises(RunError, match="exit code 7"):  # no worker is left
        list(map_items(partial(die_at, 0), [0, 0, 0, 0], 2))


def test_workers_die_with_their_parent(tmp_path: Path) -> None:
    code = (
        "import os, threading\n"
        "from rewardlab.evaluation.engines.ordered_map import map_items\n"
        "def work(item):\n"
        "    os.write(2, b'%d\\n' % os.getpid())\n"
        "    threading.Event().wait()\n"
        "list(map_items(work, range(2), 2))\n"
    )
    (tmp_path / "parent.py").write_text(code)
    parent = subprocess.Popen([sys.executable, str(tmp_path / "parent.py")], stderr=subprocess.PIPE, text=True)
    assert parent.stderr
    workers = {int(parent.stderr.readline()) for _ in range(2)}
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    assert parent.stderr.read() == ""  # ends only when no worker holds the other end any more
    parent.stderr.close()


def test_a_worker_that_does_not_end_by_itself_is_killed_and_stops_nothing() -> None:
    worker = start_process()  # it waits for its work
    worker.await_end(seconds=0.1)
    assert worker.process.returncode == -9
