"""The model servers of `servers/`: real processes on loopback, asked by `remote:`; their models are stand-ins here."""

import importlib.util
import io
import os
import re
import subprocess
import sys
import threading
import tomllib
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames, show_only
from rewardlab.core.errors import ModelError
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.models import load_model, name_model
from rewardlab.models.remote import EPISODES_TYPE, pack_episodes
from rewardlab.testing import check_model
from tests.conftest import IN_PROCESS, moving_square
from tests.models.test_robometer_client import comparable
from tests.narrowing import as_failure, as_score, known
from tests.plans import stress_plan

FOLDER = Path(__file__).parents[1] / "servers"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
STAND_IN = {"template": ("nothing",), "robometer": ("--stand-in",), "sarm": ("--stand-in",)}


class Brightness:
    """What every stand-in computes, asked directly."""

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        progress = [episode.frames.mean(axis=(1, 2, 3)) / 255 for episode in episodes]
        return [Score(1 + 4 * float(each[-1]), progress=tuple(each.tolist())) for each in progress]


def episodes(*tasks: str) -> list[Episode]:
    whole = [episode_from_frames(moving_square(task, count=8, size=16), task, fps=7.5) for task in tasks]
    return [show_only(episode, np.array([0, 3, 7])) for episode in whole]


@contextmanager
def process_of(script: Path, *words: str, **environment: str) -> Iterator[str]:
    """Start a server as its users do, with this Python; give its address."""
    command = [sys.executable, "-W", "error", str(script), *words, "--port", "0"]
    given = {key: value for key, value in os.environ.items() if key != "REWARDLAB_TOKEN"} | environment
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=given) as process:
        try:
            line = known(process.stdout).readline()
            found = re.search(r"remote:(http://\S+)$", line)
            assert found is not None, line
            yield found[1]
        finally:
            process.terminate()


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"server_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for their names
    spec.loader.exec_module(module)
    return module


@contextmanager
def served(model: Callable[[Any], dict[str, Any]], identity: str = "one") -> Iterator[str]:
    """Serve a model with the template in a thread of the test; give the address."""
    template: Any = script("template")
    servers, ready = list[Any](), threading.Event()

    class Known(template.ThreadingHTTPServer):  # type: ignore[misc]
        def serve_forever(self, poll_interval: float = 0.02) -> None:
            servers.append(self)
            ready.set()
            super().serve_forever(poll_interval)

    template.ThreadingHTTPServer = Known
    arguments = Namespace(model="judge", host="127.0.0.1", port=0)
    thread = threading.Thread(target=template.serve, args=(model, arguments, identity))
    thread.start()
    assert ready.wait(30)
    try:
        yield f"http://127.0.0.1:{servers[0].server_address[1]}"
    finally:
        servers[0].shutdown()
        thread.join()


def test_every_server_is_tried_here() -> None:
    assert set(SCRIPTS) == set(STAND_IN)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_server_answers_as_its_model_asked_directly(name: str) -> None:
    shown = episodes("a", "open the drawer")
    with process_of(FOLDER / f"{name}.py", *STAND_IN[name]) as url:
        model = name_model(f"remote:{url}").build()
        check_model(model, shown)
        found = model.score(shown)
    for answer, expected in zip(map(as_score, found), map(as_score, Brightness().score(shown)), strict=True):
        assert answer.progress == pytest.approx(expected.progress, abs=1e-12)
        assert answer.level == pytest.approx(expected.level, abs=1e-12)


def test_a_stress_run_through_the_template_gives_the_trials_of_the_model(tiny_data: Path, tmp_path: Path) -> None:
    def trials(model: object, out: str) -> list[tuple[object, ...]]:
        chosen = dict(controls=False, execution=IN_PROCESS, out=tmp_path / out)
        plan = stress_plan((model,), str(tiny_data), ("truncate_end", "low_light"), (2, 4), **chosen)
        return sorted(map(comparable, evaluate(plan).trials().rows()), key=str)

    with process_of(FOLDER / "template.py", "nothing") as url:
        asked = trials(f"remote:{url}", "served")
    assert asked == trials(Brightness(), "direct") and len(asked) == 30


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_server_states_what_it_needs_and_what_was_tried(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    block = re.match(r"# /// script\n((?:#(?: .*)?\n)+?)# ///\n", text)
    assert block is not None
    needs = tomllib.loads("".join(line[2:] for line in block[1].splitlines(keepends=True)))
    assert needs["requires-python"].startswith(">=3.") and any(
        each.startswith("numpy") for each in needs["dependencies"]
    )
    assert "Tried: " in known(script(name).__doc__)


def test_the_server_part_is_the_same_in_every_file() -> None:
    mark = "\n# The server: the same in every file of this folder."
    parts = {(FOLDER / f"{name}.py").read_text(encoding="utf-8").partition(mark)[2] for name in SCRIPTS}
    assert len(parts) == 1 and parts.pop().startswith(" It speaks version 1")


def test_what_a_model_raises_or_gets_wrong_is_a_failure_of_its_clip() -> None:
    answers: dict[str, Any] = {
        "fine": {"level": 2, "raw": "hm"},
        "nan": {"progress": [0.1, 0.2, float("nan")]},
        "nothing": {},
        "none": None,
        "another key": {"score": 3},
        "too high": {"level": 9},
        "too short": {"progress": [0.5]},
        "an array": {"progress": np.zeros(3)},
    }

    def model(clip: Any) -> dict[str, Any]:
        if clip.instruction == "broken":
            raise RuntimeError("out of memory")
        found: dict[str, Any] = answers[clip.instruction]
        return found

    with served(model) as url:
        found = dict(
            zip([*answers, "broken"], load_model(f"remote:{url}").score(episodes(*answers, "broken")), strict=True)
        )
    assert found["fine"] == Score(2, raw="hm")
    assert found["broken"] == Failure("RuntimeError: out of memory")
    words = {
        "nan": "ValueError: Out of range float",
        "nothing": "an answer needs progress or level, got nothing",
        "none": "TypeError",
        "another key": "an answer needs progress or level, got score",
        "too high": "level must be a number from 1 to 5, got 9",
        "too short": "progress must be 3 finite numbers",
        "an array": "ValueError|TypeError",
    }
    for name, expected in words.items():
        assert re.search(expected, as_failure(found[name]).reason), (name, found[name])


def test_other_weights_settings_or_code_are_another_model(tmp_path: Path) -> None:
    template = script("template")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"weights")
    one = template.fingerprint(tmp_path / "one", head="sparse")
    assert template.fingerprint(str(tmp_path / "two"), head="sparse") == one  # wherever it lies
    assert template.fingerprint(tmp_path / "one", head="dense") != one
    (tmp_path / "two" / "model.safetensors").write_bytes(b"Weights")
    assert template.fingerprint(tmp_path / "two", head="sparse") != one
    assert script("sarm").fingerprint(tmp_path / "one", head="sparse") != one
    commits = [f"/cache/models--a--b/snapshots/{digit * 40}" for digit in "ab"]
    assert len({*map(template.fingerprint, commits), template.fingerprint("/other" + commits[0])}) == 2


def archive(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_a_request_that_is_none_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    class Dangerous:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    packed = io.BytesIO()
    np.savez_compressed(packed, episodes=np.zeros(9, np.uint8))
    one = np.frombuffer(b'[{"instruction": "a", "fps": 5}]', np.uint8)
    frames = np.zeros((2, 4, 4, 3), np.uint8)
    bodies = {
        "no archive": b"PK\x03\x04 not really",
        "compressed": packed.getvalue(),
        "a pickle": archive(episodes=np.array([Dangerous()], dtype=object)),
        "no frames": archive(episodes=one),
        "wrong frames": archive(episodes=one, frames_0=frames[0], positions_0=np.arange(2)),
        "wrong positions": archive(episodes=one, frames_0=frames, positions_0=np.arange(3)),
        "no JSON": archive(episodes=np.frombuffer(b"[{", np.uint8)),
        "no rate": archive(
            episodes=np.frombuffer(b'[{"instruction": "a", "fps": NaN}]', np.uint8), frames_0=frames, positions_0=[0, 1]
        ),
    }
    with served(lambda _clip: {"level": 3}) as url, httpx2.Client(base_url=url) as client:
        for name, body in bodies.items():
            reply = client.post("/score", content=body, headers={"content-type": EPISODES_TYPE})
            assert reply.status_code == 422 and set(reply.json()) == {"error"}, (name, reply.text)
        assert client.post("/score", content=b"{}").status_code == 415
        assert client.post("/other", content=b"{}").status_code == 404
        assert client.get("/health", headers={"origin": "http://evil.example"}).status_code == 403
        sound = client.post("/score", content=pack_episodes(episodes("a")), headers={"content-type": EPISODES_TYPE})
        assert sound.json()["answers"] == [{"level": 3}]
        with closing(HTTPConnection("127.0.0.1", client.base_url.port)) as connection:
            connection.putrequest("POST", "/score")
            connection.putheader("content-length", str(2**40))
            connection.endheaders()  # and not a byte of what is promised
            assert connection.getresponse().status == 413
    assert not (tmp_path / "ran").exists()


def test_another_host_needs_a_token_and_the_token_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [sys.executable, str(FOLDER / "template.py"), "nothing", "--host", "0.0.0.0", "--port", "0"]
    given = {key: value for key, value in os.environ.items() if key != "REWARDLAB_TOKEN"}
    refused = subprocess.run(words, capture_output=True, text=True, env=given, timeout=60)
    assert refused.returncode == 1 and "needs a token: set REWARDLAB_TOKEN" in refused.stderr
    with process_of(FOLDER / "template.py", "nothing", REWARDLAB_TOKEN="a-token-of-ours") as url:
        monkeypatch.delenv("REWARDLAB_TOKEN", raising=False)
        with pytest.raises(ModelError, match="answered 401: wrong token"):
            name_model(f"remote:{url}")
        monkeypatch.setenv("REWARDLAB_TOKEN", "a-token-of-ours")
        assert isinstance(load_model(f"remote:{url}").score(episodes("a"))[0], Score)


def test_sarm_looks_a_second_apart_around_each_frame() -> None:
    sarm = script("sarm")
    seconds = np.arange(12) * 0.5
    places = sarm.windows(seconds, sarm.stand_in("sparse").offsets)
    assert places.shape == (12, 9)
    assert places[6].tolist() == [0, 0, 2, 4, 6, 8, 10, 11, 11]
    assert places[:, 4].tolist() == list(range(12))


def test_robometer_shows_prefixes_from_the_first_frame_to_the_last() -> None:
    assert [each.tolist() for each in script("robometer").prefixes(6, 4)][::5] == [[0, 0, 0, 0], [0, 2, 3, 5]]


VLAC = """
class GAC_model:
    def __init__(self, tag):
        assert tag == "critic"

    def init_model(self, model_path, model_type, device_map):
        assert (model_path, model_type, device_map) == ("InternRobotics/VLAC", "internvl2", "cpu")

    def set_config(self):
        assert (self.temperature, self.top_k) == (0.5, 1)

    def set_system_prompt(self):
        self.ready = True

    def get_trajectory_critic(self, task, image_list, batch_num, ref_num):
        assert self.ready and ref_num == 0 and task == "open the drawer"
        values = [round(100 * number / len(image_list), 3) for number in range(len(image_list))]
        return values[1:], values
"""


def test_the_page_shows_a_server_that_works(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    page = (FOLDER.parent / "docs" / "howto" / "model-servers.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(example.splitlines()) <= 40
    template = (FOLDER / "template.py").read_text(encoding="utf-8")
    before, _, rest = template.partition("# The model: write these two functions.")
    (tmp_path / "vlac.py").write_text(
        before + example.partition("\n\n")[2] + "\n\ndef main" + rest.partition("\ndef main")[2]
    )
    (tmp_path / "evo_vlac.py").write_text(VLAC)  # its documented interface, without weights
    with process_of(tmp_path / "vlac.py", "InternRobotics/VLAC", "--device", "cpu") as url:
        model = load_model(f"remote:{url}")
        found, refused = (model.score([episode])[0] for episode in (*episodes("open the drawer"), *one_frame()))
    assert as_score(found).progress == pytest.approx((0.0, 0.33333, 0.66667))
    assert as_failure(refused).reason == "ValueError: VLAC compares frames, and this clip has one"


def one_frame() -> list[Episode]:
    return [episode_from_frames(moving_square("a", count=1, size=16), "open the drawer")]
