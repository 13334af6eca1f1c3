"""A model in a process of its own: it gets read-only copies of what is shown, and the truth never is there.

Whatever a model does to its process (another working folder, other numpy functions, text on stdout) reaches no other
model and no measurement. What comes back is JSON that is checked here, never an object.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np

from rewardlab.core.episode import (
    Clip,
    DeferredFrames,
    Episode,
    Frames,
    FrameSource,
    InMemoryFrames,
    read_only,
    view_episodes,
)
from rewardlab.core.errors import (
    DataError,
    ModelError,
    ModelRaised,
    RewardlabError,
    StopRun,
    WorkerFailed,
    WrongAnswerCount,
)
from rewardlab.core.limits import BODY_MB
from rewardlab.core.trial import Answer, error_text, error_traceback, validate_answer
from rewardlab.evaluation.engines.processes import Process, start_process
from rewardlab.models.composite import build_model, wrong_count
from rewardlab.models.contract import Budget, NamedModel, RewardModel
from rewardlab.models.external import pickled
from rewardlab.models.remote import pack_answers, unpack_answers


@dataclass(frozen=True)
class ModelProcess:
    """A model that is asked through a pipe."""

    name: str
    worker: Process

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the model's answers; raise what it raised, in its words, or the exit code of its process."""
        for message in _pack_episodes(episodes):
            self.worker.send(message)
        kind, content = self.receive()
        if kind != b"answers":
            if kind == b"raised":
                said, _, trace = _text(content).partition("\0")
                raise ModelRaised(said, trace or None)
            raise {b"stopped": StopRun, b"miscounted": WrongAnswerCount}[kind](_text(content))
        try:
            return unpack_answers(content, [len(episode.clip) for episode in episodes])[0]
        except ValueError as error:
            raise ModelRaised(f"its process returned an invalid answer: {error}") from None

    def receive(self) -> tuple[bytes, bytes]:
        """Return the kind and the content of the next reply."""
        most = BODY_MB.in_bytes
        try:
            return self.worker.pipe.recv_bytes(most), self.worker.pipe.recv_bytes(most)
        except (EOFError, OSError):  # a longer message closes the pipe, which ends that process
            code = self.worker.process.wait()
            raise WorkerFailed(f"the process of {self.name} ended with exit code {code}") from None


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def pickle_model(model: NamedModel) -> NamedModel:
    """Return the model as it may travel: code from outside stays pickled until it is in a process of its own."""
    members = tuple(pickle_model(member) for member in model.members)
    if not model.isolated:
        return replace(model, members=members)
    make = pickled(model.name, model.make)
    return replace(model, members=members, make=lambda budget: cloudpickle.loads(make)(budget))


def start_model(model: NamedModel, budget: Budget, started: list[Process]) -> RewardModel:
    """Build a model where it belongs: that of the package here, that from outside in a process, added to `started`."""
    if not model.isolated:
        return build_model(model, budget)
    worker = start_process(own_group=False)
    started.append(worker)
    worker.send(cloudpickle.dumps(partial(serve_model, model, budget)))
    made = ModelProcess(model.name, worker)
    kind, content = made.receive()  # when the model is built
    if kind != b"ready":
        raise ModelError(_text(content))
    return made


def serve_model(model: NamedModel, budget: Budget, pipe: Connection) -> None:
    """Build the model and answer the episodes that come through the pipe, until it is closed."""
    try:
        built = build_model(model, budget)
    except BaseException as error:
        _send_reply(pipe, b"broken", error_text(error, with_type=not isinstance(error, RewardlabError)).encode())
        return
    _send_reply(pipe, b"ready", b"")
    while True:
        try:
            episodes = [_episode(described, pipe) for described in json.loads(pipe.recv_bytes())]
        except EOFError:
            return
        _send_reply(pipe, *_reply(built, episodes))


def _send_reply(pipe: Connection, kind: bytes, content: bytes) -> None:
    pipe.send_bytes(kind)
    pipe.send_bytes(content)


def _reply(model: RewardModel, episodes: Sequence[Episode]) -> tuple[bytes, bytes]:
    try:
        answers = list(islice(model.score(episodes), len(episodes) + 1))
        if len(answers) == len(episodes):
            pairs = zip(answers, episodes, strict=True)
            return b"answers", pack_answers([validate_answer(answer, len(e.clip)) for answer, e in pairs], "")
        got = "too many" if len(answers) > len(episodes) else len(answers)
        return b"miscounted", wrong_count(len(episodes), got).encode()
    except StopRun as stop:
        return b"stopped", error_text(stop).encode()
    except BaseException as error:  # an exit is a failure of the model too
        said, trace = error_text(error, with_type=True).replace("\0", " "), error_traceback(error) or ""
    return b"raised", f"{said}\0{trace}".encode()


def _pack_episodes(episodes: Sequence[Episode]) -> list[bytes]:
    """Return what a model may see as messages: a description, then the arrays of each episode.

    Frames of further views go along, for the model cannot ask for them later; one that cannot be read goes as the
    reason, which is raised where the model reads it.
    """
    described, arrays = [], []
    for episode in episodes:
        frames, clip = episode.frames, episode.clip
        views = {name: _frames_or_reason(view) for name, view in view_episodes(episode).items()}
        described.append(
            {
                "instruction": episode.instruction,
                "fps": clip.fps,
                "digest": clip.source.digest,
                "shape": frames.shape,
                "positions": clip.positions.dtype.str,
                "original": episode.original_video,
                "views": {name: made if isinstance(made, str) else made.shape for name, made in views.items()},
                "view_digests": [source.digest for source in episode.views.values()],
            }
        )
        arrays += [frames.tobytes(), clip.positions.tobytes()]
        arrays += [made.tobytes() for made in views.values() if not isinstance(made, str)]
    return [json.dumps(described).encode(), *arrays]


def _episode(described: dict[str, Any], pipe: Connection) -> Episode:
    """Return an episode; its arrays lie on the bytes that came, which nobody can write to."""
    frames = np.frombuffer(pipe.recv_bytes(), np.uint8).reshape(described["shape"])
    positions = np.frombuffer(pipe.recv_bytes(), described["positions"])
    every = read_only(np.arange(len(frames)))
    source = InMemoryFrames(frames, every, len(frames), described["digest"])
    clip, views = Clip(source, every, positions, described["fps"]), dict[str, FrameSource]()
    for (name, shape), identity in zip(described["views"].items(), described["view_digests"], strict=True):
        if isinstance(shape, str):
            views[name] = DeferredFrames(identity, len(frames), partial(_refuse, shape))
        else:
            pixels = np.frombuffer(pipe.recv_bytes(), np.uint8).reshape(shape)
            views[name] = InMemoryFrames(pixels, every, len(frames), identity)
    original = DeferredFrames(described["original"], len(frames), partial(_refuse, "a model sees what is shown alone"))
    return Episode("", described["instruction"], clip, views=views, original=original)


def _frames_or_reason(view: Episode) -> Frames | str:
    try:
        return view.frames
    except DataError as error:
        return str(error)


def _refuse(reason: str) -> FrameSource:
    raise DataError(reason)
