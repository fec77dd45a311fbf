"""The engine: one scheduler's part in the cluster, put together. The pacemaker and the campaign are the node's; the rest is started here.

    campaign's thread   conductor: plan, claim, roll call, settle ──▶ runner: threads, loop ──▶ completer's thread: endings

At most three connections: the pacemaker's, the campaign's, and the completer's while runs end.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tenure.cluster.node import Node, retire
from tenure.core.cluster import Cadence, NodeId
from tenure.core.database_clock import DatabaseClock
from tenure.core.keys import planner_of
from tenure.core.planning import MissedVerdict
from tenure.core.records import ClaimedRun, Ended, Ending, JobRow, JobState, LostRun, MissedJob, NodeFacts, RunState
from tenure.election import Election
from tenure.events import RunCancelled, RunEvent, RunFailed, RunLost, RunRetried, RunSkipped, RunSucceeded
from tenure.jobs import start_report
from tenure.jobs.functions import Registry
from tenure.jobs.listeners import Listeners
from tenure.run import Run
from tenure.scheduling.attempt import Attempt
from tenure.scheduling.completer import Completer, settled_as_said
from tenure.scheduling.executor import Executor
from tenure.scheduling.loop import SchedulerLoop
from tenure.stores import Store
from tenure.stores.ledger import JobChange
from tenure.stores.row_checks import printable
from tenure.triggers import tzdata_version, zone
from tenure.util.async_bridge import without_loop
from tenure.util.clock import boottime
from tenure.util.durations import readable
from tenure.util.failure_log import FailureLog
from tenure.util.instants import moment
from tenure.util.plurals import counted
from tenure.util.randomness import fraction
from tenure.util.system import need_posix
from tenure.util.version import __version__
from tenure.util.vital_thread import VitalThread, dead

logger = logging.getLogger("tenure")

SYNC_BATCH = 1000
SYNC_WITHIN = 10.0
"""How long it may take to bring so many jobs to the ledger."""
GOODBYE = 5.0
"""How long the last endings may take."""
LAST_WORDS = 1.0
"""How long what was told to end at the end of `drain` may take to do so."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What a scheduler decided once."""

    application: str
    tz: str
    cadence: Cadence
    capacity: int = 32
    queues: tuple[str, ...] | None = None
    release: int = 0
    label: str | None = None
    keep_for: float = 7 * 86400.0
    keep: int = 100
    keep_keys: float = 90 * 86400.0
    host_evidence: bool = True
    session_evidence: bool = True
    schema: str = "tenure"


@dataclass(frozen=True, slots=True)
class Health:
    """How this scheduler is, for a health check. `ok` is what a load balancer wants to know."""

    ok: bool
    started: bool
    label: str
    node: NodeId
    store: str
    application: str
    trusted_for: float
    """Seconds until this node's lease ends unless a beat is answered; negative when it has."""
    plans: bool
    """Whether this node is the planner."""
    running: int
    capacity: int
    overdue: tuple[str, ...]
    """Runs whose bodies go on beyond their timeout."""
    clock_doubted: bool
    problem: str
    waits_for: tuple[str, ...] = ()
    """Runs whose bodies have not returned since a stop. The node that was stopped goes on beating for them, and then leaves."""
    dead_threads: tuple[str, ...] = ()
    """Threads of tenure's that died. Not ok: restart the process."""
    notes: tuple[str, ...] = ()
    """What people should know and a load balancer need not: jobs that are planned by old zone rules, or that only a newer library can read."""


class _Parts(NamedTuple):
    """What takes part."""

    node: Node
    election: Election
    conductor: SchedulerLoop
    runner: Executor
    completer: Completer
    clock: DatabaseClock


class Engine:
    """Opens nothing before `start`."""

    def __init__(self, store: Store, registry: Registry, options: EngineOptions, listeners: Listeners) -> None:
        self._store, self._registry, self._options, self._listeners = store, registry, options, listeners
        self._tz = zone(options.tz)
        self._pid, self._label = 0, ""
        self._parts: _Parts | None = None
        self._leaving: _Parts | None = None
        self._gone = threading.Event()
        """What was started has left."""
        self._stopping = threading.RLock()
        """One thread stops it; a signal handler on that very thread may do so once more."""

    @property
    def started(self) -> bool:
        """Taking part, in this very process."""
        return self._here is not None

    @property
    def _here(self) -> _Parts | None:
        """What takes part in this very process. Take it once: a stop on another thread takes it away."""
        return self._parts if self._pid == os.getpid() else None

    @property
    def label(self) -> str:
        """This node's name for people, since it was started."""
        return self._label

    @property
    def plans(self) -> bool:
        """Whether this node is the planner."""
        parts = self._here
        return parts is not None and parts.election.is_leader

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The runs that keep this node after its stop."""
        leaving = self._leaving
        if leaving is None or self._pid != os.getpid():
            return ()
        return tuple(f"{attempt.run.job} {attempt.run.key}" for attempt in leaving.runner.in_hand.values())

    def start(self, changes: Sequence[JobChange], loop: asyncio.AbstractEventLoop | None = None) -> list[JobRow]:
        """Bring the jobs to the ledger and take part. Raises what is wrong; from then on failures heal by themselves."""
        options = self._options
        if options.capacity:
            need_posix()
        self._store.prepare()
        jobs = self._sync(changes)
        if options.capacity == 0 or self.started:
            return jobs
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
        node, clock = election.node, DatabaseClock()
        self._label = node.label
        completer = Completer(
            self._store,
            label=node.label,
            timeout=options.cadence.attempt_timeout,
            quiet=FailureLog(logger, self._store.shown),
            pressed=lambda: conductor.claimer.pressed,
            told=lambda attempt, ending, answer: acknowledge(attempt, ending, answer),  # noqa: PLW0108 - it is made below
        )
        runner = Executor(
            options.capacity,
            label=node.label,
            trusted=lambda attempt: node.id == attempt.node and boottime() < node.lease_until,
            ledger_time=clock.now,
            chance=fraction,
            ended=completer.put,
            freed=lambda: conductor.freed(),  # noqa: PLW0108 - it is made below
            lock_fileno=lambda: node.lock_fileno,
        )
        conductor = SchedulerLoop(
            node,
            runner,
            self._registry,
            clock,
            application=options.application,
            every=options.cadence.heartbeat_every,
            queues=options.queues,
            keep=(options.keep_for, options.keep, options.keep_keys),
            plans=lambda: election.is_leader,
            facts=self._facts,
            attempt=lambda claimed, token, as_: self._attempt_on(node, claimed, token, as_),
            lost=self._lost,
            missed=self._missed,
        )

        def acknowledge(attempt: Attempt, ending: Ending, answer: Ended) -> None:
            runner.acknowledged(attempt)
            if answer.wakes or attempt.run.completed:  # who completes in its own transaction wakes nobody
                conductor.poke()
            self._told(attempt, ending, answer)

        runner.use(loop)
        self._pid, self._parts = os.getpid(), _Parts(node, election, conductor, runner, completer, clock)
        try:
            completer.start()
            election.start()
            node.serve(conductor)
        except BaseException:
            self._parts = None
            completer.stop(GOODBYE)
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

    def stop(self, drain: float) -> bool:
        """Claim no more, let others plan, wait for what runs, then leave. True if everything had ended in time.

        What does not end keeps its node: it beats for that alone, so that no other attempt begins, and leaves when it has ended.
        If another thread stops it already, the less patient of the two decides how long is waited; both return when it has stopped.
        """
        if self._pid != os.getpid():
            self._parts = None
            return True
        if not self._stopping.acquire(blocking=False):
            parts = self._parts
            if parts is not None and not parts.runner.drain(drain):
                parts.runner.hurry()
            self._stopping.acquire()
        try:
            return self._leaving is None if self._parts is None else self._stop(self._parts, drain)
        finally:
            self._stopping.release()

    def _stop(self, parts: _Parts, drain: float) -> bool:
        began_at = boottime()
        parts.runner.stopping = True
        parts.conductor.rest()
        parts.runner.give_back(0.0)
        parts.runner.end_abandoned()
        parts.election.bar()
        drained = parts.runner.drain(drain)
        if not drained:
            waited, late = boottime() - began_at, len(parts.runner.running)
            parts.runner.tell_all("its node stops")
            parts.runner.hear_last_words(LAST_WORDS)
            logger.warning(
                "%s had not ended after %s and %s told to end",
                counted(late, "run"),
                readable(waited),
                "was" if late == 1 else "were",
                extra={"action": "not_drained"},
            )
        ended = not parts.runner.running
        told = parts.completer.stop(GOODBYE) if ended else parts.runner.told(GOODBYE)
        if not ended:
            parts.conductor.reconciler.stop_recorded.wait(GOODBYE)  # the process may end when this returns
        if self._parts is None:  # a signal handler has stopped it meanwhile
            return self._leaving is None
        self._parts, self._leaving = None, parts
        if ended and told:
            self._leave()
        else:
            self._leave_later(parts)
        return drained and told

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run coroutines on this loop, if the one they had does not run any more."""
        parts = self._here
        if parts is not None and parts.runner.no_loop():
            parts.runner.use(loop)
            parts.conductor.poke()

    def _leave_later(self, parts: _Parts) -> None:
        """Go on beating for what is in hand. A start from now on takes another node."""
        retire(parts.node)
        logger.error(
            "this process was asked to stop and waits for %s; no other attempt begins before that ends, or before this process does",
            ", ".join(self.waits_for) or "the last answer of the ledger",
            extra={"action": "leaves_later"},
        )

        def leave() -> None:
            parts.runner.wait_until_idle()
            parts.completer.stop(None)
            self._leave()
            self._listeners.stop(GOODBYE)
            logger.info("what was waited for has ended; the node has left", extra={"action": "left_later"})

        try:
            VitalThread(f"tenure leaves {parts.node.label}", leave).start()
        except RuntimeError:
            logger.exception("the node stays until this process ends", extra={"action": "cannot_leave"})

    def _leave(self) -> None:
        parts = self._leaving
        if parts is not None:
            parts.node.unserve(parts.conductor)
            parts.election.stop()
            parts.runner.stop()
        self._leaving = None
        self._gone.set()

    def has_left(self, patience: float) -> bool:
        """After a stop: whether its node has left; wait so long for that."""
        return self._gone.wait(patience) or self._pid != os.getpid()

    def stop_now(self) -> None:
        """Do not wait for what runs: tell it, and leave."""
        parts = self._here
        if parts is not None:
            parts.runner.hurry()

    def poke(self) -> None:
        """Something was asked for or changed: look at once."""
        parts = self._here
        if parts is not None:
            parts.conductor.poke()

    def health(self) -> Health:
        """How it is."""
        options, parts = self._options, self._here
        if parts is None:
            return Health(
                ok=False,
                started=False,
                label=options.label or "",
                node="",
                store=self._store.shown,
                application=options.application,
                trusted_for=0.0,
                plans=False,
                running=0,
                capacity=options.capacity,
                overdue=(),
                clock_doubted=False,
                problem="not started",
                waits_for=self.waits_for,
            )
        node, election, conductor, runner, completer, clock = parts
        left = node.lease_until - boottime()
        problem = "" if left > 0 else f"no answer from {self._store.shown} for too long"
        if not problem and (stands := runner.no_loop()) and (coroutines := self._registry.coroutines):
            problem = without_loop(stands, coroutines)
        fallen = (*node.dead_threads, *dead(completer), *runner.dead_threads, *self._listeners.dead_threads)
        if fallen:
            problem = f"a thread of tenure died: {', '.join(fallen)}. Restart this process."
        return Health(
            ok=not problem,
            started=True,
            label=node.label,
            node=node.id,
            store=self._store.shown,
            application=options.application,
            trusted_for=left,
            plans=election.is_leader,
            running=runner.busy,
            capacity=options.capacity,
            overdue=tuple(f"{attempt.run.job} {attempt.run.key}" for attempt in runner.overdue()),
            clock_doubted=clock.doubts,
            problem=problem,
            dead_threads=fallen,
            notes=conductor.planner.notes,
        )

    def _sync(self, changes: Sequence[JobChange]) -> list[JobRow]:
        options = self._options
        session = self._store.session("sync", SYNC_WITHIN)
        try:
            jobs: list[JobRow] = []
            for first in range(0, len(changes), SYNC_BATCH):
                batch = changes[first : first + SYNC_BATCH]
                synced = session.ledger.sync(options.application, options.release, batch)
                brought = {change.name: change.spec for change in batch if change.spec is not None}
                start_report.tell(session.ledger, synced, brought, options.tz)
                jobs += [one.row for one in synced if one.row.state is not JobState.REMOVED]
            return jobs
        finally:
            session.close()

    def _facts(self, node: NodeId) -> NodeFacts:
        options = self._options
        return NodeFacts(
            node,
            options.application,
            frozenset(self._registry.names),
            options.queues,
            options.capacity,
            options.release,
            __version__,
            tzdata_version(),
        )

    # What the parts say

    def _attempt_on(self, mine: Node, claimed: ClaimedRun, token: str, node: NodeId) -> Attempt:
        function = self._registry.get(claimed.function)
        assert function is not None  # noqa: S101 - the conductor put strangers back
        run = Run(
            claimed,
            token,
            tz=self._options.tz,
            schema=self._options.schema,
            until=lambda: mine.lease_until if mine.id == node else -math.inf,
        )
        return Attempt(claimed, token, node, function=function, run=run, at=boottime())

    def _told(self, attempt: Attempt, ending: Ending, answer: Ended) -> None:
        """What the ledger said to an ending."""
        state = answer.state
        if not answer.accepted and not settled_as_said(attempt, ending, answer):
            logger.warning(
                "run %s of %r: its ending as %s came too late, the ledger has it as %s",
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
            return  # it never began, and is somebody else's or, if its job was paused, nobody's
        kind = _KINDS.get(state)
        if state is not RunState.SUCCEEDED and state is not RunState.CANCELLED:
            last = printable(ending.error.splitlines()[-1]) if ending.error else str(state)
            logger.warning(
                "run %s of %r, attempt %d: %s",
                printable(attempt.run.key),
                attempt.run.job,
                attempt.run.attempt,
                f"{last}; {_NEXT.get(state, f'it is {state}')}" if ending.interrupted else last,
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
                    label=self.label,
                    duration=took,
                    error="" if state is RunState.SUCCEEDED else ending.error,
                )
            )

    def _lost(self, lost: LostRun) -> None:
        logger.warning(
            "run %s of %r, attempt %d: %s; %s",
            printable(lost.key),
            lost.job,
            lost.attempt,
            printable(lost.reason),
            _NEXT.get(lost.state, f"it is {lost.state}"),
            extra={"action": "run_lost"},
        )
        kind = RunRetried if lost.state is RunState.PENDING else RunLost
        if self._listeners.wants(kind):
            when = moment(lost.scheduled_for, self._tz)
            self._listeners.tell(
                kind(lost.job, lost.id, lost.key, when, lost.attempt, label=lost.node, error=lost.reason)
            )

    def _missed(self, job: MissedJob, verdict: MissedVerdict) -> None:
        logger.warning(
            "job %r has missed %s; made up for: %d",
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


_NEXT = {RunState.PENDING: "it is tried again"}
_KINDS: dict[RunState, type[RunEvent]] = {
    RunState.SUCCEEDED: RunSucceeded,
    RunState.FAILED: RunFailed,
    RunState.PENDING: RunRetried,
    RunState.CANCELLED: RunCancelled,
    RunState.LOST: RunLost,
}
