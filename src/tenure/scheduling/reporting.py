"""Reports how runs ended: to the log, and as events to listeners."""

from __future__ import annotations

import logging

from tenure.core.messages import Ended, Ending, LostRun, MissedJob
from tenure.core.planning import MissedVerdict
from tenure.core.records import GAVE_UP, RunState
from tenure.events import RunCancelled, RunEvent, RunFailed, RunLost, RunNotYet, RunRetried, RunSkipped, RunSucceeded
from tenure.jobs.listeners import Listeners
from tenure.scheduling.attempt import Attempt, confirms
from tenure.triggers import zone
from tenure.util.durations import readable
from tenure.util.instants import moment
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


class Reporter:
    """The log lines and events of one node."""

    def __init__(self, listeners: Listeners, label: str, tz: str) -> None:
        self._listeners, self._label, self._tz = listeners, label, zone(tz)

    def ended(self, attempt: Attempt, ending: Ending, answer: Ended) -> None:
        """The ledger has answered to an ending."""
        state = answer.state
        if not answer.accepted and not confirms(attempt, ending, answer):
            logger.warning(
                "run %s of %r: its ending as %s came too late; the ledger has it as %s",
                printable(attempt.run.key),
                attempt.run.job,
                ending.state,
                state,
                extra={"action": "ending_refused"},
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
                "run %s of %r, attempt %d: not yet: %s; it looks again in %s",
                printable(attempt.run.key),
                attempt.run.job,
                attempt.run.attempt,
                printable(error),
                readable(ending.again_in or 0.0),
                extra={"action": "run_not_yet"},
            )
        elif state is not RunState.SUCCEEDED and state is not RunState.CANCELLED:
            last = printable(error.splitlines()[-1]) if error else str(state)
            logger.warning(
                "run %s of %r, attempt %d: %s",
                printable(attempt.run.key),
                attempt.run.job,
                attempt.run.attempt,
                f"{last}; {_next(state)}" if ending.interrupted else last,
                extra={"action": "run_failed"},
            )
        if kind is not None and self._listeners.wants(kind):
            took = None
            if ending.started_at is not None and ending.finished_at is not None:
                took = ending.finished_at - ending.started_at
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
                )
            )

    def lost(self, lost: LostRun) -> None:
        """A run was lost with the node that had it."""
        logger.warning(
            "run %s of %r, attempt %d: %s; %s",
            printable(lost.key),
            lost.job,
            lost.attempt,
            printable(lost.reason),
            _next(lost.state),
            extra={"action": "run_lost"},
        )
        kind = RunRetried if lost.state is RunState.PENDING else RunLost
        if self._listeners.wants(kind):
            when = moment(lost.scheduled_for, self._tz)
            self._listeners.tell(
                kind(lost.job, lost.id, lost.key, when, lost.attempt, label=lost.node, error=lost.reason)
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


def _next(state: RunState) -> str:
    return "it will be tried again" if state is RunState.PENDING else f"it is {state}"
