import signal
import sys
import time

import pytest

from harness import processes, scratch
from harness.processes import Worker

TALK = """
import json, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print("hello", *sys.argv[1:])
for n in range(100000):
    print(json.dumps({"event": "tick", "n": n}))
    time.sleep(0.01)
"""


@pytest.fixture
def worker(tmp_path):
    script = tmp_path / "talk.py"
    script.write_text(TALK)
    return Worker(script, "to", "you")


def test_a_worker_is_waited_for_by_what_it_says(worker):
    with worker:
        assert worker.wait_line("hello") == "hello to you"
        assert worker.wait_event(event="tick", n=3)["n"] == 3
        assert worker.wait_event(event="tick")["n"] == 4  # each wait goes on after the last


def test_a_killed_worker_is_reaped_at_once(worker):
    with worker:
        worker.wait_line("hello")
        pid = worker.pid
        worker.kill()
        assert scratch.state_and_parent(pid) is None
        assert worker.process.returncode == -signal.SIGKILL


def test_a_frozen_worker_says_nothing_until_it_thaws(worker):
    with worker:
        worker.wait_event(event="tick")
        worker.freeze()
        time.sleep(0.1)  # what is already in the pipe
        said = len(worker.lines)
        time.sleep(0.2)
        assert len(worker.lines) == said
        worker.thaw()
        worker.wait_event(event="tick", n=said + 5)
        worker.freeze()  # and a frozen one can be killed


def test_a_worker_is_told_to_end(worker):
    with worker:
        worker.wait_line("hello")
        assert worker.terminate() == 3


def test_a_worker_that_fails_shows_what_it_said(tmp_path):
    script = tmp_path / "broken.py"
    script.write_text("import sys; print('so far'); sys.exit('no such luck')")
    with Worker(script) as worker, pytest.raises(AssertionError, match=r"(?s)exit status 1.*so far.*no such luck"):
        worker.wait_line("never")


def test_a_deadline_passes(worker):
    with worker, pytest.raises(AssertionError, match="still running"):
        worker.wait_line("never", within=0.1)


def test_modules_run_too():
    with Worker("platform") as worker:
        assert worker.wait_line("Linux" if sys.platform == "linux" else "")
        assert worker.wait() == 0


def test_forgotten_workers_are_ended(worker):
    pid = worker.start().pid
    processes.end_all()
    assert scratch.state_and_parent(pid) is None
