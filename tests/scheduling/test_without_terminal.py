"""What a program says where nobody watches: in a container, under a supervisor, behind a web server."""

import os
import pty
import re
import subprocess
import sys

import pytest

from harness.processes import SUPPORT, Worker
from harness.scratch import eventually

SCRIPT = SUPPORT / "workers" / "in_container.py"
STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")


def ran(url, how):
    """What the program wrote to stdout and stderr."""
    with Worker(SCRIPT, url, how) as worker:
        assert worker.wait(within=30) == 0, worker.story()
    return worker.lines, worker.errors


def without_stamps(lines):
    return [STAMP.sub("", line) for line in lines if STAMP.match(line)]


def assert_that_it_tells_all(said):
    """Of said lines, each once: the start, what is due, one for each run, the stop."""
    said = [line for line in said if "node_" not in line]
    for wanted in (
        r"INFO tenure: scheduler 'default' started on .*: 3 jobs, 32 slots",
        r"INFO tenure: job 'daily': next \w+ \d{4}-\d\d-\d\d 03:00:00 UTC, in .*",
        r"INFO tenure: job 'boom': runs on request",
        r"INFO tenure: run \d+ of 'fine' \(manual-\w+, attempt 1\) succeeded after .*",
        r"ERROR tenure: run \d+ of 'boom' \(manual-\w+, attempt 1\) failed after .*: ValueError: bad \\x1b\[2J thing",
        r"INFO tenure: stopping: waiting for runs to end; another signal stops now",
        r"INFO tenure: scheduler 'default' stopped",
    ):
        assert len([line for line in said if re.fullmatch(wanted, line)]) == 1, (wanted, said)
    assert not [line for line in said if "'boom'" in line and "INFO tenure: run" in line], "failures are told once"


def test_without_a_terminal_and_without_logging_it_logs_to_stderr_with_time_and_level(sqlite_url):
    out, errors = ran(sqlite_url, "plain")
    assert out == []
    assert_that_it_tells_all(without_stamps(errors))
    assert "Traceback (most recent call last):" in errors
    assert not any("\x1b" in line for line in errors), "what a body raised moves no cursor"


def test_the_command_does_the_same(sqlite_url, tmp_path):
    with Worker(
        "tenure", "start", "in_container", env={"TENURE_URL": sqlite_url, "PYTHONPATH": f"{SCRIPT.parent}"}
    ) as worker:
        eventually(lambda: any("'default' started" in line for line in worker.errors), what="the start")
        code = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import in_container; in_container.ask()"
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "TENURE_URL": sqlite_url}, check=True, timeout=30
        )
        assert worker.wait(within=30) == 0, worker.story()
    assert worker.lines == []
    assert_that_it_tells_all(without_stamps(worker.errors))


def test_a_program_that_configured_logging_decides_alone(sqlite_url):
    out, errors = ran(sqlite_url, "configured")
    assert (out, without_stamps(errors)) == ([], [])
    mine = [line.removeprefix("mine: ") for line in errors if line.startswith("mine: ")]
    assert_that_it_tells_all([line.replace(" ", " tenure: ", 1) for line in mine])


def test_a_program_that_wants_warnings_only_gets_them_alone(sqlite_url):
    out, errors = ran(sqlite_url, "warnings")
    assert (out, without_stamps(errors)) == ([], [])
    assert [line.split()[1] for line in errors if line.startswith("mine: ")] == ["ERROR"]


def test_a_program_that_silenced_tenure_hears_nothing(sqlite_url):
    assert ran(sqlite_url, "silenced") == ([], [])


def test_once_a_program_configures_logging_no_line_comes_twice(sqlite_url):
    _, errors = ran(sqlite_url, "later")
    (failed,) = [line for line in errors if "'boom'" in line and " failed after " in line]
    assert failed.startswith("mine: ERROR run ")


def test_lines_are_printed_where_they_are_asked_for(sqlite_url):
    out, errors = ran(sqlite_url, "lines")
    assert out[0].startswith("tenure: ")
    assert any(re.fullmatch(r"\d\d:\d\d:\d\d fine succeeded after .*", line) for line in out)
    assert [line.split()[0] for line in without_stamps(errors)] == ["ERROR"], "and the log has what it always has"


def test_lines_false_says_nothing_of_what_is_well(sqlite_url):
    out, errors = ran(sqlite_url, "mute")
    assert out == []
    assert [line.split()[0] for line in without_stamps(errors)] == ["ERROR"]


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs terminals")
def test_on_a_terminal_it_prints_for_people_as_ever(sqlite_url):
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), sqlite_url, "plain"], stdout=slave, stderr=subprocess.PIPE, stdin=slave
    )
    os.close(slave)
    errors = process.communicate(timeout=60)[1].decode().splitlines()
    assert process.returncode == 0
    out = os.read(master, 1 << 20).decode().splitlines()
    os.close(master)
    assert out[0].startswith("tenure: ")
    assert any(re.fullmatch(r"\d\d:\d\d:\d\d fine succeeded after .*", line) for line in out)
    assert [line.split()[0] for line in without_stamps(errors)] == ["ERROR"]
