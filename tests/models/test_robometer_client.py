"""`robometer:` against a server written here from Robometer's published contract, and against `rewardlab serve`."""

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.core.episode import Episode, Frames, episode_from_frames
from rewardlab.core.errors import ModelError, PlanError, StopRun
from rewardlab.core.settings import Scoring
from rewardlab.core.trial import Answer, Failure, Score, Trial
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.models import load_model, name_model
from rewardlab.testing import check_model
from tests.conftest import IN_PROCESS, moving_square
from tests.models.loopback import LoopbackHandler, serving
from tests.narrowing import as_failure, as_score, as_scores
from tests.plans import stress_plan

INFO = {
    "model_path": "robometer/Robometer-4B",
    "num_gpus": 1,
    "experiment_config": {"model": {"model_type": "default"}},
    "model_architecture": {"model_class": "RBM", "total_parameters": 4_000_000_000},
}
DIALECTS = ("npy", "json")
Numbers = list[float]
Fault = Callable[[LoopbackHandler], None]


def rising(frames: Frames, task: str) -> Numbers:
    """Progress of a clip: how bright the red of each frame is, less for a longer task."""
    return [float(frame[..., 0].mean()) / 255 / (1 + len(task) % 3) for frame in frames]


class Rising:
    """The same model, asked directly."""

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        progress = [tuple(rising(episode.frames, episode.instruction)) for episode in episodes]
        return [Score(1 + 4 * each[-1], progress=each) for each in progress]


class Served:
    """What the server holds, what it got, and what goes wrong next."""

    def __init__(self) -> None:
        self.info: dict[str, Any] = dict(INFO)
        self.progress: Callable[[Frames, str], Numbers] = rising
        self.success: Callable[[Numbers], Numbers | None] = lambda progress: [value / 2 for value in progress]
        self.samples: list[dict[str, Any]] = []
        self.steps: list[bool] = []
        self.keys: list[str | None] = []
        self.faults: list[Fault] = []


@contextmanager
def robometer_server(state: Served) -> Iterator[str]:
    class Handler(LoopbackHandler):
        def do_GET(self) -> None:
            state.keys.append(self.headers.get("authorization"))
            found = self.path == "/model_info"
            self.send(200 if found else 404, state.info if found else {"detail": "Not Found"})

        def do_POST(self) -> None:
            body = self.body()
            if state.faults:
                return state.faults.pop(0)(self)
            kind = self.headers["content-type"]
            samples, steps = (
                read_form(body, kind) if self.path == "/evaluate_batch_npy" else read_json(self.path, body, kind)
            )
            state.samples += samples
            state.steps.append(steps)
            return self.send(200, evaluate_batch(state, samples, steps))

    with serving(Handler) as url:
        yield url


def read_form(body: bytes, kind: str) -> tuple[list[dict[str, Any]], bool]:
    """Read the form as Robometer's server does: files by their name that ends in .npy, all else is JSON."""
    assert kind.startswith("multipart/form-data; boundary=")
    boundary = kind.partition("boundary=")[2].encode()
    fields, arrays = dict[str, Any](), dict[str, Frames]()
    for part in body.split(b"--" + boundary)[1:-1]:
        head, _, data = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = re.search(rb'[ ;]name="([^"]*)"', head)
        assert name is not None
        if re.search(rb'filename="[^"]*\.npy"', head):
            arrays[name[1].decode()] = np.load(BytesIO(data), allow_pickle=False)
        else:
            fields[name[1].decode()] = json.loads(data)
    steps = str(fields.pop("use_frame_steps", False)).lower() == "true"
    samples = [fields[f"sample_{number}"] for number in range(len(fields))]
    for sample in samples:
        trajectory = sample["trajectory"]
        trajectory["frames"] = arrays[trajectory["frames"]["__numpy_file__"]]
    return samples, steps


def read_json(path: str, body: bytes, kind: str) -> tuple[list[dict[str, Any]], bool]:
    assert (path, kind) == ("/evaluate_batch", "application/json")
    batch = json.loads(body)
    for sample in batch["samples"]:
        sample["trajectory"]["frames"] = np.array(sample["trajectory"]["frames"], np.uint8)
    return batch["samples"], batch["use_frame_steps"]


def evaluate_batch(state: Served, samples: list[dict[str, Any]], steps: bool) -> dict[str, Any]:
    progress, success = list[Numbers](), list[Numbers | None]()
    for sample in samples:
        frames, task = sample["trajectory"]["frames"], sample["trajectory"]["task"]
        whole = state.progress(frames, task)
        prefixes = [state.progress(frames[:end], task)[-1] for end in range(1, len(frames) + 1)]
        progress.append(prefixes if steps else whole)
        success.append(state.success(progress[-1]))
    return {
        "outputs_preference": None,
        "outputs_progress": {"progress_pred": progress},
        "outputs_success": None if None in success else {"success_probs": success},
    }


def episodes(*tasks: str, count: int = 4) -> list[Episode]:
    return [episode_from_frames(moving_square(task, count=count, size=16), task) for task in tasks]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_frames_and_task_arrive_and_progress_comes_back(dialect: str) -> None:
    state, shown = Served(), [*episodes("a", "bb", "ccc"), *episodes("longer", count=7)]
    with robometer_server(state) as url:
        model = name_model(f"robometer:{url}/?dialect={dialect}").build()
        assert model.score(shown) == Rising().score(shown)
        check_model(model, shown[:2])
    got = {sample["trajectory"]["task"]: sample for sample in state.samples}
    assert set(got) == {"a", "bb", "ccc", "longer"} and not any(state.steps)
    for episode in shown:
        sample, trajectory = got[episode.instruction], got[episode.instruction]["trajectory"]
        assert sample["sample_type"] == "progress"
        assert np.array_equal(trajectory["frames"], episode.frames) and trajectory["frames"].dtype == np.uint8
        assert trajectory["frames_shape"] == list(episode.frames.shape)
        assert trajectory["metadata"] == {"subsequence_length": len(episode.clip)}
        assert trajectory["video_embeddings"] is None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_frame_steps_ask_for_the_clip_up_to_each_frame(dialect: str) -> None:
    state = Served()
    state.progress = lambda frames, _task: [len(frames) / 10] * len(frames)
    with robometer_server(state) as url:
        whole, steps = (
            as_score(load_model(f"robometer:{url}?dialect={dialect}{more}").score(episodes("a"))[0])
            for more in ("", "&frame_steps=yes")
        )
    assert whole.progress == (0.4,) * 4 and steps.progress == (0.1, 0.2, 0.3, 0.4)
    assert whole.level == steps.level == pytest.approx(2.6)
    assert state.steps == [False, True]


def test_the_level_follows_progress_or_success_as_asked() -> None:
    state = Served()
    state.progress = lambda frames, _task: [0.0] * (len(frames) - 1) + [0.5]
    with robometer_server(state) as url:
        by_progress, by_success = (name_model(f"robometer:{url}{more}") for more in ("", "?level=success"))
        assert as_score(by_progress.build().score(episodes("a"))[0]).level == 3
        found = as_score(by_success.build().score(episodes("a"))[0])
        assert (found.level, found.progress) == (2, (0.0, 0.0, 0.0, 0.5))
        state.success = lambda _progress: None
        assert as_failure(by_success.build().score(episodes("a"))[0]).reason == (
            "the server gives no success_probs for the clip"
        )
    assert by_progress.fingerprint != by_success.fingerprint
    assert name_model("constant").fingerprint != by_progress.fingerprint


def comparable(trial: Trial) -> tuple[object, ...]:
    left_out = {"id", "model", "seconds"}
    return tuple(value for name, value in vars(trial).items() if name not in left_out)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stress_run_gives_the_trials_of_the_model_asked_directly(
    dialect: str, tiny_data: Path, tmp_path: Path
) -> None:
    def trials(model: object) -> list[tuple[object, ...]]:
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        chosen = dict(controls=False, execution=IN_PROCESS, out=out)
        plan = stress_plan((model,), str(tiny_data), ("truncate_end", "task_swap"), (2, 4), **chosen)
        rows = sorted(evaluate(plan).trials().rows(), key=lambda trial: (trial.episode, trial.perturbation))
        return sorted(map(comparable, rows), key=str)

    with robometer_server(Served()) as url:
        asked = trials(f"robometer:{url}?dialect={dialect}")
    assert asked == trials(Rising()) and len(asked) == 30


def test_a_control_behind_the_protocol_gives_its_own_levels() -> None:
    state, shown = Served(), episodes("a", "bb", count=9)
    motion = load_model("motion")

    def progress(frames: Frames, task: str) -> Numbers:
        (answer,) = motion.score([episode_from_frames(frames, task)])
        return [(as_score(answer).level - 1) / 4] * len(frames)

    state.progress = progress
    with robometer_server(state) as url:
        found = as_scores(load_model(f"robometer:{url}").score(shown))
    expected = [score.level for score in as_scores(motion.score(shown))]
    assert [score.level for score in found] == pytest.approx(expected, abs=1e-12)


MALFORMED: dict[str, tuple[object, str]] = {
    "no head": ({"outputs_progress": None}, "the server gives no progress_pred"),
    "empty": ({"outputs_progress": {"progress_pred": [[]]}}, "the server gives no progress_pred"),
    "no list": ({"outputs_progress": {"progress_pred": 0.5}}, "the server gives no progress_pred"),
    "two clips": ({"outputs_progress": {"progress_pred": [[0.1], [0.2]]}}, "the server gives no progress_pred"),
    "too few": ({"outputs_progress": {"progress_pred": [[0.1, 0.2]]}}, "expected 4 numbers of progress, .* got 2"),
    "beyond": ({"outputs_progress": {"progress_pred": [[0.1, 0.2, 0.3, 1.5]]}}, "numbers from 0 to 1, got '1.5'"),
    "below": ({"outputs_progress": {"progress_pred": [[0.1, -0.2, 0.3, 0.4]]}}, "numbers from 0 to 1, got '-0.2'"),
    "text": ({"outputs_progress": {"progress_pred": [[0.1, "0.2", 0.3, 0.4]]}}, "numbers from 0 to 1, got '0.2'"),
    "truth": ({"outputs_progress": {"progress_pred": [[0.1, True, 0.3, 0.4]]}}, "numbers from 0 to 1, got 'True'"),
    "nested": ({"outputs_progress": {"progress_pred": [[[0.1], [0.2]]]}}, "numbers from 0 to 1"),
    "nan": (b'{"outputs_progress": {"progress_pred": [[0.1, NaN, 0.3, 0.4]]}}', "numbers from 0 to 1, got 'nan'"),
    "infinite": (b'{"outputs_progress": {"progress_pred": [[0.1, 1e999, 0.3, 0.4]]}}', "0 to 1, got 'inf'"),
    "its reason": ({"outputs_progress": {"progress_pred": [[]]}, "failures": ["no robot"]}, "^no robot$"),
    "another object": ({"detail": "hello"}, "the answer cannot be read: expected a JSON object with outputs_progress"),
    "no JSON": (b"<html>", "the answer cannot be read"),
    "a pickle": (b"\x80\x04K\x01.", "the answer cannot be read"),
    "depth": (b"[" * 100_000, "the answer cannot be read"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_answer_is_a_failure_of_its_episode_alone(name: str) -> None:
    content, words = MALFORMED[name]
    state = Served()
    with robometer_server(state) as url:
        model = load_model(f"robometer:{url}?retries=0&concurrency=1")
        state.faults = [lambda handler: handler.send(200, content)]
        bad, good = model.score(episodes("a", "bb"))
    assert re.search(words, as_failure(bad).reason) and len(as_failure(bad).reason) <= 400
    assert isinstance(good, Score)


def test_an_answer_longer_than_the_limit_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARDLAB_MAX_BODY_MB", "1")
    state = Served()
    with robometer_server(state) as url:
        model = load_model(f"robometer:{url}?retries=0")
        state.faults = [lambda handler: handler.send(200, b" " * 2_000_000)]
        (found,) = model.score(episodes("a"))
    assert "longer than 1 MB" in as_failure(found).reason and "REWARDLAB_MAX_BODY_MB" in as_failure(found).reason


def test_a_server_that_falters_is_asked_again_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    state = Served()
    with robometer_server(state) as url, caplog.at_level(logging.WARNING, "rewardlab"):
        model = load_model(f"robometer:{url}")
        state.faults = [
            lambda handler: handler.send(429, {"error": "busy"}, retry_after="0.05"),
            lambda handler: handler.send(500, b"Internal Server Error", retry_after="1.1"),
            lambda handler: handler.send(503, {"detail": "starting"}, retry_after="0.05"),
        ]
        (found,) = model.score(episodes("a"))
        state.faults = [lambda handler: handler.send(422, {"detail": "no such task"})]
        (refused,) = model.score(episodes("a"))
    assert isinstance(found, Score)
    assert refused == Failure("the server answered 422: {'detail': 'no such task'}")
    assert any(re.search(r"retrying \([123] of 6\)$", record.message) for record in caplog.records)


def test_what_the_server_holds_is_the_model_wherever_it_stands() -> None:
    state = Served()
    with robometer_server(state) as url, robometer_server(Served()) as elsewhere:
        first = name_model(f"robometer:{url}?concurrency=2&timeout=9")
        assert first.fingerprint == name_model(f"robometer:{elsewhere}").fingerprint
        assert first.name == f"robometer:{url}" and first.server
        model = first.build()
        state.info = INFO | {"num_gpus": 8}
        assert isinstance(model.score(episodes("a"))[0], Score)
        state.info = INFO | {"model_path": "robometer/Another"}
        assert name_model(f"robometer:{url}").fingerprint != first.fingerprint
        with pytest.raises(StopRun, match="holds another model than when the run began"):
            model.score(episodes("a"))


def test_an_address_without_a_robometer_server_is_refused_in_one_sentence() -> None:
    state = Served()
    with robometer_server(state) as url:
        with pytest.raises(ModelError, match=r"^no Robometer server answers at .*/elsewhere: .*404"):
            name_model(f"robometer:{url}/elsewhere")
        state.info = {"name": "something else"}
        with pytest.raises(ModelError, match="whose /model_info names a model_path"):
            name_model(f"robometer:{url}")
    with pytest.raises(ModelError, match=r"no Robometer server answers at .*cannot connect"):
        name_model(f"robometer:{url}")
    for text, words in (
        ("robometer:", "an address of http or https"),
        ("robometer:http://me:secret@host", "no name or password in it"),
        (f"robometer:{url}?dialect=xml", "dialect must be npy or json"),
        (f"robometer:{url}?level=rubric", "level must be progress or success"),
        (f"robometer:{url}?concurrency=0", "concurrency must be at least 1"),
    ):
        with pytest.raises(PlanError, match=words):
            name_model(text)


def test_load_timeout_gives_a_server_time_to_start(tiny_data: Path, tmp_path: Path) -> None:
    placeholder = ThreadingHTTPServer(("127.0.0.1", 0), LoopbackHandler)
    port = placeholder.server_address[1]
    placeholder.server_close()  # nobody listens there now

    class Handler(LoopbackHandler):
        def do_GET(self) -> None:
            self.send(200, INFO)

    asked = threading.Event()
    started = list[ThreadingHTTPServer]()

    def start() -> None:
        asked.wait()
        time.sleep(3)  # longer than a server gets without the option
        started.append(ThreadingHTTPServer(("127.0.0.1", port), Handler))
        started[0].serve_forever(poll_interval=0.02)

    thread = threading.Thread(target=start)
    thread.start()
    asked.set()
    chosen = dict(scoring=Scoring(load_timeout=60), controls=False, out=tmp_path / "run")
    try:
        plan = stress_plan((f"robometer:http://127.0.0.1:{port}",), str(tiny_data), ("truncate_end",), (2,), **chosen)
    finally:
        while not started:
            time.sleep(0.05)
        started[0].shutdown()
        thread.join()
        started[0].server_close()
    assert plan.models[0].server


def test_a_key_is_sent_and_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "robometer-key-0123456789"
    monkeypatch.setenv("MY_KEY", key)
    state = Served()
    with robometer_server(state) as url:
        model = load_model(f"robometer:{url}?key_env=MY_KEY&retries=0&concurrency=1")
        state.faults = [
            lambda handler: handler.send(200, {"outputs_progress": None, "failures": ["x" * 390 + key]}),
            lambda handler: handler.send(422, {"error": f"wrong {key}"}),
        ]
        answers = model.score(episodes("a", "bb"))
    assert state.keys == [f"Bearer {key}"] * 2
    assert not any("robometer-key" in as_failure(answer).reason for answer in answers)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_our_own_server_is_asked_alike(dialect: str) -> None:
    pytest.importorskip("fastapi")
    from tests.serving.loopback_server import reward_server

    shown = episodes("a", "bb", "ccc", count=9)
    with reward_server("rising", Rising()) as client:
        model = name_model(f"robometer:{client.base_url}?dialect={dialect}")
        assert model.build().score(shown) == Rising().score(shown)
        steps = load_model(f"robometer:{client.base_url}?dialect={dialect}&frame_steps=yes")
        assert steps.score(shown[:1]) == Rising().score(shown[:1])
    from tests.serving.served_models import Recorder

    with reward_server("recorder", Recorder()) as client:
        refused, judged = load_model(f"robometer:{client.base_url}?dialect={dialect}&level=success").score(
            episodes("refuse", "a")
        )
    assert refused == Failure("no robot in sight")
    assert as_score(judged).level == pytest.approx(1 + 4 * 0.8) and len(as_score(judged).progress or ()) == 4
