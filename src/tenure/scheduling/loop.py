"""The scheduler's loop: learn, reconcile, follow up, advance backfills, claim, plan, resolve missed due times, prune,
count, look for alerts.

Each step has a module, and the agenda says which is due. The node's control loop hosts it (`LoopService`): one thread,
one connection. Claims and reconciliations go over that connection one after the other, which `reconciler.py` relies on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tenure.errors import StoreError
from tenure.scheduling.agenda import Step
from tenure.scheduling.alert_look import AlertLook
from tenure.scheduling.alert_messages import AlertMessages
from tenure.scheduling.attempt import MakeRun
from tenure.scheduling.backfills import BackfillStep
from tenure.scheduling.claimer import Claimer
from tenure.scheduling.clock_watch import ClockWatch
from tenure.scheduling.context import LoopContext
from tenure.scheduling.deploy_check import DeployCheck
from tenure.scheduling.figures import FiguresCounter
from tenure.scheduling.followers import FollowUp
from tenure.scheduling.missed import MissedResolver
from tenure.scheduling.planner import Planner
from tenure.scheduling.reconciler import Reconciler
from tenure.scheduling.reporting import Reporter
from tenure.scheduling.retention import Retention
from tenure.stores import Session
from tenure.stores.ledger import Ledger
from tenure.stores.notices import JobsChanged, Notice, PeersChanged
from tenure.util.clock import boottime

logger = logging.getLogger("tenure")

LEARN_EVERY, LEARN_SOON = 10.0, 1.0
"""Seconds until the next LEARN step; the second value applies while jobs that other zone rules planned still have to be
replanned."""
RETRY_STEP = 5.0
"""Seconds until a step is tried again if it failed for a reason other than the connection."""
NOT_JOINED = 0.05
"""Seconds until the next look at a node that has no identity at the moment."""


class SchedulerLoop:
    """Called on the control loop's thread, except `rest`. Other threads reach it through its signals."""

    def __init__(self, context: LoopContext, reporter: Reporter, make_run: MakeRun) -> None:
        self._context, self._signals, self.agenda = context, context.signals, context.agenda
        self.planner = Planner(context)
        self.clock_watch = ClockWatch(context, self.planner)
        self.claimer = Claimer(context, self.clock_watch, make_run)
        self.reconciler = Reconciler(context, self.clock_watch, reporter)
        self.followers = FollowUp(context)
        self.backfills = BackfillStep(context)
        self.missed = MissedResolver(context, reporter)
        self.retention = Retention(context)
        self.figures = FiguresCounter(context)
        self.deploy_check = DeployCheck(context, reporter)
        self.alert_look, self.alert_messages = AlertLook(context), AlertMessages(context)
        self._turning = threading.Lock()

    def rest(self) -> None:
        """Plan and claim no more, not even in a turn that has begun. Reconciling goes on, for what still runs."""
        self._context.resting = True
        with self._turning:
            self.agenda.soon(Step.RECONCILE)  # to tell the ledger that this node was asked to stop
        self._context.node.wake()

    def heard(self, notice: Notice) -> None:
        """A node died or left, or jobs of an application changed."""
        if notice == PeersChanged():
            self.agenda.soon(Step.RECONCILE)
        elif notice == JobsChanged(self._context.application):
            self.agenda.soon(Step.LEARN, Step.PLAN, Step.CLAIM, Step.RECONCILE)

    def next_at(self) -> float:
        """When something is due."""
        signals = self._signals
        if signals.poked or signals.freed or signals.owed or signals.backfilled or signals.sent:
            return 0.0
        if self._context.resting:
            return min(self.agenda.due(Step.RECONCILE), self.agenda.due(Step.FOLLOW))
        return self.agenda.next_at()

    def turn(self, session: Session) -> None:
        """Do what is due."""
        with self._turning:
            self._turn(session.ledger)

    def _turn(self, ledger: Ledger) -> None:
        context = self._context
        if context.node.id != context.identity:
            self._change_identity()
        if not context.identity:
            for step in (Step.RECONCILE, Step.CLAIM, Step.PLAN):
                self.agenda.at(step, boottime() + NOT_JOINED)
            return
        self._take_signals()
        if context.resting:
            self.planner.forget(ledger)
        else:
            self._do(Step.LEARN, self._learn, ledger)
        self._do(Step.RECONCILE, self.reconciler.reconcile, ledger)  # before the claim, which takes what dead nodes had
        self._do(Step.FOLLOW, self.followers.follow_up, ledger)  # before the claim, too
        if not context.resting:
            self._do(Step.BACKFILL, self.backfills.advance, ledger)
            self._do(Step.CLAIM, self.claimer.claim, ledger)
            self._do(Step.PLAN, self.planner.plan, ledger)
            self._do(Step.RESOLVE_MISSED, self.missed.resolve, ledger)
            self._do(Step.PRUNE, self.retention.prune, ledger)
            self._do(Step.COUNT, self.figures.count, ledger)
            self._do(Step.REPLAN, self.planner.replan, ledger)
            self._do(Step.CHECK, self.deploy_check.check, ledger)
            self._do(Step.LOOK, self.alert_look.look, ledger)
        self._do(Step.TELL, self.alert_messages.tell, ledger)

    def _do(self, step: Step, work: Callable[[Ledger], None], ledger: Ledger) -> None:
        """Do a step if it is due. If it fails because of what it read, the other steps and this node's elections carry
        on."""
        if boottime() < self.agenda.due(step):
            return
        try:
            work(ledger)
        except (StoreError, OSError):
            raise  # the connection's fault: the control loop takes another one
        except Exception:
            logger.exception(
                "scheduler step %r failed; continuing", step.value, extra={"action": "scheduler_step_failed"}
            )
            self.agenda.at(step, boottime() + RETRY_STEP)

    def _take_signals(self) -> None:
        if self._signals.poked:
            self._signals.poked = False
            self.agenda.soon(Step.LEARN, Step.PLAN, Step.CLAIM)
        if self._signals.freed:
            self._signals.freed = False
            self.agenda.soon(Step.CLAIM)
        if self._signals.owed:
            self._signals.owed = False
            self.agenda.soon(Step.FOLLOW)
        if self._signals.backfilled:
            self._signals.backfilled = False
            self.backfills.hear()
        if self._signals.sent:
            self._signals.sent = False
            self.agenda.soon(Step.TELL)

    def _change_identity(self) -> None:
        """The old identity was declared dead: every attempt claimed under it is lost."""
        context = self._context
        context.identity = context.node.id
        old = [attempt for attempt in context.executor.in_hand.values() if attempt.node != context.identity]
        context.executor.lose(old, "its node was declared dead")
        self.agenda.soon(Step.LEARN, Step.RECONCILE, Step.CLAIM, Step.PLAN)

    def _learn(self, ledger: Ledger) -> None:
        """Learn which functions jobs name, which nodes have them, and what time it is."""
        context, sent_at = self._context, boottime()
        self.clock_watch.observe(ledger.now(), sent_at)
        functions = ledger.functions(context.application)
        context.registry.wanted(functions)
        self.planner.learn(ledger, context.identity, functions)
        self.deploy_check.learned(self.planner.live)
        self.agenda.at(Step.LEARN, boottime() + (LEARN_SOON if self.planner.learns_on else LEARN_EVERY))
