"""A small language model behind a chat-completions endpoint on loopback: `python small_teacher_server.py GGUF PORT`.

Needs transformers and gguf; the weights are de-quantised. It reads text alone: images of a prompt are left out.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MOST_TOKENS = 400  # of an answer; the model may end it before


class SmallModel:
    """The model of a GGUF file, which answers greedily."""

    def __init__(self, path: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        self.model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()

    def answer(self, text: str, most: int) -> tuple[str, int, int]:
        """Return the answer, and how many tokens were read and written."""
        said = [{"role": "user", "content": text}]
        tokens = self.tokenizer.apply_chat_template(
            said, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.inference_mode():
            made = self.model.generate(**tokens, max_new_tokens=min(most, MOST_TOKENS), do_sample=False)
        read = tokens["input_ids"].shape[1]
        return self.tokenizer.decode(made[0, read:], skip_special_tokens=True), read, made.shape[1] - read


def handler_of(model: SmallModel) -> type[BaseHTTPRequestHandler]:
    """Return the handler that asks this model."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            content = body["messages"][-1]["content"]
            parts = [{"text": content}] if isinstance(content, str) else content
            answer, read, written = model.answer("".join(part.get("text", "") for part in parts), body["max_tokens"])
            choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
            usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
            data = json.dumps({"choices": [choice], "usage": usage}).encode()
            print(f"{read} tokens read, {written} written: {answer[:80]!r}", flush=True)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: object) -> None:
            pass

    return Handler


def main() -> None:
    """Serve until the process is stopped."""
    model = SmallModel(Path(sys.argv[1]))
    print("ready", flush=True)
    HTTPServer(("127.0.0.1", int(sys.argv[2])), handler_of(model)).serve_forever()


if __name__ == "__main__":
    main()
