"""schemathesis makes requests from the OpenAPI file, right ones and wrong ones, and holds every answer to it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from harness.scratch import eventually
from tenure.web import Caller

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection", "missing_required_header", "unsupported_method",
)  # fmt: skip
EXAMPLES = os.environ.get("TENURE_FUZZ_EXAMPLES", "30")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rights", ["act", "read"])
def test_no_request_breaks_the_api(scheduler, opened, ended, rights, tmp_path):
    ended(scheduler, scheduler.run_now("fails").id)
    eventually(lambda: scheduler.runs("sync_stock", state="succeeded"), within=20)
    browser = opened(scheduler, authorize=lambda _request: Caller("ann", rights))
    api = f"{browser.home}/api/v1"
    before = [(job.name, job.state, job.generation) for job in scheduler.jobs()]
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", f"{api}/openapi.json", "--url", api, "-n", EXAMPLES,
        "-H", "Authorization: Bearer of-the-test", "--checks", ",".join(CHECKS), "--no-color",
        "--generation-database", "none",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=800, check=False)
    print(done.stdout[-8000:], done.stderr[-2000:])
    assert done.returncode == 0
    selected, tested = re.search(r"Selected: (\d+)/\1\s+Tested: (\d+)", done.stdout).groups()
    assert int(selected) == int(tested) > 20
    assert httpx.get(f"{api}/status", headers={"Authorization": "Bearer x"}).status_code == 200
    if rights == "read":
        assert [(job.name, job.state, job.generation) for job in scheduler.jobs()] == before
        assert scheduler.actions() == []
