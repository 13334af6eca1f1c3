"""Run the tutorials as a reader does, and write what the commands print into the pages.

python docs/run_tutorials.py [PAGE ...]

The blocks of a page are run in order in an empty folder: a block with a title is a file, a console block holds commands
and what they print. `...` stands for any text, and numbers may differ by a tenth: output that fits stays as it is.
After the comment in `LOOSE` they may differ by half: pocket answers in int8 or in float32, and one of four clips is a
quarter. What a person does meanwhile, such as in a browser, is a comment that begins with `run`.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import nbclient
import nbformat

TUTORIALS = Path(__file__).parent / "tutorials"
LOOSE = "<!-- numbers depend on the processor -->"
BLOCK = re.compile(
    r'^<!-- run\n(?P<hidden>.*?)^-->|^```\w+ title="(?P<file>[^"]+)"\n(?P<text>.*?)^```'
    rf"|(?P<loose>^{LOOSE}\n+)?^```console\n(?P<console>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
NUMBER = r"\d+(?:\.\d+)?"
EVERYWHERE, DEPENDS_ON_PROCESSOR = 0.1, 0.5  # by how much numbers may differ, of themselves or of 1
DONE = "@@ done"


@dataclass(frozen=True)
class Step:
    """A command of a page: what the page shows, what was printed, where in the page it shows it, and how closely."""

    command: str
    shown: str
    printed: str
    place: tuple[int, int]
    tolerance: float = EVERYWHERE

    @property
    def fits(self) -> bool:
        """Tell whether the page shows what was printed; a page that shows nothing promises nothing."""
        return not self.shown or fits(self.shown, self.printed, self.tolerance)


def fits(shown: str, printed: str, tolerance: float = EVERYWHERE) -> bool:
    """Tell whether a text is the other one: `...` is any text, spaces are alike, numbers differ by little."""
    parts = re.split(rf"(\.\.\.|{NUMBER}|\s+)", shown.strip())
    pattern = "".join(_pattern(part) for part in parts)
    match = re.fullmatch(pattern, printed.strip(), re.DOTALL)
    if match is None:
        return False
    expected = [float(part) for part in parts if re.fullmatch(NUMBER, part)]
    return all(abs(a - float(b)) <= tolerance * max(1, a) for a, b in zip(expected, match.groups(), strict=True))


def _pattern(part: str) -> str:
    if part == "...":
        return ".*?"
    if re.fullmatch(NUMBER, part):
        return f"({NUMBER})"
    return r"\s+" if part and not part.strip() else re.escape(part)


def run_page(page: str, folder: Path) -> Iterator[Step]:
    """Do what a page says in an empty folder, and yield every command with what it printed."""
    port = _free_port()  # of as many digits as the page's, so that places stay the same
    page = re.sub(r"\b8000\b", port, page)
    with _shell(folder) as shell:
        for block in BLOCK.finditer(page):
            if block["file"]:
                (folder / block["file"]).parent.mkdir(parents=True, exist_ok=True)
                (folder / block["file"]).write_text(block["text"], encoding="utf-8")
            elif block["hidden"]:
                shell(block["hidden"])
            else:
                start, tolerance = block.start("console"), DEPENDS_ON_PROCESSOR if block["loose"] else EVERYWHERE
                for found in re.finditer(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block["console"], re.MULTILINE):
                    printed = shell(found[1]).replace(port, "8000")
                    shown = found[2].replace(port, "8000")
                    yield Step(found[1], shown, printed, (start + found.start(2), start + found.end(2)), tolerance)


@contextmanager
def _shell(folder: Path) -> Iterator[Callable[[str], str]]:
    """Give a function that runs a command in bash and returns what it prints; all it started ends with the block."""
    commands = str(Path(sys.executable).parent)
    here = {"PATH": f"{commands}:{os.environ['PATH']}", "COLUMNS": "80", "NO_COLOR": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(
        ["bash"], cwd=folder, env=os.environ | here, text=True, start_new_session=True, **pipes
    ) as bash:
        assert bash.stdin is not None and bash.stdout is not None
        read, write = bash.stdout, bash.stdin

        def run(command: str) -> str:
            write.write(f"{command}\ncode=$?; echo '{DONE}'; (exit $code)\n")
            write.flush()
            lines = []
            for line in read:
                if line.strip().endswith(DONE):
                    return "".join([*lines, line.rstrip().removesuffix(DONE)])
                lines.append(line)
            raise RuntimeError(f"the shell ended at {command!r}: {''.join(lines)}")

        try:
            yield run
        finally:
            os.killpg(bash.pid, signal.SIGKILL)


def _free_port() -> str:
    for port in range(8100, 10_000):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return str(port)
    raise RuntimeError("no port is free")


def write_outputs(page: Path) -> None:
    """Run a page, and put what is printed into the place of what does not fit."""
    text = page.read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        steps = list(run_page(text, Path(folder)))
    for step in reversed(steps):
        if not step.fits:
            text = (
                text[: step.place[0]] + re.sub(r"[ \t]+$", "", step.printed, flags=re.MULTILINE) + text[step.place[1] :]
            )
    page.write_text(text, encoding="utf-8")


def run_notebook(path: Path) -> nbformat.NotebookNode:
    """Return a notebook as it is after all its cells were run in an empty folder."""
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        nbclient.NotebookClient(
            notebook, resources={"metadata": {"path": folder}}, timeout=300, coalesce_streams=True, record_timing=False
        ).execute()
    return notebook


def printed(notebook: nbformat.NotebookNode) -> list[tuple[str, float]]:
    """Return what each cell of a notebook prints, and by how much its numbers may differ."""
    found, tolerance = [], EVERYWHERE
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            tolerance = DEPENDS_ON_PROCESSOR if LOOSE in cell["source"] else EVERYWHERE
        outputs = (output for output in cell.get("outputs", ()) if output.get("name") == "stdout")
        found += [(output["text"], tolerance) for output in outputs]
    return found


if __name__ == "__main__":
    for page in [Path(name) for name in sys.argv[1:]] or sorted(TUTORIALS.iterdir()):
        if page.suffix == ".ipynb":
            nbformat.write(run_notebook(page), page)
        else:
            write_outputs(page)
