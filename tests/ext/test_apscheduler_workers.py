"""Two programs of APScheduler in uvicorn's workers, two of which are killed: each due time is run once.

`TENURE_EXT_SECONDS=60 TENURE_EXT_WORKERS=4` for a longer look.
"""

import collections
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

APPS = Path(__file__).parent / "apps"
SECONDS = float(os.environ.get("TENURE_EXT_SECONDS", "8"))
WORKERS = int(os.environ.get("TENURE_EXT_WORKERS", "2"))
JOBS = ("heartbeat", "sweep")


def read(record: Path) -> list[tuple[int, str, int, int]]:
    if not record.exists():
        return []
    lines = (line.split() for line in record.read_text().splitlines())
    return [(int(pid), job, int(due), int(attempt)) for pid, job, due, attempt in lines]


def wait_for(record: Path, what, patience: float = 30.0):
    """What is wanted of the record, as soon as it is there."""
    end = time.monotonic() + patience
    while not (found := what(read(record))):
        assert time.monotonic() < end, f"nothing came of it: {read(record)[-5:]}"
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def served(app: str, environment: dict[str, str]):
    """A program in uvicorn's workers."""
    command = [sys.executable, "-m", "uvicorn", f"{app}:app", "--workers", str(WORKERS), "--port", "0"]
    server = subprocess.Popen([*command, "--log-level", "warning"], cwd=APPS, env=environment, start_new_session=True)
    try:
        yield
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@pytest.mark.timeout(SECONDS + 90)
def test_each_due_time_is_run_once_by_workers_that_are_killed(tmp_path: Path, database: str):
    record = tmp_path / "record"
    environment = {**os.environ, "TENURE_URL": database, "RECORD": str(record), "SECONDS": "1", "TZ": "Asia/Seoul"}
    killed: list[int] = []
    with served("beside_program", environment), served("beside_loop", environment):
        wait_for(record, lambda lines: {job for _, job, *_ in lines} == set(JOBS))
        begun = time.monotonic()
        for turn, job in enumerate(JOBS, 1):
            time.sleep(max(begun + SECONDS * turn / 4 - time.monotonic(), 0))  # the time that passes is the test
            victim = [pid for pid, name, *_ in read(record) if name == job][-1]
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)
            last = time.time()
            wait_for(
                record, lambda lines, job=job, last=last: [1 for _, name, due, _ in lines if name == job and due > last]
            )
        time.sleep(max(begun + SECONDS - time.monotonic(), 0))
    lines = read(record)
    for job in JOBS:
        due = collections.Counter(at for _, name, at, _ in lines if name == job)
        assert len(due) >= SECONDS - 1, f"{job}: {len(due)} due times in {SECONDS} s"
        missing = set(range(min(due), max(due) + 1)) - set(due)
        assert not missing, f"{job}: {sorted(missing)} were left out"
        again = {at: sorted(a for _, name, when, a in lines if (name, when) == (job, at)) for at in due if due[at] > 1}
        # A worker that is killed after its body and before its word about it is retried: another attempt of the same run.
        assert all(attempts == list(range(1, len(attempts) + 1)) for attempts in again.values()), again
        assert len(again) <= len(killed), again
