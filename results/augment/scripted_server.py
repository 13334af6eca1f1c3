"""A chat-completions endpoint on loopback whose answers are scripted: `python results/augment/scripted_server.py PORT`.

It stands in for both teachers of `data augment`. It looks at no picture, and says FALSE of every row of level 3, so
that refusals are seen too; for every score it writes one command, whatever the video shows.
"""

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANALYSIS = "1) Scene: a table, a plate and a spoon.\n2) The robot does the task.\n3) The task is done."


def commands(task: str) -> dict[int, str]:
    """Return a command for each score below 5."""
    own = task.rstrip(".!")
    return {
        1: "Pick up the spoon.",
        2: "Put the plate on the table.",
        3: f"{own}, then pick up the spoon.",
        4: f"{own}, then push the plate.",
    }


def answer(text: str) -> str:
    """Return what the teacher says to a prompt."""
    task = re.search(r"(?:Original task \(score 5\)|Task description|TASK DESCRIPTION): (.*)", text)
    own = task[1].strip() if task else ""
    if text.startswith("Rewrite"):
        return own[:1].upper() + own[1:] + ("" if own.endswith((".", "!", "?")) else ".")
    if "strict annotation validator" in text:
        refused = "PROVIDED SCORE: 3 " in text
        return f"By script.\nANSWER: {'FALSE' if refused else 'TRUE'}"
    if "analyzing a video" in text:
        return ANALYSIS
    if text.startswith("Plan carefully"):
        lines = [f"{score}: {command}" for score, command in commands(own).items()]
        return "\n".join(["5) Final set of suggested commands", *lines, f"5: {own}"])
    return commands(own)[int(text.partition("command for score ")[2][0])]


class Handler(BaseHTTPRequestHandler):
    """Answers a request by script."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer the last message."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        content = body["messages"][-1]["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        said = answer("".join(part.get("text", "") for part in parts))
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        data = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_words: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
