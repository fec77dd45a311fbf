"""Reconciles what the ledger says this node runs with what the executor has in hand. Carries G3 and G4.

Claims and reconciliations go over one connection, one after the other. So when a reconciliation is sent, every claim
has been answered or abandoned. A run that the ledger lists for this node and that the executor does not have belongs
to a claim whose answer was lost: it goes back.
"""

from __future__ import annotations

import logging
import threading

from tenure.core.messages import Reconciled
from tenure.core.records import RunId
from tenure.scheduling.agenda import Step
from tenure.scheduling.attempt import Attempt, AttemptPhase
from tenure.scheduling.clock_watch import ClockWatch
from tenure.scheduling.context import LoopContext
from tenure.scheduling.reporting import Reporter
from tenure.stores.ledger import Ledger
from tenure.util.clock import boottime
from tenure.util.plurals import counted

logger = logging.getLogger("tenure")

ANSWER_AGAIN = 0.02
"""Seconds until the next look at bodies that are about to be called, while a pause or a removal waits for them."""


class Reconciler:
    """The reconciliations of one node."""

    def __init__(self, context: LoopContext, clock_watch: ClockWatch, reporter: Reporter) -> None:
        self._context, self._clock_watch, self._reporter = context, clock_watch, reporter
        self.stop_recorded = threading.Event()
        """The ledger knows that this node was asked to stop."""

    def reconcile(self, ledger: Ledger) -> None:
        """Call the roll. Give strays back, drop what the ledger took back, pass on requests, and report lost runs."""
        context, executor = self._context, self._context.executor
        executor.end_abandoned()
        node, before, sent_at, stopping = context.identity, executor.in_hand, boottime(), context.resting
        call = ledger.reconcile(node, context.application, stopping=stopping)
        if stopping:
            self.stop_recorded.set()
        context.agenda.at(Step.RECONCILE, sent_at + context.every)
        self._clock_watch.observe(call.now, sent_at)
        if context.node.id != node:
            return
        held = {mine.id: mine for mine in call.held}
        strays = [(mine.id, mine.token) for mine in call.held if not _has(before, mine.id, mine.token)]
        if strays:
            logger.info(
                "the answer to a claim of %s was lost; giving them back",
                counted(len(strays), "run"),
                extra={"action": "put_back"},
            )
            ledger.put_back(strays)
        gone = [
            attempt
            for attempt in before.values()
            if not (mine := held.get(attempt.id)) or mine.token != attempt.token
            if attempt.phase is not AttemptPhase.ENDED and not attempt.control.completed
        ]
        executor.lose(gone, "the ledger took it back")
        for mine in call.held:
            if mine.asked_to_end:
                executor.ask_to_end(mine.id, mine.token, mine.asked_to_end)
        self.answer(ledger, call)
        for lost in call.lost:
            self._reporter.lost(lost)
        if call.owed:
            context.agenda.soon(Step.FOLLOW)
        if strays or call.lost:
            context.agenda.soon(Step.CLAIM)

    def answer(self, ledger: Ledger, call: Reconciled) -> None:
        """Answer an operation that paused or removed a job and waits until no run that was claimed before can begin.

        A body is called only if its attempt is QUEUED under the executor's mutex. What is QUEUED now ends under that
        mutex and goes back. What has been called is confirmed. So nothing of these jobs begins after the last answer.
        """
        asked = [(mine.id, mine.token) for mine in call.held if mine.must_answer]
        if not asked:
            return
        begun, about_to = self._context.executor.withhold(asked)
        if begun:
            ledger.note_begun(begun)
        if about_to:
            self._context.agenda.by(Step.RECONCILE, boottime() + ANSWER_AGAIN)


def _has(in_hand: dict[RunId, Attempt], run: RunId, token: str) -> bool:
    attempt = in_hand.get(run)
    return attempt is not None and attempt.token == token
