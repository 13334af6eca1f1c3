# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy>=1.26"]
# ///
"""A model server in one file: copy it, list what your model needs above, and write `load` and `score`.

    uv run servers/template.py
    rewardlab stress remote:http://127.0.0.1:8000 sample

The model has its own environment, so its package versions may differ from those of rewardlab and of other models.
Tried: started as a process and queried by `remote:` (tests/test_model_servers.py). Its model is only an example.
"""

import argparse
import functools
import hashlib
import hmac
import io
import json
import os
import re
import threading
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Clip:
    """What a model may see: frames, uint8 (T, H, W, 3), RGB; when each was shown, in seconds; what was asked."""

    frames: Any
    seconds: Any
    instruction: str


# The model: write these two functions.


def load(model_id: str, device: str) -> Any:
    """Return the model, ready to score."""
    return {"full": 255.0, "model_id": model_id, "device": device}


def score(model: Any, clip: Clip) -> dict[str, Any]:
    """Return the answer: `progress`, a number per frame, 1 is done; or `level`, 1 to 5; raise where there is none."""
    brightness = clip.frames.mean(axis=(1, 2, 3)) / model["full"]
    return {"progress": brightness.tolist()}


def main() -> None:
    """Read the command line, load the model and serve it."""
    arguments = command_line(__doc__, "nothing").parse_args()
    model = load(arguments.model, arguments.device)
    serve(lambda clip: score(model, clip), arguments, fingerprint(arguments.model))


# The server: the same in every file of this folder. It speaks version 1 of the protocol of `remote:URL`.

MOST_BYTES = 512 * 2**20  # of a request
EPISODES_TYPE = "application/x-rewardlab-episodes"
ANSWER_KEYS = {"level", "probabilities", "progress", "raw", "info"}


def command_line(description: str, model_id: str) -> argparse.ArgumentParser:
    """Return the parser of the options that every server has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=model_id, help=f"hub id or folder of the weights ({model_id})")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu")
    parser.add_argument("--host", default="127.0.0.1", help="another one needs a token in REWARDLAB_TOKEN")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    return parser


def fingerprint(weights: str | Path, **settings: object) -> str:
    """Return what changes with the weights, with the settings that matter, and with this file.

    Weights are a folder, known by the commit of the hub in its name or by its content, or only a name.
    """
    folder = Path(weights)
    commit = re.search(r"/snapshots/([0-9a-f]{40})$", folder.as_posix())
    content: Iterable[object] = [str(weights)]
    if commit:
        content = [commit[1]]
    elif folder.is_dir():
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        content = [part for path in files for part in (path.relative_to(folder).as_posix(), file_digest(path))]
    parts = [*content, *sorted(settings.items()), file_digest(Path(__file__))]
    return hashlib.sha256(json.dumps(list(map(str, parts))).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Return the digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def read_clips(body: bytes) -> list[Clip]:
    """Return the clips of a request; ValueError if it holds none. Nothing is unpickled or decompressed."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            entries = archive.infolist()
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise ValueError("the archive is compressed")
            if sum(entry.file_size for entry in entries) > len(body):
                raise ValueError("the archive claims to hold more than its own length")
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            described = json.loads(arrays["episodes"].tobytes())
            return [read_clip(each, arrays, number) for number, each in enumerate(described)]
    except (zipfile.BadZipFile, OSError, KeyError, TypeError, EOFError, RuntimeError, MemoryError) as error:
        raise ValueError(f"no episodes as an uncompressed .npz archive ({error})") from error


def read_clip(described: dict[str, Any], arrays: Any, number: int) -> Clip:
    """Return one clip of a request."""
    frames, positions = arrays[f"frames_{number}"], arrays[f"positions_{number}"]
    fps, instruction = float(described["fps"]), described["instruction"]
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3 or not frames.size:
        raise ValueError(f"frames of shape (T, H, W, 3) as uint8 were expected, got {frames.shape}")
    if positions.shape != frames.shape[:1] or not fps > 0 or not isinstance(instruction, str):
        raise ValueError("an episode needs a position per frame, a frame rate and an instruction")
    return Clip(frames, positions / fps, instruction)


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with a level, which is 1 + 4 x the progress of the last frame where there is none of its own.

    ValueError if it is no answer: NaN is none.
    """
    unknown = set(answer) - ANSWER_KEYS
    if unknown or not ("level" in answer or answer.get("progress")):
        raise ValueError(f"an answer needs progress or level, got {', '.join(answer) or 'nothing'}")
    if "level" not in answer:
        answer = {**answer, "level": 1 + 4 * min(max(float(answer["progress"][-1]), 0.0), 1.0)}
    json.dumps(answer, allow_nan=False)
    return answer


def serve(model: Callable[[Clip], dict[str, Any]], arguments: argparse.Namespace, identity: str) -> None:
    """Serve the model until the process ends; clips are scored one after the other."""
    token = os.environ.get("REWARDLAB_TOKEN", "").strip()
    if arguments.host not in ("127.0.0.1", "localhost") and not token:
        raise SystemExit("another host than 127.0.0.1 needs a token: set REWARDLAB_TOKEN, here and for rewardlab")
    handler = functools.partial(Handler, model, str(arguments.model)[:200], identity, token, threading.Lock())
    with ThreadingHTTPServer((arguments.host, arguments.port), handler) as server:
        url = f"http://{arguments.host}:{server.server_address[1]}"
        print(f"serving {arguments.model}; ask it with remote:{url}", flush=True)
        server.serve_forever()


class Handler(BaseHTTPRequestHandler):
    """Answers `GET /health` and `POST /score`."""

    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds without a byte

    def __init__(self, model: Any, name: str, identity: str, token: str, lock: Any, *connection: Any) -> None:
        self.model, self.name, self.identity, self.token, self.lock = model, name, identity, token, lock
        super().__init__(*connection)

    def do_GET(self) -> None:
        """Tell which model is served."""
        if not self.refused(self.path == "/health"):
            self.reply(200, {"protocol": 1, "name": self.name, "fingerprint": self.identity})

    def do_POST(self) -> None:
        """Score the clips of a request."""
        length = self.headers.get("content-length", "")
        if self.refused(self.path == "/score"):
            return
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True
            self.reply(413, {"error": f"a request of at most {MOST_BYTES:,} bytes was expected"})
            return
        body = self.rfile.read(int(length))
        if self.headers.get("content-type") != EPISODES_TYPE:
            self.reply(415, {"error": f"the content type must be {EPISODES_TYPE}"})
            return
        try:
            clips = read_clips(body)
        except ValueError as error:
            self.reply(422, {"error": str(error)[:400]})
            return
        with self.lock:
            answers = [self.answer(clip) for clip in clips]
        self.reply(200, {"fingerprint": self.identity, "answers": answers})

    def answer(self, clip: Clip) -> dict[str, Any]:
        """Return the answer to a clip, or why there is none."""
        try:
            return checked(self.model(clip))
        except Exception as error:  # whatever a model raises is a failure of this clip alone
            self.log_error("%s: %s", type(error).__name__, error)
            return {"failure": f"{type(error).__name__}: {error}"[:400]}

    def refused(self, known: bool) -> bool:
        """Refuse a web page, a wrong token or an unknown address, and say whether that happened."""
        given = self.headers.get("authorization", "").encode()
        reasons = {
            403: "web pages are refused" if "origin" in self.headers or "sec-fetch-site" in self.headers else "",
            401: "" if hmac.compare_digest(given, f"Bearer {self.token}".encode()) or not self.token else "wrong token",
            404: "" if known else "no such address",
        }
        for status, reason in reasons.items():
            if reason:
                self.close_connection = True  # a body may follow that is not read
                self.reply(status, {"error": reason})
                return True
        return False

    def reply(self, status: int, content: dict[str, Any]) -> None:
        """Send JSON."""
        body = json.dumps(content, allow_nan=False).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    main()
