"""As a container runs it: the first process of its own pid namespace, no terminal, and a root that nothing can write to."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import scratch
from harness.processes import SUPPORT
from harness.scratch import eventually
from tenure import Scheduler

SETTING = """
set -e
mount --bind / / && mount -o remount,ro,bind /
mount -t tmpfs tmpfs /dev/shm
! touch /tmp/written 2>/dev/null
cd "$APP" && exec "$PYTHON" -m tenure start contained
"""


def available() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "true"]
    return os.geteuid() == 0 and bool(shutil.which("unshare")) and subprocess.run(command, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not available(), reason="needs root and namespaces")


@pytest.fixture
def contained(database, tmp_path):
    """A started container, and the file that has what it says."""
    said = tmp_path / "said"
    setting = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "sh", "-c", SETTING]
    env = {
        "PATH": os.environ["PATH"],
        "TENURE_URL": database,
        "APP": str(SUPPORT / "workers"),
        "PYTHON": sys.executable,
    }
    env |= {"PYTHONPATH": str(SUPPORT), "PYTHONDONTWRITEBYTECODE": "1"}
    with said.open("w") as file:
        process = subprocess.Popen(
            [*scratch.dies_with_us(), *setting], stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=env
        )
    yield process, said
    process.kill()
    process.wait()


def first_process(container):
    """The container's pid 1, as this namespace numbers it."""
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
    return int(children[0])


def test_it_runs_jobs_logs_them_and_drains_when_it_is_stopped(database, contained):
    container, said = contained
    eventually(lambda: "'default' started" in said.read_text() or container.poll() is not None, within=30)
    looks = Scheduler(database)
    for job in ("pid_of", "one_second"):
        run = looks.run_now(job)
        eventually(lambda: looks.find_run(run.id).state == "succeeded", within=30, what=f"{job}: {said.read_text()}")  # noqa: B023
    run = looks.run_now("one_second")
    eventually(lambda: looks.find_run(run.id).state == "running", what="a body to wait for")
    os.kill(first_process(container), signal.SIGTERM)
    assert container.wait(20) == 0, said.read_text()
    assert looks.find_run(run.id).state == "succeeded", "it was waited for"
    text = said.read_text()
    for line in ("INFO tenure: job 'one_second': runs on request", f"INFO tenure: run {run.id} of 'one_second' ("):
        assert line in text
    assert text.rstrip().endswith("INFO tenure: scheduler 'default' stopped")
    assert looks.find_run(run.id).node.endswith(":1"), "its label is that of the host, and pid 1"
