"""Reports how runs ended: to the log, and as events to listeners."""

from __future__ import annotations

import logging

from tenure.core.messages import Ended, Ending, LostRun, MissedJob
from tenure.core.planning import MissedVerdict
from tenure.core.records import GAVE_UP, RunState
from tenure.events import (
    OrphanEvent,
    RunCancelled,
    RunEvent,
    RunFailed,
    RunLost,
    RunNotYet,
    RunRetried,
    RunSkipped,
    RunSucceeded,
)
from tenure.jobs.listeners import Listeners
from tenure.scheduling.attempt import Attempt, confirms, fields
from tenure.triggers import zone
from tenure.util.durations import readable
from tenure.util.instants import moment
from tenure.util.last_line import last_line
from tenure.util.plurals import counted
from tenure.util.printable import printable

logger = logging.getLogger("tenure")

_EVENTS: dict[RunState, type[RunEvent]] = {
    RunState.SUCCEEDED: RunSucceeded,
    RunState.FAILED: RunFailed,
    RunState.PENDING: RunRetried,
    RunState.CANCELLED: RunCancelled,
    RunState.LOST: RunLost,
}
_BAD_ENDS = frozenset({RunState.FAILED, RunState.LOST})
"""Logged as errors; all else about failures is a warning."""


class Reporter:
    """The log lines and events of one node."""

    def __init__(self, listeners: Listeners, label: str, tz: str) -> None:
        self._listeners, self._label, self._tz = listeners, label, zone(tz)

    def ended(self, attempt: Attempt, ending: Ending, answer: Ended) -> None:
        """The ledger has answered to an ending."""
        state, took = answer.state, _took(ending)
        failure = attempt.failure
        attempt.failure = attempt.hang = None  # their frames hold the attempt
        if not answer.accepted and not confirms(attempt, ending, answer):
            logger.warning(
                "run %d of %r (%s, attempt %d): its ending as %s came too late; the ledger has it as %s",
                attempt.id,
                attempt.run.job,
                printable(attempt.run.key),
                attempt.run.attempt,
                ending.state,
                state,
                extra=attempt.named("ending_refused", self._label, took),
            )
            return
        if (
            ending.state is RunState.PENDING
            and ending.again_in is None
            and not ending.interrupted
            and state in {RunState.PENDING, RunState.SKIPPED}
        ):
            return  # it never began: another node claims it, or, if its job was paused, none does
        looked = ending.wait_up_to is not None
        error = GAVE_UP + ending.error if looked and state is RunState.FAILED else ending.error
        kind = RunNotYet if looked and state is RunState.PENDING else _EVENTS.get(state)
        if kind is RunNotYet:
            logger.log(
                # The first look is news. Those that follow are counted in the ledger.
                logging.INFO if attempt.run.attempt == 1 else logging.DEBUG,
                "run %d of %r (%s, attempt %d): not yet: %s; it looks again in %s",
                attempt.id,
                attempt.run.job,
                printable(attempt.run.key),
                attempt.run.attempt,
                printable(error),
                readable(ending.again_in or 0.0),
                extra=attempt.named("run_not_yet", self._label, took),
            )
        elif state is RunState.SUCCEEDED and failure is not None:
            logger.warning(
                "run %d of %r (%s, attempt %d) succeeded by run.complete(); what its body raised later is ignored: %s",
                attempt.id,
                attempt.run.job,
                printable(attempt.run.key),
                attempt.run.attempt,
                printable(last_line(ending.error)),
                exc_info=failure,
                extra=attempt.named("run_raised_late", self._label, took),
            )
        elif state is not RunState.SUCCEEDED and state is not RunState.CANCELLED:
            last = printable(last_line(error)) or str(state)
            what, action = _fate(state, ending, took)
            say = logger.error if state in _BAD_ENDS else logger.warning
            say(
                "run %d of %r (%s, attempt %d) %s: %s",
                attempt.id,
                attempt.run.job,
                printable(attempt.run.key),
                attempt.run.attempt,
                what,
                last,
                exc_info=failure,
                extra=attempt.named(action, self._label, took),
            )
        if kind is not None and self._listeners.wants(kind):
            self._listeners.tell(
                kind(
                    job=attempt.run.job,
                    run_id=attempt.id,
                    key=attempt.run.key,
                    scheduled_for=attempt.run.scheduled_for,
                    attempt=attempt.run.attempt,
                    label=self._label,
                    duration=took,
                    error="" if state is RunState.SUCCEEDED else error,
                    lateness=attempt.lateness,
                )
            )

    def job(self, event: OrphanEvent) -> None:
        """What live nodes can run has changed."""
        self._listeners.tell(event)

    def lost(self, lost: LostRun) -> None:
        """A run was lost with the node that had it."""
        say = logger.error if lost.state in _BAD_ENDS else logger.warning
        say(
            "run %d of %r (%s, attempt %d) on %s %s: %s",
            lost.id,
            lost.job,
            printable(lost.key),
            lost.attempt,
            printable(lost.label),
            _then("was lost", lost.state),
            printable(lost.reason),
            extra=fields("run_lost", lost.job, lost.id, lost.key, lost.attempt, node=lost.label),
        )
        kind = RunRetried if lost.state is RunState.PENDING else RunLost
        if self._listeners.wants(kind):
            when = moment(lost.scheduled_for, self._tz)
            self._listeners.tell(
                kind(lost.job, lost.id, lost.key, when, lost.attempt, label=lost.label, error=lost.reason)
            )

    def missed(self, job: MissedJob, verdict: MissedVerdict) -> None:
        """Missed due times were resolved."""
        logger.warning(
            "job %r missed %s; made up for: %d",
            job.name,
            counted(len(job.runs), "due time"),
            len(verdict.make_up),
            extra={"action": "missed"},
        )
        if self._listeners.wants(RunSkipped):
            skipped = set(verdict.skip)
            for run in job.runs:
                if run.id in skipped:
                    when = moment(run.scheduled_for, self._tz)
                    self._listeners.tell(RunSkipped(job.name, run.id, "", when, error=verdict.reason))


def _took(ending: Ending) -> float | None:
    if ending.started_at is None or ending.finished_at is None:
        return None
    return ending.finished_at - ending.started_at


def _fate(state: RunState, ending: Ending, took: float | None) -> tuple[str, str]:
    """What happened to an attempt that did not succeed, in words, and the action of its record."""
    after = "" if took is None else f" after {readable(took)}"
    if ending.interrupted:
        return _then(f"was interrupted{after}", state), "run_lost" if state is RunState.LOST else "run_interrupted"
    if state is RunState.PENDING:
        pause = "" if ending.again_in is None else f" in {readable(ending.again_in)}"
        return f"failed{after} and is tried again{pause}", "run_retried"
    return f"failed{after}" if state is RunState.FAILED else f"ended as {state}{after}", "run_failed"


def _then(what: str, state: RunState) -> str:
    """What happened to an attempt, and what happens to its run."""
    if state is RunState.LOST:
        return f"{what} and is not tried again"
    return f"{what} and is tried again" if state is RunState.PENDING else f"{what}; the run is {state}"
