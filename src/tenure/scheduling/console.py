"""A scheduler in the foreground: signals end it, and a terminal shows what it does."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from types import FrameType
from typing import Protocol

from tenure.core.records import RunId
from tenure.events import RunCancelled, RunEvent, RunFailed, RunLost, RunNotYet, RunRetried, RunSkipped, RunSucceeded
from tenure.scheduling.attempt import fields
from tenure.util import signals
from tenure.util.clock import boottime
from tenure.util.durations import readable
from tenure.util.last_line import last_line
from tenure.util.printable import printable
from tenure.util.system import need_posix
from tenure.views import JobView

logger = logging.getLogger("tenure")

_WORDS: dict[type[RunEvent], str] = {
    RunSucceeded: "succeeded",
    RunFailed: "failed",
    RunRetried: "will be tried again",
    RunNotYet: "is not possible yet",
    RunLost: "was lost",
    RunCancelled: "was cancelled",
    RunSkipped: "was skipped",
}


class Served(Protocol):
    """What the foreground needs of a scheduler."""

    def stop(self) -> bool: ...
    def stop_now(self) -> None: ...
    @property
    def started(self) -> bool: ...


class SignalWaiter:
    """Where the main thread waits for a signal, or for another thread to stop the scheduler.

    A handler may run between any two instructions of the main thread, so it only records the signal and writes to a
    socket. The kernel may deliver a signal to any thread while the main thread sleeps, so Python writes to the same
    socket (`set_wakeup_fd`). `nudge` is called then, where the main thread waits elsewhere, such as in an event loop.
    """

    def __init__(self, nudge: Callable[[], object] | None = None) -> None:
        need_posix()
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._nudge = nudge
        self.requests = signals.Requests()
        """Counts the requests to end this process."""

    def wake(self) -> None:
        """From any thread."""
        with suppress(OSError):
            self._writer.send(b".")

    def wait(self) -> None:
        """Return when something has happened."""
        self._reader.recv(4096)
        if self._nudge is not None:
            self._nudge()

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Let the signals that end a process wake this instead. Does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with signals.handled(self._caught):
            before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
            try:
                yield
            finally:
                signal.set_wakeup_fd(before)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.requests.add()
        self.wake()


def serve(scheduler: Served, stage: SignalWaiter, say: Callable[[str], None]) -> None:
    """Wait until the scheduler is stopped. The first signal drains it, the second ends it now."""
    asked = stage.requests
    while scheduler.started and not asked.count:
        stage.wait()
    if not scheduler.started:
        return
    since = boottime()
    say("stopping: waiting for runs to end; another signal stops now")
    done = threading.Event()

    def stop() -> None:
        try:
            scheduler.stop()
        finally:
            done.set()
            stage.wake()

    threading.Thread(target=stop, name="tenure stops", daemon=True).start()
    while not done.is_set() and asked.count == 1:
        stage.wait()
    if not done.is_set():
        say(f"stopping now, after {readable(boottime() - since)}: runs are told to end and have one more second")
        scheduler.stop_now()
    while not done.is_set() and asked.count == 2:  # noqa: PLR2004 - a third one does not even wait for the goodbye
        stage.wait()


def headline(shown: str, application: str, label: str, jobs: Sequence[JobView], now: datetime) -> list[str]:
    """The store, the node, and the jobs with their next due times."""
    where = shown.removeprefix("sqlite:///") if shown.startswith("sqlite:///") else shown
    lines = [f"tenure: {where}, application {application!r}, node {label} (process {os.getpid()})"]
    width = max((len(job.name) for job in jobs), default=0)
    lines += [f"  {job.name:{width}}  {_outlook(job, now)}" for job in jobs]
    if not jobs:
        lines.append("  no jobs are defined: put @scheduler.cron(…) or @scheduler.every(…) above a function")
    return lines


def outlooks(jobs: Sequence[JobView], now: datetime) -> list[str]:
    """The jobs with their next due times, for a log."""
    return [f"job {job.name!r}: {_outlook(job, now)}" for job in jobs]


def line(event: RunEvent, now: datetime) -> str:
    """How one run ended."""
    parts = [f"{now.astimezone(event.scheduled_for.tzinfo):%H:%M:%S}", event.job, _WORDS[type(event)]]
    if event.attempt > 1:
        parts.append(f"(attempt {event.attempt})")
    if event.duration is not None:
        parts.append(f"after {readable(event.duration)}")
    said = " ".join(parts)
    return f"{said}: {error}" if (error := last_line(event.error)) else said


def to_log(text: str) -> None:
    """Where there is no terminal, what is said goes to the log."""
    logger.info("%s", text.strip(), extra={"action": "scheduler_says"})


def event_to_log(event: RunEvent) -> None:
    """How one run ended. Failures and due times that were missed are in the log already."""
    if isinstance(event, RunSucceeded | RunCancelled):
        after = "" if event.duration is None else f" after {readable(event.duration)}"
        why = f": {printable(error)}" if (error := last_line(event.error)) else ""
        logger.info(
            "run %d of %r (%s, attempt %d) %s%s%s",
            event.run_id,
            event.job,
            printable(event.key),
            event.attempt,
            _WORDS[type(event)],
            after,
            why,
            extra=fields(
                "run_succeeded" if isinstance(event, RunSucceeded) else "run_cancelled",
                event.job,
                RunId(event.run_id),
                event.key,
                event.attempt,
                node=event.label,
                duration=event.duration,
            ),
        )


def say(text: str) -> None:
    """Print to the terminal, if it is still there."""
    with suppress(OSError, ValueError, AttributeError):  # closed, too narrow for a letter, or missing
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def terminal() -> bool:
    """Whether there is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def _outlook(job: JobView, now: datetime) -> str:
    if job.state == "paused":
        until = f" until {job.paused_until:%Y-%m-%d %H:%M %Z}" if job.paused_until else ""
        return f"paused{until}"
    if job.rules.after is not None:
        return f"runs after {job.rules.after}"
    if not job.trigger:
        return "runs on request"
    if job.next_due is None:
        return "nothing is due any more"
    return f"next {job.next_due:%a %Y-%m-%d %H:%M:%S %Z}, in {readable(max((job.next_due - now).total_seconds(), 0.0))}"
