"""The thread behind alerts of one node: it tells monitors that runs have begun, pings for the planner, and notices that
the database does not answer. It touches no connection, and nothing waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from tenure.alerts import NotAccepted, PlannerPing
from tenure.scheduling.alert_sender import AlertSender
from tenure.scheduling.check_in_sender import BEGUN_EVERY, CheckInSender
from tenure.scheduling.sending_thread import SendingThread
from tenure.util.clock import boottime
from tenure.util.printable import printable
from tenure.util.vital_thread import VitalThread, dead

logger = logging.getLogger("tenure")

ANSWER_EVERY = 15.0
"""Seconds between two looks whether the database has answered."""


class AlertWatch:
    """Begins with the node and ends with it. Does nothing if nothing was given to `alert_to`."""

    def __init__(
        self,
        sender: AlertSender,
        check_ins: CheckInSender,
        pings: Iterable[PlannerPing],
        *,
        label: str,
        plans: Callable[[], bool],
        answers: Callable[[], int],
        problem: Callable[[], str],
    ) -> None:
        self.sender, self.check_ins = sender, check_ins
        self._plans, self._answers, self._problem = plans, answers, problem
        self._pings = [_PlannerPings(ping, label) for ping in pings]
        self._ends = threading.Event()
        self._thread = VitalThread(f"tenure alerts {label}", self._work)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is not accepted at the moment, a sentence each."""
        pings = tuple(ping.problem for ping in self._pings if ping.problem)
        return (*self.sender.problems, *self.check_ins.problems, *pings)

    @property
    def dead_threads(self) -> tuple[str, ...]:
        """The names of its threads that died."""
        pings = tuple(name for ping in self._pings for name in ping.thread.dead_threads)
        return (*dead(self._thread), *self.sender.dead_threads, *self.check_ins.dead_threads, *pings)

    def start(self) -> None:
        """Begin."""
        if not (self.sender.names or self.check_ins or self._pings):
            return
        try:
            self._thread.start()
        except RuntimeError as error:  # the runs go on all the same
            logger.error(  # noqa: TRY400 - a traceback says no more
                "cannot start a thread (%s): until this process restarts, it sends no start check-ins, no planner "
                "pings, and no alert when the database is unreachable",
                error,
                extra={"action": "watch_failed"},
            )

    def stop(self) -> None:
        """Look at nothing more. What waits to be sent stays."""
        self._ends.set()
        for ping in self._pings:
            ping.thread.stop()

    def _work(self) -> None:
        looks = [(ANSWER_EVERY, self._look_for_answers)] if self.sender.names else []
        if self.check_ins:
            looks.append((BEGUN_EVERY, self.check_ins.look))
        looks += [(ping.every, self._pinging(ping)) for ping in self._pings]
        due = [boottime() + every for every, _ in looks]
        while not self._ends.wait(max(min(due) - boottime(), 0.0)):
            for number, (every, look) in enumerate(looks):
                if boottime() >= due[number]:
                    due[number] = boottime() + every
                    try:
                        look()
                    except Exception:
                        logger.exception("watching for alerts failed; continuing", extra={"action": "watch_failed"})

    def _look_for_answers(self) -> None:
        self.sender.look(self._answers(), self._problem)

    def _pinging(self, ping: _PlannerPings) -> Callable[[], None]:
        def look() -> None:
            if self._plans() and not ping.thread.busy:
                ping.thread.put(None)

        return look


class _PlannerPings:
    """One address to ping, and its thread."""

    def __init__(self, ping: PlannerPing, label: str) -> None:
        self._ping, self.every = ping, ping.every
        self.thread: SendingThread[None] = SendingThread(f"tenure pings {label} {ping.name}", self._send, 1)
        self.problem = ""

    def _send(self, _: None) -> None:
        try:
            self._ping.send()
        except NotAccepted as error:
            said = f"{self._ping.name!r} is not accepted: {printable(error)}"
            if not self.problem:
                logger.warning("%s", said, extra={"action": "planner_ping_failed"})
            self.problem = said
        else:
            if self.problem:
                logger.warning("%r is accepted again", self._ping.name, extra={"action": "planner_ping_sent"})
            self.problem = ""
