"""Puts one scheduler's part in the cluster together, starts it and stops it.

    control loop's thread            worker threads, event loop      completer's thread
    loop: reconcile, claim, plan ──▶ executor: bodies            ──▶ completer: endings

The heartbeat and the control loop belong to the node. At most three connections: the heartbeat's, the control loop's,
and the completer's while runs end.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tenure.cluster.node import Node, retire
from tenure.core.cluster import NodeId
from tenure.core.database_clock import DatabaseClock
from tenure.core.keys import planner_of
from tenure.core.messages import ClaimedRun, JobChange
from tenure.core.records import JobRow, JobState
from tenure.election import Election
from tenure.jobs.definition_news import DefinitionNews
from tenure.jobs.functions import Registry
from tenure.jobs.listeners import Listeners
from tenure.jobs.operations import refuse_parent
from tenure.jobs.run_log import AttemptLog
from tenure.jobs.start_report import StartReport
from tenure.run import Run, RunControl
from tenure.scheduling.alert_sender import AlertSender
from tenure.scheduling.alert_watch import AlertWatch
from tenure.scheduling.check_in_sender import CheckInSender
from tenure.scheduling.completer import Completer
from tenure.scheduling.context import EndingQueue, LoopContext, LoopSignals
from tenure.scheduling.engine_options import EngineOptions
from tenure.scheduling.executor import Executor
from tenure.scheduling.health import Health, health_of, not_started
from tenure.scheduling.loop import SchedulerLoop
from tenure.scheduling.reporting import Reporter
from tenure.stores import Store
from tenure.util.clock import boottime
from tenure.util.durations import readable
from tenure.util.plurals import counted
from tenure.util.system import need_posix
from tenure.util.vital_thread import VitalThread

logger = logging.getLogger("tenure")

SYNC_BATCH, SYNC_WITHIN = 1000, 10.0
"""How many jobs are written to the ledger at once, and the seconds that this may take."""
GOODBYE = 5.0
"""Seconds that the last endings may take."""
LAST_WORDS = 1.0
"""Seconds that bodies have to end after they were told to at the end of `drain`."""
LAST_SENDING = 2.0
"""Seconds that an alert on its way to a sink, and the last check-ins, may take at a stop."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a started engine consists of."""

    node: Node
    election: Election
    clock: DatabaseClock
    signals: LoopSignals
    executor: Executor
    completer: Completer
    loop: SchedulerLoop
    alerts: AlertWatch


class Engine:
    """One scheduler's part in the cluster. Opens nothing before `start`."""

    def __init__(self, store: Store, registry: Registry, options: EngineOptions, listeners: Listeners) -> None:
        self._store, self._registry, self._options, self._listeners = store, registry, options, listeners
        self._pid = 0
        self._parts: Parts | None = None
        self._leaving: Parts | None = None
        self._check_ins: CheckInSender | None = None
        self._gone = threading.Event()
        """The node has left after a stop."""
        self._stopping = threading.RLock()
        """One thread stops it. A signal handler on that very thread may do so once more."""

    @property
    def started(self) -> bool:
        """Whether this very process takes part."""
        return self._here is not None

    @property
    def _here(self) -> Parts | None:
        """The parts, if this very process started them. Read it once: a stop on another thread takes them away."""
        return self._parts if self._pid == os.getpid() else None

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The runs that keep this node after its stop."""
        leaving = self._leaving
        if leaving is None or self._pid != os.getpid():
            return ()
        return tuple(f"{attempt.run.job} {attempt.run.key}" for attempt in leaving.executor.in_hand.values())

    def start(self, changes: Sequence[JobChange], loop: asyncio.AbstractEventLoop | None = None) -> list[JobRow]:
        """Write the jobs to the ledger and take part. Raises what is wrong; later failures heal by themselves."""
        options = self._options
        if options.capacity:
            need_posix()
        self._store.prepare()
        jobs = sync(self._store, options, changes, self._registry.names)
        if options.capacity == 0 or self.started:
            return jobs
        parts = self._assemble()
        parts.executor.use(loop)
        self._pid, self._parts, self._check_ins = os.getpid(), parts, parts.alerts.check_ins
        try:
            parts.completer.start()
            parts.election.start()
            parts.node.serve(parts.loop)
            parts.alerts.check_ins.listen(self._listeners)
            parts.alerts.start()
        except BaseException:
            self._parts = None
            parts.completer.stop(GOODBYE)
            raise
        logger.info(
            "scheduler %r started on %s: %s%s",
            options.application,
            self._store.shown,
            f"{counted(len(jobs), 'job')}, " if jobs else "",  # the drop-in for APScheduler brings its jobs before
            counted(options.capacity, "slot"),
            extra={"action": "scheduler_started"},
        )
        return jobs

    def _assemble(self) -> Parts:
        options = self._options
        election = Election(
            self._store,
            planner_of(options.application),
            label=options.label,
            ttl=options.cadence.ttl,
            heartbeat_every=options.cadence.heartbeat_every,
            attempt_timeout=options.cadence.attempt_timeout,
            fenced=True,
            host_evidence=options.host_evidence,
            session_evidence=options.session_evidence,
            schema=options.schema,
        )
        node, clock, endings = election.node, DatabaseClock(), EndingQueue()
        for watcher in self._listeners.of_beats:
            node.watch_beats(watcher)
        signals, reporter = LoopSignals(node), Reporter(self._listeners, node.label, options.tz)
        executor = Executor(node, clock, options.capacity, endings, signals)
        within = options.cadence.attempt_timeout
        completer = Completer(
            self._store, endings, executor, signals, reporter, clock=clock, label=node.label, timeout=within
        )
        told, application = options.alerts, options.application
        sender = AlertSender(told.sinks, application, node.label, signals.note_sent)
        context = LoopContext(node, election, executor, self._registry, clock, options, signals, sender=sender)
        loop = SchedulerLoop(context, reporter, functools.partial(_make_run, node, options, endings.logs.note))
        alerts = AlertWatch(
            sender,
            CheckInSender(told.check_ins, application, node.label, lambda: executor.in_hand),
            told.pings,
            label=node.label,
            plans=lambda: election.is_leader,
            answers=lambda: loop.alert_messages.answers,
            problem=lambda: node.problem,
        )
        return Parts(node, election, clock, signals, executor, completer, loop, alerts)

    def stop(self, drain: float) -> bool:
        """Claim no more, let others plan, wait for what runs, then leave. True if everything had ended in time.

        A body that does not end keeps its node: the node renews its lease for that alone, so that no other attempt
        begins, and leaves when the body has ended. If another thread is stopping it already, the less patient of the
        two decides how long both wait.
        """
        if self._pid != os.getpid():
            self._parts = None
            return True
        if not self._stopping.acquire(blocking=False):
            parts = self._parts
            if parts is not None and not parts.executor.drain(drain):
                parts.executor.hurry()
            self._stopping.acquire()
        try:
            return self._leaving is None if self._parts is None else self._stop(self._parts, drain)
        finally:
            self._stopping.release()

    def _stop(self, parts: Parts, drain: float) -> bool:
        began_at = boottime()
        parts.executor.stopping = True
        parts.loop.rest()
        parts.executor.give_back(0.0)
        parts.executor.end_abandoned()
        parts.election.withdraw()
        drained = parts.executor.drain(drain)
        if not drained:
            waited, late = boottime() - began_at, len(parts.executor.running)
            parts.executor.tell_all("its node stops")
            parts.executor.hear_last_words(LAST_WORDS)
            logger.warning(
                "%s had not ended after %s and %s told to end",
                counted(late, "run"),
                readable(waited),
                "was" if late == 1 else "were",
                extra={"action": "not_drained"},
            )
        ended = not parts.executor.running
        told = parts.completer.stop(GOODBYE) if ended else parts.executor.told(GOODBYE)
        if not ended:
            parts.loop.reconciler.stop_recorded.wait(GOODBYE)  # the process may end when this returns
        parts.alerts.stop()
        parts.alerts.sender.stop(LAST_SENDING)
        if self._parts is None:  # a signal handler has stopped it meanwhile
            return self._leaving is None
        self._parts, self._leaving = None, parts
        if ended and told:
            self._leave()
        else:
            self._leave_later(parts)
        return drained and told

    def forked(self) -> None:
        """In a forked child: this engine stayed in the parent, and hears of no run of the child."""
        if self._check_ins is not None:
            self._check_ins.unlisten(self._listeners)

    def last_check_ins(self) -> None:
        """After the listeners have heard how the last runs ended."""
        if self._check_ins is not None and not self.waits_for:
            self._check_ins.unlisten(self._listeners)
            self._check_ins.stop(LAST_SENDING)

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run coroutines on this loop, if their old one does not run any more."""
        parts = self._here
        if parts is not None and parts.executor.no_loop():
            parts.executor.use(loop)
            parts.signals.poke()

    def _leave_later(self, parts: Parts) -> None:
        """Keep the lease for the attempts in hand. A later start takes another node."""
        retire(parts.node)
        logger.error(
            "this process was asked to stop and waits for %s; no other attempt begins until that or this process ends",
            ", ".join(self.waits_for) or "the last answer of the ledger",
            extra={"action": "leaves_later"},
        )

        def leave() -> None:
            parts.executor.wait_until_idle()
            parts.completer.stop(None)
            self._leave()
            self._listeners.stop(GOODBYE)
            self.last_check_ins()
            logger.info("the last body has ended; the node has left", extra={"action": "left_later"})

        try:
            VitalThread(f"tenure leaves {parts.node.label}", leave).start()
        except RuntimeError:
            logger.exception(
                "the node cannot leave and stays until this process ends", extra={"action": "cannot_leave"}
            )

    def _leave(self) -> None:
        parts = self._leaving
        if parts is not None:
            parts.node.unserve(parts.loop)
            parts.election.stop()
            parts.executor.stop()
        self._leaving = None
        self._gone.set()

    def has_left(self, patience: float) -> bool:
        """After a stop: wait this long at most for the node to leave. True if it has left."""
        return self._gone.wait(patience) or self._pid != os.getpid()

    def stop_now(self) -> None:
        """Do not wait for bodies: tell them to end, and leave."""
        parts = self._here
        if parts is not None:
            parts.executor.hurry()

    def poke(self) -> None:
        """Something was requested or changed: look at once."""
        parts = self._here
        if parts is not None:
            parts.signals.poke()

    def health(self) -> Health:
        """How this scheduler is."""
        options, parts = self._options, self._here
        if parts is None:
            return not_started(self._store, options, self.waits_for)
        return health_of(parts, self._store, options, self._registry, self._listeners)


def sync(
    store: Store, options: EngineOptions, changes: Sequence[JobChange], functions: Collection[str] = ()
) -> list[JobRow]:
    """Write the jobs of a scheduler to the ledger, and log what that changes. Returns those that are there now.

    `functions` are those that this process has, to tell what is gone from the code.
    """
    session = store.session("sync", SYNC_WITHIN)
    try:
        jobs: list[JobRow] = []
        report, ledger = StartReport(), session.ledger
        news = DefinitionNews(ledger, options.application, options.release, options.tz)
        here = {change.name: change.spec for change in changes if change.spec is not None}
        for spec in here.values():
            refuse_parent(ledger, spec, here)
        for first in range(0, len(changes), SYNC_BATCH):
            batch = changes[first : first + SYNC_BATCH]
            synced = ledger.sync(options.application, options.release, batch)
            brought = {change.name: change.spec for change in batch if change.spec is not None}
            report.tell(news.of(synced, brought))
            jobs += [one.row for one in synced if one.row.state is not JobState.REMOVED]
        if changes:
            report.tell(news.gone(functions))
        report.tell(news.pools(change.spec for change in changes if change.spec is not None))
        report.close()
        return jobs
    finally:
        session.close()


def _make_run(  # noqa: PLR0917 - the first three are the engine's, the others those of MakeRun
    node: Node,
    options: EngineOptions,
    note: Callable[[AttemptLog], None],
    claimed: ClaimedRun,
    token: str,
    identity: NodeId,
) -> Run:
    return Run(
        RunControl(
            claimed,
            token,
            tz=options.tz,
            schema=options.schema,
            until=lambda: node.lease_until if node.id == identity else -math.inf,
            note=note,
        )
    )
