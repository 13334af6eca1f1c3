"""A small language model behind a chat-completions endpoint on loopback: `python small_teacher_server.py GGUF PORT`.

Needs llama-cpp-python. Prompts that hold an image are answered by an error: the model reads text alone.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from llama_cpp import Llama


def handler_of(model: Llama) -> type[BaseHTTPRequestHandler]:
    """Return the handler that asks this model, greedily."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            text = "".join(part.get("text", "") for part in body["messages"][0]["content"])
            said = model.create_chat_completion(
                [{"role": "user", "content": text}], max_tokens=body["max_tokens"], temperature=0.0
            )
            data = json.dumps({"choices": said["choices"], "usage": said["usage"]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: object) -> None:
            pass

    return Handler


def main() -> None:
    """Serve until the process is stopped."""
    model = Llama(str(Path(sys.argv[1])), n_ctx=4096, n_threads=1, verbose=False)
    HTTPServer(("127.0.0.1", int(sys.argv[2])), handler_of(model)).serve_forever()


if __name__ == "__main__":
    main()
