"""A run in the hand of its body, without a scheduler around it."""

import math
import os
import signal
from datetime import UTC

import pytest

from tenure import run as runs
from tenure.core.messages import ClaimedRun
from tenure.core.records import JobId, Rules, RunId, RunKind
from tenure.scheduling import processes

NOON = 1_800_000_000.0
HANGS = 5
"""Seconds after which a child that waits for a lock waits for ever."""


def a_run():
    claimed = ClaimedRun(
        id=RunId(1),
        job=JobId(1),
        name="work",
        function="work",
        kwargs="{}",
        key="k",
        kind=RunKind.MANUAL,
        scheduled_for=NOON,
        due_at=NOON,
        attempt=1,
        failures=0,
        generation=1,
        rules=Rules(),
        trigger=None,
    )
    return runs.Run(runs.RunControl(claimed, "token", tz=UTC, schema="tenure", until=lambda: math.inf))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_while_another_thread_rings_can_wait_itself():
    run = a_run()
    with runs._MUTEX:  # as it is while a thread of the parent tells some run to end
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(HANGS)
                os._exit(0 if run.wait(0.01) else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_while_another_thread_starts_a_process_can_start_one_itself():
    with processes._MUTEX:
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(HANGS)
                os._exit(0 if processes._start(lambda: "made") == "made" else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
