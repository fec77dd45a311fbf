"""Signals, to `tenure start` of both colours, `tenure lead` and `tenure once`, and in processes that have made
something of their own of them."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.components import need
from harness.processes import SUPPORT, Worker
from tenure import Scheduler
from tenure.util.signals import SAME

COLOURS = ("threaded", "looped")


def started(url: str, colour: str, seconds: float) -> Worker:
    env = {
        "TENURE_URL": url,
        "SECONDS": str(seconds),
        "PYTHONPATH": os.pathsep.join([str(SUPPORT / "workers"), str(SUPPORT), str(SUPPORT.parent)]),
    }
    worker = Worker("tenure", "start", f"commanded:{colour}", "--lines", env=env).start()
    worker.wait_line("begins", within=30)
    return worker


def left_running(url: str, colour: str) -> list[object]:
    return [run for run in Scheduler(url, application=colour).runs() if run.state == "running"]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_the_first_signal_lets_what_runs_end(sqlite_url, colour, name):
    worker = started(sqlite_url, colour, 1.0)
    worker.process.send_signal(getattr(signal, name))
    worker.wait_line("stopping: waiting for runs")
    worker.wait_line("has ended")
    assert worker.wait(within=30) == 0
    assert not any("stopping now" in line for line in worker.lines)
    assert not left_running(sqlite_url, colour)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("names", ["SIGTERM SIGTERM", "SIGINT SIGINT", "SIGTERM SIGINT", "SIGHUP SIGTERM"])
def test_a_second_signal_tells_what_runs_and_leaves(sqlite_url, colour, names):
    first, second = (getattr(signal, name) for name in names.split())
    worker = started(sqlite_url, colour, 60.0)
    worker.process.send_signal(first)
    worker.wait_line("stopping: waiting for runs")
    time.sleep(SAME)
    worker.process.send_signal(second)
    worker.wait_line("stopping now, after")
    worker.wait_line("was told")
    assert worker.wait(within=30) == 0
    assert not left_running(sqlite_url, colour)


@pytest.mark.parametrize("colour", COLOURS)
def test_signals_to_a_process_and_its_group_are_one(sqlite_url, colour):
    """As `timeout` and terminals do; two of a kind that arrive at once are one for the kernel already."""
    worker = started(sqlite_url, colour, 1.0)
    worker.process.send_signal(signal.SIGTERM)
    worker.process.send_signal(signal.SIGINT)
    worker.wait_line("has ended")
    assert worker.wait(within=30) == 0
    assert not any("stopping now" in line for line in worker.lines)


def test_a_coroutine_that_does_not_let_itself_be_cancelled_does_not_hold_up_the_end(sqlite_url):
    worker = started(sqlite_url, "stubborn", 0)
    worker.process.send_signal(signal.SIGTERM)
    worker.wait_line("stopping: waiting for runs")
    time.sleep(SAME)
    worker.process.send_signal(signal.SIGTERM)
    worker.wait_line("was told")
    worker.wait(within=20)


# SIGCHLD


def ignoring_sigchld(*words: str, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tenure", *words],
        env={**os.environ, "TENURE_URL": url},
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_supervisor_that_ignores_sigchld_costs_no_exit_code(sqlite_url):
    failed = ignoring_sigchld("once", "nightly", "--", "sh", "-c", "exit 3", url=sqlite_url)
    assert (failed.returncode, "does not count as done" in failed.stderr) == (3, True)
    again = ignoring_sigchld("once", "nightly", "--", "sh", "-c", "echo done", url=sqlite_url)
    assert (again.returncode, again.stdout) == (0, "done\n")
    assert ignoring_sigchld("lead", "x", "--", "sh", "-c", "exit 3", url=sqlite_url).returncode == 3


# More than 1,024 descriptors


def many_descriptors() -> None:
    """In a process of its own."""
    wanted = 1500
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    for _ in range(1100):
        os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)


@pytest.fixture
def _enough_descriptors() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < 1500:
        pytest.skip(f"this user may open {most} files at most")


RUNS = """
import sys
from scheduling import test_signals
from tenure import Scheduler
test_signals.many_descriptors()
scheduler = Scheduler(sys.argv[1], ttl=6, heartbeat_every=0.5, attempt_timeout=1)
@scheduler.every("1s")
def tick():
    print("ticks", flush=True)
scheduler.run(lines=False)
print("returned", flush=True)
"""


@pytest.mark.usefixtures("_enough_descriptors")
def test_a_program_with_more_than_1024_open_files_runs_its_scheduler(sqlite_url, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(RUNS)
    with Worker(script, sqlite_url) as worker:
        worker.wait_line("ticks", within=30)
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_line("returned", within=30)
        assert worker.wait(within=30) == 0


@pytest.mark.usefixtures("_enough_descriptors")
def test_lead_runs_its_command_where_more_than_1024_files_are_open(sqlite_url):
    done = subprocess.run(
        [sys.executable, "-m", "tenure", "lead", "x", "--url", sqlite_url, "--", "sh", "-c", "echo leads; exit 5"],
        preexec_fn=many_descriptors,
        close_fds=False,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (5, "leads\n")


# Handlers that Python has not installed

HANDLERS = """
#include <signal.h>
static void nothing(int number) { (void)number; }
__attribute__((constructor)) static void install(void) { signal(SIGHUP, nothing); signal(SIGTERM, nothing); signal(SIGCHLD, nothing); }
"""


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python that finds handlers at its start, as in a program that embeds it."""
    need("gcc")
    folder = tmp_path_factory.mktemp("handlers")
    (folder / "handlers.c").write_text(HANDLERS)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "handlers.so", folder / "handlers.c"], check=True)
    return {"LD_PRELOAD": str(folder / "handlers.so")}


STOPS_ITSELF = """
import signal, sys, threading
from tenure import Scheduler
assert signal.getsignal(signal.SIGTERM) is None
scheduler = Scheduler(sys.argv[1], ttl=6, heartbeat_every=0.5, attempt_timeout=1)
scheduler.every("1s", name="tick")(lambda: threading.Thread(target=scheduler.stop).start())
scheduler.run()
assert signal.getsignal(signal.SIGTERM) is None
print("returned", flush=True)
"""


def test_run_returns_where_handlers_were_installed_from_c_and_leaves_them_alone(sqlite_url, tmp_path, embedded):
    script = tmp_path / "program.py"
    script.write_text(STOPS_ITSELF)
    with Worker(script, sqlite_url, env=embedded) as worker:
        worker.wait_line("returned", within=30)
        assert worker.wait(within=30) == 0
    assert any("SIGTERM, SIGHUP: handled by the program" in line for line in worker.errors)


@pytest.mark.parametrize("verb", ["once", "lead"])
def test_commands_end_with_their_code_where_handlers_were_installed_from_c(sqlite_url, embedded, verb):
    with Worker("tenure", verb, "x", "--url", sqlite_url, "--", "sh", "-c", "exit 4", env=embedded) as worker:
        assert worker.wait(within=30) == 4


# uWSGI


def test_a_start_before_uwsgi_forks_its_workers_is_refused_with_a_sentence(sqlite_url, tmp_path):
    """The real one is in `dev.py test-ext`; this is what its module says in a master that has loaded the program."""
    (tmp_path / "uwsgi.py").write_text("numproc = 3\ndef worker_id(): return 0\ndef masterpid(): return 1\n")
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, threading, uwsgi\nfrom tenure import Election, Scheduler\nfrom tenure.errors import ConfigurationError\n"
        "for made in (Scheduler(sys.argv[1]), Election(sys.argv[1], 'x')):\n"
        "    try: made.start()\n"
        "    except ConfigurationError as error: print(error, threading.active_count(), flush=True)\n"
    )
    with Worker(script, sqlite_url) as worker:
        for what in ("the scheduler", "election 'x'"):
            said = worker.wait_line(f"{what} cannot be started yet: uWSGI")
            assert "lazy-apps = true" in said
            assert said.endswith(" 1"), "no thread was started"
        assert worker.wait(within=30) == 0
    assert not Path(sqlite_url.removeprefix("sqlite:///")).exists()
