"""Models held by another process: the wire format, and a real server on loopback."""

import gc
import io
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames, show_only
from rewardlab.core.errors import DataError, ModelError, PlanError, StopRun
from rewardlab.core.settings import Execution, Scoring
from rewardlab.core.trial import Failure, Score
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.models import name_model
from rewardlab.models.remote import (
    EPISODES_TYPE,
    Health,
    array_of_npy,
    pack_answers,
    pack_episodes,
    pack_health,
    unpack_answers,
    unpack_episodes,
    unpack_health,
)
from rewardlab.testing import check_model
from tests.conftest import moving_square
from tests.models.loopback import LoopbackHandler, serving
from tests.narrowing import as_failure, as_scores
from tests.plans import stress_plan


def episodes(*tasks: str) -> list[Episode]:
    whole = [episode_from_frames(moving_square(task, count=8, size=16), task, fps=7.5) for task in tasks]
    return [show_only(episode, np.array([0, 3, 7])) for episode in whole]


class ServerState:
    """What a server holds: which model it says it holds, what it has received, and what goes wrong."""

    def __init__(self) -> None:
        self.fingerprint = "one"
        self.received: list[Episode] = []
        self.faults: list[Callable[[LoopbackHandler], None]] = []


@contextmanager
def reward_server(state: ServerState, port: int = 0) -> Iterator[str]:
    class Handler(LoopbackHandler):
        def do_GET(self) -> None:
            found = self.path == "/health"
            self.send(200 if found else 404, pack_health(Health("judge", state.fingerprint)) if found else b"")

        def do_POST(self) -> None:
            body = self.body()
            assert (self.path, self.headers["content-type"]) == ("/score", EPISODES_TYPE)
            if state.faults:
                return state.faults.pop(0)(self)
            asked = unpack_episodes(body)
            state.received += asked
            return self.send(200, pack_answers([_judge(episode) for episode in asked], state.fingerprint))

    with serving(Handler, port) as url:
        yield url


def _judge(episode: Episode) -> Score | Failure:
    if episode.instruction == "nothing":
        return Failure("no robot in sight", "hm")
    progress = tuple((episode.times / (episode.times[-1] or 1)).tolist())
    return Score(1 + len(episode.instruction) % 5, (0.2,) * 5, progress, episode.instruction)


def test_arrays_are_read_in_several_threads_whatever_python_collects_meanwhile() -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(4))
    data, threshold, interval = buffer.getvalue(), gc.get_threshold(), sys.getswitchinterval()
    look = lambda _phase, _info: sum(range(50))  # Python that runs in a collection lets other threads run
    gc.callbacks.append(look)
    try:
        gc.set_threshold(5)
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(8) as threads:
            sums = list(threads.map(lambda _: int(array_of_npy(data).sum()), range(400)))
    finally:
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
        gc.callbacks.remove(look)
    assert sums == [6] * 400


def test_the_server_receives_what_a_model_may_see_and_its_answers_come_back() -> None:
    state, sent = ServerState(), episodes("a", "bb", "nothing")
    with reward_server(state) as url:
        model = name_model(f"remote:{url}/").build()
        assert model.score(sent) == [_judge(episode) for episode in sent]
        check_model(model, sent[:2])
    for before, after in zip(sent, state.received[: len(sent)], strict=True):
        assert np.array_equal(before.frames, after.frames)
        assert np.array_equal(before.times, after.times)
        assert (before.instruction, after.id, after.label.level) == (after.instruction, "", None)


def test_a_stress_run_is_judged_over_the_wire(tiny_data: Path, tmp_path: Path) -> None:
    where = dict(execution=Execution(workers=2, engine="local"), out=tmp_path / "run")
    with reward_server(ServerState()) as url:
        plan = stress_plan((f"remote:{url}",), str(tiny_data), ("truncate_end",), (2,), controls=False, **where)
        trials = evaluate(plan).trials().rows()
    assert {trial.status for trial in trials} == {"scored"} and len(trials) == 12
    assert all(trial.level == 1 + len(trial.instruction) % 5 for trial in trials)


def test_a_server_that_falters_is_asked_again_and_one_that_fails_gives_failures() -> None:
    state = ServerState()
    with reward_server(state) as url:
        model = name_model(f"remote:{url}?retries=2").build()
        state.faults = [LoopbackHandler.drop, lambda handler: handler.send(200, b'{"answers": [')]
        assert [answer.level for answer in as_scores(model.score(episodes("a", "bb")))] == [2, 3]
        state.faults = [lambda handler: handler.send(422, b"no clip")]
        assert model.score(episodes("a", "bb")) == [Failure("the server answered 422: no clip")] * 2
        wrong = pack_answers([Score(9), Failure("x")], "one")
        state.faults = [lambda handler: handler.send(200, wrong)]
        outside, failed = model.score(episodes("a", "bb"))
    assert "level must be a number from 1 to 5, got 9" in as_failure(outside).reason
    assert failed == Failure("x")


def test_what_is_too_much_for_the_server_at_once_is_asked_in_parts() -> None:
    def too_much(handler: LoopbackHandler) -> None:
        handler.send(413, b"too much")

    state = ServerState()
    with reward_server(state) as url:
        model = name_model(f"remote:{url}").build()
        state.faults = [too_much, too_much]
        alone, *others = model.score(episodes("a", "bb", "ccc"))
    assert alone == Failure("the server answered 413: too much")
    assert [answer.level for answer in as_scores(others)] == [3, 4]
    assert [episode.instruction for episode in state.received] == ["bb", "ccc"]


def test_other_weights_at_the_same_address_are_another_model() -> None:
    state = ServerState()
    with reward_server(state) as url:
        first = name_model(f"remote:{url}")
        model = first.build()
        state.fingerprint = "two"
        assert name_model(f"remote:{url}").fingerprint != first.fingerprint
        with pytest.raises(StopRun, match="holds another model than when the run began"):
            model.score(episodes("a"))


def test_an_address_without_a_server_is_said_at_once() -> None:
    with reward_server(ServerState()) as url, pytest.raises(ModelError, match=r"no rewardlab server answers at .*404"):
        name_model(f"remote:{url}/elsewhere")
    with pytest.raises(ModelError, match=r"no rewardlab server answers at .*cannot connect"):
        name_model(f"remote:{url}")
    for name in ("remote:", "remote:localhost:8000", "remote:http://me:secret@host"):
        with pytest.raises(PlanError, match="no name or password in it"):
            name_model(name)


def test_a_server_that_starts_late_is_waited_for_where_a_load_timeout_is_given(tiny_data: Path, tmp_path: Path) -> None:
    with reward_server(ServerState()) as url:
        gone = f"remote:{url}"
    given = dict(perturbations="none", severities=(0,), controls=False, out=tmp_path / "run")
    given |= dict(execution=Execution(engine="local"))
    with pytest.raises(ModelError, match="no rewardlab server answers"):
        stress_plan(gone, str(tiny_data), **given)
    starts = threading.Event()

    def serve_late() -> None:
        time.sleep(1.5)  # longer than a server is waited for by default
        with reward_server(ServerState(), int(url.rpartition(":")[2])):
            starts.wait(60)

    with ThreadPoolExecutor(1) as late:
        late.submit(serve_late)
        try:
            run = evaluate(stress_plan(gone, str(tiny_data), scoring=Scoring(load_timeout=60.0), **given))
        finally:
            starts.set()
    assert {trial.status for trial in run.trials().rows()} == {"scored"}


def archive(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def text(said: str) -> np.ndarray:
    return np.frombuffer(said.encode(), dtype=np.uint8)


FRAMES = np.zeros((2, 4, 4, 3), np.uint8)
ONE = text('[{"instruction": "a", "fps": 5}]')


def squeezed() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("episodes.npy", b"0" * 1000)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no episodes"),
        (b"PK\x03\x04 not really", "no episodes"),
        (pack_episodes(episodes("a"))[:-30], "no episodes"),
        (squeezed(), "the archive is compressed"),
        (archive(episodes=ONE), "frames_0"),
        (archive(episodes=ONE, frames_0=FRAMES[0], positions_0=np.arange(2)), r"frames must be uint8 of shape"),
        (archive(episodes=ONE, frames_0=FRAMES, positions_0=np.arange(3)), "2 positions"),
        (archive(episodes=ONE, frames_0=FRAMES, positions_0=np.array([1, 0])), "must rise"),
        (archive(episodes=text('[{"instruction": "a", "fps": 0}]'), frames_0=FRAMES, positions_0=np.arange(2)), "rate"),
        (archive(episodes=text('["a"]'), frames_0=FRAMES, positions_0=np.arange(2)), "no episodes"),
        (archive(episodes=np.array([{"a": 1}], dtype=object)), "no episodes"),
    ],
)
def test_a_request_that_holds_no_episodes_is_refused_in_one_sentence(body: bytes, words: str) -> None:
    with pytest.raises(DataError, match=words):
        unpack_episodes(body)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"answers": 3}', b'{"answers": []}'])
def test_a_reply_that_holds_no_answers_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        unpack_answers(body, [3])


def test_odd_answers_become_failures_and_a_stranger_is_no_server() -> None:
    (answers, _) = unpack_answers(b'{"answers": [7, {}, {"level": "4"}, {"level": 4, "progress": [1]}]}', [3] * 4)
    assert all(isinstance(answer, Failure) for answer in answers)
    for body in (b"<html>", b"{}", b'{"protocol": 99, "fingerprint": "x"}', b'{"protocol": 1}'):
        with pytest.raises(ValueError):
            unpack_health(body)
