"""How long 50,000 rows take to open: `rewardlab data verify` until a clip is shown, `data report` until its page is.

Every row has a video of its own, and modules are compiled beforehand, as those of an installed package are.
Needs the extras `serve` and `dev`, and Chromium.

    python benchmarks/verify_scale.py [ROWS]

The last line is `ratio: X`, the 3 seconds that were asked for over the slower of both; on a machine that others use,
seconds of the processor, which are told as well, say more than those of the clock.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

from rewardlab.data import DATASETS

BOUND = 3.0  # seconds


def make_dataset(folder: Path, rows: int) -> None:
    """Write rows with provenance as the data factory has it; each video differs by the length of an empty box."""
    clips = sorted((DATASETS["sample-sim"]).rglob("*.mp4"))[:20]
    contents = [clip.read_bytes() for clip in clips]
    with (folder / "metadata.jsonl").open("w", encoding="utf-8") as handle:
        for number in range(rows):
            name = f"source{number % 20}/{number:06d}.mp4"
            (folder / name).parent.mkdir(exist_ok=True)
            with (folder / name).open("wb") as video:
                video.write(contents[number % len(contents)] + (8 + number).to_bytes(4, "big") + b"free")
                video.truncate(video.tell() + number)  # zeros that take no room on the disk
            handle.write(json.dumps(made_row(name, number)) + "\n")


def made_row(name: str, number: int) -> dict[str, object]:
    """Return a row as `augment` writes it."""
    task = f"put the {number % 997} block into the bowl on the left of the tray"
    verdict = {"by": "scripted", "verdict": True, "rationale": "The block rests in the bowl.", "prompt_hash": "0" * 16}
    provenance = {"row": f"{number:016x}", "source_episode": name, "stage": "counterfactual", "verdicts": [verdict]}
    return {"file_name": name, "task": task, "reward": 1 + number % 5, "source": "sim", "provenance": provenance}


def with_compiled_modules(folder: Path) -> dict[str, str]:
    """Return the environment of commands that find their modules compiled in a folder, whatever this one says."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = {**kept, "PYTHONPYCACHEPREFIX": str(folder)}
    modules = "import rewardlab.cli, rewardlab.reporting.data_page, rewardlab.serving.verify"
    subprocess.run([sys.executable, "-c", modules], env=found, check=True)
    return found


def processor_seconds() -> float:
    """Return the seconds of the processor that finished commands have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def time_verify(browser: Browser, data: Path, environment: dict[str, str]) -> tuple[float, float, float]:
    """Return seconds from the command to its address, from there to the first clip, and of one verdict."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "rewardlab", "data", "verify", str(data), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        listening = time.perf_counter()
        page = browser.new_page()
        page.goto(url)
        page.keyboard.type("anna\n")
        expect(page.locator("#frame")).to_contain_text(" of ", timeout=60_000)
        shown = time.perf_counter()
        for number in range(1, 11):
            page.keyboard.press("a")
            expect(page.locator("#counts")).to_contain_text(f": {number} judged")
        judged = time.perf_counter()
        page.close()  # its clip plays on, and the report is timed next
        process.terminate()
    return listening - begun, shown - listening, (judged - shown) / 10


def time_report(browser: Browser, data: Path, out: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Return seconds of the command, and until its page is open."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "rewardlab", "data", "report", str(data), "--out", str(out)]
    subprocess.run(command, check=True, env=environment)
    written = time.perf_counter()
    browser.new_page().goto(out.resolve().as_uri())
    return written - begun, time.perf_counter() - written


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        data = Path(folder) / "data"
        data.mkdir()
        make_dataset(data, rows)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        environment = with_compiled_modules(Path(folder) / "bytecode")
        begun = processor_seconds()
        start, page, verdict = time_verify(browser, data, environment)
        between = processor_seconds()
        report, opened = time_report(browser, data, Path(folder) / "report.html", environment)
        spent = between - begun, processor_seconds() - between
        browser.close()
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"{rows:,} rows, {load}")
    print(
        f"verify: listens after {start:.2f} s, first clip {page:.2f} s later, a verdict takes {1000 * verdict:.0f} ms"
    )
    print(f"processor: verify {spent[0]:.2f} s with ten verdicts, data-report {spent[1]:.2f} s")
    print(f"data-report: written after {report:.2f} s, open {opened:.2f} s later")
    print(f"ratio: {BOUND / max(start + page, report + opened):.2f}")


if __name__ == "__main__":
    main()
