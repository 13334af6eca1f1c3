"""Schemathesis calls every endpoint as the OpenAPI page says, and otherwise: none ends in an error of the server."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.loopback_server import reward_server
from tests.serving.served_models import Recorder

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.slow
@pytest.mark.skipif(not SCHEMATHESIS.exists(), reason="needs schemathesis, which is in the extra dev")
def test_no_request_ends_in_an_error_of_the_server(tmp_path: Path) -> None:
    flags = ["--seed", "1", "--max-examples", "8", "--checks", CHECKS, "--generation-database", "none"]
    flags += ["--suppress-health-check", "too_slow"]  # it times how data is generated, which depends on the load
    hooks = {"SCHEMATHESIS_HOOKS": "tests.serving.schemathesis_hooks", "PYTHONPATH": os.pathsep.join(sys.path)}
    with reward_server("recorder", Recorder(), root=tmp_path, sessions=10_000, queue=10_000) as client:
        command = [str(SCHEMATHESIS), "run", f"{client.base_url}/openapi.json", *flags, "--no-color"]
        done = subprocess.run(command, cwd=tmp_path, env=os.environ | hooks, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    tried = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert tried is not None and tried[1] == tried[2] and int(tried[1]) > 200, done.stdout
    assert re.search(r"Tested: +17", done.stdout) and "API Links:    0 covered" not in done.stdout, done.stdout
