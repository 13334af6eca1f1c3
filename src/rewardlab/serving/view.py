"""Command `view`: serve the page over the runs of a folder, or write a static copy of it.

The server is Python's own: it only reads, listens on loopback alone and takes no body, so that the page needs no extra.
"""

import base64
import hashlib
import json
import re
import secrets
import signal
import sys
import threading
import webbrowser
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rewardlab.core.errors import PlanError, RewardlabError
from rewardlab.core.limits import REQUEST_SECONDS
from rewardlab.core.settings import Help
from rewardlab.core.terminal import loading, one_line
from rewardlab.evaluation.runs import RunsFolder
from rewardlab.reporting.report import AllowCode
from rewardlab.serving.listening import address, is_loopback, listen, require_port

if TYPE_CHECKING:
    from rewardlab.reporting.runs_page import RunsPage

_HOST = "127.0.0.1"
_DOCUMENT = re.compile(r"/data/([a-z0-9-]{1,120})\.json")
_REPORT = re.compile(r"/report-([0-9a-f]{16})\.html")
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def view(
    folder: RunsFolder = "runs",
    *,
    port: Annotated[int, Help("port to listen on, on this machine only; 0 takes a free one")] = 8020,
    open: Annotated[bool, Help("open the page in a browser")] = False,
    export: Annotated[
        Path | str | None, Help("write a static copy, which works from disk, to this folder instead", metavar="SITE")
    ] = None,
    allow_code: AllowCode = False,
) -> Path | None:
    """Show all runs below a folder on a local page: list, compare, curves of every model on a clip; live.

    The page is served until SIGTERM or Ctrl-C. With `export` the path of the copy is returned.

    Examples:
        rewardlab view runs --open
        rewardlab view runs --export site
    """
    require_port(port)
    from rewardlab.reporting.runs_page import RunsPage, write_static_copy

    page = RunsPage(Path(folder), allow_code)
    if not page.folder.is_dir():
        raise PlanError(f"no folder at {str(folder)!r}; name one that holds run folders")
    if export is not None:
        with loading(f"writing {export}"):
            written = write_static_copy(page, Path(export))
        if open:
            _open_browser(written.resolve().as_uri())
        return written
    with ViewServer(page, port) as server:
        print(one_line(f"view {folder} at {server.url}"), flush=True)
        if open:
            _open_browser(server.url)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return None


def _open_browser(url: str) -> None:
    if not webbrowser.open(url):
        print("no browser was found: open the page by hand", flush=True)


class ViewServer(ThreadingHTTPServer):
    """Serves one page below a secret part of the address: other users of this machine cannot read it."""

    daemon_threads = True

    def __init__(self, page: "RunsPage", port: int) -> None:
        super().__init__((_HOST, port), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listen(_HOST, port)
        self.page, self.secret = page, secrets.token_urlsafe(16)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of a fault; a browser that closes its connection is none."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"{address(_HOST, self.socket)}/{self.secret}/"


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_SECONDS.value

    def do_GET(self) -> None:
        """Answer a request for the page, a document or a report."""
        host = re.sub(r":[0-9]*\Z", "", self.headers.get("host", "")).lower()
        own = self.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        secret, slash, rest = self.path.partition("?")[0].removeprefix("/").partition("/")
        if not is_loopback(host) or not own:  # another site's page, or its name that leads here
            return self._send_json(403, {"error": "requests from other sites are rejected"})
        if not secrets.compare_digest(secret.encode(), self.server.secret.encode()) or not slash:
            return self._send_json(404, {"error": "open the whole address that `rewardlab view` printed"})
        page, path = self.server.page, f"/{rest}"
        try:
            if path == "/":
                self._send_page(page.html())
            elif found := _REPORT.fullmatch(path):
                self._send_page(page.report(found[1]))
            elif found := _DOCUMENT.fullmatch(path):
                self._send_json(200, page.document(found[1]))
            else:
                self._send_json(404, {"error": "there is no such address here"})
        except RewardlabError as error:
            self._send_json(404, {"error": str(error)})

    def _send_page(self, html: str) -> None:
        """Send a page that may run its own scripts and no others."""
        hashes = [hashlib.sha256(script.encode()).digest() for script in _SCRIPT.findall(html)]
        allowed = " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in hashes)
        policy = (
            f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; media-src data:; "
        )
        policy += "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        self._send(200, "text/html; charset=utf-8", html.encode(), {"content-security-policy": policy})

    def _send_json(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content, allow_nan=False).encode()
        self._send(status, "application/json", body, {"content-security-policy": "default-src 'none'"})

    def _send(self, status: int, kind: str, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        common = {"content-type": kind, "content-length": str(len(body)), "cache-control": "no-store"}
        common |= {"referrer-policy": "no-referrer", "x-content-type-options": "nosniff"}
        for name, value in (common | {"cross-origin-resource-policy": "same-origin"} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Say no more than the name."""
        return "rewardlab"

    def log_message(self, format: str, *args: object) -> None:
        """Write no log: it would hold the secret part of the address."""
