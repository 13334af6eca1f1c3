"""Servers on loopback, and one of chat completions that answers as a test says and remembers what it was asked."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LoopbackHandler(BaseHTTPRequestHandler):
    """Keeps connections, logs nothing, and sends bytes, or anything else as JSON."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def send(self, status: int, content: Any = b"", **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        with suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(status)
            for name, value in ({"content_length": str(len(body))} | headers).items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    def drop(self) -> None:
        """Close the connection without a word."""
        self.close_connection = True
        self.connection.shutdown(2)

    def log_message(self, *words: object) -> None:
        pass


class Call:
    """One request: what was asked, how often the same was asked before, and ways to answer."""

    def __init__(self, handler: LoopbackHandler, server: "ChatServer", body: bytes) -> None:
        self.handler, self.server = handler, server
        self.send, self.drop = handler.send, handler.drop
        self.body: dict[str, Any] = json.loads(body)
        self.hash = sha256(json.dumps(self.body["messages"]).encode()).hexdigest()
        self.text = " ".join(p["text"] for p in self.body["messages"][0]["content"] if p["type"] == "text")
        self.authorization = handler.headers.get("authorization", "")
        with server.lock:
            self.before = server.asked[self.hash]
            self.number = server.asked.total()
            server.asked[self.hash] += 1
            server.bodies.append(self.body)

    @property
    def task(self) -> str:
        return self.text.rpartition("Task: ")[2]

    def say(self, text: str | None, **choice: Any) -> None:
        """Answer as a sound server does; 1,000 tokens read and 10 written."""
        made = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"} | choice
        usage = {"prompt_tokens": 1000, "completion_tokens": 10}
        self.send(200, {"choices": [made], "usage": usage})
        with self.server.lock:
            self.server.answered[self.hash] += 1

    def refuse(self, status: int, message: str = "no", **headers: str) -> None:
        self.send(status, {"error": {"message": message}}, **headers)


class ChatServer:
    """What the server knows: requests and complete answers per content, and every body."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lock = threading.Lock()
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []

    def model(self, options: str = "", name: str = "judge") -> str:
        return f"openai:{name}@{self.url}" + (f"?{options}" if options else "")


@contextmanager
def chat_server(react: Callable[[Call], None], port: int = 0) -> Iterator[ChatServer]:
    """Serve until the block ends; `react` answers each call, in a thread of its own."""

    class Handler(LoopbackHandler):
        def do_POST(self) -> None:
            react(Call(self, known, self.body()))

    with serving(Handler, port) as url:
        known = ChatServer(f"{url}/v1")
        yield known


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[str]:
    """Serve on a port of loopback, a free one by default, until the block ends; give the address."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *words: object) -> None:
            pass  # a client that is killed leaves its connection in pieces

    server = Server(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
