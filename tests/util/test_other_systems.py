"""macOS and Windows, as far as they can be seen from Linux: the names that are missing there are taken away. No real
machine."""

import runpy
import subprocess
import sys
from types import SimpleNamespace

import pytest

from harness.processes import SUPPORT
from tenure.util import clock

SCRIPT = SUPPORT / "workers" / "on_windows.py"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request):
    places = {"sqlite": "sqlite_url", "postgres": "database"}
    return request.getfixturevalue(places[request.param]) if request.param in places else "memory://"


def on_windows(url, what):
    run = subprocess.run([sys.executable, SCRIPT, url, what], capture_output=True, text=True, timeout=50, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_on_windows_a_node_refuses_to_start_with_one_sentence(url):
    said = on_windows(url, "starts")
    refusals, started, commands = said[:3], said[3], said[4:]  # start(), run(), and an election
    for refusal in refusals:
        assert "Linux and macOS, not on Windows: use WSL or a container" in refusal
        assert "capacity=0" in refusal
    assert started == "started: False"
    assert commands in ([], ["lead 2 once 0"]), "a guard needs no node"


def test_on_windows_asking_works(url):
    shown, *cli = on_windows(url, "asks")
    assert shown == "['pending'] paused True"
    assert not cli or (cli[-1] == "0" and any("tick" in line for line in cli))


def test_on_windows_tests_in_virtual_time_work():
    assert on_windows("memory://", "virtual") == ["3 3"]


def test_the_clock_of_trust_counts_the_sleep_of_a_mac(monkeypatch):
    """There CLOCK_MONOTONIC goes on while the machine sleeps, and `time.monotonic` does not."""
    mac = SimpleNamespace(CLOCK_MONOTONIC=6, clock_gettime={6: 7.0}.get, monotonic=lambda: pytest.fail("it stops"))
    with monkeypatch.context() as there:
        there.setitem(sys.modules, "time", mac)
        assert runpy.run_path(clock.__file__)["boottime"]() == 7.0
