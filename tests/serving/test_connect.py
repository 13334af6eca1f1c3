"""`rewardlab.connect` in the loop of a robot: a real server on loopback, and lines to it that lose answers."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")

import httpx2

import rewardlab
from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.errors import DataError, ModelError, PlanError
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.session import LiveSession
from rewardlab.serving.batching import load_served_model
from tests.conftest import moving_square
from tests.models.loopback import LoopbackHandler, serving
from tests.narrowing import known
from tests.serving.loopback_server import reward_server
from tests.serving.served_models import Recorder, judge
from tests.serving.test_server import npy

GUIDE = Path(__file__).parents[2] / "docs/howto/serve.md"
FRAMES = moving_square("a", count=8, size=16)


@pytest.fixture(scope="module")
def server() -> Iterator[httpx2.Client]:
    with reward_server("recorder", Recorder()) as client:
        yield client


def connect(server: httpx2.Client, **settings: float | None) -> LiveSession:
    return rewardlab.connect(str(server.base_url), "push", **settings)  # type: ignore[arg-type]


def whole(frames: np.ndarray, instruction: str = "push") -> Answer:
    return judge(episode_from_frames(frames, instruction))


def counts(server: httpx2.Client) -> list[int]:
    """Return how many frames each session on the server has."""
    return [session["frames"] for session in server.get("/v1/live").json()["sessions"]]


def test_every_frame_is_answered_as_the_clip_so_far_would_be(server: httpx2.Client) -> None:
    with connect(server) as session:
        answers = [session.add(frame) for frame in FRAMES[:3]]
        assert answers == [whole(FRAMES[:end]) for end in (1, 2, 3)]
        assert session.add(FRAMES[3:]) == session.score() == whole(FRAMES)
        assert session.frames == 8 and counts(server) == [8]
    assert counts(server) == []


@pytest.mark.parametrize(("every", "answered"), [(3, [3, 6]), (None, [])])
def test_answers_come_as_often_as_asked_for(server: httpx2.Client, every: int | None, answered: list[int]) -> None:
    with connect(server, score_every=every) as session:
        answers = [session.add(frame) for frame in FRAMES]
        assert [count for count, answer in enumerate(answers, 1) if answer is not None] == answered
        assert session.score() == whole(FRAMES)


def test_a_model_without_an_answer_gives_a_failure(server: httpx2.Client) -> None:
    with rewardlab.connect(str(server.base_url), "refuse") as session:
        answer = session.add(FRAMES[0])
        assert isinstance(answer, Failure) and answer.reason == "no robot in sight"


class ReadsWords:
    """Progress that grows with the frames, faster for a longer instruction."""

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        return [self._answer(len(episode.frames), len(episode.instruction)) for episode in episodes]

    def _answer(self, frames: int, words: int) -> Answer:
        progress = tuple(min(1.0, (1 + place) * words / 200) for place in range(frames))
        return Score(1 + 4 * progress[-1], progress=progress)


def test_an_instruction_that_changes_in_the_middle_gives_the_rewards_of_a_twin_that_always_had_it() -> None:
    def rewards(url: str, changes: dict[int, str]) -> list[float]:
        given = []
        with rewardlab.connect(url, changes[0], score_every=1) as session:
            for place, frame in enumerate(FRAMES):
                if place and place in changes:
                    session.instruct(changes[place])
                answer = session.add(frame)
                assert isinstance(answer, Score) and answer.progress is not None
                given.append(answer.progress[-1])
        return given

    with reward_server("words", ReadsWords()) as client:
        url, first, second = str(client.base_url), "push", "push the red square to the left"
        twin, other, changed = (rewards(url, c) for c in ({0: first}, {0: second}, {0: first, 4: second}))
        assert changed == [*twin[:4], *other[4:]] and changed[4] > twin[4]
        with rewardlab.connect(url, first, score_every=5) as session:
            session.add(FRAMES[:5])
            session.instruct(second)
            assert session.add(FRAMES[5]) == session.score()  # an answer by the new words is due at once
            with pytest.raises(PlanError, match="empty"):
                session.instruct(" ")
    # what a stress test measures: the progress of the clip that was asked about with the other words throughout
    (whole,) = ReadsWords().score([episode_from_frames(FRAMES, second)])
    assert isinstance(whole, Score) and list(known(whole.progress))[4:] == changed[4:]


def test_many_large_frames_go_out_in_parts(server: httpx2.Client) -> None:
    frames = np.zeros((50, 480, 640, 3), np.uint8)  # 46 MB
    with connect(server) as session:
        assert session.add(frames) == whole(frames)
        assert session.frames == 50 and counts(server) == [50]


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (FRAMES[0].astype(np.float32), "got float32 (16, 16, 3)"),
        (FRAMES[0, ..., 0], "got uint8 (16, 16)"),
        (FRAMES[:0], "got uint8 (0, 16, 16, 3)"),
        (FRAMES[0, :8], "the frames of this session are (16, 16, 3), got (8, 16, 3)"),
    ],
)
def test_wrong_frames_are_told_and_the_session_goes_on(server: httpx2.Client, frames: np.ndarray, words: str) -> None:
    with connect(server) as session:
        session.add(FRAMES[0])
        with pytest.raises(DataError, match=re.escape(words)):
            session.add(frames)
        assert session.add(FRAMES[1]) == whole(FRAMES[:2])


def test_frames_that_the_server_cannot_take_are_a_data_error(
    server: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARDLAB_MAX_CLIP_FRAMES", "4")
    with connect(server) as session:
        session.add(FRAMES[:4])
        with pytest.raises(DataError, match="more than a session may hold"):
            session.add(FRAMES[4])
        assert session.score() == whole(FRAMES[:4])


@pytest.mark.parametrize(
    ("url", "instruction", "settings", "words"),
    [
        ("localhost:8000", "push", {}, "http://localhost:8000"),
        ("http://localhost:8000", " ", {}, "what the robot was asked to do"),
        ("http://localhost:8000", "push", {"timeout": 0.0}, "timeout must be above 0"),
    ],
)
def test_a_wrong_setting_is_told_before_the_server_is_asked(
    url: str, instruction: str, settings: dict[str, float], words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        rewardlab.connect(url, instruction, **settings)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_server_that_is_gone_is_told_and_closing_does_not_hang() -> None:
    with reward_server("recorder", Recorder()) as client:
        session = connect(client, timeout=3.0)
        session.add(FRAMES[0])
    with pytest.raises(ModelError, match="is the server running"):
        session.add(FRAMES[1])
    session.close()
    with pytest.raises(ModelError, match="this session is closed"):
        session.add(FRAMES[1])
    with pytest.raises(ModelError, match=r"no rewardlab server answers at .* is the server running"):
        connect(client)


def test_a_session_that_the_server_closed_is_told(server: httpx2.Client) -> None:
    with connect(server) as session:
        session.add(FRAMES[0])
        (name,) = [each["id"] for each in server.get("/v1/live").json()["sessions"]]
        server.delete(f"/v1/sessions/{name}")
        for _ in range(2):
            with pytest.raises(ModelError, match=r"no longer has this session.* rewardlab\.connect"):
                session.add(FRAMES[1])


def test_the_token_is_read_from_the_environment_and_a_wrong_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARDLAB_TOKEN", "secret words")
    with reward_server("recorder", Recorder()) as client:
        with connect(client) as session:
            assert session.add(FRAMES[0]) == whole(FRAMES[:1])
        monkeypatch.setenv("REWARDLAB_TOKEN", "other words")
        with pytest.raises(ModelError, match="the token in REWARDLAB_TOKEN"):
            connect(client)


class Line:
    """A line to a server that loses the answers to the next appends, once the server has taken the frames."""

    def __init__(self) -> None:
        self.lose = 0.0
        self.url = ""


@contextmanager
def line_to(server: httpx2.Client) -> Iterator[Line]:
    line = Line()

    class Handler(LoopbackHandler):
        def forward(self) -> None:
            kind = {"content-type": self.headers.get("content-type", "")}
            reply = server.request(self.command, self.path, content=self.body(), headers=kind)
            if "/frames" in self.path and line.lose > 0:
                line.lose -= 1
                self.close_connection = True
                return
            self.send(reply.status_code, reply.content)

        do_GET = do_POST = do_DELETE = forward

    with serving(Handler) as line.url:
        yield line


def test_frames_whose_answer_was_lost_are_sent_again_and_kept_once(server: httpx2.Client) -> None:
    with line_to(server) as line, rewardlab.connect(line.url, "push") as session:
        session.add(FRAMES[0])
        line.lose = 2
        assert session.add(FRAMES[1:3]) == whole(FRAMES[:3])
        assert line.lose == 0 and session.frames == 3 and counts(server) == [3]


@pytest.mark.slow
def test_after_a_failed_call_the_next_one_brings_the_clip_up_to_date(server: httpx2.Client) -> None:
    with line_to(server) as line, rewardlab.connect(line.url, "push", timeout=3.0) as session:
        line.lose = np.inf
        for frame in FRAMES[:2]:
            with pytest.raises(ModelError, match="the connection broke"):
                session.add(frame)
        assert counts(server) == [2]
        line.lose = 0
        assert session.add(FRAMES[2]) == whole(FRAMES[:3])
        assert session.frames == 3 and counts(server) == [3]


def test_frames_that_would_leave_a_gap_are_refused(server: httpx2.Client) -> None:
    path = "/v1/sessions/" + server.post("/v1/sessions", json={"instruction": "push"}).json()["session"]
    sent = npy(FRAMES[:2])
    assert server.post(f"{path}/frames?at=0", content=sent).json()["frames"] == 2
    assert (
        server.post(f"{path}/frames?at=1", content=sent).json()["frames"] == 3
    )  # the session had the first of the two
    reply = server.post(f"{path}/frames?at=5", content=sent)
    assert reply.status_code == 422 and "has 3 frames, so the next come at 3" in reply.json()["error"]
    server.delete(path)


def test_the_client_needs_nothing_of_the_server(server: httpx2.Client) -> None:
    code = (
        "import sys\n"
        "for name in ('fastapi', 'starlette', 'uvicorn', 'pydantic', 'websockets'): sys.modules[name] = None\n"
        "import numpy as np, rewardlab\n"
        f"with rewardlab.connect('{server.base_url}', 'push') as session:\n"
        "    print(session.add(np.zeros((4, 16, 16, 3), np.uint8)).level)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("5.0\n", "")


def test_the_example_of_the_guide_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"^```python\n([^`]*rewardlab\.connect[^`]*)^```", GUIDE.read_text(), flags=re.MULTILINE)
    with reward_server("pocket", load_served_model("pocket").model) as client:
        exec(example.replace("http://127.0.0.1:8000", str(client.base_url)), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) > 3 and all(
        re.fullmatch(r"frame \d+: progress -?\d\.\d\d, level \d\.\d", line) for line in printed
    )
