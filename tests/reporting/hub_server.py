"""A hub on this machine: the few calls with which huggingface_hub makes a repository and uploads a folder."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.models.loopback import LoopbackHandler, serving


@dataclass
class Hub:
    """What the server knows and has received; `files` are those of the repository by name."""

    exists: bool = False
    refuses: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    created: dict[str, Any] = field(default_factory=dict)
    as_pull_request: bool = False
    url: str = ""


def _preupload(_: Hub, body: bytes, _query: str) -> tuple[int, Any]:
    names = [each["path"] for each in json.loads(body)["files"]]
    return 200, {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}


def _commit(hub: Hub, body: bytes, query: str) -> tuple[int, Any]:
    for line in map(json.loads, body.splitlines()):
        if line["key"] == "file":
            hub.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
    hub.as_pull_request = "create_pr=1" in query
    request = {"pullRequestUrl": f"{hub.url}/me/results/discussions/1"} if hub.as_pull_request else {}
    return 200, {"commitUrl": f"{hub.url}/me/results/commit/1", "commitOid": "1" * 40} | request


def _validate(_: Hub, _body: bytes, _query: str) -> tuple[int, Any]:
    return 200, {"errors": [], "warnings": []}


_ANSWERS: dict[str, Callable[[Hub, bytes, str], tuple[int, Any]]] = {
    "/validate-yaml": _validate,
    "/preupload/": _preupload,
    "/commit/": _commit,
}


@contextmanager
def hub_server(hub: Hub) -> Iterator[Hub]:
    """Serve a hub on a free port until the end of the block."""

    class Handler(LoopbackHandler):
        def noted(self) -> bytes:
            hub.calls.append(f"{self.command} {self.path.partition('?')[0]}")
            hub.tokens.add(self.headers.get("Authorization", ""))
            return self.body()

        def do_GET(self) -> None:
            if self.path == "/api/agent-harnesses":  # a public list that the library reads without a token
                return self.send(404, {"error": "Not found"})
            self.noted()
            if not hub.exists:
                return self.send(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            self.send(200, {"id": "me/results", "modelId": "me/results", "tags": [], "private": True, "siblings": []})

        def do_HEAD(self) -> None:
            self.noted()
            name = self.path.partition("/resolve/main/")[2]
            if name not in hub.files:
                return self.send(404, X_Error_Code="EntryNotFound")
            self.send(200, X_Repo_Commit="0" * 40, ETag='"0"')

        def do_POST(self) -> None:
            body = self.noted()
            path, _, query = self.path.partition("?")
            if hub.refuses:
                return self.send(403, {"error": f"{self.headers['Authorization']} may not write"})
            if path == "/api/repos/create":
                hub.created, hub.exists = json.loads(body), True
                return self.send(200, {"url": f"{hub.url}/me/results", "id": "me/results"})
            known = next((name for name in _ANSWERS if name in path), "")
            self.send(*(_ANSWERS[known](hub, body, query) if known else (404, {"error": f"no {path}"})))

    with serving(Handler) as hub.url:
        yield hub
