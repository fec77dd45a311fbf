"""Sends the check-ins of runs, on a thread for each monitor, never on the thread of a body.

How runs end comes as events. That they began is seen by looking at what this node has in hand, twice a second, so that
beginning a run costs nothing; a run that ends sooner checks in once, when it ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from tenure.alerts import CheckIn
from tenure.alerts.check_ins import PingState, RunPing
from tenure.core.records import RunId
from tenure.events import RunEvent, RunFailed, RunLost, RunSkipped, RunSucceeded
from tenure.jobs.listeners import Listeners
from tenure.run import Run
from tenure.scheduling.attempt import Attempt, AttemptPhase
from tenure.scheduling.sending_thread import SendingThread, tried
from tenure.util.clock import boottime
from tenure.util.instants import shown
from tenure.util.last_line import last_line

logger = logging.getLogger("tenure")

BEGUN_EVERY = 0.5
"""Seconds between two looks for runs that have begun."""
WITHIN = 60.0
"""Seconds between two due times within which a job checks in once, unless it begins to fail."""
JOBS_KEPT = 10_000
"""Jobs of which a monitor remembers that. One that it forgets may check in once more."""
PINGS_WAIT = 1000
"""How many pings may wait for a monitor that is slow. Further ones are dropped."""
SAY_AGAIN = 600.0
"""Seconds between two warnings about a monitor that accepts nothing."""

_ENDS = {RunSucceeded: PingState.OK, RunFailed: PingState.FAIL, RunLost: PingState.FAIL, RunSkipped: PingState.FAIL}


class CheckInSender:
    """The monitors of one node."""

    def __init__(
        self, check_ins: Iterable[CheckIn], application: str, label: str, in_hand: Callable[[], Mapping[RunId, Attempt]]
    ) -> None:
        self._application, self._label, self._in_hand = application, label, in_hand
        self._monitors = [_Monitor(check_in, label) for check_in in check_ins]
        self._listener = self.ended  # one object, by which it is found again
        self._begun: set[tuple[RunId, int]] = set()
        self._mutex = threading.Lock()
        """An end is put after its start: its event comes only after the attempt has left RUNNING."""

    def __bool__(self) -> bool:
        return bool(self._monitors)

    def listen(self, listeners: Listeners) -> None:
        """From now on, hear how runs end."""
        if self._monitors:
            listeners.on(RunEvent)(self._listener)

    def unlisten(self, listeners: Listeners) -> None:
        """The opposite."""
        listeners.off(self._listener)

    def look(self) -> None:
        """Tell of runs that have begun."""
        in_hand = self._in_hand().values()
        self._begun &= {(attempt.id, attempt.run.attempt) for attempt in in_hand}
        for attempt in in_hand:
            if (attempt.id, attempt.run.attempt) in self._begun:
                continue
            with self._mutex:
                if attempt.phase is not AttemptPhase.RUNNING:
                    continue
                self._begun.add((attempt.id, attempt.run.attempt))
                self._put(self._ping(PingState.START, attempt.run))

    def ended(self, event: RunEvent) -> None:
        """An attempt has ended, or a due time was missed."""
        state = _ENDS.get(type(event), PingState.OTHER)
        text = "" if state is PingState.OK else last_line(event.error)
        if isinstance(event, RunSkipped):
            text = f"{event.job!r} missed {shown(event.scheduled_for.timestamp())}: no node began it in time."
        ping = self._ping(state, event, text, event.duration)
        with self._mutex:
            self._put(ping)

    def _ping(self, state: PingState, run: Run | RunEvent, text: str = "", duration: float | None = None) -> RunPing:
        due = run.scheduled_for
        key = run.key or due.isoformat()
        return RunPing(state, self._application, run.job, key, run.attempt, due, self._label, text, duration)

    def _put(self, ping: RunPing) -> None:
        for monitor in self._monitors:
            monitor.put(ping)

    def stop(self, patience: float) -> None:
        """Wait for what is to be sent, but no longer than this."""
        until = boottime() + patience
        for monitor in self._monitors:
            monitor.thread.finish(until)
            monitor.thread.stop()

    @property
    def problems(self) -> tuple[str, ...]:
        """Which monitors accept nothing at the moment, a sentence each."""
        return tuple(monitor.problem for monitor in self._monitors if monitor.problem)

    @property
    def dead_threads(self) -> tuple[str, ...]:
        """The names of threads that died."""
        return tuple(name for monitor in self._monitors for name in monitor.thread.dead_threads)


class _Monitor:
    """One check-in: which runs it tells of, and its thread."""

    def __init__(self, check_in: CheckIn, label: str) -> None:
        self._check_in = check_in
        self.thread: SendingThread[RunPing] = SendingThread(
            f"tenure check-ins {label} {check_in.name}", partial(self._send), PINGS_WAIT
        )
        self.problem = ""
        self._said_at, self._dropped = float("-inf"), 0
        self._told: dict[str, tuple[float, bool]] = {}
        """Of the jobs that checked in last, the newest last: for which due time, and whether they fail."""

    def put(self, ping: RunPing) -> None:
        """Send it, unless the job has checked in for a due time less than a minute away."""
        if not self._check_in.wants(ping.job):
            return
        due, fails = ping.due.timestamp(), ping.state is PingState.FAIL
        last, failed = self._told.get(ping.job, (None, False))
        if last is not None and due != last and abs(due - last) < WITHIN and not (fails and not failed):
            return
        self._told.pop(ping.job, None)
        self._told[ping.job] = due, fails or (failed and ping.state is not PingState.OK)
        if len(self._told) > JOBS_KEPT:
            del self._told[next(iter(self._told))]
        if self._check_in.request(ping) is not None and not self.thread.put(ping):
            self._dropped += 1
            self._say(f"dropped {self._dropped}, because the queue is full")

    def _send(self, ping: RunPing) -> None:
        if error := tried(lambda: self._check_in.send(ping), self.thread.pause):
            self._say(error)
            return
        if self.problem:
            logger.warning(
                "check-ins with %r are accepted again", self._check_in.name, extra={"action": "check_in_sent"}
            )
        self.problem, self._said_at = "", float("-inf")

    def _say(self, error: str) -> None:
        self.problem = f"check-ins with {self._check_in.name!r} are not accepted: {error}"
        if boottime() >= self._said_at + SAY_AGAIN:
            self._said_at = boottime()
            logger.warning("%s; runs are not affected", self.problem, extra={"action": "check_in_not_sent"})
