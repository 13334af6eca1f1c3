"""A coverage-guided fuzzer over what is read from outside by our own code: only the stated error may come of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.attack.hostile_files import small_mp4
from tests.attack.mutations import ROWS

pytest.importorskip("atheris", reason="atheris has no wheel here")

ROOT = Path(__file__).parents[2]
SEEDS = {
    "row": [row.encode() for row in ROWS],
    "json": [b'{"a": [1, -2.5e3, null]}', b'"\\ud800"'],
    "mp4": [small_mp4()],
}
RUNS, SECONDS = 8_000, 30  # the second is a limit for slow machines, not what it takes


@pytest.mark.slow
@pytest.mark.parametrize("target", SEEDS)
def test_what_comes_of_fuzzed_bytes_is_an_answer_or_the_stated_error(target: str, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(SEEDS[target]):
        (corpus / str(number)).write_bytes(seed)
    limits = [f"-runs={RUNS}", f"-max_total_time={SECONDS}", "-seed=1", "-timeout=10", "-rss_limit_mb=0"]
    limits += [f"-artifact_prefix={tmp_path}/"]
    command = [sys.executable, "-m", "tests.attack.fuzz_target", target, *limits, str(corpus)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Done " in done.stderr
